"""Stories with questions -> rows of text: the format of the bAbI tasks, JSON Lines, or stories of the package.

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
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import VERSION, Part, generate
from regard.data.documents import FILES
from regard.data.readers import Reader
from regard.data.rows import Row
from regard.data.story_files import Asked, Keys, Unread, babi_questions, jsonl_questions
from regard.errors import DataError
from regard.text.files import TextFile, problem_with

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
    """The questions of a corpus as rows of `COLUMNS`."""

    corpus: Stories

    @property
    def columns(self) -> tuple[str, ...]:
        return COLUMNS

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

    def _rows(self) -> Iterator[Row]:
        corpus = self.corpus
        if corpus.corpus is not None:
            rows = generate(corpus.corpus, corpus.size, corpus.seed, self.part, about=corpus.about)
            counted = ((*cells, str(cells[1].count("\n") + 1), self.tasks[0]) for cells in rows)
            yield from (Row(line, cells) for line, cells in enumerate(counted, 1))
        for number, file in enumerate(self.files):
            task = self.tasks[number]
            yield from (_row(number, asked, task) for asked in _FORMATS[file.suffixes[0]](file, corpus.keys))

    def where(self, line: int, column: str | None = None) -> str:
        if self.corpus.corpus is not None:
            return f"corpus {self.corpus.corpus}:{line}"
        if line < 1:
            return str(self.corpus.file)
        return self.files[line // FILES].where(line % FILES)

    def fingerprint(self) -> str:
        corpus = self.corpus
        settings: list[Any] = ["stories", COLUMNS, corpus.size, corpus.keys]
        if corpus.corpus is not None:
            settings += [corpus.corpus, corpus.about, corpus.seed, self.part, VERSION]
        settings += [[file.name, file.suffixes, file.digest()] for file in self.files]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()


def _by_number(path: Path) -> list[tuple[int, str]]:
    """qa2 before qa10."""
    return [(int(digits or 0), letters) for digits, letters in re.findall(r"(\d*)(\D*)", path.name)]


def _row(file: int, asked: Asked | Unread, task: str) -> Row:
    """With the last sentences of the story, the facts that are among them, and how many sentences there were."""
    line = file * FILES + asked.line
    if isinstance(asked, Unread):
        return Row(line, ("",) * len(COLUMNS), asked.problem)
    gone = max(0, len(asked.story) - KEPT)
    facts = " ".join(str(fact - gone) for fact in asked.facts or () if fact >= gone) or UNKNOWN
    kept = "\n".join(asked.story[gone:])
    return Row(line, (asked.opening, kept, asked.question, asked.answer, facts, str(len(asked.story)), task))


def facts_in(text: str) -> tuple[int, ...] | None:
    """The facts of a row."""
    return None if text == UNKNOWN else tuple(map(int, text.split()))


_FORMATS = {".txt": babi_questions, ".jsonl": jsonl_questions}
"""How stories are read, by the suffix."""
