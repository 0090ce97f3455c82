"""Small plots as SVG: lines with bands, and bars. Each is one text that needs nothing beside it.

Series are told apart by colour (Okabe and Ito's palette, made for colour-blind readers), by marker and by dashes, so
that a grey print still reads. Colours are given twice: as attributes, for every viewer there is, and as a style that
takes over where the screen is dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from rich.cells import cell_len

from regard.views.labels import FONTS

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b5b5b", "#8c6d31")
"""Okabe and Ito 2008, "Color Universal Design", without yellow, which is too pale; then grey and brown."""
DARK = ("#4fb0ea", "#ff8a3d", "#2ccfa0", "#e79cc6", "#f5b93b", "#8fd0f7", "#b8b8b8", "#c9a866")
"""The same hues for a dark ground."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")

TEXT, MUTED, LINE, GROUND = "#1f2937", "#6b7280", "#d1d5db", "#ffffff"
FONT = 13
EDGE = 14

Swatch = Callable[[int], str]
"""What stands beside the name of a series in the legend, about a middle at (15, 0)."""

STYLE = (
    "@media screen and (prefers-color-scheme:dark){.plot .ground{fill:#14181f}.plot text{fill:#e5e7eb}"
    ".plot .rule{stroke:#3b4452}"
    + "".join(f".plot .fill{n}{{fill:{colour}}}.plot .line{n}{{stroke:{colour}}}" for n, colour in enumerate(DARK))
    + "}"
)


@dataclass(frozen=True)
class Series:
    """One named line: a value for each x, with the band it may lie in where that is known. A value of nan is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class _Frame:
    """The rectangle of the plot in pixels, and the values along its sides."""

    left: float
    top: float
    right: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        return self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)

    def up(self, value: float) -> float:
        return self.bottom - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top)


def line_plot(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    y_range: tuple[float | None, float | None] = (None, None),
    x_ticks: Sequence[tuple[float, str]] | None = None,
    width: int = 540,
    height: int = 340,
) -> str:
    """Several series over the same axes. Ends of `y_range` that are None, and `x_ticks`, follow from the data."""
    points = [(x, y) for one in series for x, y in zip(one.x, one.y, strict=True) if math.isfinite(y)]
    bands = [bound for one in series for bound in (*(one.low or ()), *(one.high or ())) if math.isfinite(bound)]
    xs = [x for x, _ in points] + [place for place, _ in x_ticks or ()]
    y_marks = _marks([y for _, y in points] + bands, y_range)
    x_marks = _marks(xs, (None, None)) if x_ticks is None else [place for place, _ in x_ticks]
    names = [one.name for one in series]
    top = EDGE + (FONT + 12 if title else 0) + _legend_height(names, width)
    frame = _Frame(
        EDGE + FONT + 14 + max(_width(text) for text in written(y_marks)), top,
        width - EDGE - 6, height - EDGE - 2 * FONT - 14,
        _span(xs), (y_marks[0], y_marks[-1]),
    )  # fmt: skip
    labels = [text for _, text in x_ticks] if x_ticks is not None else written(x_marks)
    lines = [
        *_axes(frame, list(zip(x_marks, labels, strict=True)), y_marks, x_label, y_label),
        *(line for number, one in enumerate(series) for line in _band(one, number, frame)),
        *(line for number, one in enumerate(series) for line in _line(one, number, frame)),
    ]
    return _picture(title, names, lines, width, height, swatch=_line_swatch)


def bars(
    categories: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    stacked: bool = False,
    y_range: tuple[float | None, float | None] = (0.0, None),
    width: int = 540,
    height: int = 340,
) -> str:
    """For each category one bar a name, side by side or stacked upon each other. A value of nan is left out."""
    tops = [sum(_counted(row[n]) for row in values.values()) for n in range(len(categories))]
    heights = tops if stacked else [value for row in values.values() for value in row if math.isfinite(value)]
    y_marks = _marks([*heights, 0.0], y_range)
    names = list(values)
    top = EDGE + (FONT + 12 if title else 0) + _legend_height(names, width)
    frame = _Frame(
        EDGE + FONT + 14 + max(_width(text) for text in written(y_marks)), top,
        width - EDGE, height - EDGE - 2 * FONT - 14,
        (-0.5, max(1, len(categories)) - 0.5), (y_marks[0], y_marks[-1]),
    )  # fmt: skip
    lines = [
        *_axes(frame, [(float(n), text) for n, text in enumerate(categories)], y_marks, x_label, y_label),
        *_boxes(categories, values, frame, stacked),
    ]
    return _picture(title, names, lines, width, height, swatch=_box_swatch)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """At most so many round numbers, 1, 2 or 5 times a power of ten apart, the first at or below `low`, the last at or
    above `high`."""
    if not high > low:
        room = abs(low) / 2 or 0.5
        low, high = low - room, high + room
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (power * factor for factor in (1, 2, 5, 10, 20, 50)):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first + 1 <= most:
            break
    return [round(number * step, 12) for number in range(first, last + 1)]


def written(marks: Sequence[float]) -> list[str]:
    """Ticks as text, with as many decimals as their distance needs."""
    step = min((b - a for a, b in pairwise(marks)), default=1.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return [f"{mark:,.{decimals}f}" for mark in marks]


def _marks(values: Sequence[float], ends: tuple[float | None, float | None]) -> list[float]:
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite) if ends[0] is None else ends[0], max(finite) if ends[1] is None else ends[1]
    if ends[0] is not None and high <= low:  # all values lie on the lower end, and there is none below it
        high = low + 1
    return ticks(low, max(low, high))


def _span(values: Sequence[float]) -> tuple[float, float]:
    """From the smallest to the largest, with some room for the markers."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = (high - low) * 0.03 or 0.5
    return low - room, high + room


def _counted(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _width(text: str) -> float:
    """An upper estimate: a file without its fonts cannot measure its text."""
    return 0.6 * FONT * cell_len(text)


# ------------------------------------------------------------------------------------------------------- the picture


def _picture(title: str, names: Sequence[str], lines: Sequence[str], width: int, height: int, *, swatch: Swatch) -> str:
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(title or ", ".join(names))} '
        f'font-family="{FONTS}" font-size="{FONT}" fill="{TEXT}"><style>{STYLE}</style>'
    )
    ground = f'<rect class="ground" width="{width}" height="{height}" fill="{GROUND}"/>'
    heading = f'<text x="{EDGE}" y="{EDGE + FONT}" font-weight="bold">{escape(title)}</text>' if title else ""
    top = EDGE + (FONT + 12 if title else 0)
    return "\n".join([opening, ground, heading, *lines, *_legend(names, top, width, swatch), "</svg>"]) + "\n"


def _axes(
    frame: _Frame, x_marks: Sequence[tuple[float, str]], y_marks: Sequence[float], x_label: str, y_label: str
) -> Iterator[str]:
    for mark, text in zip(y_marks, written(y_marks), strict=True):
        y = frame.up(mark)
        yield f'<path class="rule" d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" stroke="{LINE}"/>'
        yield f'<text x="{frame.left - 7:.1f}" y="{y:.1f}" dy="0.35em" text-anchor="end">{text}</text>'
    nearest = -math.inf
    for mark, text in x_marks:
        x = frame.across(mark)
        if not frame.left - 1 <= x <= frame.right + 1:
            continue
        yield f'<path class="rule" d="M{x:.1f} {frame.bottom:.1f}v5" stroke="{LINE}"/>'
        if x - _width(text) / 2 > nearest:  # labels that would overlap are left out
            yield f'<text x="{x:.1f}" y="{frame.bottom + FONT + 7:.1f}" text-anchor="middle">{escape(text)}</text>'
            nearest = x + _width(text) / 2 + 6
    middle = (frame.left + frame.right) / 2
    place = f'x="{middle:.1f}" y="{frame.bottom + 2 * FONT + 14:.1f}"'
    yield f'<text {place} text-anchor="middle">{escape(x_label)}</text>'
    turned = f'transform="translate({EDGE + FONT - 4} {(frame.top + frame.bottom) / 2:.1f}) rotate(-90)"'
    yield f'<text {turned} text-anchor="middle">{escape(y_label)}</text>'


def _rows_of_legend(names: Sequence[str], width: int) -> list[list[tuple[int, float]]]:
    """The names' numbers and places from the left, in as many rows as they need."""
    rows: list[list[tuple[int, float]]] = [[]]
    x = float(EDGE)
    for number, name in enumerate(names):
        room = 34 + _width(name) + 18
        if rows[-1] and x + room > width - EDGE:
            rows.append([])
            x = float(EDGE)
        rows[-1].append((number, x))
        x += room
    return rows


def _legend_height(names: Sequence[str], width: int) -> float:
    return (FONT + 7) * len(_rows_of_legend(names, width)) + 10 if names else 0


def _legend(names: Sequence[str], top: float, width: int, swatch: Swatch) -> Iterator[str]:
    for line, row in enumerate(_rows_of_legend(names, width)):
        y = top + (FONT + 7) * line + FONT / 2
        for number, x in row:
            yield f'<g transform="translate({x:.1f} {y:.1f})">{swatch(number)}</g>'
            yield f'<text x="{x + 34:.1f}" y="{y:.1f}" dy="0.35em">{escape(names[number])}</text>'


def _line_swatch(number: int) -> str:
    return f'<path d="M2 0H28" {_stroke(number)}/>{_marker(15, 0, number)}'


def _box_swatch(number: int) -> str:
    return f'<rect x="6" y="-6" width="20" height="12" {_fill(number)}/>'


# -------------------------------------------------------------------------------------------------- lines and boxes


def _line(one: Series, number: int, frame: _Frame) -> Iterator[str]:
    points = [(frame.across(x), frame.up(y)) for x, y in zip(one.x, one.y, strict=True)]
    path, pen = "", "M"
    for x, y in points:
        path += f"{pen}{x:.1f} {y:.1f}" if math.isfinite(y) else ""
        pen = "L" if math.isfinite(y) else "M"
    if path:
        yield f'<path d="{path}" {_stroke(number)}/>'
    # Where there are many points, each with a marker would be a blot: about twenty are enough to tell a line by.
    every = max(1, len(points) // 20)
    for n, (x, y) in enumerate(points):
        if math.isfinite(y) and n % every == 0:
            tooltip = escape(f"{one.name}: {one.x[n]:g}, {one.y[n]:g}")
            yield f"<g><title>{tooltip}</title>{_marker(x, y, number)}</g>"


def _band(one: Series, number: int, frame: _Frame) -> Iterator[str]:
    """The area between `low` and `high`, stretch by stretch."""
    if one.low is None or one.high is None:
        return
    stretch: list[tuple[float, float, float]] = []
    for x, low, high in [*zip(one.x, one.low, one.high, strict=True), (math.nan, math.nan, math.nan)]:
        if math.isfinite(low) and math.isfinite(high):
            stretch.append((frame.across(x), frame.up(low), frame.up(high)))
        elif stretch:
            there = "L".join(f"{x:.1f} {up:.1f}" for x, _, up in stretch)
            back = "L".join(f"{x:.1f} {down:.1f}" for x, down, _ in reversed(stretch))
            yield f'<path d="M{there}L{back}Z" {_fill(number)} fill-opacity="0.16"/>'
            stretch = []


def _boxes(
    categories: Sequence[str], values: Mapping[str, Sequence[float]], frame: _Frame, stacked: bool
) -> Iterator[str]:
    slots = 1 if stacked else max(1, len(values))
    width = 0.76 / slots
    for n, category in enumerate(categories):
        base = 0.0
        for number, (name, row) in enumerate(values.items()):
            if not math.isfinite(row[n]):
                continue
            left = n - 0.38 + (0 if stacked else number) * width
            x, end = frame.across(left), frame.across(left + width)
            y, foot = frame.up(base + row[n]), frame.up(base if stacked else max(0.0, frame.y[0]))
            size = f'width="{max(1.0, end - x - 1):.1f}" height="{abs(foot - y):.1f}"'
            tooltip = escape(f"{name}, {category}: {row[n]:g}")
            box = f'<rect x="{x:.1f}" y="{min(y, foot):.1f}" {size} {_fill(number)}>'
            yield f"{box}<title>{tooltip}</title></rect>"
            base += row[n] if stacked else 0.0


def _marker(x: float, y: float, number: int) -> str:
    """Circle, square, triangle, diamond, ring, cross, ... : a shape for each series."""
    shapes = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", "M-4 -4H4V4H-4Z", "M0 -5L5 4H-5Z", "M0 -5L5 0L0 5L-5 0Z",
              "M0 5L5 -4H-5Z", "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z", "M-2 -5H2V5H-2Z", "M-5 -2H5V2H-5Z")  # fmt: skip
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{shapes[number % len(shapes)]}" {_fill(number)}/>'


def _stroke(number: int) -> str:
    n = number % len(PALETTE)
    dashes = DASHES[number % len(DASHES)]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'class="line{n}" fill="none" stroke="{PALETTE[n]}" stroke-width="2"{dashed}'


def _fill(number: int) -> str:
    n = number % len(PALETTE)
    return f'class="fill{n}" fill="{PALETTE[n]}"'
