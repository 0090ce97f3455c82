"""One file with all columns -> rows of text: .tsv, .csv, .jsonl, .parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, product
from typing import Any

from regard.data.config import Corpus
from regard.data.parquet import parquet_rows
from regard.data.rows import Key, Row, has_header, keys_of, no_column, numeric_keys, text_of, value_in
from regard.errors import ColumnError, DataError, Problem
from regard.text.files import COMPRESSIONS, TextFile

SEPARATORS = (",", ";", "\t")
"""What may stand between the cells of a .csv."""
Records = Iterator[tuple[int, list[str]]]
"""The cells of each record, and the line where it begins."""
LOOKED_AT = 100
"""Records by which they are told apart."""


def _tsv_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """Fields between tabs; there is no quoting."""
    return _table_rows(file, corpus, tsv_records(file))


def tsv_records(file: TextFile) -> Records:
    return ((line, text.split("\t")) for line, text in enumerate(file.lines(), 1))


def _csv_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """RFC 4180: a field in double quotes may hold commas, line breaks and doubled quotes.

    Spreadsheets write semicolons or tabs for commas in many countries; they are taken for such where the columns that
    are asked for are found with them, and not with commas.
    """
    keys = keys_of(corpus).values()
    found = (one for one in SEPARATORS if _has_columns(keys, first_records(file, one)))
    return _table_rows(file, corpus, csv_records(file, next(found, ",")))


def _has_columns(keys: Iterable[Key], records: Sequence[Sequence[str]]) -> bool:
    """Whether columns are there: by name in the first record, else by number in each of them."""
    names = [key for key in keys if isinstance(key, str)]
    if names:
        return any(records) and set(names) <= set(records[0])
    return any(records) and all(isinstance(key, int) and key < len(record) for record in records for key in keys)


def first_records(file: TextFile, separator: str) -> list[list[str]]:
    """The first records of a .csv with this between its cells; none where it is no valid one."""
    try:
        return [fields for _, fields in islice(csv_records(file, separator), LOOKED_AT) if fields]
    except DataError:
        return []


def csv_records(file: TextFile, separator: str = ",") -> Records:
    """The records of a .csv, each with the line where it begins."""
    records = csv.reader(file.lines(keep_ends=True), strict=True, delimiter=separator)
    line = 1
    try:
        for fields in records:
            yield line, fields
            line = records.line_num + 1
    except csv.Error as error:
        what = f"not valid CSV: {str(error).partition(' - ')[0]}"
        hint = "is a quote not closed? Quotes within a quoted field are doubled"
        if str(error).startswith("new-line character"):
            what = "not valid CSV: lines end in CR alone, as on old Macs, or a CR stands within one"
            hint = r"convert it: tr '\r' '\n' < OLD > NEW; a cell with a line break stands in double quotes"
        raise DataError(what, where=file.where(line), hint=hint) from None


def _without_end(records: Records) -> Records:
    """Without the empty lines at the end, which spreadsheets leave there."""
    held = list[tuple[int, list[str]]]()
    for line, fields in records:
        held.append((line, fields))
        if "".join(fields).strip() or len(fields) > 1:
            yield from held
            held = []


def _table_rows(file: TextFile, corpus: Corpus, records: Records) -> Iterator[Row]:
    columns, records = keys_of(corpus), _without_end(records)
    header = has_header(corpus)
    first_line, names = next(records, (1, list[str]()))
    indexes = [_index(key, names if header else None, file.where(first_line)) for key in columns.values()]
    line = 0
    nothing = ("",) * len(indexes)
    for line, fields in records if header else chain([(first_line, names)], records):
        try:
            values = tuple([fields[index] for index in indexes])
        except IndexError:
            filled = len(fields) > 1 or "".join(fields).strip()  # an empty line is one for data.bad_lines, too
            yield Row(line, nothing, _too_few(columns, indexes, fields, file.where(line)) if filled else None)
            continue
        if header and len(fields) > len(names) and any(fields[len(names) :]):
            yield Row(line, nothing, _too_many(names, fields, file.where(line)))
        else:
            yield Row(line, values)
    if line == 0:
        raise DataError("there is a header, but no row below it", where=file.name)


def _index(key: Key, names: list[str] | None, where: str) -> int:
    """The number of a column; `names` is the header, if there is one."""
    if isinstance(key, int):
        if key < 0:
            raise ColumnError(f"there is no column {key}", where=where, hint="columns are numbered from 0")
        return key
    if names is None:
        raise DataError(f"a column named {key!r} needs a header", where=where, hint="header: true, or a column number")
    if key not in names:
        raise no_column(key, names, where)
    if names.count(key) > 1:
        raise DataError(f"two columns are named {key!r}", where=where, hint=f"the columns are {', '.join(names)}")
    return names.index(key)


def _too_few(columns: dict[str, Key], indexes: list[int], fields: list[str], where: str) -> Problem:
    pairs = zip(columns.items(), indexes, strict=True)
    missing = [f"no column {key!r} ({name})" for (name, key), index in pairs if index >= len(fields)]
    what = f"there is {' and '.join(missing)} in this row"
    return Problem(where, what, f"it has {len(fields)}, numbered from 0: {' | '.join(fields)[:200]}")


def _too_many(names: list[str], fields: list[str], where: str) -> Problem:
    what = f"this row has {len(fields)} cells, the header {len(names)}: {' | '.join(fields)[:200]}"
    return Problem(where, what, "in .csv a text with a comma stands in double quotes; .tsv has no quoting")


def _jsonl_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """One object a line; a column is a key, and a null an empty text, as in Parquet.

    Where a column may hold a list, each text of it makes a row.
    """
    columns, numeric = keys_of(corpus), numeric_keys(corpus)
    lists = {key for name, key in columns.items() if name in corpus.LISTS}
    nothing = ("",) * len(columns)
    for line, example in objects_in(file, columns.values()):
        if example is None or isinstance(example, Problem):
            yield Row(line, nothing, example)  # an empty line, too, is one for data.bad_lines
            continue
        try:
            texts = [
                _texts(example, key, file.where(line), number=key in numeric, several=key in lists)
                for key in columns.values()
            ]
            if corpus.listed is not None:
                _refuse_more(example, corpus.listed, columns.values(), file.where(line))
        except DataError as error:
            yield Row(line, nothing, error.problems[0])
        else:
            yield from (Row(line, values) for values in product(*texts))


def _refuse_more(example: dict[str, Any], listed: str, keys: Iterable[Key], where: str) -> None:
    """Refuse a list that has more items than the columns that are read."""
    items, read = value_in(example, listed, where), sum(str(key).startswith(f"{listed}.") for key in keys)
    if isinstance(items, list) and len(items) > read:
        what = f"there are {len(items)} items in {listed!r}, of which {read} would be read"
        raise DataError(what, where=where, hint="all rows have as many")


def objects_in(file: TextFile, keys: Iterable[Key]) -> Iterator[tuple[int, dict[str, Any] | Problem | None]]:
    """The objects of a .jsonl file with their lines; None for an empty line, a problem for one that is no object."""
    for line, text in enumerate(file.lines(), 1):
        try:
            yield line, object_in(text, file.where(line), keys) if text.strip() else None
        except DataError as error:
            yield line, error.problems[0]


def _texts(example: dict[str, Any], key: Key, where: str, *, number: bool, several: bool) -> list[str]:
    """The text under a key, or all of a list of them where it may be one; an empty list is an empty text."""
    value = value_in(example, key, where)
    values = (value or [""]) if several and isinstance(value, list) else [value]
    hint = "expected is a text, or a list of texts" if several else ""
    return ["" if one is None else text_of(one, key, where, number=number, hint=hint) for one in values]


def object_in(text: str, where: str, keys: Iterable[Key] = ()) -> dict[str, Any]:
    """The object that a line of a .jsonl is; `keys` are those that are asked for in it."""
    try:
        example = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at position {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"not valid JSON: {reason}", where=where, hint="one object a line is expected") from None
    if not isinstance(example, dict):
        names = dict.fromkeys(str(key).partition(".")[0] for key in keys)
        hint = "one object a line is expected" + (f", with {', '.join(map(repr, names))}" if names else "")
        raise DataError(f"{text[:80]} is not an object", where=where, hint=hint)
    return example


FORMATS: dict[str, Callable[[TextFile, Corpus], Iterator[Row]]] = {
    ".tsv": _tsv_rows,
    ".csv": _csv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": parquet_rows,
}
"""What one file with all columns may be, by its suffix."""


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


def rows_in(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """The rows of a file with all columns, also those with a fault; but one error where all rows have one.

    The recipe then asks for what is not in the file: that is one mistake, and nothing is left if they are dropped.
    """
    read = format_of(file)
    filled = (row for row in read(file, corpus) if row.fault is not None or any(row.values))
    first = next(filled, None)
    if first is not None and first.fault is not None and all(row.fault is not None for row in filled):
        raise ColumnError(problems=[first.fault])
    yield from read(file, corpus)
