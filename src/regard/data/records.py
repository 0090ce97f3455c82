"""Rows in memory (a pandas table, a dataset, a list of dicts) -> a .jsonl file in the cache that a
recipe can name.

Libraries are recognised by their methods, so none of them is imported here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from regard.data import shapes
from regard.data.config import Corpus
from regard.data.images import DATA_URL
from regard.data.readers import named
from regard.data.store import cache_folder, stored
from regard.errors import DataError, short

MISSING_TYPES = ("NAType", "NaTType")
"""The types of pandas.NA and pandas.NaT."""
SOURCE_FIELDS = (
    "file",
    "dataset",
    "subset",
    "split",
    "stream",
    "corpus",
    "header",
    "min_words",
    "max_words",
    "about",
)
"""Fields of a corpus that say where its rows come from."""
TABLE_HINT = "give a table of pandas, a datasets.Dataset, or a list of dicts"


def is_rows(value: object) -> bool:
    """Whether a value is rows in memory, not the name of a file or a list of such names."""
    if isinstance(value, str | Path):
        return False
    if hasattr(value, "columns") or hasattr(value, "features"):
        return True
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping)


def splits_in(data: object) -> dict[str, object] | None:
    """The splits of a datasets.DatasetDict; None if the data is one table."""
    if (
        isinstance(data, Mapping)
        and data
        and all(hasattr(part, "features") for part in data.values())
    ):
        return {str(name): part for name, part in data.items()}
    return None


def rows_of(data: object, name: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a table as dicts; `name` is what messages call the table."""
    table: Any = data
    if hasattr(data, "features"):  # a datasets.Dataset
        kinds = table.features or {}
        records: Iterable[Any] = (
            {key: named(value, kinds.get(key)) for key, value in row.items()} for row in iter(table)
        )
    elif hasattr(data, "to_dicts"):  # a table of polars
        records = table.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # a table of pandas
        records = table.to_dict("records")
    elif isinstance(data, Mapping) and all(
        isinstance(column, list | tuple) for column in data.values()
    ):
        records = (dict(zip(data, row, strict=True)) for row in _rows_of_columns(data, name))
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        records = data
    else:
        raise DataError(f"{short(repr(data))} is not a table", where=name, hint=TABLE_HINT)
    for number, row in enumerate(records, 1):
        if isinstance(row, str):
            yield {"text": row}
        elif isinstance(row, Mapping):
            yield row
        else:
            hint = "a row is a dict of its columns, or a text if there is only one"
            raise DataError(
                f"{short(repr(row))} is not a row", where=f"{name}, row {number}", hint=hint
            )


def _rows_of_columns(columns: Mapping[str, Sequence[Any]], name: str) -> Iterator[tuple[Any, ...]]:
    lengths = {key: len(column) for key, column in columns.items()}
    if len({*lengths.values()}) > 1:
        counts = ", ".join(f"{key} {length:,}" for key, length in lengths.items())
        raise DataError(f"the columns have different lengths: {counts}", where=name)
    return zip(*columns.values(), strict=True)


def corpus_for(
    data: object, name: str, kind: type[Corpus], own: Mapping[str, Any]
) -> dict[str, Any]:
    """Rows in memory as a corpus of a recipe: stored in the cache, with the columns that the task
    reads.

    `own` is the corpus that the recipe has so far. A column that it names is read if the rows have
    it; otherwise the column that has the task's own name.
    """
    rows = rows_of(data, name)
    first = next(rows, None)
    if first is None:
        raise DataError("there are no rows", where=name, hint=TABLE_HINT)
    columns = _columns_in(kind, own, first, name)
    keys = [
        key for value in columns.values() for key in (value if isinstance(value, list) else [value])
    ]
    images = {str(columns["image"])} if "image" in columns else set[str]()
    path = store_rows(chain([first], rows), name, _first_parts(keys, first), images)
    replaced = {
        *SOURCE_FIELDS,
        *kind.column_fields(),
        *(("size", "seed") if own.get("corpus") else ()),
    }
    kept = {key: value for key, value in own.items() if key not in replaced}
    return {**kept, "file": str(path), **columns}


def _columns_in(
    kind: type[Corpus], own: Mapping[str, Any], row: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Which column of the rows stands for each column of the task."""

    def there(key: object) -> bool:
        return isinstance(key, str) and bool(_first_parts([key], row))

    columns: dict[str, Any] = {}
    for field in kind.column_fields():
        wanted = own.get(field)
        if all(map(there, wanted if isinstance(wanted, list) and wanted else [wanted])):
            columns[field] = wanted
        elif (
            field == "choices"
            and isinstance(row.get(field), Sequence)
            and not isinstance(row[field], str)
        ):
            columns[field] = [f"choices.{number}" for number in range(len(row[field]))]
        elif there(field):
            columns[field] = field
    if {"text", "first", "second"} <= columns.keys():  # a text, or two
        for field in ("text",) if {"first", "second"} & own.keys() else ("first", "second"):
            del columns[field]
    missing = [
        field
        for field, value in kind.model_construct(**columns).columns.items()
        if value is None and kind.model_fields[field].default is None
    ]
    if missing or (kind.ROW and not columns):
        wanted_names = missing or kind.column_fields()
        what = f"there is no column {wanted_names[0]!r}"
        hint = (
            f"the columns are {', '.join(map(str, row))}; {{'data.train.{wanted_names[0]}': "
            "COLUMN} names it"
        )
        raise DataError(what, where=name, hint=hint)
    return columns


def _first_parts(keys: Collection[object], row: Mapping[str, Any]) -> set[str]:
    """The columns of a row that hold some keys: `translation` for `translation.en`."""
    found = set[str]()
    for key in map(str, keys):
        name = key if key in row else key.partition(".")[0]
        if name in row:
            found.add(name)
    return found


def store_rows(
    rows: Iterable[Mapping[str, Any]],
    name: str,
    columns: Collection[str] | None = None,
    images: Collection[str] = (),
) -> Path:
    """Write rows as JSON Lines into the cache, under a hash of their content; the path of the file.

    Default: all columns, and what is not JSON in them as text. In the columns `images`, paths
    become absolute.
    """
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache) as held:
            digest = hashlib.blake2b(name.encode(), digest_size=16)
            for number, row in enumerate(rows, 1):
                line = _json_line(row, f"{name}, row {number}", columns, images)
                digest.update(line)
                held.write(line)

            def build(folder: Path) -> None:
                held.seek(0)
                with (folder / f"{name}.jsonl").open("wb") as file:
                    shutil.copyfileobj(held, file)

            return stored(f"rows-{digest.hexdigest()}", build) / f"{name}.jsonl"
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
            raise
        what = f"prepared data cannot be stored here: {error.strerror or error}"
        hint = "make room, or set REGARD_CACHE to another folder"
        raise DataError(what, where=str(cache), hint=hint) from None


def _json_line(
    row: Mapping[str, Any], where: str, columns: Collection[str] | None, images: Collection[str]
) -> bytes:
    cells = {}
    for key, value in row.items():
        if columns is not None and key not in columns:
            continue
        cell = _json_value(value, str(key), where, strict=columns is not None)
        is_file = (
            key in images
            and isinstance(cell, str)
            and not cell.startswith((shapes.PREFIX, DATA_URL))
        )
        cells[str(key)] = os.path.abspath(cell) if is_file and cell.strip() else cell
    try:
        return json.dumps(cells, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which the reader names
        return json.dumps(cells).encode() + b"\n"


def _json_value(value: Any, column: str, where: str, *, strict: bool) -> Any:
    """A value as JSON has it; what is missing (None, NaN, pandas.NA) is null."""
    if value is None or type(value).__name__ in MISSING_TYPES:
        return None
    if isinstance(value, float):
        return None if value != value else float(value)
    if isinstance(value, str | bool | int):
        return value
    if hasattr(value, "tolist"):  # an array or a number of numpy
        return _json_value(value.tolist(), column, where, strict=strict)
    if isinstance(value, Mapping):
        return {
            str(key): _json_value(below, column, where, strict=strict)
            for key, below in value.items()
        }
    if isinstance(value, list | tuple):
        return [_json_value(item, column, where, strict=strict) for item in value]
    if strict:
        hint = "texts, numbers, and lists or dicts of them are read"
        what = f"the column {column!r} holds a {type(value).__name__}: {short(repr(value))}"
        raise DataError(what, where=where, hint=hint)
    return str(value)
