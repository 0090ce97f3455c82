"""Heat maps as PNG, drawn by matplotlib with fonts that have every letter."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.errors import RegardError, import_extra
from regard.text.normalise import one_line
from regard.views.heatmap import Heatmap, colours
from regard.views.labels import FONTS, number, shorten, text_width, wrap

INCHES = 0.28
"""Side of a cell."""
TITLE_FONT, TITLE_LINES = 11, 3
POINTS = 72
"""To the inch: what fonts are measured in."""
LARGEST = 30.0
"""Longest side of a picture in inches."""
DOTS = 110


def to_png(*heatmaps: Heatmap, where: str) -> bytes:
    """The pictures as one PNG file; `where` names it in messages."""
    matplotlib, figures = _part("", where), _part(".figure", where)
    families = fonts_for("".join(["0123456789.-…", *_texts(heatmaps)]), where)
    across = math.ceil(math.sqrt(len(heatmaps)))
    down = math.ceil(len(heatmaps) / across)
    wide, tall = _panel_size(heatmaps, across, down)
    with matplotlib.rc_context({"font.family": families, "axes.unicode_minus": False}):
        figure = figures.Figure(figsize=(across * wide, down * tall), dpi=DOTS, layout="constrained")
        parts = np.atleast_1d(figure.subfigures(down, across)).flat
        for part, heatmap in zip(parts, heatmaps, strict=False):  # the last row need not be full
            _write_title(part, heatmap.title, wide)
            _draw(part.add_subplot(), heatmap, where)
        content = io.BytesIO()
        figure.savefig(content, format="png")
    return content.getvalue()


def _panel_size(heatmaps: Sequence[Heatmap], across: int, down: int) -> tuple[float, float]:
    """Width and height of one picture in inches, with room for labels and title."""
    columns, rows = (max(one.values.shape[axis] for one in heatmaps) for axis in (1, 0))
    labels = 0.11 * (max(one.label_width for one in heatmaps) - 18)
    wide = min(LARGEST / across, columns * INCHES + 2.5) + labels
    return max(wide, 4 / across), max(min(LARGEST / down, rows * INCHES + 2.5), 3 / down)


def _write_title(part: Any, title: str, wide: float) -> None:
    """In as many lines as fit above the picture, which makes room for them."""
    lines = wrap(one_line(title), POINTS * (wide - 0.2), TITLE_LINES, lambda text: text_width(text, TITLE_FONT))
    part.suptitle("\n".join(lines), fontsize=TITLE_FONT, x=0.1 / wide, ha="left", parse_math=False)


def _part(name: str, where: str) -> Any:
    """matplotlib, or a module of it. Without pyplot, so that it asks for no screen."""
    return import_extra(f"matplotlib{name}", extra="plots", where=where, doing="drawing")


def _draw(axes: Any, heatmap: Heatmap, where: str) -> None:
    """One picture, in the colours of the SVG."""
    axes.imshow(colours(heatmap.shares, signed=heatmap.signed), interpolation="nearest", aspect="equal")
    axes.xaxis.tick_top()
    upright = max(map(len, heatmap.columns)) <= 1 or "" in heatmap.columns
    slant = {"rotation": 0 if upright else 60, "ha": "center" if upright else "left", "rotation_mode": "anchor"}
    for axis, labels, turned in ((axes.xaxis, heatmap.columns, slant), (axes.yaxis, heatmap.rows, {})):
        shown = {place: shorten(text, heatmap.label_width) for place, text in enumerate(labels) if text}
        axis.set_ticks(list(shown), list(shown.values()), fontsize=9, parse_math=False, **turned)
    axes.tick_params(length=0)
    low = -heatmap.peak if heatmap.signed else 0.0
    shades = _part(".colors", where)
    scale = shades.ListedColormap(colours(np.linspace(0, 1, 256), signed=heatmap.signed) / 255)
    mapped = _part(".cm", where).ScalarMappable(shades.Normalize(low, heatmap.peak), scale)
    bar = axes.figure.colorbar(mapped, ax=axes, shrink=0.6, aspect=30)
    bar.set_ticks([low, heatmap.peak], labels=[number(low) if low else "0", number(heatmap.peak)])


def _texts(heatmaps: Sequence[Heatmap]) -> set[str]:
    return {text for one in heatmaps for text in (one.title, *one.rows, *one.columns)}


def fonts_for(text: str, where: str) -> list[str]:
    """Installed fonts that together have every letter of the text: matplotlib's own, then those of our pages, then any.

    A letter that none has would be drawn as a box, so it is refused.
    """
    missing = {character for character in one_line(text) if not character.isspace()}
    preferred = [name.strip(" '") for name in FONTS.split(",")]
    # matplotlib's "Last Resort" has a box for every letter there is.
    real = [font for font in _part(".font_manager", where).fontManager.ttflist if "Last Resort" not in font.name]
    ranked = sorted(real, key=lambda font: _rank(font, preferred))
    families: list[str] = []
    for font in ranked:
        if not missing and families:
            break
        if font.name in families or (found := missing & _letters(font.fname, where)) == set():
            continue
        families.append(font.name)
        missing -= found
    if missing:
        some = " ".join(sorted(missing)[:5])
        raise RegardError(
            f"no installed font has {some}",
            where=where,
            hint="install one, for Korean 'apt install fonts-noto-cjk' or fonts-nanum; .svg and .html need none here",
        )
    return families


def _rank(font: Any, preferred: Sequence[str]) -> tuple[bool, bool, bool, str]:
    plain = font.style == "normal" and font.weight in (400, "normal", "regular", "book")
    # matplotlib opens the first face of a collection, and knows Noto's, which has Hangul too, by its Japanese name.
    known = font.name in preferred or font.name.startswith("Noto Sans CJK")
    return font.name != "DejaVu Sans", not plain, not known, font.name


def _letters(path: str, where: str) -> set[str]:
    """The characters that a font can draw; none where it cannot be drawn at any size, as colour emoji."""
    try:
        font = _part(".ft2font", where).FT2Font(path)
        return {chr(code) for code in font.get_charmap()} if font.scalable else set()
    except (OSError, RuntimeError):
        return set()
