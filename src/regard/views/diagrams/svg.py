"""A diagram as SVG. Classes and data attributes say what belongs to which moment and block; the
colours are those of templates/diagram.css."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from regard.language import shown
from regard.views.diagrams.diagram import (
    MAX_STRIP_CELLS,
    Block,
    Diagram,
    Frame,
    Line,
    Picture,
    Tile,
    Word,
)

ARROWS = ("source", "target", "context", "plain")
STRIP_HEIGHT = 6
STRIP_EDGE = 7
"""Space between the edge of a box and the colours of its state."""


def svg(diagram: Diagram) -> str:
    """The drawing at its last moment, with everything filled."""
    last = diagram.moments[-1].looks if diagram.moments else ()
    last = last or [key for moment in diagram.moments for key in moment.looks]
    size = f"{diagram.width:.0f} {diagram.height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {size}" role="group" '
        f'aria-label="{escape(diagram.title)}">',
        _arrow_heads(),
        *map(_frame, diagram.frames),
        *map(_picture, diagram.pictures),
        *(_tile(tile, tile.query in last) for tile in diagram.tiles),
        *(_line(line, line.query in last) for line in diagram.lines),
        *map(_block, diagram.blocks),
        *map(_word, diagram.words),
        "</svg>",
    ]
    return "".join(parts)


def svg_file(diagram: Diagram) -> str:
    """The drawing as a file of its own, which has its style."""
    style = (files("regard.views") / "templates" / "diagram.css").read_text(encoding="utf-8")
    drawn = svg(diagram)
    head, _, rest = drawn.partition("<defs>")
    width, height = f"{diagram.width:.0f}", f"{diagram.height:.0f}"
    head = head.replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)
    return f"{head}<style>{escape(style, quote=False)}</style><defs>{rest}\n"


def _arrow_heads() -> str:
    """One arrow head per colour; SVG cannot give it the colour of its line."""
    heads = "".join(
        f'<marker id="arrow-{role}" class="{role}" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="head" d="M0 0.5L7.5 4L0 7.5z"/></marker>'
        for role in ARROWS
    )
    return f"<defs>{heads}</defs>"


def _frame(frame: Frame) -> str:
    label = ""
    if frame.label:
        label = f'<text class="small" x="{frame.x + 2:.1f}" y="{frame.y - 7:.1f}">{escape(shown(frame.label))}</text>'
    return (
        f'<rect class="frame" x="{frame.x:.1f}" y="{frame.y:.1f}" width="{frame.width:.1f}" '
        f'height="{frame.height:.1f}" rx="14"/>{label}'
    )


def _picture(picture: Picture) -> str:
    return (
        f'<image x="{picture.x:.1f}" y="{picture.y:.1f}" width="{picture.side:.1f}" '
        f'height="{picture.side:.1f}" href="{escape(picture.address)}"/>'
    )


def _tile(tile: Tile, drawn: bool) -> str:
    return (
        f'<rect class="tile look{" drawn" * drawn}" data-query="{escape(tile.query)}" '
        f'x="{tile.x:.1f}" y="{tile.y:.1f}" width="{tile.side:.1f}" height="{tile.side:.1f}" '
        f'fill-opacity="{tile.weight:.3f}"/>'
    )


def _line(line: Line, drawn: bool) -> str:
    classes = ["line", line.role, *(["dashed"] if line.dashed else [])]
    own = f' data-step="{line.step}"'
    if line.weight is not None:
        classes += ["look", *(["drawn"] if drawn else [])]
        width, opacity = 1.2 + 12 * line.weight, 0.25 + 0.6 * line.weight
        own += f' data-query="{escape(line.query)}" stroke-width="{width:.2f}" stroke-opacity="{opacity:.2f}"'
    elif line.arrow:
        own += f' marker-end="url(#arrow-{line.role})"'
    return f'<path class="{" ".join(classes)}" d="{line.path}"{own}/>'


def _block(block: Block) -> str:
    x, y = block.x - block.width / 2, block.y - block.height / 2
    text_y = block.y + (1 if block.values else 5)
    return (
        f'<g class="box {block.role}" data-key="{escape(block.key)}" data-step="{block.step}" '
        f'data-symbol="{escape(block.label.partition("_")[0])}">'
        f'<rect class="body" x="{x:.1f}" y="{y:.1f}" width="{block.width:.1f}" '
        f'height="{block.height:.1f}" rx="9"/>'
        f'<text x="{block.x:.1f}" y="{text_y:.1f}">{_subscripted(shown(block.label))}</text>'
        f"{''.join(_strip(block))}</g>"
    )


def _strip(block: Block) -> Iterator[str]:
    """The first numbers of a state as colours: blue above 0, orange below, the stronger the larger."""
    values = block.values[:MAX_STRIP_CELLS]
    if not values:
        return
    width = (block.width - 2 * STRIP_EDGE) / len(values)
    x = block.x - block.width / 2 + STRIP_EDGE
    y = block.y + block.height / 2 - STRIP_HEIGHT - 6
    for place, value in enumerate(values):
        share = min(1.0, abs(value) / block.peak)
        yield (
            f'<rect class="cell {"below" if value < 0 else "above"}" x="{x + place * width:.1f}" '
            f'y="{y:.1f}" width="{width:.2f}" height="{STRIP_HEIGHT}" fill-opacity="{share:.2f}"/>'
        )


def _subscripted(label: str) -> str:
    """`h_2` with its index below: a subscript is what follows an underscore in a short label."""
    base, mark, index = label.partition("_")
    if not mark or " " in label:
        return escape(label)
    return f'{escape(base)}<tspan class="index" dy="3">{escape(index.strip("{}"))}</tspan>'


def _word(word: Word) -> str:
    return (
        f'<text class="word {word.role} {word.size}" data-step="{word.step}" x="{word.x:.1f}" '
        f'y="{word.y:.1f}" text-anchor="{word.anchor}">{escape(shown(word.text))}</text>'
    )
