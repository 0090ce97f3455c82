"""Files and tables of the user's -> inputs to predict for, or a corpus."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from regard.data import formats
from regard.data.config import OBJECTS, TABLES, Corpus
from regard.data.formats import Key, Object, Row
from regard.errors import DataError
from regard.text.files import LINE, FileInput, TextFile

PIPE = 1 << 16  # bytes of a pipe that are read at once
Table = TextFile | Object  # a table of the user's, or an object that is one row of it


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


def lines_as_they_come(
    stream: io.BufferedIOBase, *, skip_bad: bool = False
) -> Iterator[list[FileInput]]:
    """The lines of standard input as they come: all that are there, then those that come next.

    A regular file is there as a whole. With `skip_bad`, lines that are not valid UTF-8 are returned
    as well.
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
    file: TextFile,
    columns: Mapping[str, Key],
    header: bool | None = None,
    listed: str | None = None,
) -> Iterator[Row]:
    """The texts of some columns of a table, row by row; a row that cannot be read has a fault.

    `columns` has them by the task's names. `header` is that of a corpus: None where their names
    decide. `listed` is for objects: see `object_texts`.
    """
    keys = [*columns.values()]
    if file.suffixes[0] in OBJECTS:
        return formats.object_rows(
            file,
            keys,
            lambda example, where: [object_texts(example, keys, where, listed)],
            blank_lines=True,
        )
    wanted = _Wanted.model_construct(header=header, keys=dict(columns))
    return formats.TABLE_ROWS[wanted.format(file)](file, wanted)


def object_texts(
    example: Object, keys: Sequence[Key], where: str, listed: str | None = None
) -> tuple[str, ...]:
    """The texts under some keys of an object, all but the first perhaps items of the list `listed`:
    then as many as it has."""
    items = formats.value_in(example, listed, where) if listed else None
    if isinstance(items, list) and len(items) > 1:
        keys = [keys[0], *(f"{listed}.{number}" for number in range(len(items)))]
    return tuple(formats.text_of(formats.value_in(example, key, where), key, where) for key in keys)


def has_column(table: Table, name: str) -> bool:
    """Whether the first row of a table has a text in a column of this name."""
    try:
        if not isinstance(table, TextFile):
            return bool(object_texts(table, [name], ""))
        rows = (
            row
            for row in table_rows(table, {name: name})
            if row.fault is not None or any(row.values)
        )
        return next((row.fault is None for row in rows), False)
    except DataError:
        return False


# What `--file` names


def only_file(files: Sequence[str], hint: str = "give one") -> str:
    """The one file that `--file` names, for tasks that have all of an example in it."""
    if len(files) != 1:
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    return files[0]


def corpus_of(table: Table, own: Sequence[Corpus]) -> Corpus:
    """A table of the user's as a corpus with the keys of the recipe's first table, or without one
    the task's names.

    Objects and Parquet have no columns by number: there the task's names stand for them, too.
    """
    tables = [corpus for corpus in own if corpus.file is not None or corpus.dataset is not None]
    like, file = (tables or own)[0], table if isinstance(table, TextFile) else None
    by_name = file is None or file.suffixes[0] in (*OBJECTS, ".parquet")
    if not tables or (by_name and any(isinstance(key, int) for key in like.columns.values())):
        like = like.named()
    others = dict.fromkeys(("dataset", "subset", "split", "corpus", "size"))
    return like.model_copy(update={**others, "prefix": "", "file": file and file.name})
