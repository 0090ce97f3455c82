"""Pictures of an alignment: for each piece written, where in the source the model looked.

The picture of Bahdanau et al. 2015, arXiv:1409.0473, figure 3: the source along the top, the target down the side, one
cell a pair, darker where the weight alpha_ij is larger. Shades run from 0 to the picture's largest weight, and the
legend gives that number, so that the flat attention of many averaged heads still shows where it points.

How a piece is written in a label:
    a blank, or "▁" alone      ␣      what character models write between words
    </s>                       ⏎      one column wide, so that character pictures need no tall labels
    ▁Haus                      ▁Haus  the mark of a word start stays: it tells words from their continuations; in SVG it
                                      is a pale "_", which is as narrow in every font
    a control character        �      it must neither steer the terminal nor break the XML
"""

from __future__ import annotations

import math
import os
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from regard.errors import RegardError

SHADES = " ·░▒▓█"
"""Terminal shades, from no weight to the largest."""

FONTS = "'Noto Sans CJK KR', 'Noto Sans KR', 'Apple SD Gothic Neo', 'Malgun Gothic', NanumGothic, sans-serif"
"""Fonts with Hangul and Latin letters: Linux (two names), macOS, Windows, Linux again; then whatever there is."""

BLUES = ("ffffff", "d0e4fe", "a5c8f6", "7eace9", "5b90d6", "3c75bf", "215ba3", "074284", "002a62")
"""One hue at nine lightnesses, L* = 100, 89.75, ... 18."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where a model looked: `weights[t, s]` is how much of `source[s]` it read when it wrote `target[t]`."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: npt.NDArray[np.floating]
    """[T, S]; no weight is negative and no row sums to more than 1. Luong's local-p has rows that sum to less."""
    title: str = ""

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if not self.source or not self.target:
            raise ValueError("an alignment needs at least one source and one target piece")
        if weights.shape != (len(self.target), len(self.source)):
            raise ValueError(f"weights {weights.shape} for {len(self.target)} target, {len(self.source)} source pieces")
        if not (weights >= 0).all():
            raise ValueError("attention weights are numbers of 0 or more")
        sums = weights.sum(axis=1)
        if sums.max() > 1 + 1e-3:
            row = int(np.argmax(sums))
            raise ValueError(f"a row of weights sums to at most 1, but {row} ({self.target[row]!r}) to {sums[row]:.4f}")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    @property
    def peak(self) -> float:
        """The largest weight, which gets the darkest shade."""
        return float(self.weights.max())


def label(piece: str) -> str:
    """A piece as it stands in a picture; the module's docstring lists the signs."""
    if piece == "</s>":
        return "⏎"
    if not piece.strip().strip("▁"):
        return "␣"
    text = _clean(piece)
    # A combining mark of its own would land on the neighbour's letter: give it a place to sit.
    return f"◌{text}" if cell_len(text[:1]) == 0 else text


def _clean(text: str) -> str:
    """The text without what a terminal or an XML parser would stumble over, in one line."""
    return "".join(_sign(character) for character in unicodedata.normalize("NFC", " ".join(text.split())))


def _sign(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cs") or character in "\ufffe\uffff":
        return "�"
    # Joiners, direction marks and variation selectors change the width of what stands beside them.
    invisible = unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f"
    return "" if invisible else character


def _number(weight: float) -> str:
    return f"{weight:.2f}" if weight >= 0.01 else f"{weight:.1g}"


def _clusters(text: str) -> list[str]:
    """Letters, each with the marks that stand on it."""
    clusters: list[str] = []
    for character in text:
        if clusters and cell_len(character) == 0:
            clusters[-1] += character
        else:
            clusters.append(character)
    return clusters


# ------------------------------------------------------------------------------------------------------- terminal


def to_terminal(alignment: Alignment, width: int | None = None) -> str:
    """The picture in Unicode blocks, at most `width` columns wide (default: the terminal's).

    A cell is two columns wide, which makes it about square and leaves room for a Hangul syllable above it; source
    labels run downwards. A source that is too long for the width goes on in further panels.
    """
    width = width or shutil.get_terminal_size().columns
    longest = max(cell_len(label(piece)) for piece in alignment.target)
    margin = min(longest, max(2, width // 3))
    fitting = max(1, (width - margin - 2) // 2)
    panels = math.ceil(len(alignment.source) / fitting)
    step = math.ceil(len(alignment.source) / panels)
    lines = [_shorten(_clean(alignment.title), width)] if alignment.title else []
    for start in range(0, len(alignment.source), step):
        lines += [*_panel(alignment, slice(start, start + step), margin), ""]
    lines.append(_shorten(f"0 {SHADES} {_number(alignment.peak)}", width))
    return "\n".join(lines) + "\n"


def _panel(alignment: Alignment, columns: slice, margin: int) -> Iterator[str]:
    tops = [_clusters(_shorten(label(piece), 12)) for piece in alignment.source[columns]]
    height = max(len(top) for top in tops)
    tops = [[" "] * (height - len(top)) + top for top in tops]
    for line in zip(*tops, strict=True):
        yield " " * (margin + 1) + "".join(_pad(cluster, 2) for cluster in line) + " "
    for piece, row in zip(alignment.target, alignment.weights[:, columns], strict=True):
        name = _shorten(label(piece), margin)
        cells = "".join(2 * _shade(float(weight) / alignment.peak) for weight in row)
        yield f"{' ' * (margin - cell_len(name))}{name}│{cells}│"


def _shade(share: float) -> str:
    return SHADES[round(share * (len(SHADES) - 1))]


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _shorten(text: str, width: float, measure: Callable[[str], float] = cell_len) -> str:
    """The text in at most `width` columns (or what `measure` counts), with "…" for what is left out."""
    if measure(text) <= width:
        return text
    kept, room = "", width - measure("…")
    for cluster in _clusters(text):
        room -= measure(cluster)
        if room < 0:
            break
        kept += cluster
    return f"{kept}…"


# ------------------------------------------------------------------------------------------------------------ SVG


@dataclass(frozen=True)
class _Layout:
    """Where things stand on the page, in pixels."""

    cell: int
    font: float
    left: float
    top: float
    slant: int
    """Degrees by which the source labels rise; 0 when each fits above its own column."""
    width: int
    height: int

    def column(self, s: int) -> float:
        return self.left + s * self.cell

    def row(self, t: int) -> float:
        return self.top + t * self.cell


FAINTEST = 0.005
"""Share of the largest weight below which a cell is not drawn."""

EDGE, GAP = 16, 7
TITLE_FONT = 17
LEGEND_FONT, LEGEND_WIDTH, LEGEND_DROP = 12, 120, 26


def to_svg(alignment: Alignment) -> str:
    """The picture as one SVG file that needs nothing beside it: own background, text as text, a tooltip on each cell.

    Cells too faint to be told from white are left out. Tooltips read "source -> target: weight".
    """
    layout = _lay_out(alignment)
    lines = [
        *_page(alignment, layout),
        *_cells(alignment, layout),
        *_grid(alignment, layout),
        *_labels(alignment, layout),
        *_legend(alignment, layout),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def write_svg(alignment: Alignment, path: str | os.PathLike[str]) -> None:
    """Write the SVG aside and rename it: the path holds the whole picture or what it held before."""
    path = Path(path)
    aside = path.parent / f".{path.name}.{os.getpid()}.tmp"
    picture = to_svg(alignment)
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(picture)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise RegardError(f"the picture cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def _lay_out(alignment: Alignment) -> _Layout:
    columns, rows = len(alignment.source), len(alignment.target)
    cell = max(15, min(30, 900 // max(columns, rows)))
    font = max(11.0, min(15.0, 0.6 * cell))
    tops = [_text_width(_svg_label(piece), font) for piece in alignment.source]
    slant = 0 if max(tops) <= cell else 60
    rise, run = math.sin(math.radians(slant)), math.cos(math.radians(slant))
    left = EDGE + max(_text_width(_svg_label(piece), font) for piece in alignment.target) + GAP
    top = EDGE + (TITLE_FONT + 12 if alignment.title else 0) + rise * max(tops) + font + GAP
    ends = [left + (s + 0.5) * cell + run * width + font / 2 for s, width in enumerate(tops)] if slant else []
    right = max(left + columns * cell, left + LEGEND_WIDTH + 60, *ends) + EDGE
    bottom = top + rows * cell + LEGEND_DROP + LEGEND_FONT + EDGE
    return _Layout(cell, font, left, top, slant, width=math.ceil(right), height=math.ceil(bottom))


def _text_width(text: str, font: float) -> float:
    """An upper estimate: a file without its fonts cannot measure its text."""
    return font * sum(_em(character) for character in text)


def _em(character: str) -> float:
    columns = cell_len(character)
    if columns != 1 or character in "MWmw@%…—␣⏎◌�":
        return 1.0 if columns else 0.0
    return 0.72 if character.isupper() else 0.6


def _svg_label(piece: str) -> str:
    return _shorten(label(piece), 18)


def _svg_text(piece: str) -> str:
    return escape(_svg_label(piece)).replace("▁", '<tspan fill="#9ca3af">_</tspan>')


def _page(alignment: Alignment, layout: _Layout) -> Iterator[str]:
    width, height, title = layout.width, layout.height, _clean(alignment.title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label={quoteattr(title or "alignment")} font-family="{FONTS}" font-size="{layout.font:g}"'
        ' fill="#1f2937">'
    )
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    if title:
        shown = _shorten(title, width - 2 * EDGE, lambda text: _text_width(text, 1.05 * TITLE_FONT))
        place = f'x="{EDGE}" y="{EDGE + TITLE_FONT - 2}"'
        yield f'<text {place} font-size="{TITLE_FONT}" font-weight="bold">{escape(shown)}</text>'


def _grid(alignment: Alignment, layout: _Layout) -> Iterator[str]:
    """Hairlines, to follow a row or a column across an empty stretch."""
    columns, rows = len(alignment.source), len(alignment.target)
    down = [f"M{layout.column(s):g} {layout.top:g}v{rows * layout.cell}" for s in range(columns + 1)]
    across = [f"M{layout.left:g} {layout.row(t):g}h{columns * layout.cell}" for t in range(rows + 1)]
    style = 'fill="none" stroke="#1f2937" stroke-opacity="0.1" pointer-events="none"'
    yield f'<path d="{"".join(down + across)}" {style}/>'


def _cells(alignment: Alignment, layout: _Layout) -> Iterator[str]:
    yield '<g class="cells">'
    for t, written in enumerate(alignment.target):
        for s, read in enumerate(alignment.source):
            weight = float(alignment.weights[t, s])
            if weight < FAINTEST * alignment.peak:
                continue
            box = f'x="{layout.column(s):g}" y="{layout.row(t):g}" width="{layout.cell}" height="{layout.cell}"'
            tooltip = escape(f"{label(read)} -> {label(written)}: {_number(weight)}")
            yield f'<rect {box} fill="{colour(weight / alignment.peak)}"><title>{tooltip}</title></rect>'
    yield "</g>"


def _labels(alignment: Alignment, layout: _Layout) -> Iterator[str]:
    # dy centres the letters on their row: dominant-baseline, made for it, is unknown to several viewers.
    yield '<g class="target" text-anchor="end">'
    for t, piece in enumerate(alignment.target):
        place = f'x="{layout.left - GAP:g}" y="{layout.row(t) + layout.cell / 2:g}" dy="0.35em"'
        yield f"<text {place}>{_svg_text(piece)}</text>"
    yield "</g>"
    yield f'<g class="source" text-anchor="{"start" if layout.slant else "middle"}">'
    for s, piece in enumerate(alignment.source):
        x, y = layout.column(s) + layout.cell / 2, layout.top - GAP
        turned = f'dy="0.35em" transform="translate({x:g} {y:g}) rotate({-layout.slant:g})"'
        place = turned if layout.slant else f'x="{x:g}" y="{y:g}"'
        yield f"<text {place}>{_svg_text(piece)}</text>"
    yield "</g>"


def _legend(alignment: Alignment, layout: _Layout) -> Iterator[str]:
    x, y, steps = layout.left + 14, layout.row(len(alignment.target)) + LEGEND_DROP, 40
    step = LEGEND_WIDTH // steps
    yield f'<g class="legend" font-size="{LEGEND_FONT}" shape-rendering="crispEdges">'
    for n in range(steps):
        box = f'x="{x + n * step:g}" y="{y:g}" width="{step}" height="{LEGEND_FONT}"'
        yield f'<rect {box} fill="{colour(n / (steps - 1))}"/>'
    yield f'<rect x="{x:g}" y="{y:g}" width="{LEGEND_WIDTH}" height="{LEGEND_FONT}" fill="none" stroke="#9ca3af"/>'
    yield f'<text x="{x - GAP:g}" y="{y + LEGEND_FONT - 2:g}" text-anchor="end">0</text>'
    yield f'<text x="{x + LEGEND_WIDTH + GAP:g}" y="{y + LEGEND_FONT - 2:g}">{_number(alignment.peak)}</text>'
    yield "</g>"


def colour(share: float) -> str:
    """White for 0, dark blue for 1, even steps of lightness (CIE L*) between: the scale survives a grey printer."""
    place = share * (len(BLUES) - 1)
    below = min(int(place), len(BLUES) - 2)
    channels = zip(bytes.fromhex(BLUES[below]), bytes.fromhex(BLUES[below + 1]), strict=True)
    return "#" + "".join(f"{round(low + (place - below) * (high - low)):02x}" for low, high in channels)
