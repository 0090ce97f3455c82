"""Files and tables of the user's -> inputs to predict for, or a corpus: which columns they have, which are read."""

from __future__ import annotations

import io
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from regard.data import formats
from regard.data.config import OBJECTS, TABLES, Corpus
from regard.data.formats import Key, Row
from regard.errors import DataError, Problem
from regard.text.files import LINE, FileInput, TextFile, problem_with

PIPE = 1 << 16  # bytes of a pipe that are read at once
SAMPLE = 2000  # rows that are looked at
NAMES = {
    "source": ("source", "src", "input", "question", "q", "document", "article", "body", "content", "text", "dialogue"),
    "target": ("target", "tgt", "output", "answer", "a"),
    "summary": ("summary", "highlights", "headline", "abstract", "title"),
    "text": ("text", "sentence", "review", "comment", "comments", "document", "content", "tweet", "message",
             "utterance", "startphrase", "question", "context", "premise", "stem"),
    "class": ("label", "labels", "class", "category", "sentiment", "gold_label", "polarity", "intent", "topic",
              "emotion"),
    "number": ("score", "rating", "stars", "similarity", "grade"),
}  # fmt: skip
"""What columns are often called, by what they hold."""
IMAGE = re.compile(r"(?!\w+://).*\.(png|jpe?g|gif|bmp|webp|tiff?|npy)", re.IGNORECASE)
"""The name of an image's file, or of its features; not a URL."""


@dataclass(frozen=True)
class HeldFile(TextFile):
    """A text that can be read only once, such as standard input, as a file."""

    path: Path = Path()
    content: bytes = b""
    before: int = 0  # lines that came earlier

    def where(self, line: int) -> str:
        return super().where(self.before + line)

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.content))

    def _undecodable(self, error: UnicodeDecodeError, line: int) -> DataError:
        [problem] = super()._undecodable(error, line).problems  # its hint is for files
        hint = "standard input must be UTF-8; give the file with --file instead"
        return DataError(problem.what, where=problem.where, hint=hint)


def arriving(stream: io.BufferedIOBase, *, skip_bad: bool = False) -> Iterator[list[FileInput]]:
    """The lines of standard input as they come: all that are there, then those that come next.

    A regular file is there as a whole. With `skip_bad`, lines that are not valid UTF-8 are returned as well.
    """
    before, whole, held, errors = 0, True, bytearray(), "surrogateescape" if skip_bad else "strict"
    with suppress(OSError):
        whole = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)

    def lines(content: bytes) -> list[FileInput]:
        nonlocal before
        file = HeldFile("standard input", errors=errors, content=content, before=before)
        given = [FileInput(text, file.where(line)) for line, text in enumerate(file.lines(), 1)]
        before += len(given)
        return given

    while block := stream.read() if whole else stream.read1(PIPE):
        held += block
        end = len(held) if whole else held.rfind(b"\n", len(held) - len(block)) + 1
        if end or len(held) > LINE:  # which is refused
            yield lines(bytes(held[: end or None]))
            del held[:end]
    if held:
        yield lines(bytes(held))


# The rows of a table to predict for: what the run is to find may be missing


class _Wanted(Corpus):
    keys: dict[str, Key]

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {**self.keys}


def is_table(file: TextFile) -> bool:
    return file.suffixes[0] in TABLES


def table_rows(
    file: TextFile, columns: Mapping[str, Key], header: bool | None = None, listed: str | None = None
) -> Iterator[Row]:
    """The texts of some columns of a table, row by row; a row that cannot be read has a fault.

    `columns` has them by the task's names. `header` is that of a corpus: None where their names decide. Of objects all
    columns but the first may be items of the list `listed`: then each row has as many as its list.
    """
    if file.suffixes[0] in OBJECTS:
        return _object_rows(file, columns, listed, blank_lines=True)
    wanted = _Wanted.model_construct(header=header, keys=dict(columns))
    return formats.TABLE_ROWS[wanted.format(file)](file, wanted)


def _object_rows(
    file: TextFile, columns: Mapping[str, Key], listed: str | None = None, *, blank_lines: bool = False
) -> Iterator[Row]:
    first, *others = columns.values()

    def cells(example: dict[str, Any], where: str) -> list[tuple[str, ...]]:
        items = formats.value_in(example, listed, where) if listed else None
        if isinstance(items, list) and len(items) > 1:
            keys = [first, *(f"{listed}.{number}" for number in range(len(items)))]
        else:
            keys = [first, *others]
        return [tuple(formats.text_of(formats.value_in(example, key, where), key, where) for key in keys)]

    return formats.object_rows(file, [first, *others], cells, ("",) * len(columns), blank_lines=blank_lines)


def has_columns(file: TextFile, columns: Mapping[str, Key]) -> bool:
    """Whether the first row of a table has them."""
    return column_problem(file, columns) is None


def column_problem(file: TextFile, columns: Mapping[str, Key]) -> Problem | None:
    """Why the first row of a table that is not empty does not have them; None if it has."""
    if file.suffixes[0] in OBJECTS:  # an object is not empty, even if its texts are
        rows = _object_rows(file, columns)
    else:
        rows = (row for row in table_rows(file, columns) if row.fault is not None or any(row.values))
    try:
        first = next(rows, None)
    except DataError as error:
        return error.problems[0]
    return Problem(file.name, "there is no row that has something in it") if first is None else first.fault


# What the columns of a table are called


def last_name(key: Key) -> str:
    """The last part of a nested name, in lower case."""
    return str(key).rpartition(".")[2].lower()


def is_named(key: Key, *roles: str) -> bool:
    """Whether a column's name says that it holds one of these."""
    return any(last_name(key) in NAMES[role] for role in roles)


def are_images(values: Sequence[str]) -> bool:
    """Whether nearly all values name images."""
    return sum(IMAGE.fullmatch(value.strip()) is not None for value in values) > 0.9 * len(values)


def table_records(file: TextFile) -> Iterator[list[str]]:
    """The cells of each line of a .tsv, or of each record of a .csv with the separator that splits it evenly."""

    def even_rows(separator: str) -> int:
        widths = [len(record) for record in formats.first_records(file, separator)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    is_tsv = file.suffixes[0] == ".tsv"
    records = formats.tsv_records(file) if is_tsv else formats.csv_records(file, max(formats.SEPARATORS, key=even_rows))
    return (fields for _, fields in records)


def first_rows(file: TextFile) -> list[list[str]]:
    """The first records of a .tsv or .csv; none where it cannot be read: the reader reports why."""
    try:
        return [] if problem_with(file) else [*islice(table_records(file), SAMPLE)]
    except DataError:
        return []


def header_of(file: TextFile) -> list[str]:
    """The first line of a .tsv or .csv if it names the columns, else nothing."""
    records = first_rows(file) if file.suffixes[0] in (".tsv", ".csv") else []
    rows = [row for row in records[1:] if len(row) == len(records[0])]
    return records[0] if rows and is_header(records[0], rows) else []


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record names the columns: by distinct single words, where one is a known name, or where two
    columns below hold texts of several words. pandas leaves the first name empty.

    A file sorted by length begins with single words, too: then the next rows are like the first.
    """
    if len(set(first)) < len(first) or not all(first[1:]):
        return False
    for place, name in enumerate(first):
        if are_images([row[place] for row in rows if len(row) > place]):
            return not are_images([name])
    if not _are_words(first) or any(len(name) > 1 and is_named(name, *NAMES) for name in first):
        return _are_words(first)  # a single letter, as in Q and A, may also be a word
    if not rows or mean(_are_words(row) for row in rows[:19]) > 0.5:
        return False
    columns = list(zip(*rows, strict=True))
    return sum(mean(" " in cell.strip() for cell in cells) > 0.5 for cells in columns) >= 2


def _are_words(row: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[^\W\d]([\w.-]*\w)?", cell) for cell in row if cell)


# What `--file` names


def only_file(files: Sequence[str], hint: str = "give one") -> str:
    """The one file that `--file` names, for tasks that have all of an example in it."""
    if len(files) != 1:
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    return files[0]


def corpus_of(files: Sequence[str], own: Sequence[Corpus], encoding: str = "utf-8") -> Corpus:
    """What `--file` names: one file a column, or one with all columns.

    Those are found as in the recipe's own file of the same format, or of another one with the same names; else by
    number, and of objects, or where the first line says so, by name. A first line that names columns is no row.
    """
    kind, columns = type(own[0]), list(own[0].columns)
    if len(files) == len(columns):
        named_files: dict[str, Any] = dict(zip(columns, files, strict=True))
        return kind(**named_files)
    if len(files) != 1:
        hint = f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    file = TextFile(files[0], Path(files[0]), encoding=encoding)
    if not is_table(file) and file.path.is_file():
        hint = f"{' '.join(f'--file {name.upper()}' for name in columns)}, or one table: {', '.join(TABLES)}"
        raise DataError(f"{file.name} is no table, so it can hold only one of the columns", where="--file", hint=hint)
    for corpus in [*alike(file, own), *(corpus for corpus in own if _has_names_of(corpus, file))]:
        return read_like(corpus, file)
    names = header_of(file)
    named = file.suffixes[0] in OBJECTS or set(columns) <= set(names)
    if not named:
        _refuse_more(file, columns)
    keys: dict[str, Any] = {name: name if named else number for number, name in enumerate(columns)}
    return kind(file=file.name, header=True if names and not named else None, **keys)


def alike(file: TextFile, own: Sequence[Corpus]) -> list[Corpus]:
    """The corpora that have a file with all columns in the same format, however it is compressed."""
    suffix = file.suffixes[0]
    return [corpus for corpus in own if corpus.file and TextFile(corpus.file, Path()).suffixes[0] == suffix]


def read_like(corpus: Corpus, file: TextFile) -> Corpus:
    """A file with the columns of a corpus; a first line that names them is no row, also where they are numbers."""
    by_number = corpus.header is None and all(isinstance(key, int) for key in corpus.columns.values())
    header = True if by_number and header_of(file) else corpus.header
    others = {"dataset": None, "subset": None, "split": None, "size": None, "prefix": ""}
    return corpus.model_copy(update={"file": file.name, "header": header, **others})


def _refuse_more(file: TextFile, columns: Sequence[str]) -> None:
    """Refuse a .tsv or .csv with more columns than are read, where nothing says which of them those are."""
    records = first_rows(file) if file.suffixes[0] in (".tsv", ".csv") else []
    filled = Counter(max((place for place, cell in enumerate(row, 1) if cell), default=0) for row in records)
    [(width, _)] = filled.most_common(1) or [(0, 0)]
    if width > len(columns):
        what = f"it has {width} columns, and nothing says which is the {' and which the '.join(columns)}"
        hint = f"name them {', '.join(columns)} in a first line, or leave the others out"
        raise DataError(what, where=file.name, hint=hint)


def _has_names_of(corpus: Corpus, file: TextFile) -> bool:
    """Whether a file has a corpus's columns, of which the first is enough: what is to be found may be missing."""
    first, *others = corpus.columns.values()
    by_name = corpus.file is not None and all(isinstance(key, str) for key in others)
    return by_name and isinstance(first, str) and has_columns(file, {first: first})
