"""Stories with questions -> rows of text: the format of the bAbI tasks, JSON Lines, or stories of the package.

The format of bAbI (Weston et al. 2015, arXiv:1502.05698): numbered lines, 1 begins a new story; a question is followed
by a tab, its answer, a tab and the numbers of the lines that it rests on.

    1 Mary moved to the bathroom.
    2 Where is Mary?	bathroom	1
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import Part, generate
from regard.data.formats import Row, object_in, text_of, value_in
from regard.errors import DataError, Problem
from regard.text.files import TextFile
from regard.text.normalise import fold_white_space, split_sentences

KEPT = 1000
"""Sentences of a story that are kept for a question: the last ones, as many as the largest memory holds."""
COLUMNS = ("opening", "story", "question", "answer", "facts", "sentences", "task")
"""Of a row: how the story begins, its sentences one a line, how many these were before only the last were kept, and the
name of the task (each file is one)."""
UNKNOWN = "-"
"""Stands for supporting facts that are not known."""
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
    corpus: Literal["stories-en", "stories-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Stories of the package, in English or Korean: who is where, who has what."""
    about: Literal["where", "things", "who", "count", "yes_no"] | None = None
    """What the questions of these are about: where someone is, where a thing is, who has it, how many things someone
    has, or whether someone is somewhere. Default: all five."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {}

    @property
    def row_columns(self) -> tuple[str, ...]:
        return COLUMNS

    def files(self, base: Path) -> tuple[TextFile, ...]:
        name = self.file
        if name is None:
            return ()
        if not has_magic(name):
            return (TextFile(name, base / name),)
        anchor = PurePath(name).anchor
        found = (Path(anchor) if anchor else base).glob(str(PurePath(name).relative_to(anchor)))
        named = [str(path if anchor else path.relative_to(base)) for path in sorted(found, key=_by_number)]
        if not named:
            raise DataError("no file has a name of this pattern", where=name, hint="for example babi/*_train.txt")
        return tuple(TextFile(own, base / own) for own in named)

    def format(self, file: TextFile) -> str:
        suffix = file.suffixes[0]
        if suffix not in (".txt", ".jsonl"):
            hint = ".txt: bAbI's numbered lines; .jsonl: an object a line with story, question and answer"
            what = f"stories cannot be read from a {suffix or 'file without suffix'}"
            raise DataError(what, where=file.name, hint=hint)
        return "babi" if suffix == ".txt" else "stories .jsonl"

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "file": self.file}  # which names the tasks

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        assert self.corpus is not None
        task = f"{self.corpus}:{self.about}" if self.about else self.corpus
        for cells in generate(self.corpus, self.size, self.seed, part, about=self.about):
            yield (*cells, str(cells[1].count("\n") + 1), task)

    @property
    def keys(self) -> Keys:
        return Keys(self.story, self.question, self.answer, self.facts)

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
    bad_lines: Literal["error", "drop"] = "error"
    """What to do with questions that cannot be read or have no answer, and with stories that have no question: stop and
    name them, or drop and count them. After a line that cannot be read, no question about its story can."""


def babi_rows(file: TextFile, corpus: Stories) -> Iterator[Row]:
    """bAbI's numbered lines."""
    return (_row(asked, _task_of(file)) for asked in babi_questions(file, corpus.keys))


def story_rows(file: TextFile, corpus: Stories) -> Iterator[Row]:
    """An object a line with story, question and answer."""
    return (_row(asked, _task_of(file)) for asked in jsonl_questions(file, corpus.keys))


def _task_of(file: TextFile) -> str:
    """The name of a file without `_train` and suffixes: each file is a task."""
    return _PART.sub("", PurePath(file.name).name.partition(".")[0])


def _by_number(path: Path) -> list[tuple[int, str]]:
    """qa2 before qa10."""
    return [(int(digits or 0), letters) for digits, letters in re.findall(r"(\d*)(\D*)", path.name)]


def _row(asked: Asked | Unread, task: str) -> Row:
    """With the last sentences of the story, the facts that are among them, and how many sentences there were."""
    if isinstance(asked, Unread):
        return Row(asked.line, ("",) * len(COLUMNS), asked.problem)
    gone = max(0, len(asked.story) - KEPT)
    facts = " ".join(str(fact - gone) for fact in asked.facts or () if fact >= gone) or UNKNOWN
    kept = "\n".join(asked.story[gone:])
    return Row(asked.line, (asked.opening, kept, asked.question, asked.answer, facts, str(len(asked.story)), task))


def facts_in(text: str) -> tuple[int, ...] | None:
    """The facts of a row."""
    return None if text == UNKNOWN else tuple(map(int, text.split()))


OPENING = 20
"""Sentences of a story that tell it from others."""
NUMBERED = re.compile(r"\s*(\d{1,9})\s+(\S.*)")
"""A line of bAbI's: its number, and what it says."""
_EXAMPLE = "3 Where is Mary?\tbathroom\t1"
_ONE_WORD = "an answer is one word; several go with commas and no spaces: apple,milk"


class Keys(NamedTuple):
    """What an object of a .jsonl calls its parts."""

    story: str = "story"
    question: str = "question"
    answer: str = "answer"
    facts: str = "facts"


class Asked(NamedTuple):
    """A question about a story, and its answer."""

    line: int
    """Where it stands."""
    opening: str
    """How the story begins."""
    story: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the sentences that the answer rests on; None where that is not known."""


class Unread(NamedTuple):
    """Stands for a question that cannot be read, or a story without one."""

    line: int
    problem: Problem


def _one_word(answer: str, where: str) -> str:
    if not answer:
        raise DataError("the question has no answer", where=where, hint="a word is expected after the question")
    if len(answer.split()) > 1:
        raise DataError(f"the answer {answer!r} has {len(answer.split())} words", where=where, hint=_ONE_WORD)
    return answer


# bAbI's numbered lines


def babi_questions(file: TextFile, keys: Keys) -> Iterator[Asked | Unread]:
    """The questions of a file of numbered lines."""
    story = _Story(0, "", asked=True)
    for line, text in enumerate(file.lines(), 1):
        if not text.strip():
            continue
        found, where = NUMBERED.fullmatch(text), file.where(line)
        if found and int(found[1]) == 1:
            yield from story.ended()
            story = _Story(line, where)
        read = story.read(line, text, where)
        if read is not None:
            yield read
    yield from story.ended()


@dataclass
class _Story:
    """A story so far."""

    begun: int
    where: str
    sentences: list[str] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of a line -> that of its sentence."""
    last: int = 0
    """The number of the line before."""
    opening: str = ""
    asked: bool = False
    fault: Problem | None = None
    """Of a line: what is asked after it is not about the story that was meant."""

    def read(self, line: int, text: str, where: str) -> Asked | Unread | None:
        """The question in the next line, if it is one."""
        said = text
        if self.fault is None:
            try:
                self.last, said = _numbered(text, self.last, where)
            except DataError as error:
                self.fault, self.asked = error.problems[0], False
        is_question = "\t" in said or said.rstrip().endswith(("?", "？"))
        self.asked |= is_question
        if self.fault is not None:
            return Unread(line, self.fault) if is_question else None
        if is_question:
            return self._question(line, said, where)
        self.numbers[self.last] = len(self.sentences)
        self.sentences.append(fold_white_space(said))
        return None

    def _question(self, line: int, said: str, where: str) -> Asked | Unread:
        self.opening = self.opening or "\n".join(self.sentences[:OPENING])
        try:
            return Asked(line, self.opening, tuple(self.sentences), *_question(said, self.numbers, where))
        except DataError as error:
            return Unread(line, error.problems[0])

    def ended(self) -> Iterator[Unread]:
        """What is wrong with it and was not told with a question."""
        if not self.asked:
            none = Problem(self.where, "the story has no question", f"a question line: {_EXAMPLE}")
            yield Unread(self.begun, self.fault or none)


def _numbered(text: str, before: int, where: str) -> tuple[int, str]:
    found = NUMBERED.fullmatch(text)
    if found is None:
        hint = "expected is bAbI's format: 1 Mary moved to the bathroom."
        raise DataError("the line does not begin with a number and a text", where=where, hint=hint)
    number = int(found[1])
    if number not in (1, before + 1):
        hint = "lines of a story are numbered one by one, and 1 begins a new story"
        raise DataError(f"line number {number} follows {before}", where=where, hint=hint)
    return number, found[2]


def _question(said: str, numbers: dict[int, int], where: str) -> tuple[str, str, tuple[int, ...] | None]:
    """A question line after its number: question, answer, and the sentences that it rests on."""
    if "\t" not in said:
        hint = f"a tab and the answer follow a question: {_EXAMPLE}"
        raise DataError("the question has no answer", where=where, hint=hint)
    if not numbers:
        raise DataError("there is no sentence before the question", where=where, hint="tell the story first")
    fields = [one.strip() for one in said.split("\t")]
    if len(fields) > 3 or not fields[0]:
        hint = "expected are a question, its answer and the numbers of its facts, with a tab between each two"
        raise DataError(f"the question line has {len(fields)} fields", where=where, hint=hint)
    answer, named = _one_word(fields[1], where), fields[2].split() if len(fields) > 2 else []
    for one in named:
        if not one.isdecimal() or int(one) not in numbers:
            hint = f"the sentences before the question are numbered {', '.join(map(str, [*numbers][-10:]))}"
            raise DataError(f"the supporting fact {one!r} is no sentence before it", where=where, hint=hint)
    return fold_white_space(fields[0]), answer, tuple(numbers[int(one)] for one in named) or None


# JSON Lines


def jsonl_questions(file: TextFile, keys: Keys) -> Iterator[Asked | Unread]:
    """The questions of a file with an object a line; an empty line is none."""
    for line, text in enumerate(file.lines(), 1):
        if text.strip():
            yield question_in(text, keys, line, file.where(line))


def question_in(text: str, keys: Keys, line: int, where: str, *, answered: bool = True) -> Asked | Unread:
    """The question that an object is; unless it must be `answered`, the answer may be missing."""
    try:
        example = object_in(text, where, [keys.story, keys.question])
        story = _sentences(value_in(example, keys.story, where), keys.story, where)
        question = fold_white_space(text_of(value_in(example, keys.question, where), keys.question, where))
        if not story or not question:
            what = f"the {'question' if story else 'story'} is empty"
            raise DataError(what, where=where, hint="fill it, or drop the line")
        answer = ""
        if answered or example.get(keys.answer) is not None:
            value = value_in(example, keys.answer, where)
            answer = text_of(value, keys.answer, where, number=True, hint=_ONE_WORD).strip()
        facts = _facts(example.get(keys.facts), len(story), where)
        answer = _one_word(answer, where) if answered else answer
        return Asked(line, "\n".join(story[:OPENING]), tuple(story), question, answer, facts)
    except DataError as error:
        return Unread(line, error.problems[0])


def _sentences(value: Any, key: str, where: str) -> list[str]:
    if not isinstance(value, list):
        return split_sentences(fold_white_space(text_of(value, key, where)))
    sentences = [fold_white_space(text_of(one, key, where)) for one in value]
    if "" in sentences:
        hint = "leave it out; the numbers of the facts count the sentences that are left"
        raise DataError(f"sentence {sentences.index('') + 1} of the story is empty", where=where, hint=hint)
    return sentences


def _facts(value: Any, sentences: int, where: str) -> tuple[int, ...] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(type(one) is int and 1 <= one <= sentences for one in value):
        hint = f"a list of numbers of sentences, from 1 to {sentences}"
        raise DataError(f"the facts are {json.dumps(value)[:80]}", where=where, hint=hint)
    return tuple(one - 1 for one in value)
