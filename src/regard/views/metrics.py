"""Metrics for people: those of `evaluate`, and how a figure is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

COLUMNS = 12
"""Most columns that a table of metrics has; what has more stands line by line, less counts of zero."""
HUGE = 1e7
"""A perplexity from here on is written with three digits and its power of ten."""


def number_text(value: float, decimals: int, *, sign: str = "") -> str:
    """So many decimals, and commas between the thousands; or what is huge, shortly."""
    return f"{value:{sign}.3g}" if abs(value) >= HUGE else f"{value:{sign},.{decimals}f}"


def metric_lines(name: str, value: Any) -> list[str]:
    """A metric; several of one name, each below the other; or a table, where each of them has the same parts."""
    if not isinstance(value, dict):
        return [f"{name:15} {_said(value)}"]
    parts = list(value.values())
    alike = all(isinstance(part, dict) and part.keys() == parts[0].keys() for part in parts)
    if alike and parts and len(parts[0]) <= COLUMNS:
        return _table(name, value)
    shown = {part: one for part, one in value.items() if isinstance(one, float) or one != 0}
    return [name, *(f"  {line}" for part, one in shown.items() for line in metric_lines(part, one))]


def _table(name: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    heads = list(next(iter(rows.values())))
    cells = [[name, *heads], *([f"  {row}", *map(_said, values.values())] for row, values in rows.items())]
    widths = [max(cell_len(line[column]) for line in cells) for column in range(len(heads) + 1)]
    widths[0] = max(widths[0], 15)
    return [_line(line, widths) for line in cells]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first cell stands on the left of its column, the others on the right of theirs."""
    room = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    first, *others = zip(cells, room, strict=True)
    return " ".join([first[0] + first[1], *(space + cell for cell, space in others)])


def _said(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
