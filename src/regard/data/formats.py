"""One file with all columns -> rows of text: .tsv, .csv, .jsonl, .parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from regard.data.config import Corpus
from regard.data.files import COMPRESSIONS, TextFile
from regard.data.parquet import parquet_rows
from regard.data.rows import Key, Row, keys_of, numeric_keys, text_of, value_in
from regard.errors import DataError


def _tsv_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """Fields between tabs; there is no quoting."""
    return _table_rows(file, corpus, _tsv_records(file))


def _tsv_records(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    return ((line, text.split("\t")) for line, text in enumerate(file.lines(), 1))


def _csv_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """RFC 4180: a field in double quotes may hold commas, line breaks and doubled quotes."""
    return _table_rows(file, corpus, _csv_records(file))


def _csv_records(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    records = csv.reader(file.lines(keep_ends=True), strict=True)
    line = 1
    try:
        for fields in records:
            yield line, fields
            line = records.line_num + 1
    except csv.Error as error:
        what = f"not valid CSV: {str(error).partition(' - ')[0]}"
        hint = "is a quote not closed? Quotes within a quoted field are doubled"
        raise DataError(what, where=file.where(line), hint=hint) from None


def _table_rows(file: TextFile, corpus: Corpus, records: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    columns = keys_of(corpus)
    header = corpus.header if corpus.header is not None else any(isinstance(key, str) for key in columns.values())
    first_line, names = next(records)
    indexes = [_index(key, names if header else None, file.where(first_line)) for key in columns.values()]
    line = 0
    for line, fields in records if header else chain([(first_line, names)], records):
        try:
            values = tuple([fields[index] for index in indexes])
            if header and len(fields) > len(names) and any(fields[len(names) :]):
                raise _too_many(names, fields, file.where(line))
        except IndexError:
            if len(fields) > 1 or "".join(fields).strip():
                raise _too_few(columns, indexes, fields, file.where(line)) from None
            values = ("",) * len(indexes)  # an empty line: data.bad_lines decides about it
        yield Row(line, values)
    if line == 0:
        raise DataError("there is a header, but no row below it", where=file.name)


def _index(key: Key, names: list[str] | None, where: str) -> int:
    """The number of a column; `names` is the header, if there is one."""
    if isinstance(key, int):
        if key < 0:
            raise DataError(f"there is no column {key}", where=where, hint="columns are numbered from 0")
        return key
    if names is None:
        raise DataError(f"a column named {key!r} needs a header", where=where, hint="header: true, or a column number")
    if names.count(key) != 1:
        what = f"two columns are named {key!r}" if key in names else f"there is no column {key!r}"
        raise DataError(what, where=where, hint=f"the columns are {', '.join(names)}")
    return names.index(key)


def _too_few(columns: dict[str, Key], indexes: list[int], fields: list[str], where: str) -> DataError:
    name, key = next(pair for pair, index in zip(columns.items(), indexes, strict=True) if index >= len(fields))
    what = f"there is no column {key!r} ({name}) in this row"
    return DataError(what, where=where, hint=f"it has {len(fields)}, numbered from 0: {' | '.join(fields)[:200]}")


def _too_many(names: list[str], fields: list[str], where: str) -> DataError:
    what = f"this row has {len(fields)} cells, the header {len(names)}: {' | '.join(fields)[:200]}"
    return DataError(what, where=where, hint="in .csv a text with a comma stands in double quotes; .tsv has no quoting")


def _jsonl_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """One object a line; a column is a key."""
    columns, numeric = keys_of(corpus), numeric_keys(corpus)
    for line, example in objects_in(file):
        if example is None:
            yield Row(line, ("",) * len(columns))  # an empty line: data.bad_lines decides about it
        else:
            values = [_text(example, key, file.where(line), number=key in numeric) for key in columns.values()]
            yield Row(line, tuple(values))


def objects_in(file: TextFile) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The objects of a .jsonl file with their lines; None for an empty line."""
    for line, text in enumerate(file.lines(), 1):
        yield line, _object(text, file.where(line)) if text.strip() else None


def _text(example: dict[str, Any], key: Key, where: str, *, number: bool) -> str:
    return text_of(value_in(example, key, where), key, where, number=number)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        example = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at position {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"not valid JSON: {reason}", where=where, hint="one object a line is expected") from None
    if not isinstance(example, dict):
        raise DataError(
            f"{text[:80]} is not an object", where=where, hint='for example {"source": "...", "target": "..."}'
        )
    return example


FORMATS: dict[str, Callable[[TextFile, Corpus], Iterator[Row]]] = {
    ".tsv": _tsv_rows,
    ".csv": _csv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": parquet_rows,
}
"""What one file with all columns may be, by its suffix."""
RECORDS = {".tsv": _tsv_records, ".csv": _csv_records}
"""The lines and fields of a table whose first line may be a header."""


def format_of(file: TextFile) -> Callable[[TextFile, Corpus], Iterator[Row]]:
    """How to read a file with all columns, by its suffix."""
    suffix, compression = file.suffixes
    if suffix not in FORMATS:
        what = f"one file with all columns cannot be a {suffix or 'file without a suffix'}"
        hint = (
            f"allowed: {', '.join(FORMATS)}, text plain or as {', '.join(COMPRESSIONS)}; "
            "parallel files are named by column, without 'file'"
        )
        raise DataError(what, where=file.name, hint=hint)
    if suffix == ".parquet" and compression:
        raise DataError(f"a Parquet file is compressed inside, not as {compression}", where=file.name, hint="unpack it")
    return FORMATS[suffix]
