"""Parquet files -> rows of text, a batch at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from regard.data.config import Corpus
from regard.data.rows import Key, Row, keys_of, no_column, numeric_keys
from regard.errors import DataError, import_extra
from regard.text.files import TextFile

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
            columns = [_texts(batch, path, compute) for path in paths]
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


def _texts(batch: Any, path: list[str], compute: Any) -> list[str]:
    column = batch.column(path[0])
    for name in path[1:]:
        column = compute.struct_field(column, name)
    values = column.to_pylist()
    return ["" if one is None else one if isinstance(one, str) else json.dumps(one) for one in values]
