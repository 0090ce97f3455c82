"""Tables -> the texts to predict for, from the columns that a run was trained on; what it is to find may be missing."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.data.config import TABLES, Corpus
from regard.data.formats import TABLE_ROWS, Key, Row, object_in, text_of, value_in
from regard.errors import DataError, Problem
from regard.text.files import TextFile


class FileInput(NamedTuple):
    """A text to predict for, and where it stands."""

    text: str
    place: str
    fault: Problem | None = None
    """Why there is no text, if so."""


class TolerantFile(TextFile):
    """A file that lets bytes pass that are not UTF-8, so that one such line does not hide the others."""

    def lines(self, keep_ends: bool = False, errors: str = "surrogateescape") -> Iterator[str]:
        return super().lines(keep_ends, errors)


@dataclass(frozen=True)
class HeldFile(TextFile):
    """A text that can be read only once, such as standard input, as a file."""

    path: Path = Path()
    content: bytes = b""

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.content))


class _Wanted(Corpus):
    """Some columns of a table."""

    keys: dict[str, Key]

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {**self.keys}


def is_table(file: TextFile) -> bool:
    """Whether a file has columns, by its suffix."""
    return file.suffixes[0] in TABLES


def table_rows(file: TextFile, columns: Mapping[str, Key], header: bool | None = None) -> Iterator[Row]:
    """The texts of some columns of a table, row by row; a row that cannot be read has a fault.

    `columns` has them by the task's names. `header` is that of a corpus: None where their names decide.
    """
    if file.suffixes[0] == ".jsonl":
        return (_row(text, line, file, columns) for line, text in enumerate(file.lines(), 1))
    wanted = _Wanted.model_construct(header=header, keys=dict(columns))
    return TABLE_ROWS[wanted.format(file)](file, wanted)


def listed_rows(file: TextFile, columns: Mapping[str, Key], listed: str) -> Iterator[Row]:
    """The rows of a .jsonl of whose `columns` all but the first are items of a list: as many as each has of them."""
    for line, text in enumerate(file.lines(), 1):
        yield _row(text, line, file, _own_columns(text, columns, listed))


def _own_columns(text: str, columns: Mapping[str, Key], listed: str) -> Mapping[str, Key]:
    """Those of one row; where it has no such list, those that it should have."""
    try:
        items = value_in(object_in(text, ""), listed, "")
    except DataError:
        return columns
    if not isinstance(items, list) or len(items) < 2:
        return columns
    keys: list[Key] = [next(iter(columns.values())), *(f"{listed}.{number}" for number in range(len(items)))]
    return {str(key): key for key in keys}


def has_columns(file: TextFile, columns: Mapping[str, Key]) -> bool:
    """Whether the first row of a table has them."""
    return column_problem(file, columns) is None


def column_problem(file: TextFile, columns: Mapping[str, Key]) -> Problem | None:
    """Why the first row of a table, that is not empty, has them not; None if it has."""
    try:
        first = next(_filled(file, columns), None)
    except DataError as error:
        return error.problems[0]
    return Problem(file.name, "there is no row that has something in it") if first is None else first.fault


def _filled(file: TextFile, columns: Mapping[str, Key]) -> Iterator[Row]:
    """The rows that are not empty; an object is not, even if its texts are."""
    if file.suffixes[0] == ".jsonl":
        return (_row(text, line, file, columns) for line, text in enumerate(file.lines(), 1) if text.strip())
    return (row for row in table_rows(file, columns) if row.fault is not None or any(row.values))


def _row(text: str, line: int, file: TextFile, columns: Mapping[str, Key]) -> Row:
    """An object of a .jsonl; an empty line has empty texts."""
    nothing = ("",) * len(columns)
    if not text.strip():
        return Row(line, nothing)
    try:
        example = object_in(text, where := file.where(line), columns.values())
        return Row(line, tuple(text_of(value_in(example, key, where), key, where) for key in columns.values()))
    except DataError as error:
        return Row(line, nothing, error.problems[0])
