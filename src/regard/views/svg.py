"""Heat maps as SVG."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from regard.views.heatmap import Heatmap, colour, png_of_cells
from regard.views.labels import FONTS, clean, number, shorten, text_width, wrap
from regard.views.old_files import write_picture

FAINTEST = 0.005
"""Share of the largest value below which a cell is not drawn."""
MOST_CELLS = 10_000
"""More cells than this are drawn as one image, without tooltips: 512 by 512 rectangles would be 30 MB."""

EDGE, GAP = 16, 7
TITLE_FONT, TITLE_LINE, TITLE_LINES = 17, 22, 3
TITLE_ROOM = 360
"""Width that a title may ask for, however narrow the picture is."""
LEGEND_FONT, LEGEND_WIDTH, LEGEND_DROP = 12, 120, 26


@dataclass(frozen=True)
class _Layout:
    """Where things stand on the page, in pixels."""

    cell: int
    font: float
    left: float
    top: float
    slant: int
    """Degrees by which the labels of columns rise; 0 when each fits above its own column."""
    width: int
    height: int
    title: tuple[str, ...]
    """Its lines."""

    def column(self, number: int) -> float:
        return self.left + number * self.cell

    def row(self, number: int) -> float:
        return self.top + number * self.cell


def to_svg(*heatmaps: Heatmap) -> str:
    """The pictures as one SVG file that needs nothing beside it: own background, text as text, a tooltip on each cell.

    Cells too faint to be told from white are left out. Tooltips read "column -> row: value". Several pictures stand in
    a grid.
    """
    layouts = [_lay_out(one) for one in heatmaps]
    if len(heatmaps) == 1:
        return "\n".join(_picture(heatmaps[0], layouts[0])) + "\n"
    across = math.ceil(math.sqrt(len(heatmaps)))
    width, height = max(one.width for one in layouts), max(one.height for one in layouts)
    size = f'width="{across * width}" height="{math.ceil(len(heatmaps) / across) * height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', '<rect width="100%" height="100%" fill="#ffffff"/>']
    for place, (heatmap, layout) in enumerate(zip(heatmaps, layouts, strict=True)):
        lines.append(f'<g transform="translate({place % across * width} {place // across * height})">')
        lines += [*_picture(heatmap, layout), "</g>"]
    return "\n".join([*lines, "</svg>"]) + "\n"


def write_svg(heatmap: Heatmap, path: str | os.PathLike[str]) -> None:
    """Write the SVG aside and rename it: the path holds the whole picture or what it held before."""
    write_picture(Path(path), to_svg(heatmap).encode())


def _lay_out(heatmap: Heatmap) -> _Layout:
    columns, rows = len(heatmap.columns), len(heatmap.rows)
    # A label needs 15 pixels of its own; where most places are blank, cells may be smaller.
    crowded = 2 * sum(map(bool, (*heatmap.columns, *heatmap.rows))) > columns + rows
    cell = max(15 if crowded else 7, min(30, 900 // max(columns, rows)))
    font = max(11.0, min(15.0, 0.6 * cell))
    tops = [text_width(shorten(column, heatmap.label_width), font) for column in heatmap.columns]
    slant = 0 if max(tops) <= cell * _space_between(heatmap.columns) else 60
    rise, run = math.sin(math.radians(slant)), math.cos(math.radians(slant))
    left = EDGE + max(text_width(shorten(row, heatmap.label_width), font) for row in heatmap.rows) + GAP
    ends = [left + (c + 0.5) * cell + run * width + font / 2 for c, width in enumerate(tops)] if slant else []
    title = clean(heatmap.title)
    title_room = EDGE + min(TITLE_ROOM, _title_width(title))
    right = max(left + columns * cell, left + LEGEND_WIDTH + 60, title_room, *ends) + EDGE
    lines = tuple(wrap(title, right - 2 * EDGE, TITLE_LINES, _title_width)) if title else ()
    top = EDGE + (TITLE_LINE * len(lines) + GAP if lines else 0) + rise * max(tops) + font + GAP
    bottom = top + rows * cell + LEGEND_DROP + LEGEND_FONT + EDGE
    return _Layout(cell, font, left, top, slant, width=math.ceil(right), height=math.ceil(bottom), title=lines)


def _title_width(title: str) -> float:
    return text_width(title, 1.05 * TITLE_FONT)  # it is bold


def _space_between(labels: tuple[str, ...]) -> int:
    """The fewest places from one label that is not blank to the next."""
    places = [place for place, text in enumerate(labels) if text]
    return min((later - earlier for earlier, later in pairwise(places)), default=1)


def _svg_text(text: str, width: int) -> str:
    return escape(shorten(text, width)).replace("▁", '<tspan fill="#9ca3af">_</tspan>')


def _picture(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    yield from _page(heatmap, layout)
    yield from _cells(heatmap, layout) if heatmap.values.size <= MOST_CELLS else _image(heatmap, layout)
    yield from _grid(heatmap, layout)
    yield from _labels(heatmap, layout)
    yield from _legend(heatmap, layout)
    yield "</svg>"


def _page(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    width, height, title = layout.width, layout.height, clean(heatmap.title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label={quoteattr(title or "alignment")} font-family="{FONTS}" font-size="{layout.font:g}"'
        ' fill="#1f2937">'
    )
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    for number_of_line, line in enumerate(layout.title):
        place = f'x="{EDGE}" y="{EDGE + TITLE_FONT - 2 + TITLE_LINE * number_of_line}"'
        yield f'<text {place} font-size="{TITLE_FONT}" font-weight="bold">{escape(line)}</text>'


def _grid(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    """Hairlines, to follow a row or a column across an empty stretch."""
    columns, rows = len(heatmap.columns), len(heatmap.rows)
    down = [f"M{layout.column(c):g} {layout.top:g}v{rows * layout.cell}" for c in range(columns + 1)]
    across = [f"M{layout.left:g} {layout.row(r):g}h{columns * layout.cell}" for r in range(rows + 1)]
    style = 'fill="none" stroke="#1f2937" stroke-opacity="0.1" pointer-events="none"'
    yield f'<path d="{"".join(down + across)}" {style}/>'


def _cells(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    shares, signed, peak = heatmap.shares, heatmap.signed, heatmap.peak
    yield '<g class="cells">'
    for r, row in enumerate(heatmap.rows):
        for c, column in enumerate(heatmap.columns):
            value = float(heatmap.values[r, c])
            if abs(value) < FAINTEST * peak:
                continue
            box = f'x="{layout.column(c):g}" y="{layout.row(r):g}" width="{layout.cell}" height="{layout.cell}"'
            tooltip = escape(row if heatmap.bars else f"{column} -> {row}: {number(value)}")
            fill = colour(float(shares[r, c]), signed=signed)
            yield f'<rect {box} fill="{fill}"><title>{tooltip}</title></rect>'
    yield "</g>"


def _image(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    """All cells as one image, a pixel each, stretched without smoothing."""
    rows, columns = heatmap.values.shape
    box = f'x="{layout.left:g}" y="{layout.top:g}" width="{columns * layout.cell}" height="{rows * layout.cell}"'
    data = base64.b64encode(png_of_cells(heatmap)).decode()
    style = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    yield f'<image {box} {style} href="data:image/png;base64,{data}"/>'


def _labels(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    # dy centres the letters on their row: dominant-baseline, made for it, is unknown to several viewers.
    yield '<g class="rows" text-anchor="end">'
    for r, row in enumerate(heatmap.rows):
        place = f'x="{layout.left - GAP:g}" y="{layout.row(r) + layout.cell / 2:g}" dy="0.35em"'
        yield f"<text {place}>{_svg_text(row, heatmap.label_width)}</text>"
    yield "</g>"
    yield f'<g class="columns" text-anchor="{"start" if layout.slant else "middle"}">'
    for c, column in enumerate(heatmap.columns):
        x, y = layout.column(c) + layout.cell / 2, layout.top - GAP
        turned = f'dy="0.35em" transform="translate({x:g} {y:g}) rotate({-layout.slant:g})"'
        place = turned if layout.slant else f'x="{x:g}" y="{y:g}"'
        yield f"<text {place}>{_svg_text(column, heatmap.label_width)}</text>"
    yield "</g>"


def _legend(heatmap: Heatmap, layout: _Layout) -> Iterator[str]:
    x, y, steps = layout.left + 14, layout.row(len(heatmap.rows)) + LEGEND_DROP, 40
    step = LEGEND_WIDTH // steps
    low = number(-heatmap.peak) if heatmap.signed else "0"
    yield f'<g class="legend" font-size="{LEGEND_FONT}" shape-rendering="crispEdges">'
    for n in range(steps):
        box = f'x="{x + n * step:g}" y="{y:g}" width="{step}" height="{LEGEND_FONT}"'
        yield f'<rect {box} fill="{colour(n / (steps - 1), signed=heatmap.signed)}"/>'
    yield f'<rect x="{x:g}" y="{y:g}" width="{LEGEND_WIDTH}" height="{LEGEND_FONT}" fill="none" stroke="#9ca3af"/>'
    yield f'<text x="{x - GAP:g}" y="{y + LEGEND_FONT - 2:g}" text-anchor="end">{low}</text>'
    yield f'<text x="{x + LEGEND_WIDTH + GAP:g}" y="{y + LEGEND_FONT - 2:g}">{number(heatmap.peak)}</text>'
    yield "</g>"
