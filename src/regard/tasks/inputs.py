"""From what a user typed or keeps in a file to what a model reads: checked, encoded once, batched by length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from regard.data.batch import Tokens
from regard.data.dataset import Dataset, Encoder
from regard.data.file_inputs import FileInput, HeldFile, TolerantFile, is_table
from regard.data.formats import object_in
from regard.data.images import Picture, images_of
from regard.errors import ColumnError, DataError, DecodeError, InputError, Problem, first_of
from regard.search import Constraints
from regard.text.files import TextFile, open_text
from regard.text.spelling import Spelling, encode_spelled, unknown_in
from regard.text.tokenizers import Tokenizer, Tokenizers

Row = TypeVar("Row")
Encoded = Sequence[int] | Picture
"""A source as a model reads it: its tokens without `</s>`, or an image."""
LONGEST = 2048
"""Longest input in tokens: beyond it a line break is missing rather than a sentence long."""


@dataclass(frozen=True)
class Inputs:
    """What is predicted for."""

    texts: Sequence[str]
    places: Sequence[str]
    """Where each stands, or what to call it."""
    prefixes: Sequence[str] | None = None
    """What each output is to begin with, instead of `search.prefix`."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> Inputs:
        return cls(texts, numbered(texts))

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Inputs:
        prefixes = None if self.prefixes is None else [self.prefixes[row] for row in rows]
        return Inputs([self.texts[row] for row in rows], [self.places[row] for row in rows], prefixes)


def numbered(texts: Sequence[str]) -> list[str]:
    """What to call texts in messages where no file tells their places."""
    return [f"input {number}" for number in range(1, len(texts) + 1)]


class Example(NamedTuple):
    """An input that was encoded as one row of a dataset."""

    examples: Dataset
    row: int


@dataclass(frozen=True)
class Unreadable:
    """Stands for an input that cannot be read."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class EncodedInputs(Generic[Row]):
    """Inputs, and what the model reads of each."""

    inputs: Inputs
    rows: Sequence[Row | Unreadable]
    wording: Constraints = field(default_factory=Constraints)
    """What the outputs begin with and must not contain, for tasks that search."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unreadable(self) -> dict[int, Problem]:
        """The first problem of each input that cannot be read, by its number."""
        return {number: row.problems[0] for number, row in enumerate(self.rows) if isinstance(row, Unreadable)}

    def take(self, numbers: Sequence[int]) -> EncodedInputs[Row]:
        rows = [self.rows[number] for number in numbers]
        return EncodedInputs(self.inputs.take(numbers), rows, self.wording.of(numbers))

    def readable(self) -> list[Row]:
        """What the model reads of each input, or one InputError that names those that cannot be read."""
        return readable(self.rows)


def readable(rows: Sequence[Row | Unreadable]) -> list[Row]:
    """All rows, or one InputError with the problems of those that cannot be read."""
    problems = [problem for row in rows if isinstance(row, Unreadable) for problem in row.problems]
    if problems:
        raise InputError(problems=first_of(problems))
    return [row for row in rows if not isinstance(row, Unreadable)]


def encode_examples(
    task: Encoder,
    inputs: Inputs,
    columns: Sequence[Mapping[str, str] | Unreadable],
    check: Callable[[Dataset, int], Sequence[Problem]] = lambda examples, row: (),
) -> EncodedInputs[Example]:
    """Inputs as examples, from the texts of each by column; those with the same columns are in one dataset.

    `check` says why an example cannot be read once it is encoded.
    """
    rows: dict[int, Example | Unreadable] = {}
    alike: dict[tuple[str, ...], dict[int, Mapping[str, str]]] = defaultdict(dict)
    for number, texts in enumerate(columns):
        if isinstance(texts, Unreadable):
            rows[number] = texts
        else:
            alike[tuple(texts)][number] = texts
    for names, readable_texts in alike.items():
        by_column = {name: [texts[name] for texts in readable_texts.values()] for name in names}
        examples = Dataset.of(task, by_column, [inputs.places[number] for number in readable_texts].__getitem__)
        for row, number in enumerate(readable_texts):
            problems = check(examples, row)
            rows[number] = Unreadable(tuple(problems)) if problems else Example(examples, row)
    return EncodedInputs(inputs, [rows[number] for number in range(len(inputs))])


def by_dataset(rows: Sequence[Example]) -> Iterator[tuple[list[int], Dataset]]:
    """The numbers of the inputs that were encoded in one dataset, and their examples."""
    groups: dict[int, list[int]] = defaultdict(list)
    for number, example in enumerate(rows):
        groups[id(example.examples)].append(number)
    for numbers in groups.values():
        examples, chosen = rows[numbers[0]].examples, [rows[number].row for number in numbers]
        yield numbers, examples if chosen == [*range(len(examples))] else examples.select(np.array(chosen))


@dataclass(frozen=True)
class Note:
    """What a user should know about a prediction."""

    kind: Literal["unknown", "length"]
    """Tokens that the model does not know, or a text that is longer than what it was trained on or remembers."""
    text: str

    def __str__(self) -> str:
        return self.text


class ReadsTables(Protocol):
    """The part of a task that reads files of inputs."""

    name: ClassVar[str]
    reads_stories: ClassVar[bool]

    def inputs_in(self, file: TextFile) -> Iterator[FileInput] | None: ...


def file_inputs(task: ReadsTables, file: str | Path, *, skip_bad: bool = False) -> list[FileInput]:
    """The inputs in a file: its lines, or the rows of a table with columns that the task knows.

    With `skip_bad`, lines that are not valid UTF-8 are returned as well, to be refused one by one.
    """
    opened = open_text(str(file), Path())
    if skip_bad:
        opened = TolerantFile(opened.name, opened.path)
    try:
        rows = task.inputs_in(opened)
        if rows is not None:
            return list(rows)
    except ColumnError as error:
        if not is_table(opened):
            raise
        what = "of a table the run's own columns are read, or 'text', or 'first' and 'second' where it has none"
        problems = [*error.problems, Problem("", what, "a .txt has one input a line, tabs between its texts")]
        raise DataError(problems=problems) from None
    return [FileInput(text, opened.where(line)) for line, text in enumerate(opened.lines(), 1)]


def read_story(task: ReadsTables, story: str | Path, *, skip_bad: bool = False) -> list[FileInput]:
    """The lines of a story, or its objects by the keys of the run's recipe, for a task that reads stories."""
    if not task.reads_stories:
        raise DecodeError(f"a run of {task.name} reads no story", where="--story", hint="runs of story_answering do")
    return file_inputs(task, story, skip_bad=skip_bad)


def object_input(task: ReadsTables, text: str, place: str) -> FileInput | None:
    """A typed JSON object as a row of a .jsonl file with the task's columns; None where the text is no object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        object_in(line := text.replace("\n", " "), "")
        content = line.encode()
    except (DataError, UnicodeEncodeError):
        return None
    try:
        [row] = task.inputs_in(HeldFile("typed.jsonl", content=content)) or []
    except DataError as error:
        row = FileInput("", place, error.problems[0])
    fault = None if row.fault is None else replace(row.fault, where=place)
    return FileInput(row.text, place, fault)


def encode_each(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    places: Sequence[str],
    longest: int | None = LONGEST,
    letters: int | None = None,
) -> list[list[int] | Unreadable]:
    """Token ids of each text, or why it cannot be read.

    With `letters`, unknown words keep so many of their characters, for a model that reads them.
    """
    rows: list[list[int] | Unreadable] = []
    problems = [problem_in_text(text, place) for text, place in zip(texts, places, strict=True)]
    plain = ["" if problem else text for text, problem in zip(texts, problems, strict=True)]
    encoded = encode_spelled(tokenizer, plain, letters)
    for text, place, ids, first in zip(texts, places, encoded, problems, strict=True):
        problem = first or (nothing_known(text, place) if is_foreign(tokenizer, ids) else None)
        if problem is None and longest is not None:
            problem = _too_long(ids, place)
        rows.append(Unreadable((problem,)) if problem else ids)
    return rows


def encode_inputs(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    places: Sequence[str],
    longest: int | None = LONGEST,
    letters: int | None = None,
) -> list[list[int]]:
    """The same, or one error that names all texts that cannot be read."""
    return readable(encode_each(tokenizer, texts, places, longest, letters))


def encode_target(tokenizer: Tokenizer, target: str | Sequence[str]) -> list[int]:
    """Token ids of a text with its `</s>`, or of exact tokens as they are."""
    if isinstance(target, str):
        [text] = encode_inputs(tokenizer, [target], ["target"], longest=None)
        ids = [*text, tokenizer.end]
    else:
        try:
            ids = tokenizer.token_ids(target)
        except DecodeError as error:
            hint = "tokens are spelt as 'predict --json' shows them"
            raise DecodeError(error.problems[0].what, where="target", hint=hint) from None
    if not ids:
        raise DecodeError("there are no tokens", where="target", hint='give at least one, "</s>" for one')
    refuse([_too_long(ids, "target")])
    return ids


def refuse(found: Sequence[Problem | None]) -> None:
    """One error for all problems that were found."""
    problems = [problem for problem in found if problem]
    if problems:
        raise DecodeError(problems=first_of(problems))


def refuse_longer(rows: Sequence[Sequence[int]], longest: int, places: Sequence[str]) -> None:
    """Refuse texts that have more tokens than the model has positions for."""
    readable(not_longer(rows, longest, places))


def not_longer(
    rows: Sequence[Sequence[int] | Unreadable], longest: int | None, places: Sequence[str]
) -> list[list[int] | Unreadable]:
    """Rows of tokens; those that are longer than the model's positions are unreadable."""
    checked: list[list[int] | Unreadable] = []
    for row, place in zip(rows, places, strict=True):
        if isinstance(row, Unreadable) or longest is None or len(row) <= longest:
            checked.append(row if isinstance(row, Unreadable) else [*row])
            continue
        what, hint = f"the text has {len(row):,} tokens with the special ones", f"the model reads at most {longest:,}"
        checked.append(Unreadable((Problem(place, what, hint),)))
    return checked


def problem_in_text(text: str, place: str) -> Problem | None:
    """Why a text cannot be read, whatever the vocabulary."""
    if not text.strip():
        return Problem(place, "the text is empty", "give at least one word")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        return Problem(place, "the text is not valid UTF-8", "convert it, for example with iconv")
    return None


def _too_long(ids: Sequence[int], place: str) -> Problem | None:
    if len(ids) <= LONGEST:
        return None
    return Problem(place, f"the text has {len(ids):,} tokens", f"at most {LONGEST:,}: split it into sentences")


def is_foreign(tokenizer: Tokenizer, ids: Sequence[int]) -> bool:
    """Whether nothing of a text is known, not even the letters of its words."""
    return tokenizer.all_unknown(ids) and not any(unknown_in(ids))


def nothing_known(text: str, place: str) -> Problem:
    """Every token of a text is unknown."""
    what = f"every token of {text.strip()[:20]!r} is unknown to the tokenizer"
    return Problem(place, what, "it was trained on other words or script")


def positions_of(source: Encoded) -> int:
    """The positions that a source takes up in a model: its tokens with `</s>`, or the regions of an image."""
    return len(source) if isinstance(source, Picture) else len(source) + 1


def sources_of(encoded: Sequence[Encoded], tokenizers: Tokenizers) -> Tokens:
    """Sources as one padded batch, texts with their `</s>`."""
    pictures = [one for one in encoded if isinstance(one, Picture)]
    if pictures:
        return images_of(pictures)
    source = tokenizers["source"]
    return padded([[*ids, source.end] for ids in encoded if not isinstance(ids, Picture)], source.pad)


def padded(rows: Sequence[Sequence[int]], pad: int) -> Tokens:
    """Rows of ids as one padded batch."""
    lengths_B = torch.tensor([len(row) for row in rows])
    ids_BL = torch.full((len(rows), int(lengths_B.max())), pad)
    for number, row in enumerate(rows):
        ids_BL[number, : len(row)] = torch.tensor(row)
    return Tokens.of(ids_BL, lengths_B, Spelling.of_rows(rows))


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers in batches of about equal length, longest first, at most `batch_tokens` padded tokens each."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
