"""Tables that fit a terminal: long names take several lines, and what has no room is left out and named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

NAMES = (None, 24, 12)
"""Widths of a row's name that are tried before a column is left out: as it is, then in several lines."""
NO_TERMINAL = 10_000
"""Columns of a file or a pipe, which have no edge."""


@dataclass(frozen=True)
class Column:
    """One thing about every row."""

    title: str
    cells: Sequence[str]
    justify: Literal["left", "right"] = "right"


def console_of() -> Console:
    """As wide as the terminal, or as COLUMNS says."""
    console = Console(highlight=False, soft_wrap=True)
    known = console.is_terminal or "COLUMNS" in os.environ
    return console if known else Console(highlight=False, soft_wrap=True, width=NO_TERMINAL)


def fitting(console: Console, names: Column, columns: Sequence[Column], **look: Any) -> tuple[Table, list[str]]:
    """The first columns, as many as the console has room for, and the titles of the others; nothing in them is cut.

    `look` are options of the table.
    """
    for count, width in product(range(len(columns), 0, -1), NAMES):
        table = _table(names, columns[:count], width, look)
        if console.measure(table, options=console.options.update(max_width=NO_TERMINAL)).minimum <= console.width:
            break
    return table, [column.title for column in columns[count:]]


def _table(names: Column, columns: Sequence[Column], width: int | None, look: dict[str, Any]) -> Table:
    table = Table(**{"box": box.SIMPLE_HEAD} | look)
    longest = max(map(cell_len, names.cells))
    table.add_column(
        names.title,
        min_width=longest if width is None else None,
        max_width=width,
        overflow="fold",
        justify=names.justify,
    )
    for column in columns:
        table.add_column(column.title, justify=column.justify, min_width=max(map(cell_len, column.cells)))
    for cells in zip(names.cells, *(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table
