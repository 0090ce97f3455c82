"""A sample of a table: its columns, and whether it has a header."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, TypeVar

from regard.data.config import OBJECTS, Corpus
from regard.data.formats import (
    RECORDS,
    Key,
    leaves_in,
    object_in,
    objects_of,
    plain_columns,
    read_parquet,
)
from regard.errors import DataError
from regard.recipes.proposals.columns import (
    COLUMN_NAMES,
    NUMBER_TEXT,
    SAMPLED_ROWS,
    Table,
    are_images,
    is_named,
    kind_of,
)
from regard.text.files import TextFile

R = TypeVar("R")


def sampled(records: Iterable[R]) -> tuple[list[R], int]:
    """The first records and some of all others, since many files are sorted by label or length; and
    their number."""
    rows, number, random = list[R](), 0, Random(0)
    for number, record in enumerate(records, 1):
        if number <= SAMPLED_ROWS:
            rows.append(record)
        elif (place := random.randrange(20, number)) < SAMPLED_ROWS:  # the first ones tell a header
            rows[place] = record
    return rows, number


def table_of(file: TextFile) -> Table:
    Corpus.model_construct().format(file)
    columns: Mapping[Key, Sequence[Any]] = {}
    number = 0
    if file.suffixes[0] == ".parquet":
        if names := plain_columns(file):
            rows, number = sampled(
                row.values for row in read_parquet(file, names, frozenset(names))
            )
            columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    elif file.suffixes[0] in OBJECTS:
        lines, number = sampled(objects_of(file))
        columns = columns_of(
            object_in(text, file.row(line)) for line, text in sorted(lines) if str(text).strip()
        )
    else:
        records, number = sampled(
            fields for _, fields in RECORDS[file.suffixes[0]](file, Corpus.model_construct())
        )
        width = Counter(map(len, records)).most_common(1)[0][0]
        below = [record for record in records[1:] if len(record) == width]
        header = is_header(records[0], below) or names_labels(records[0], below)
        keys: Sequence[Key] = records[0] if header else range(width)
        if header and not records[1:]:
            raise DataError("there is a header, but no row below it", where=file.name)
        cells = [record[: len(keys)] for record in records[header:] if len(record) >= len(keys)]
        columns, number = (
            {key: values for key, *values in zip(keys, *cells, strict=True)},
            number - header,
        )
    return Table({"file": Path(file.name)}, columns, number)


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record names the columns: by distinct single words, where one is a known
    name, or where two columns below hold texts of several words. pandas leaves the first name
    empty.

    A file sorted by length begins with single words, too: then the next rows are like the first.
    """
    if len(set(first)) < len(first) or not all(first[1:]):
        return False
    for place, name in enumerate(first):
        if are_images([row[place] for row in rows if len(row) > place]):
            return not are_images([name])
    if not are_words(first) or any(
        len(name) > 1 and is_named(name, *COLUMN_NAMES) for name in first
    ):
        return are_words(first)  # a single letter, as in Q and A, may also be a word
    if not rows or mean(are_words(row) for row in rows[:19]) > 0.5:
        return False
    columns = list(zip(*rows, strict=True))
    return sum(mean(" " in cell.strip() for cell in cells) > 0.5 for cells in columns) >= 2


def are_words(row: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[^\W\d]([\w.-]*\w)?", cell) for cell in row if cell)


def names_labels(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record has names: no numbers, and one above a column of labels that is none
    of them."""
    if (
        not rows
        or len(rows[0]) != len(first)
        or any(NUMBER_TEXT.fullmatch(name) or len(name) > 30 for name in first)
    ):
        return False
    columns = zip(first, *rows, strict=True)
    return any(
        kind_of(0, values) in ("class", "number") and name not in values
        for name, *values in columns
    )


def columns_of(examples: Iterable[Mapping[str, Any]]) -> dict[Key, list[Any]]:
    """The columns of objects; numbers become texts, and what is neither text nor list an empty
    text."""
    rows = [dict(leaves_in(example)) for example in examples]
    return {
        path: [cell_text(row.get(path)) for row in rows]
        for path in dict.fromkeys(chain.from_iterable(rows))
    }


def cell_text(value: Any) -> Any:
    return (
        value
        if isinstance(value, str | list)
        else json.dumps(value)
        if isinstance(value, int | float)
        else ""
    )
