"""A small drawing of a report, by which a reader finds it in a list: its first figures, or the
beginning of its tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np

from regard.views.report import Bars, Curves, HeatMap, HeatMaps, Part, Report, Series, Table, Tree

WIDTH, HEIGHT = 240, 132
GAP = 12
"""Space between the parts, and around them."""
MAX_CELLS = 20
"""Rows and columns of a heat map that are drawn; of more, every second or third."""
MAX_POINTS = 60
"""Points of a line."""
MAX_LINES = 5
MAX_COLUMNS = 6
MIN_COLUMN_WIDTH = 26
ROW_HEIGHTS = (13.0, 24.0)
"""The least and the greatest height of a row of a table."""
LETTER = 0.54
"""Size of a letter, as a share of the height of its row."""
WIDE_LETTER = 1.6
LETTER_WIDTH = 0.6
"""Width of a letter, as a share of its size."""


class Box(NamedTuple):
    """The place of a part."""

    x: float
    y: float
    width: float
    height: float


def thumbnail(report: Report) -> str:
    """The drawing as SVG; its colours are classes of templates/report.css."""
    chosen = telling_parts(report)
    width = (WIDTH - GAP * (len(chosen) + 1)) / max(1, len(chosen))
    drawn = list[str]()
    for place, part in enumerate(chosen):
        box = Box(GAP + place * (width + GAP), GAP, width, HEIGHT - 2 * GAP)
        drawn += _drawn(part, box)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="thumbnail" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'aria-hidden="true">{"".join(drawn)}</svg>'
    )


def telling_parts(report: Report) -> list[Part]:
    """Up to two figures; beside a single one a table; without any figure the largest table."""
    parts = [part for section in report.sections for part in section.parts]
    tables = sorted((part for part in parts if isinstance(part, Table)), key=_size, reverse=True)
    figures = [part for part in parts if isinstance(part, HeatMaps | Curves | Bars | Tree)]
    if len(figures) == 1 and tables and isinstance(figures[0], HeatMaps | Bars):
        return [tables[0], figures[0]]
    return list[Part](figures[:2]) or list[Part](tables[:1])


def _size(table: Table) -> int:
    return min(len(table.rows), 6) * min(len(table.columns), MAX_COLUMNS)


def _drawn(part: Part, box: Box) -> Iterator[str]:
    if isinstance(part, Table):
        yield from _table(part, box)
    elif isinstance(part, HeatMaps):
        yield from _heat_map(part.drawn[0], box)
    elif isinstance(part, Curves):
        yield from _curves(part, box)
    elif isinstance(part, Bars):
        yield from _bars(part, box)
    elif isinstance(part, Tree):
        yield from _tree(part, box)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rectangle(kind: str, box: Box, opacity: float = 1.0) -> str:
    x, y, width, height = map(_number, box)
    faint = "" if opacity == 1 else f' fill-opacity="{opacity:.2f}"'
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"{faint}/>'


def _line(kind: str, points: Sequence[tuple[float, float]]) -> str:
    path = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return f'<path class="{kind}" d="M{path}"/>'


def _heat_map(heat_map: HeatMap, box: Box) -> Iterator[str]:
    """Squares, as dark as the values are large; values below 0 in another colour."""
    steps = [math.ceil(count / MAX_CELLS) for count in heat_map.values.shape]
    values = np.asarray(heat_map.values)[:: steps[0], :: steps[1]] / heat_map.peak
    rows, columns = values.shape
    side = min(box.width / columns, box.height / rows)
    left = box.x + (box.width - side * columns) / 2
    top = box.y + (box.height - side * rows) / 2
    yield _rectangle("frame", Box(left, top, side * columns, side * rows))
    for row, column in np.argwhere(np.abs(values) > 0.02).tolist():
        value = float(values[row, column])
        place = Box(left + column * side, top + row * side, side, side)
        yield _rectangle("below" if value < 0 else "cell", place, abs(value))


def _curves(curves: Curves, box: Box) -> Iterator[str]:
    """Up to five lines over two axes."""
    lines = curves.series[:MAX_LINES]
    points = [own for line in lines for own in _finite_points(line)]
    if not points:
        return
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = min(y for _, y in points), max(y for _, y in points)
    bottom = box.y + box.height

    def placed(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / ((x_high - x_low) or 1)
        up = (y - y_low) / ((y_high - y_low) or 1)
        return box.x + across * box.width, bottom - up * box.height

    yield _line("axis", [(box.x, box.y), (box.x, bottom), (box.x + box.width, bottom)])
    for number, line in enumerate(lines):
        finite = _finite_points(line)
        own = [placed(x, y) for x, y in finite[:: math.ceil(len(finite) / MAX_POINTS) or 1]]
        if len(own) > 1:
            yield _line(f"line s{number}", own)


def _finite_points(line: Series) -> list[tuple[float, float]]:
    return [own for own in zip(line.x, line.y, strict=True) if all(map(math.isfinite, own))]


def _bars(bars: Bars, box: Box) -> Iterator[str]:
    """A bar per category; those of several series are stacked."""
    stacked = [*zip(*bars.series.values(), strict=True)]
    pitch = box.height / max(1, len(stacked))
    for row, values in enumerate(stacked):
        x = box.x
        for number, value in enumerate(values):
            length = abs(float(value)) / bars.longest * box.width
            place = Box(x, box.y + row * pitch + pitch * 0.15, length, pitch * 0.7)
            yield _rectangle(f"bar s{number}", place)
            x += length


def _tree(tree: Tree, box: Box) -> Iterator[str]:
    """Branches from left to right, the winning path marked."""
    across = box.width / max(1, tree.depth)
    down = box.height / max(1.0, max(tree.rows, default=1.0))
    places = [
        (box.x + branch.depth * across, box.y + row * down)
        for branch, row in zip(tree.branches, tree.rows, strict=True)
    ]
    first = places[0][1] if places else box.y + box.height / 2  # that of a root
    root = (box.x, first)
    for branch, end in sorted(
        zip(tree.branches, places, strict=True), key=lambda one: one[0].tone == "good"
    ):
        start = root if branch.parent is None else places[branch.parent]
        yield _line("line s1 strong" if branch.tone == "good" else "axis", [start, end])


def _table(table: Table, box: Box) -> Iterator[str]:
    """The beginning of the head and of the first rows."""
    columns = table.columns[: min(MAX_COLUMNS, int(box.width // MIN_COLUMN_WIDTH))]
    texts = [[*columns], *([cell.text for cell in row[: len(columns)]] for row in table.cells)]
    least, greatest = ROW_HEIGHTS
    shown = texts[: int(box.height // least)]
    height = min(greatest, box.height / len(shown))
    size = LETTER * height
    wanted = [
        max(4.0, *(min(8.0, letters_of(row[place])) for row in shown))
        for place in range(len(columns))
    ]
    unit = box.width / sum(wanted)
    for number, row in enumerate(shown):
        y = box.y + number * height
        x = box.x
        for letters, text in zip(wanted, row, strict=True):
            cut = shortened(text, letters * unit / (size * LETTER_WIDTH) - 0.5)
            kind = "title" if number == 0 else "word"
            where = f'x="{_number(x)}" y="{_number(y + 0.7 * height)}" font-size="{_number(size)}"'
            yield f'<text class="{kind}" {where}>{escape(cut)}</text>'
            x += letters * unit
        yield _line("axis", [(box.x, y + height), (box.x + box.width, y + height)])


def letters_of(text: str) -> float:
    """The width of a text in letters; those of Korean are about 1.6 times as wide."""
    return sum(WIDE_LETTER if east_asian_width(one) in "WF" else 1.0 for one in text)


def shortened(text: str, letters: float) -> str:
    """As much of a text as has room."""
    while len(text) > 1 and letters_of(text) > letters:
        text = text[:-1]
    return text
