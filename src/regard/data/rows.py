"""A row of text, and how the columns that were asked for are found in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from regard.data.config import Corpus
from regard.errors import ColumnError, DataError, Problem
from regard.text.normalise import same_name

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
