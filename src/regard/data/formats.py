"""One file with all columns -> rows of text: .tsv, .csv, .jsonl, .parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice, product
from typing import Any, NamedTuple

from regard.data.config import Corpus
from regard.errors import ColumnError, DataError, Problem, import_extra
from regard.text.files import TextFile
from regard.text.normalise import same_name

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


def rows_or_one_error(read: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows of a file, also those with a fault; but one error where all rows have one.

    The recipe then asks for what is not in the file: that is one mistake, and nothing is left if they are dropped.
    """
    filled = (row for row in read() if row.fault is not None or any(row.values))
    first = next(filled, None)
    if first is not None and first.fault is not None and all(row.fault is not None for row in filled):
        raise ColumnError(problems=[first.fault])
    yield from read()


Key = str | int
"""A column of a file: its name, or its number from 0."""


class Row(NamedTuple):
    """One example: the line where it begins, and the text of each column."""

    line: int
    values: tuple[str, ...]
    fault: Problem | None = None
    """Why the columns cannot be told apart, if so; the values are then empty."""
    continues: bool = False
    """Whether it goes on with the document of the row before, which is too long to be held at once."""


def keys_of(corpus: Corpus) -> dict[str, Key]:
    """The columns to read, by the task's names for them."""
    return {name: key for name, key in corpus.columns.items() if key is not None}


def has_header(corpus: Corpus) -> bool:
    """Whether the first row of a table has names: as the recipe says, or where columns are asked for by name."""
    return any(isinstance(key, str) for key in keys_of(corpus).values()) if corpus.header is None else corpus.header


def numeric_keys(corpus: Corpus) -> frozenset[Key]:
    """Those of the columns that may hold numbers."""
    return frozenset(key for name, key in keys_of(corpus).items() if name in corpus.NUMBERS)


def value_in(example: Mapping[str, Any], key: Key, where: str) -> Any:
    """The value under a key; `translation.en` is `en` in `translation`, unless a column has that very name.

    In a list `choices.0` is the first. Below a null all is null.
    """
    value: Any = example
    for part in [key] if key in example else str(key).split("."):
        if isinstance(value, list) and str(part).isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        elif value is None:
            return None
        else:
            raise no_column(key, dict(leaves_in(example)), where)
    return value


def text_of(value: Any, key: Key, where: str, *, number: bool = False, hint: str = "") -> str:
    """A value that is a text, or if so allowed a number as JSON spells it; or the error that it is none."""
    if number and isinstance(value, int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        said = json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()[:80]
        raise DataError(f"the column {key!r} holds {said}, not a string", where=where, hint=hint)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"the column {key!r} holds half of a surrogate pair", where=where) from None
    return value


def no_column(key: Key, there: Iterable[str], where: str) -> ColumnError:
    names = [*there]
    meant = [name for name in names if same_name(name, key)]
    hint = f"the columns are {', '.join(map(_quoted, names))}" + (f"; did you mean {meant[0]!r}?" if meant else "")
    return ColumnError(f"there is no column {key!r}", where=where, hint=hint)


def _quoted(name: str) -> str:
    """In quotes where its ends would not be seen."""
    return name if name and name == name.strip() and "," not in name else repr(name)


def leaves_in(example: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All columns and their values, those within others as `translation.en`."""
    for name, value in example.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{name}.{below}", leaf) for below, leaf in leaves_in(value))
        else:
            yield str(name), value


BATCH = 4096
"""Rows that are held at once."""
BUFFER = 1 << 20
"""Bytes of a column that are read at once; a row group as a whole may be larger than the memory."""


def parquet_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """The texts of the columns that a corpus asks for."""
    return read_parquet(file, list(keys_of(corpus).values()), numeric_keys(corpus))


def read_parquet(file: TextFile, keys: Sequence[Key], numeric: frozenset[Key] = frozenset()) -> Iterator[Row]:
    """The texts of some columns; those of the `numeric` ones may be numbers.

    `translation.en` is the field `en` of the column `translation`; a null is an empty text.
    """
    arrow = import_extra("pyarrow", extra="formats", where=file.name)
    compute = import_extra("pyarrow.compute", extra="formats", where=file.name)  # which `import pyarrow` leaves out
    read = 0
    with _opened(file) as table:
        paths = [_path(key, table.schema_arrow, arrow, file.name, key in numeric) for key in keys]
        for batch in table.iter_batches(BATCH, columns=[".".join(path) for path in paths]):
            columns = [_cells(batch, path, compute) for path in paths]
            yield from (Row(row, values) for row, values in enumerate(zip(*columns, strict=True), read + 1))
            read += batch.num_rows
    if read == 0:
        raise DataError("the file has no rows", where=file.name)


def plain_columns(file: TextFile) -> list[str]:
    """The names of the columns that hold text or numbers."""
    arrow = import_extra("pyarrow", extra="formats", where=file.name)
    with _opened(file) as table:
        kinds = _leaves(table.schema_arrow, arrow)
        return [name for name, kind in kinds if _is_text(kind, arrow) or _is_number(kind, arrow)]


def count_rows(file: TextFile) -> int:
    """How many rows there are, as the file says."""
    with _opened(file) as table:
        return int(table.metadata.num_rows)


@contextmanager
def _opened(file: TextFile) -> Iterator[Any]:
    """The open file; what is wrong with it, then or while it is read, is an error of ours."""
    arrow = import_extra("pyarrow", extra="formats", where=file.name)
    parquet = import_extra("pyarrow.parquet", extra="formats", where=file.name)
    try:
        with parquet.ParquetFile(file.path, buffer_size=BUFFER, pre_buffer=False) as table:
            yield table
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "is it cut off, or another format? Copy or download it again"
        raise DataError(f"cannot be read as a Parquet file: {reason}", where=file.name, hint=hint) from None


def _path(key: Key, schema: Any, arrow: Any, where: str, number: bool = False) -> list[str]:
    """The names that lead to a column of text, or of numbers where those are allowed."""
    if isinstance(key, int) and 0 <= key < len(schema.names):
        key = schema.names[key]
    kinds = dict(_leaves(schema, arrow))
    if key not in kinds:
        raise no_column(key, kinds, where)
    if not (_is_text(kinds[key], arrow) or (number and _is_number(kinds[key], arrow))):
        raise DataError(f"the column {key!r} holds {kinds[key]}, not text", where=where)
    return [key] if key in schema.names else key.split(".")


def _leaves(fields: Any, arrow: Any) -> Iterator[tuple[str, Any]]:
    """The columns and their types, those of a struct one by one."""
    for field in fields:
        if arrow.types.is_struct(field.type):
            yield from ((f"{field.name}.{name}", kind) for name, kind in _leaves(field.type, arrow))
        else:
            yield field.name, field.type


def _is_text(kind: Any, arrow: Any) -> bool:
    if arrow.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind))


def _is_number(kind: Any, arrow: Any) -> bool:
    types = arrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _cells(batch: Any, path: list[str], compute: Any) -> list[str]:
    column = batch.column(path[0])
    for name in path[1:]:
        column = compute.struct_field(column, name)
    values = column.to_pylist()
    return ["" if one is None else one if isinstance(one, str) else json.dumps(one) for one in values]


TABLE_ROWS: dict[str, Callable[[TextFile, Corpus], Iterator[Row]]] = {
    ".tsv": _tsv_rows,
    ".csv": _csv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": parquet_rows,
}
"""Tables by their suffix, which also stands in TABLES of data/config.py."""


def table_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """The rows of a table of any of these formats."""
    return rows_or_one_error(lambda: TABLE_ROWS[file.suffixes[0]](file, corpus))
