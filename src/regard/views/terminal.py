"""A report in the terminal: tables are rich's, figures are made of Unicode blocks."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table as RichTable
from rich.text import Text as RichText
from rich.tree import Tree as RichTree

from regard.errors import printable
from regard.language import shown
from regard.text.normalise import one_line
from regard.views.labels import clusters, number, shorten
from regard.views.report import (
    Bars,
    HeatMap,
    HeatMaps,
    ImageMap,
    Part,
    Points,
    Prose,
    Report,
    Table,
    Text,
    Tree,
    in_language,
)

SHADES = " ·░▒▓█"
"""Shades of a heat map, from the lower end of its scale to the upper one."""
BAR_BLOCKS = "█▒░▓"
"""The block of which the bars of each series are made."""
FIRST_COLUMN_WIDTHS = (None, 24, 12)
"""Widths of the first column to try before leaving out another column: as wide as its cells, then
folded."""
POINT_LINES = 24
"""Lines of a plane of points."""
UNLIMITED_WIDTH = 10_000
"""The width of a file or a pipe."""
MAX_CELL_WIDTH = 300
"""Longer texts of cells are cut; a page has all of them."""


def print_report(report: Report, console: Console | None = None) -> None:
    """Print a report: the parts of each section that are meant for the terminal, then the
    conclusions.

    The console is as wide as the terminal, or as COLUMNS says; a file or a pipe has no edge.
    """
    report = in_language(report)
    if console is None:
        console = Console(highlight=False, soft_wrap=True)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = UNLIMITED_WIDTH
    if report.opening:
        _print(console, report.opening)
    for section in report.sections:
        parts = section.parts[: section.in_terminal]
        if parts and section.heading:
            _print(console, section.heading, style="bold")
        for part in parts:
            _show(part, console)
    if report.note:
        _print(console, report.note)
    for sentence in report.conclusions:
        _print(console, f"  {sentence}")


def as_text(report: Report, width: int = 100) -> str:
    """The report as `print_report` prints it on a terminal of this width, without colours."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        color_system=None,
        force_jupyter=False,
        highlight=False,
        soft_wrap=True,
    )
    print_report(report, console)
    return stream.getvalue().rstrip("\n")


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(RichText(printable(text), style=style))


def _show(part: Part, console: Console) -> None:
    """Print one part. Curves are not drawn: a table beside them has their values."""
    match part:
        case Text():
            _print(console, "\n".join(part.paragraphs))
        case Prose():
            console.print(Markdown(printable(part.text)))
        case Table():
            _show_table(part, console)
        case Bars():
            _print(
                console,
                "\n".join([*filter(None, [part.title]), *_bars(part, min(console.width, 100))]),
            )
        case HeatMaps():
            for heat_map in part.drawn:
                _print(console, "\n".join(heat_map_lines(heat_map, console.width)))
        # the region that each word looked at most, and how much of its attention that is
        case ImageMap():
            rows = zip(
                part.words, part.weights.argmax(1).tolist(), part.weights.max(1), strict=True
            )
            cells = [[word, part.regions[place], f"{weight:.2f}"] for word, place, weight in rows]
            columns = [*map(shown, ("word", "region (row,column)", "weight"))]
            _show_table(Table(columns, cells, title=part.title), console)
        case Tree():
            console.print(_rich_tree(part))
        case Points():
            _print(console, "\n".join(_point_lines(part, min(console.width, 100))))


def _point_lines(points: Points, width: int) -> list[str]:
    """The points as a plane of letters; a label that would cover another one is left out."""
    grid = [[" "] * width for _ in range(POINT_LINES)]
    low = min(points.x), min(points.y)
    span = max(points.x) - low[0] or 1.0, max(points.y) - low[1] or 1.0
    for label, x, y in zip(points.labels, points.x, points.y, strict=True):
        text = f"·{printable(label)}"
        room = cell_len(text)
        row = round((1 - (y - low[1]) / span[1]) * (POINT_LINES - 1))
        column = round((x - low[0]) / span[0] * max(0, width - room))
        cells = grid[row][max(0, column - 1) : column + room + 1]
        if all(cell == " " for cell in cells) and column + room <= width:
            grid[row][column : column + room] = [text, *[""] * (room - 1)]
    return [*filter(None, [points.title]), *("".join(row).rstrip() for row in grid)]


def _show_table(table: Table, console: Console) -> None:
    """Print as many columns as there is room for. Columns left out are named, and no number is
    cut."""
    last = len(table.columns)
    removable = [column for column in range(1, last) if table.numeric[column]]
    for count, width in product(range(len(removable), -1, -1), FIRST_COLUMN_WIDTHS):
        kept = [column for column in range(last) if column not in removable[count:]]
        drawn = _rich_table(table, kept, width)
        if (
            console.measure(
                drawn, options=console.options.update(max_width=UNLIMITED_WIDTH)
            ).minimum
            <= console.width
        ):
            break
    if table.title:
        _print(console, table.title, style="bold")
    console.print(drawn)
    for note in table.notes:
        _print(console, note)
    if removable[count:]:
        names = ", ".join(table.columns[column] for column in removable[count:])
        _print(console, shown(f"too wide for this terminal: {names} (--json has all)"))


def _rich_table(table: Table, kept: Sequence[int], width: int | None) -> RichTable:
    rows = [[shorten(printable(cell.text), MAX_CELL_WIDTH) for cell in row] for row in table.cells]
    drawn = RichTable(box=box.SIMPLE_HEAD, show_header=any(table.columns))
    for column in kept:
        longest = max((cell_len(row[column]) for row in rows), default=0)
        folded = width if column == 0 else None
        least = (
            longest
            if table.numeric[column] or (column == 0 and width is None)
            else min(longest, 16)
        )
        drawn.add_column(
            RichText(printable(table.columns[column])),
            justify="right" if table.numeric[column] else "left",
            min_width=None if folded else least,
            max_width=folded,
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*(RichText(row[column]) for column in kept))
    return drawn


def _rich_tree(tree: Tree) -> RichTree:
    """The tree for rich; the winning path is bold, abandoned branches are dim."""
    drawn: dict[int | None, RichTree] = {None: RichTree(RichText(tree.title or "·"))}
    styles = {"good": "bold", "muted": "dim"}
    for place, branch in enumerate(tree.branches):
        left = {"muted": "  ×", "good": "" if place in tree.children else "  ✓"}.get(
            branch.tone, ""
        )
        text = (
            f"{branch.label} {branch.value}{left}{shown('  ← reference') if branch.marked else ''}"
        )
        drawn[place] = drawn[branch.parent].add(
            RichText(printable(text), style=styles.get(branch.tone, ""))
        )
    return drawn[None]


def _bars(bars: Bars, width: int) -> Iterator[str]:
    """One line per category, with its value if there is one series; several series are named in a
    line above. Negative values are drawn with another block."""
    names = [shorten(one_line(category), width // 3) for category in bars.categories]
    margin = max(map(cell_len, names))
    unit = bars.longest / max(1, width - margin - 10)
    several = len(bars.series) > 1
    blocks = [BAR_BLOCKS[n % len(BAR_BLOCKS)] for n in range(len(bars.series))]
    if several:
        yield "  ".join(
            f"{block} {series}" for block, series in zip(blocks, bars.series, strict=True)
        )
    for name, *values in zip(names, *bars.series.values(), strict=True):
        drawn = (
            (blocks[n] if value >= 0 else BAR_BLOCKS[1]) * round(abs(value) / unit)
            for n, value in enumerate(values)
        )
        form = "8d" if bars.whole else "8.3f"
        value_text = "" if several else f" {values[0]:{form}}"
        yield f"{set_cell_size(name, margin)}{value_text} {''.join(drawn)}".rstrip()


def heat_map_lines(heat_map: HeatMap, width: int) -> list[str]:
    """The map in blocks, at most `width` columns wide; a wider one is split into panels.

    The labels of columns run downwards. A cell is two columns wide, which makes it about square;
    three if labels have Hangul syllables, which are two wide: side by side they would be read
    across.
    """
    longest = max(cell_len(row) for row in heat_map.rows)
    margin = min(longest, max(2, width // 3))
    cell = 2 + (
        width - margin > 4
        and any(cell_len(mark) > 1 for column in heat_map.columns for mark in column)
    )
    panels = math.ceil(len(heat_map.columns) / max(1, (width - margin - 2) // cell))
    step = math.ceil(len(heat_map.columns) / panels)
    lines = [shorten(one_line(heat_map.title), width)] if heat_map.title else []
    for start in range(0, len(heat_map.columns), step):
        lines += [*_panel(heat_map, slice(start, start + step), margin, cell), ""]
    low = number(-heat_map.peak) if heat_map.signed else "0"
    return [*lines, shorten(f"{low} {SHADES} {number(heat_map.peak)}", width)]


def _panel(heat_map: HeatMap, columns: slice, margin: int, cell: int) -> Iterator[str]:
    tops = [clusters(shorten(column, 12)) for column in heat_map.columns[columns]]
    height = max(map(len, tops))
    for line in range(height):
        marks = (" " if height - len(top) > line else top[line - height + len(top)] for top in tops)
        yield " " * (margin + 1) + "".join(set_cell_size(mark, cell) for mark in marks) + " "
    shares = heat_map.values[:, columns] / heat_map.peak
    shares = (shares + 1) / 2 if heat_map.signed else shares
    shades = np.array([cell * shade for shade in SHADES])[
        np.rint(shares * (len(SHADES) - 1)).astype(int)
    ]
    for row, cells in zip(heat_map.rows, shades, strict=True):
        name = shorten(row, margin)
        yield f"{' ' * (margin - cell_len(name))}{name}│{''.join(cells)}│"
