"""Tables, files that hold all columns -> rows of text."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain, islice, product
from typing import Any, NamedTuple, TypeVar

from regard.data.config import OBJECTS, C, Corpus
from regard.errors import ColumnError, DataError, Problem, import_extra
from regard.text.files import MAX_LINE_BYTES, TextFile
from regard.text.json_objects import DECODER, RENAME_KEY, RepeatedKeyError
from regard.text.normalise import same_name

SEPARATORS = (",", ";", "\t", "|")  # what may separate the cells of a .csv
MAX_LABELS = 100_000  # labels of a .csv that are remembered to tell whether lines were joined
EXPECTED_JSON = (
    "expected is an array of objects, [{...}, {...}], or an object a line; or SQuAD's JSON: data, "
    "in it paragraphs, in "
    "them a context and qas"
)
"""What a .json may hold."""
Records = Iterator[tuple[int, list[str]]]  # the cells of each record, and the line where it begins
Key = str | int  # a column of a file: its name, or its number from 0
Object = Mapping[str, Any]  # of JSON: its values by their keys
T = TypeVar("T")
CellsOf = Callable[[Object, str], Iterable[tuple[str, ...]]]
"""An object and its place -> the cells of its rows."""


class Row(NamedTuple):
    """One example: the line where it begins, and the text of each column."""

    line: int
    values: tuple[str, ...]
    fault: Problem | None = None  # why the columns cannot be read, if so; the values are then empty
    continues: bool = False
    """Whether it goes on with the document of the row before, which is too long to be held at
    once."""


def keys_of(corpus: Corpus) -> dict[str, Key]:
    """The columns to read, by the task's names for them."""
    return {name: key for name, key in corpus.columns.items() if key is not None}


def names_asked(corpus: Corpus) -> set[str]:
    """The columns that are asked for by name: the header of a table should have them."""
    return {key for key in keys_of(corpus).values() if isinstance(key, str)}


def has_header(corpus: Corpus) -> bool:
    """Whether the first row of a table has names: as the recipe says, or where columns are asked
    for by name."""
    return bool(names_asked(corpus)) if corpus.header is None else corpus.header


def numeric_keys(corpus: Corpus) -> frozenset[Key]:
    return frozenset(key for name, key in keys_of(corpus).items() if name in corpus.NUMBERS)


def unanswered_keys(corpus: Corpus) -> list[Key]:
    """The columns that a model reads, without those that it is to find."""
    return [*keys_of(corpus).values()][: corpus.inputs]


def unanswered(corpus: Corpus) -> Corpus:
    """The corpus without the columns that a model is to find."""
    answers = [*corpus.columns][corpus.inputs :]
    return corpus.model_copy(update={**dict.fromkeys(answers), "header": has_header(corpus)})


class NamedColumns(Corpus):
    """Columns of a table that are called by their own names."""

    keys: tuple[str, ...]

    @classmethod
    def of(cls, *keys: str) -> NamedColumns:
        return cls.model_construct(keys=keys)

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {key: key for key in self.keys}

    @property
    def inputs(self) -> int:
        return len(self.keys)


def or_one_error(
    read: Callable[[TextFile, C], Iterator[Row]],
) -> Callable[[TextFile, C], Iterator[Row]]:
    """Read rows, including those with a fault, but raise one error if all rows of a file have one.

    The recipe then asks for columns that are not in the file. That is one mistake, and if all rows
    were dropped, nothing would be left.
    """

    def rows(file: TextFile, corpus: C) -> Iterator[Row]:
        filled = (row for row in read(file, corpus) if row.fault is not None or any(row.values))
        first = next(filled, None)
        if (
            first is not None
            and first.fault is not None
            and all(row.fault is not None for row in filled)
        ):
            raise ColumnError(problems=[first.fault])
        yield from read(file, corpus)

    return rows


def table_rows(file: TextFile, corpus: Corpus, *, answered: bool = True) -> Iterator[Row]:
    """The rows of a table, with the columns that the corpus names. Unless they must be `answered`,
    the columns that a model is to find are left out, and each row that cannot be read has a fault.
    """
    if answered:
        return _answered_rows(file, corpus)
    wanted = unanswered(corpus)
    suffix = wanted.format(file)
    if suffix in OBJECTS:
        return _unanswered_objects(file, wanted)
    return TABLE_ROWS[suffix](file, wanted)


@or_one_error
def _answered_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    return TABLE_ROWS[file.suffixes[0]](file, corpus)


def _unanswered_objects(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    keys = [*keys_of(corpus).values()]

    def cells(example: Object, where: str) -> list[tuple[str, ...]]:
        return [input_texts(example, keys, where, corpus.listed)]

    return object_rows(file, keys, cells, blank_lines=True)


def input_texts(
    example: Object, keys: Sequence[Key], where: str, listed: str | None = None
) -> tuple[str, ...]:
    """The texts that a model reads of an object. All but the first may be items of the list
    `listed`: then as many as it has."""
    items = value_in(example, listed, where) if listed else None
    if isinstance(items, list) and len(items) > 1:
        keys = [keys[0], *(f"{listed}.{number}" for number in range(len(items)))]
    return tuple(text_of(value_in(example, key, where), key, where) for key in keys)


# ------------------------------------------------------------------------------------------------------- .tsv, .csv


_CELL = re.compile(r'"[^"]*(?:""[^"]*)*"|[^"\t]*')
"""A cell of a .tsv whose cells may be in quotes."""
_OPEN = re.compile(r'(?:(?:"[^"]*(?:""[^"]*)*"|[^"\t]*)\t)*"[^"]*(?:""[^"]*)*')
"""A line that ends within quotes."""
_NEEDED = re.compile(r'".*(?:""|[\t\r\n]).*"', re.DOTALL)
"""A cell that could not be written without quotes."""
MAX_CELL_LINES = 1_000  # lines that a cell in quotes may have


def _tsv_records(file: TextFile, corpus: Corpus) -> Records:
    """Fields between tabs; with quotes as in a .csv if the whole file is written so, as pandas and
    Excel do."""
    if is_quoted(file):
        return _quoted_records(file, corpus)
    return ((line, text.split("\t")) for line, text in enumerate(file.lines(), 1))


def _quoted_records(file: TextFile, corpus: Corpus) -> Records:
    yield from _noted_records(file, corpus, "\t")
    file.notes.append(
        f"{file.name}: cells in double quotes are read as in a .csv, as pandas and Excel write them"
    )


def is_quoted(file: TextFile) -> bool:
    """Whether the cells of a .tsv are in quotes as in a .csv; otherwise quotes are part of its
    texts.

    No file says so itself. Its cells are in quotes if every record can be read so and has as many
    cells, and if a cell contains a tab, a line break or a doubled quote, or all cells of a column
    are in quotes.
    """
    try:
        status = file.path.stat()
    except OSError:
        return False  # which the reader reports
    return _is_quoted(file, (status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=64)
def _is_quoted(file: TextFile, version: tuple[int, int]) -> bool:
    columns = set[int]()
    needed = False
    width = records = 0
    try:
        for lines, cells in _maybe_quoted(file):
            width = width or len(cells)
            if cells == [""] and width > 1:
                continue  # an empty line
            if len(cells) != width or (
                len(lines) > 1 and all(line.count("\t") == width - 1 for line in lines)
            ):
                return False  # in the second case each line is a row, and the quotes are stray
            quoted = {place for place, cell in enumerate(cells) if cell.startswith('"')}
            columns = columns & quoted if records else quoted
            records = records + 1
            needed = needed or any(_NEEDED.fullmatch(cells[place]) for place in quoted)
    except (ValueError, DataError):  # the latter is reported when the file is read
        return False
    return needed or (records > 1 and bool(columns))


def _maybe_quoted(file: TextFile) -> Iterator[tuple[list[str], list[str]]]:
    """The lines and the cells of each record, with their quotes; a ValueError where a quote is
    within a cell."""
    following = file.lines()
    for first in following:
        if '"' not in first:
            yield [first], first.split("\t")
            continue
        lines = [first]
        if first.count('"') % 2 and _OPEN.fullmatch(first):
            for line in islice(following, MAX_CELL_LINES):
                lines.append(line)
                if line.count('"') % 2:
                    break
        record = "\n".join(lines)
        cells = list[str]()
        place = -1
        while place < len(record):
            cell = _CELL.match(record, place + 1)
            assert cell is not None
            cells.append(cell[0])
            place = cell.end()
            if record[place : place + 1] not in ("", "\t"):
                raise ValueError
        yield lines, cells


def separator_of(file: TextFile, names: Set[str] = frozenset()) -> str:
    """The separator of the cells of a .csv: in many countries, spreadsheets write semicolons or tabs
    instead of commas.

    It is the separator with which the header has the names; where there are none, or it has not,
    the one with which the most of the first records have as many cells as the first, and more than
    one.
    """

    def fitness(separator: str) -> tuple[bool, int]:
        records = list[list[str]]()
        with suppress(DataError):  # it is no valid CSV with this separator
            first = islice(csv_records(file, separator), 100)
            records = [fields for _, fields in first if "".join(fields).strip()]
        widths = [len(record) for record in records]
        has_names = bool(names and records) and names <= set(records[0])
        return has_names, widths.count(widths[0]) if widths and widths[0] > 1 else 0

    return max(SEPARATORS, key=fitness)


def csv_records(file: TextFile, separator: str = ",") -> Records:
    """RFC 4180: a field in double quotes may hold separators, line breaks and doubled quotes."""
    csv.field_size_limit(
        MAX_LINE_BYTES
    )  # the library refuses fields over 131,072 characters, which data.max_characters judges
    records = csv.reader(file.lines(keep_ends=True), strict=True, delimiter=separator)
    line = 1
    while True:
        try:
            yield line, next(records)
        except StopIteration:
            return
        except csv.Error as error:
            what = f"not valid CSV: {str(error).partition(' - ')[0]}"
            hint = "is a quote not closed? Quotes within a quoted field are doubled"
            if str(error).startswith("new-line character"):
                what = (
                    "not valid CSV: lines end in CR alone, as on old Macs, or a line contains a CR"
                )
                hint = (
                    r"convert it: tr '\r' '\n' < OLD > NEW; a cell with a line break needs "
                    r"double quotes"
                )
            # such a line is bad alone; else all that follows is
            if "expected after" not in str(error):
                raise DataError(what, where=file.where(line), hint=hint) from None
            yield line, _BadRecord(Problem(file.where(line), what, hint))
        line = records.line_num + 1


class _BadRecord(list[str]):
    """Stands for a record that is not valid CSV, and has no cells."""

    def __init__(self, fault: Problem) -> None:
        super().__init__()
        self.fault = fault


def _csv_records(file: TextFile, corpus: Corpus) -> Records:
    return _noted_records(file, corpus, separator_of(file, names_asked(corpus)))


def _noted_records(file: TextFile, corpus: Corpus, separator: str) -> Records:
    """The records of a .csv. The file gets a note on those that a stray quote may have joined from
    several lines: each line has a label that records of one line have; without labels, all records
    of several lines are so."""
    key = keys_of(corpus).get("label")
    width = 0
    several = 0
    label = key if isinstance(key, int) else 0
    joined, labels = (
        dict[int, set[str]](),
        set[str](),
    )  # the labels in the lines of a record, and in those of one line
    for line, fields in csv_records(file, separator):
        yield line, fields
        if not width:
            width = len(fields)
            if isinstance(key, str) and key in fields:
                label = fields.index(key)
        text = separator.join(fields)
        if "\n" not in text:
            if key is not None and len(labels) < MAX_LABELS:
                labels.update(fields[label : label + 1])
            continue
        several += 1
        cells = [part.rstrip("\r").split(separator) for part in text.split("\n")]
        if label < width > 1 and all(len(own) == width for own in cells):
            joined[line] = {own[label] for own in cells}
    found = [line for line, own in joined.items() if key is None or own <= labels]
    if found and (key is not None or len(found) == several):
        file.notes.append(
            f"{file.where(found[0])}: this record spans several lines, each of which could be a "
            "record "
            f"({len(found):,} such): is there a stray double quote?"
        )


RECORDS: dict[str, Callable[[TextFile, Corpus], Records]] = {
    ".tsv": _tsv_records,
    ".csv": _csv_records,
}
"""Tables whose lines are split into cells, by suffix."""


def _table_rows(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """The columns of records, by the names in the first of them or by number."""
    columns = keys_of(corpus)
    header = has_header(corpus)
    records = _without_end(RECORDS[file.suffixes[0]](file, corpus))
    first_line, names = next(records, (1, list[str]()))
    indexes = [
        _column_index(key, names if header else None, file.where(first_line))
        for key in columns.values()
    ]
    nothing = ("",) * len(indexes)
    line = 0
    width = len(names) if header else 0
    for line, fields in records if header else chain([(first_line, names)], records):
        filled = (
            len(fields) > 1 or "".join(fields).strip()
        )  # an empty line is one for data.bad_lines, too
        width = width or (len(fields) if filled else 0)
        if isinstance(fields, _BadRecord):
            yield Row(line, nothing, fields.fault)
        elif max(indexes) >= len(fields):
            numbered = zip(columns.items(), indexes, strict=True)
            missing = [
                f"no column {key!r}" if key == name else f"no column {key!r} ({name})"
                for (name, key), index in numbered
                if index >= len(fields)
            ]
            what = f"there is {' and '.join(missing)} in this row"
            hint = f"it has {len(fields)}, numbered from 0: {' | '.join(fields)[:200]}"
            yield Row(line, nothing, Problem(file.where(line), what, hint) if filled else None)
        elif filled and (len(fields) < width or any(fields[width:])):
            what = (
                f"this row has {len(fields)} cells, the first line {width}: "
                f"{' | '.join(fields)[:200]}"
            )
            hint = (
                "in a .csv a text with a comma needs double quotes, in a .tsv one with a "
                "tab; quotes in it are doubled"
            )
            yield Row(line, nothing, Problem(file.where(line), what, hint))
        else:
            yield Row(line, tuple([fields[index] for index in indexes]))
    if line == 0:
        raise DataError("there is a header, but no row below it", where=file.name)


def _without_end(records: Records) -> Records:
    """The records without the empty lines that spreadsheets leave at the end."""
    held = list[tuple[int, list[str]]]()
    for line, fields in records:
        held.append((line, fields))
        if "".join(fields).strip() or len(fields) > 1 or isinstance(fields, _BadRecord):
            yield from held
            held = []


def _column_index(key: Key, names: list[str] | None, where: str) -> int:
    """The number of a column; `names` is the header, if there is one."""
    if isinstance(key, int):
        if key < 0:
            raise ColumnError(
                f"there is no column {key}", where=where, hint="columns are numbered from 0"
            )
        return key
    if names is None:
        raise DataError(
            f"a column named {key!r} needs a header",
            where=where,
            hint="header: true, or a column number",
        )
    if key not in names:
        raise _no_column(key, names, where)
    if names.count(key) > 1:
        raise _repeated_column(key, names, where)
    return names.index(key)


def _repeated_column(key: Key, names: Iterable[str], where: str) -> DataError:
    return DataError(
        f"two columns are named {key!r}", where=where, hint=f"the columns are {', '.join(names)}"
    )


# ---------------------------------------------------------------------------------------------------- .jsonl, .json


_NO_BLANK = re.compile(r"\S")


def objects_of(file: TextFile) -> Iterator[tuple[int, str | Object]]:
    """The lines of a .jsonl, or the objects of a .json, with their numbers."""
    if file.suffixes[0] != ".json":
        return enumerate(file.lines(), 1)
    return enumerate(
        (value if isinstance(value, dict) else json.dumps(value) for value in json_values(file)), 1
    )


def is_array(file: TextFile) -> bool:
    return next(filter(None, map(str.strip, file.lines())), "").startswith("[")


def json_values(file: TextFile) -> list[Any]:
    """The values of a .json, in an array or one after the other. It is held whole."""
    lines = list[str]()
    size = 0
    for line in file.lines():
        lines.append(line)
        size += len(line) + 1
        if size > MAX_LINE_BYTES:
            what = f"the JSON has more than {MAX_LINE_BYTES:,} characters"
            raise DataError(what, where=file.name, hint="convert it to .jsonl, an object a line")
    text = "\n".join(lines)
    values = list[Any]()
    end = 0
    try:
        if is_array(file):
            values = DECODER.decode(text)
        else:
            while found := _NO_BLANK.search(text, end):
                value, end = DECODER.raw_decode(text, found.start())
                values.append(value)
    except RepeatedKeyError as error:
        raise DataError(str(error), where=file.name, hint=RENAME_KEY) from None
    except (ValueError, RecursionError) as error:
        where = file.where(error.lineno) if isinstance(error, json.JSONDecodeError) else file.name
        raise DataError(f"not valid JSON: {error}", where=where, hint=EXPECTED_JSON) from None
    if not values:
        raise DataError("there are no JSON objects in it", where=file.name, hint=EXPECTED_JSON)
    return values


def _object_table(file: TextFile, corpus: Corpus) -> Iterator[Row]:
    """A column is a key. Where a column may hold a list, each text of it makes a row."""
    columns = keys_of(corpus)
    numeric = numeric_keys(corpus)
    lists = {key for name, key in columns.items() if name in corpus.LISTS}

    def cells(example: Object, where: str) -> Iterable[tuple[str, ...]]:
        texts = [
            object_texts(example, key, where, number=key in numeric, several=key in lists)
            for key in columns.values()
        ]
        items = None if corpus.listed is None else value_in(example, corpus.listed, where)
        read = sum(str(key).startswith(f"{corpus.listed}.") for key in columns.values())
        if isinstance(items, list) and len(items) > read:
            what = (
                f"there are {len(items)} items in {corpus.listed!r}, of which {read} would be read"
            )
            raise DataError(what, where=where, hint="all rows have as many")
        return product(*texts)

    return object_rows(file, columns.values(), cells, blank_lines=True)


def object_rows(
    file: TextFile, keys: Collection[Key], cells_of: CellsOf, *, blank_lines: bool = False
) -> Iterator[Row]:
    """The rows that `cells_of` makes of each object of a file and its place; `keys` are those that
    it asks for.

    A line of which it raises a DataError is a row with that fault, and an empty text for each key.
    With `blank_lines` an empty line is a row of empty texts, else it is none.
    """
    nothing = ("",) * len(keys)
    for line, rows in read_objects(file, keys, cells_of):
        if isinstance(rows, Problem):
            yield Row(line, nothing, rows)
        elif rows is not None:
            yield from (Row(line, cells) for cells in rows)
        elif blank_lines:
            yield Row(line, nothing)


def read_objects(
    file: TextFile, keys: Collection[Key], read: Callable[[Object, str], T]
) -> Iterator[tuple[int, T | Problem | None]]:
    """The number of each line or object of a file, and what `read` makes of the object and its
    place: a problem if it raises a DataError. None for an empty line."""
    for line, text in objects_of(file):
        where = file.row(line)
        is_blank = isinstance(text, str) and not text.strip()
        try:
            value = None if is_blank else read(object_in(text, where, keys), where)
        except DataError as error:
            yield line, error.problems[0]
        else:
            yield line, value


def object_in(text: str | Object, where: str, keys: Iterable[Key] = ()) -> Object:
    """The object that a text is; `keys` are those that are asked for in it."""
    if not isinstance(text, str):
        return text
    try:
        example = DECODER.decode(text)
    except RepeatedKeyError as error:
        raise DataError(str(error), where=where, hint=RENAME_KEY) from None
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg} at position {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else str(error)
        )
        raise DataError(
            f"not valid JSON: {reason}", where=where, hint="one object a line is expected"
        ) from None
    if not isinstance(example, dict):
        names = dict.fromkeys(str(key).partition(".")[0] for key in keys)
        hint = "one object a line is expected" + (
            f", with {', '.join(map(repr, names))}" if names else ""
        )
        raise DataError(f"{text[:80]} is not an object", where=where, hint=hint)
    return example


def object_texts(
    example: Object, key: Key, where: str, *, number: bool = False, several: bool = False
) -> list[str]:
    """The text under a key, or all of a list of them where it may be one; a null or an empty list
    is an empty text."""
    value = value_in(example, key, where)
    values = (value or [""]) if several and isinstance(value, list) else [value]
    hint = "expected is a text, or a list of texts" if several else ""
    return [
        "" if item is None else text_of(item, key, where, number=number, hint=hint)
        for item in values
    ]


def value_in(example: Object, key: Key, where: str) -> Any:
    """The value under a key; `translation.en` is `en` in `translation`, unless a column has that
    very name.

    In a list `choices.0` is the first. Below a null all is null.
    """
    value: Any = example
    parts = [key] if key in example else str(key).split(".")
    while parts and value is not None:
        names = (".".join(map(str, parts[:size])) for size in range(len(parts), 0, -1))
        name = next((name for name in names if isinstance(value, Mapping) and name in value), None)
        if name is not None:
            value = value[name]
            parts = parts[name.count(".") + 1 :]
        elif isinstance(value, list) and str(parts[0]).isdecimal() and int(parts[0]) < len(value):
            value = value[int(parts[0])]
            parts = parts[1:]
        else:
            raise _no_column(key, dict(leaves_in(example)), where)
    return value


class NullError(DataError):
    """A column that is there, but holds null instead of a text."""


def text_of(value: Any, key: Key, where: str, *, number: bool = False, hint: str = "") -> str:
    """A value that is a text, or if so allowed a number as JSON spells it; or the error that it is
    none."""
    if number and isinstance(value, int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        shown = (
            json.dumps(value, default=str, ensure_ascii=False)
            .encode("utf-8", "backslashreplace")
            .decode()[:80]
        )
        kind = NullError if value is None else DataError
        raise kind(f"the column {key!r} holds {shown}, not a string", where=where, hint=hint)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"the column {key!r} holds half of a surrogate pair", where=where
            ) from None
    return value


def leaves_in(example: Object) -> Iterator[tuple[str, Any]]:
    """All columns and their values, those within others as `translation.en`."""
    for name, value in example.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{name}.{below}", leaf) for below, leaf in leaves_in(value))
        else:
            yield str(name), value


def _no_column(key: Key, there: Iterable[str], where: str) -> ColumnError:
    names = [*there]
    # in quotes where its ends would not be seen
    quoted = [
        name if name and name == name.strip() and "," not in name else repr(name) for name in names
    ]
    meant = [f"; did you mean {name!r}?" for name in names if same_name(name, key)]
    hint = f"the columns are {', '.join(quoted) or 'none'}" + "".join(meant[:1])
    return ColumnError(f"there is no column {key!r}", where=where, hint=hint)


# --------------------------------------------------------------------------------------------------------- .parquet


def read_parquet(
    file: TextFile, keys: Sequence[Key], numeric: frozenset[Key] = frozenset()
) -> Iterator[Row]:
    """The texts of some columns; those of the `numeric` ones may be numbers.

    `translation.en` is the field `en` of the column `translation`; a null is an empty text.
    """
    compute = import_extra(
        "pyarrow.compute", extra="formats", where=file.name
    )  # which `import pyarrow` leaves out
    read = 0
    with _open_parquet(file) as table:
        names = table.schema_arrow.names
        kinds = dict(_parquet_leaves(table.schema_arrow))
        paths = []
        for key in keys:
            name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
            if name not in kinds:
                raise _no_column(name, kinds, file.name)
            if names.count(str(name).partition(".")[0]) > 1 or names.count(name) > 1:
                raise _repeated_column(name, names, file.name)
            if not (_is_text(kinds[name]) or (key in numeric and _is_number(kinds[name]))):
                raise DataError(
                    f"the column {name!r} holds {kinds[name]}, not text", where=file.name
                )
            paths.append([name] if name in names else name.split("."))
        for batch in table.iter_batches(4096, columns=[".".join(path) for path in paths]):
            cells = [(batch.column(name), below) for name, *below in paths]
            columns = [
                (compute.struct_field(cell, below) if below else cell).to_pylist()
                for cell, below in cells
            ]
            for row, values in enumerate(zip(*columns, strict=True), read + 1):
                texts = [
                    "" if cell is None else cell if isinstance(cell, str) else json.dumps(cell)
                    for cell in values
                ]
                yield Row(row, tuple(texts))
            read += batch.num_rows
    if read == 0:
        raise DataError("the file has no rows", where=file.name)


def plain_columns(file: TextFile) -> list[str]:
    """The names of the columns that hold text or numbers."""
    with _open_parquet(file) as table:
        names = [
            name
            for name, kind in _parquet_leaves(table.schema_arrow)
            if _is_text(kind) or _is_number(kind)
        ]
        for name in names:
            if names.count(name) > 1:
                raise _repeated_column(name, table.schema_arrow.names, file.name)
        return names


@contextmanager
def _open_parquet(file: TextFile) -> Iterator[Any]:
    """The open file; what is wrong with it, then or while it is read, is an error of ours."""
    arrow = import_extra("pyarrow", extra="formats", where=file.name)
    parquet = import_extra("pyarrow.parquet", extra="formats", where=file.name)
    try:
        # 1 MiB of a column at once: a row group as a whole may be larger than the memory
        with parquet.ParquetFile(file.path, buffer_size=1 << 20, pre_buffer=False) as table:
            yield table
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "is it cut off, or another format? Copy or download it again"
        raise DataError(
            f"cannot be read as a Parquet file: {reason}", where=file.name, hint=hint
        ) from None


def _parquet_leaves(fields: Any) -> Iterator[tuple[str, Any]]:
    """The columns and their types as pyarrow names them, those of a struct one by one."""
    for field in fields:
        if str(field.type).startswith("struct"):
            yield from (
                (f"{field.name}.{name}", kind) for name, kind in _parquet_leaves(field.type)
            )
        else:
            yield field.name, field.type


def _is_text(kind: Any) -> bool:
    name = str(kind.value_type if str(kind).startswith("dictionary") else kind)
    return name in ("string", "large_string", "string_view")


def _is_number(kind: Any) -> bool:
    return str(kind).startswith(("int", "uint", "halffloat", "float", "double", "bool"))


TABLE_ROWS: dict[str, Callable[[TextFile, Corpus], Iterator[Row]]] = {
    **dict.fromkeys(RECORDS, _table_rows),
    **dict.fromkeys(OBJECTS, _object_table),
    ".parquet": lambda file, corpus: read_parquet(
        file, [*keys_of(corpus).values()], numeric_keys(corpus)
    ),
}
"""Tables by their suffix, which also stands in TABLES of data/config.py."""
