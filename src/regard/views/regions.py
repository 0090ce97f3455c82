"""The regions of an image that each word looked at, drawn over the image: one panel a word."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from regard.data.images import Picture
from regard.text.extras import needed
from regard.views.explain_page import likeliest_tokens
from regard.views.explanation import Explanation
from regard.views.heatmap import Heatmap, Numbers, png_of_pixels
from regard.views.labels import FONTS, clean, label, number, shorten, text_width
from regard.views.old_page import figure, page, paragraph
from regard.views.png import DOTS, POINTS, TITLE_FONT, fonts_for

SIDE, GAP, FONT, TITLE = 150, 14, 14, 17
"""Pixels of a panel's side and between two panels, and sizes of letters."""
ACROSS = 6
"""Most panels in a row."""
VEIL = 0.82
"""How dark a region is that was not looked at."""


@dataclass(frozen=True, eq=False)
class Panel:
    """An image under a veil that is thin where the word looked."""

    word: str
    weights: Numbers
    """[rows, columns]; empty for the image as it is."""

    @property
    def veil(self) -> Numbers:
        """From 0, where it looked most, to VEIL."""
        veil: Numbers = VEIL * (1 - self.weights / max(self.weights.max(initial=0.0), 1e-9))
        return veil


def panels(heatmap: Heatmap, picture: Picture) -> list[Panel]:
    """The image, then a panel for each word of an alignment [words, regions]."""
    grid = (-(-picture.regions // picture.columns), picture.columns)
    found = [Panel("", np.empty((0, 0)))]
    for word, row in zip(heatmap.rows, heatmap.values, strict=True):
        weights = np.zeros(grid)
        weights.flat[: len(row)] = row
        found.append(Panel(word, weights))
    return found


def pixels_of(picture: Picture) -> NDArray[np.uint8]:
    """What the model saw; of features, which cannot be seen, a grey field."""
    if picture.shown.ndim == 3:
        pixels: NDArray[np.uint8] = np.asarray(picture.shown)
        return pixels
    return np.full((8, 8, 3), 128, dtype=np.uint8)


# SVG


def to_svg(heatmaps: Sequence[Heatmap], picture: Picture) -> str:
    """All panels of all alignments as one SVG file that needs nothing beside it; each region tells its weight."""
    blocks = [panels(heatmap, picture) for heatmap in heatmaps]
    across = min(ACROSS, max(map(len, blocks)))
    heights = [TITLE + 2 * GAP + math.ceil(len(block) / across) * (SIDE + FONT + 2 * GAP) for block in blocks]
    width, height = GAP + across * (SIDE + GAP), sum(heights) + GAP
    image = base64.b64encode(png_of_pixels(pixels_of(picture))).decode()
    title = quoteattr(clean(heatmaps[0].title))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label={title} font-family="{FONTS}" font-size="{FONT}" fill="#1f2937">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    top = 0
    for heatmap, block, tall in zip(heatmaps, blocks, heights, strict=True):
        shown = escape(shorten(clean(heatmap.title), width - 2 * GAP, lambda text: text_width(text, 1.05 * TITLE)))
        lines.append(f'<text x="{GAP}" y="{top + TITLE + GAP}" font-size="{TITLE}" font-weight="bold">{shown}</text>')
        for place, panel in enumerate(block):
            x = GAP + place % across * (SIDE + GAP)
            y = top + TITLE + 2 * GAP + place // across * (SIDE + FONT + 2 * GAP)
            lines += _panel(panel, image, x, y)
        top += tall
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: Panel, image: str, x: int, y: int) -> Iterator[str]:
    yield f'<g class="panel" transform="translate({x} {y})">'
    yield f'<image width="{SIDE}" height="{SIDE}" href="data:image/png;base64,{image}" preserveAspectRatio="none"/>'
    rows, columns = panel.weights.shape
    for place, (weight, veil) in enumerate(zip(panel.weights.flat, panel.veil.flat, strict=True)):
        row, column = divmod(place, columns)
        left, top = SIDE * column / columns, SIDE * row / rows
        box = f'x="{left:g}" y="{top:g}" width="{SIDE / columns:g}" height="{SIDE / rows:g}"'
        tooltip = f"{escape(clean(panel.word))}: {number(float(weight))}"
        yield f'<rect {box} fill="#000000" fill-opacity="{veil:.3f}"><title>{tooltip}</title></rect>'
    if panel.word:
        shown = escape(shorten(panel.word, 20))
        yield f'<text x="{SIDE / 2:g}" y="{SIDE + FONT + 3}" text-anchor="middle">{shown}</text>'
    yield "</g>"


# Page, PNG and terminal


def to_page(explanation: Explanation, heatmaps: Sequence[Heatmap], picture: Picture) -> str:
    """The panels and the likeliest words on one page."""
    hint = "The first picture is what the model saw. Then one for each word: bright is where it looked."
    drawn = figure(to_svg(heatmaps, picture))
    return page(shorten(explanation.title, 160), paragraph(hint), drawn, likeliest_tokens(explanation))


def to_png(heatmaps: Sequence[Heatmap], picture: Picture, where: str) -> bytes:
    """The panels as one PNG file, drawn by matplotlib."""
    matplotlib, figures = (
        needed(f"matplotlib{part}", extra="plots", where=where, doing="drawing") for part in ("", ".figure")
    )
    blocks = [(heatmap.title, panels(heatmap, picture)) for heatmap in heatmaps]
    families = fonts_for(
        "".join(["…", *(title + "".join(one.word for one in block) for title, block in blocks)]), where
    )
    across = min(ACROSS, max(len(block) for _, block in blocks))
    down = [math.ceil(len(block) / across) for _, block in blocks]
    with matplotlib.rc_context({"font.family": families}):
        drawing = figures.Figure(
            figsize=(1.6 * across, 1.9 * sum(down) + 0.5 * len(down)), dpi=DOTS, layout="constrained"
        )
        parts = np.atleast_1d(drawing.subfigures(len(blocks), 1, height_ratios=down))
        for part, (title, block), rows in zip(parts, blocks, down, strict=True):
            shown = shorten(clean(title), POINTS * (1.6 * across - 0.2), lambda text: text_width(text, TITLE_FONT))
            part.suptitle(shown, fontsize=TITLE_FONT, parse_math=False)
            for place, panel in enumerate(block, 1):
                _draw(part.add_subplot(rows, across, place), panel, pixels_of(picture))
        content = io.BytesIO()
        drawing.savefig(content, format="png")
    return content.getvalue()


def _draw(axes: Any, panel: Panel, pixels: NDArray[np.uint8]) -> None:
    axes.imshow(pixels, extent=(0, 1, 0, 1), interpolation="bilinear")
    if panel.weights.size:
        veil = np.zeros((*panel.weights.shape, 4))
        veil[..., 3] = panel.veil
        axes.imshow(veil, extent=(0, 1, 0, 1), interpolation="nearest")
    axes.set_xlabel(shorten(panel.word, 20), fontsize=10, parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])


def to_text(heatmaps: Sequence[Heatmap], picture: Picture) -> str:
    """For the terminal: the region that each word looked at most, and how much of its attention that is."""
    names = picture.names()
    lines = []
    for heatmap in heatmaps:
        lines += [heatmap.title, f"{'word':16} {'region (row,column)':>20} {'weight':>8}"]
        for word, row in zip(heatmap.rows, heatmap.values, strict=True):
            most = int(row.argmax())
            lines.append(f"{label(word):16} {names[most]:>20} {row[most]:8.2f}")
    return "\n".join(lines) + "\n"
