"""Stories with questions -> rows of text: the format of the bAbI tasks, JSON Lines, or stories of the package's own.

The format of bAbI (Weston et al. 2015, arXiv:1502.05698): numbered lines, 1 begins a new story; a question is followed
by a tab, its answer, a tab and the numbers of the lines that it rests on.

    1 Mary moved to the bathroom.
    2 Where is Mary?	bathroom	1
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cached_property
from glob import has_magic
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from regard.data import stories
from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import Part
from regard.data.documents import FILES
from regard.data.files import TextFile, problem_with
from regard.data.formats import objects_in
from regard.data.readers import Reader
from regard.data.rows import Row, text_of, value_in
from regard.data.sentences import split_sentences
from regard.data.stories import About, Asked, StoryCorpus
from regard.errors import DataError

KEPT = 1000
"""Sentences of a story that are kept for a question: the last ones, as many as the largest memory holds."""
OPENING = 20
"""Sentences of a story that tell it from others."""
UNKNOWN = "-"
"""Stands for supporting facts that are not known."""
_LINE = re.compile(r"\s*(\d{1,9})\s+(\S.*)")
_PART = re.compile(r"[._-](train|training|valid|validation|dev|test)$")


class Stories(Corpus):
    """Stories with questions about them; each file is a task of its own, whose error is measured apart."""

    file: str | None = None
    """A file of bAbI's numbered lines (.txt), or .jsonl with a story, a question and an answer a line; plain or as .gz,
    .xz or .zst. A pattern such as `babi/*_train.txt` names several files: a task each."""
    story: str = "story"
    """The key of the story in .jsonl: a text, or a list of sentences."""
    question: str = "question"
    """The key of the question there."""
    answer: str = "answer"
    """The key of the answer there: one word, or several with commas and no spaces between them."""
    facts: str = "facts"
    """The key of the supporting facts there, which need not be: the numbers, from 1, of the sentences."""
    corpus: StoryCorpus | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Stories that the package writes, in English or Korean: who is where, who has what."""
    about: About | None = None
    """What the questions of these are about: where someone is, where a thing is, who has it, how many things someone
    has, or whether someone is somewhere. Default: all five."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {}

    @model_validator(mode="after")
    def _file_or_corpus(self) -> Stories:
        for name in ("header", "dataset", "prefix"):
            if getattr(self, name):
                raise ValueError(f"stories have no {name!r}: give 'file' or 'corpus'")
        if self.file is None and self.corpus is None:
            raise ValueError("name the stories: 'file', a .txt in the format of bAbI or a .jsonl, or 'corpus'")
        if self.about is not None and self.corpus is None:
            raise ValueError("'about' needs 'corpus: stories-en' or 'stories-ko' beside it")
        return self


class StoryData(Splits[Stories]):
    """The stories of a run."""

    UNIT: ClassVar[str] = "questions"

    train: Annotated[list[Stories], BeforeValidator(as_list), Field(min_length=1)]
    """One corpus, or a list of them that are mixed by weight."""
    validation: HeldOut[Stories] = Split(split=0.1)
    """Questions to choose the best checkpoint, and the best restart, with. A share is drawn by whole stories."""
    test: HeldOut[Stories] | None = None
    """Questions to measure with at the end."""
    max_characters: int = Field(1 << 20, ge=1)
    """A story longer than this is taken for a broken file."""


def open_stories(corpus: Stories, base: Path, part: Part = "train") -> StoryReader:
    """A reader of the questions; names of files are relative to `base`."""
    reader = StoryReader(corpus, base, part)
    if corpus.file is not None and not reader.files:
        raise DataError("no file has a name of this pattern", where=corpus.file, hint="for example babi/*_train.txt")
    problems = [problem for file in reader.files if (problem := problem_with(file))]
    if problems:
        raise DataError(problems=problems)
    for file in reader.files:
        if file.suffixes[0] not in _FORMATS:
            hint = ".txt: bAbI's numbered lines; .jsonl: an object a line with story, question and answer"
            what = f"stories cannot be read from a {file.suffixes[0] or 'file without suffix'}"
            raise DataError(what, where=file.name, hint=hint)
    return reader


class StoryReader(Reader):
    """The questions of a corpus as rows: the story's opening, its sentences one a line, question, answer and facts."""

    corpus: Stories

    @property
    def columns(self) -> tuple[str, ...]:
        return ("opening", "story", "question", "answer", "facts")

    @cached_property
    def files(self) -> tuple[TextFile, ...]:
        name = self.corpus.file
        if name is None:
            return ()
        if not has_magic(name):
            return (TextFile(name, self.base / name),)
        anchor = PurePath(name).anchor
        found = (Path(anchor) if anchor else self.base).glob(str(PurePath(name).relative_to(anchor)))
        named = (str(path if anchor else path.relative_to(self.base)) for path in sorted(found, key=_by_number))
        return tuple(TextFile(one, self.base / one) for one in named)

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the files are called, without `_train` and suffixes; or what the questions are about."""
        if self.corpus.corpus is not None:
            return (f"{self.corpus.corpus}:{self.corpus.about}" if self.corpus.about else self.corpus.corpus,)
        return tuple(_PART.sub("", PurePath(file.name).name.partition(".")[0]) for file in self.files)

    def task_of(self, line: int) -> int:
        """The number of the task that a row belongs to."""
        return line // FILES

    def _rows(self) -> Iterator[Row]:
        corpus = self.corpus
        if corpus.corpus is not None:
            drawn = stories.generate(corpus.corpus, corpus.about, corpus.size, corpus.seed, self.part)
            yield from (_row(0, asked) for asked in drawn)
        for number, file in enumerate(self.files):
            yield from (_row(number, asked) for asked in _FORMATS[file.suffixes[0]](file, corpus))

    def where(self, line: int, column: str | None = None) -> str:
        if self.corpus.corpus is not None:
            return f"corpus {self.corpus.corpus}:{line}"
        if line < 1:
            return str(self.corpus.file)
        return self.files[line // FILES].where(line % FILES)

    def fingerprint(self) -> str:
        corpus = self.corpus
        settings: list[Any] = ["stories", corpus.size, corpus.story, corpus.question, corpus.answer, corpus.facts]
        if corpus.corpus is not None:
            settings += [corpus.corpus, corpus.about, corpus.seed, self.part, stories.VERSION]
        settings += [[file.name, file.suffixes, file.digest()] for file in self.files]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()


def _by_number(path: Path) -> list[tuple[int, str]]:
    """qa2 before qa10."""
    return [(int(digits or 0), letters) for digits, letters in re.findall(r"(\d*)(\D*)", path.name)]


def _row(file: int, asked: Asked) -> Row:
    facts = UNKNOWN if not asked.facts else " ".join(map(str, asked.facts))
    return Row(file * FILES + asked.line, (asked.opening, "\n".join(asked.story), asked.question, asked.answer, facts))


def facts_in(text: str) -> tuple[int, ...] | None:
    """The facts of a row."""
    return None if text == UNKNOWN else tuple(map(int, text.split()))


def _asked(
    line: int, opening: str, story: list[str], question: str, answer: str, facts: tuple[int, ...] | None
) -> Asked:
    """With the last sentences of the story, and the facts that are among them."""
    gone = max(0, len(story) - KEPT)
    kept = None if facts is None else tuple(fact - gone for fact in facts if fact >= gone)
    return Asked(line, opening, tuple(story[gone:]), question, answer, kept)


def _one_word(answer: str, where: str) -> str:
    if not answer:
        raise DataError("the question has no answer", where=where, hint="a word is expected after the question")
    if len(answer.split()) > 1:
        hint = "an answer is one word; several go with commas and no spaces: apple,milk"
        raise DataError(f"the answer {answer!r} has {len(answer.split())} words", where=where, hint=hint)
    return answer


def babi_questions(file: TextFile, corpus: Stories) -> Iterator[Asked]:
    """The questions of a file of numbered lines."""
    story: list[str] = []
    numbers: dict[int, int] = {}
    opening, asked, begun, before = "", True, 0, 0
    for line, text in enumerate(file.lines(), 1):
        if not text.strip():
            continue
        number, said = _numbered(text, before, file.where(line))
        before = number
        if number == 1:
            _refuse_unasked(asked, file.where(begun))
            story, numbers, opening, asked, begun = [], {}, "", False, line
        if "\t" not in said:
            _refuse_open_question(said, file.where(line))
            numbers[number] = len(story)
            story.append(" ".join(said.split()))
            continue
        if not story:
            raise DataError(
                "there is no sentence before the question", where=file.where(line), hint="tell the story first"
            )
        asked, opening = True, opening or "\n".join(story[:OPENING])
        yield _asked(line, opening, story, *_question(said, numbers, file.where(line)))
    _refuse_unasked(asked, file.where(begun))


def _numbered(text: str, before: int, where: str) -> tuple[int, str]:
    found = _LINE.fullmatch(text)
    if found is None:
        hint = "expected is bAbI's format: 1 Mary moved to the bathroom."
        raise DataError("the line does not begin with a number and a text", where=where, hint=hint)
    number = int(found[1])
    if number not in (1, before + 1):
        hint = "lines of a story are numbered one by one, and 1 begins a new story"
        raise DataError(f"line number {number} follows {before}", where=where, hint=hint)
    return number, found[2]


def _refuse_unasked(asked: bool, where: str) -> None:
    if not asked:
        raise DataError("the story has no question", where=where, hint="a question line: 3 Where is Mary?\tbathroom\t1")


def _refuse_open_question(said: str, where: str) -> None:
    if said.rstrip().endswith(("?", "？")):
        hint = "a tab and the answer follow a question: 3 Where is Mary?\tbathroom\t1"
        raise DataError("the question has no answer", where=where, hint=hint)


def _question(said: str, numbers: dict[int, int], where: str) -> tuple[str, str, tuple[int, ...] | None]:
    """A question line after its number: question, answer, and the sentences that it rests on."""
    fields = [one.strip() for one in said.split("\t")]
    if len(fields) > 3 or not fields[0]:
        hint = "expected are a question, its answer and the numbers of its facts, with a tab between each two"
        raise DataError(f"the question line has {len(fields)} fields", where=where, hint=hint)
    answer, named = _one_word(fields[1], where), fields[2].split() if len(fields) > 2 else []
    for one in named:
        if not one.isdecimal() or int(one) not in numbers:
            hint = f"the sentences before the question are numbered {', '.join(map(str, [*numbers][-10:]))}"
            raise DataError(f"the supporting fact {one!r} is no sentence before it", where=where, hint=hint)
    return " ".join(fields[0].split()), answer, tuple(numbers[int(one)] for one in named) or None


def jsonl_questions(file: TextFile, corpus: Stories) -> Iterator[Asked]:
    """The questions of a file with an object a line."""
    for line, example in objects_in(file):
        if example is None:
            continue
        where = file.where(line)
        story = _sentences(value_in(example, corpus.story, where), corpus.story, where)
        question = " ".join(text_of(value_in(example, corpus.question, where), corpus.question, where).split())
        if not story or not question:
            raise DataError(
                f"the {'question' if story else 'story'} is empty", where=where, hint="fill it, or drop the line"
            )
        answer = _one_word(text_of(value_in(example, corpus.answer, where), corpus.answer, where).strip(), where)
        facts = _numbers(example.get(corpus.facts), len(story), where)
        yield _asked(line, "\n".join(story[:OPENING]), story, question, answer, facts)


def _sentences(value: Any, key: str, where: str) -> list[str]:
    if isinstance(value, list):
        return [" ".join(text_of(one, key, where).split()) for one in value if str(one).strip()]
    return split_sentences(" ".join(text_of(value, key, where).split()))


def _numbers(value: Any, sentences: int, where: str) -> tuple[int, ...] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(one, int) and 1 <= one <= sentences for one in value):
        hint = f"a list of numbers of sentences, from 1 to {sentences}"
        raise DataError(f"the facts are {json.dumps(value)[:80]}", where=where, hint=hint)
    return tuple(one - 1 for one in value)


_FORMATS = {".txt": babi_questions, ".jsonl": jsonl_questions}
"""How stories are read, by the suffix."""
