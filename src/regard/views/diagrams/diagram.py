"""The drawing of a model with a sentence in it, as a value: boxes, words, lines and the moments of a
film. svg.py draws it; templates/diagram.js moves it."""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from regard.language import shown
from regard.text.vocabularies import MARK
from regard.views.labels import shorten, token_label
from regard.views.mathml import formula_and_remark, mathml
from regard.views.report import Numbers, Part
from regard.views.worked_attention import source_of

Role = Literal["source", "target", "context", "plain"]
"""What a colour means: what is read (green), what asks and is written (orange), what was read
(violet), and everything else (grey)."""

MAX_SHOWN_VALUES = 24
"""Numbers of a state that the panel lists."""
MAX_STRIP_CELLS = 12
"""Numbers of a state that its box shows as colours."""
MAX_LABEL_CHARACTERS = 22
"""Characters of a token that the drawing shows."""
MIN_DRAWN_WEIGHT = 0.03
"""The smallest attention weight that gets a line."""
MIN_PITCH = 88
"""Smallest distance between two columns of states with an arrow from one to the next."""
MIN_STACK_PITCH = 70
"""Smallest distance between two columns of states that only stand beside each other."""
BOX_HEIGHT = 40
EDGE = 24
"""Empty space around the drawing."""


@dataclass(frozen=True)
class Component:
    """A part of the model: what the panel says of every box that belongs to it."""

    title: str
    equations: Sequence[str] = ()
    """In ASCII, as the docstring of the code has them."""
    facts: Sequence[str] = ()
    """Its sizes."""
    functions: Sequence[Any] = ()
    """The code that computes it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "title": shown(self.title),
            "equations": [{"ascii": text, "mathml": mathml(text)} for text in self.equations],
            "facts": [*map(shown, self.facts)],
            "code": [place_of(function) for function in self.functions],
        }


@dataclass(frozen=True)
class Block:
    """A box, with its middle at (x, y)."""

    key: str
    label: str
    role: Role
    x: float
    y: float
    width: float
    height: float
    component: str
    step: int = 0
    """The moment of the film at which it is filled."""
    values: Sequence[float] = ()
    """The numbers of the state that it shows."""
    peak: float = 1.0
    """The largest absolute value of all states of its kind, which has the strongest colour."""
    name: str = ""
    """The state in full, for the panel: "h_2 of are"."""

    @property
    def top(self) -> tuple[float, float]:
        return self.x, self.y - self.height / 2

    @property
    def bottom(self) -> tuple[float, float]:
        return self.x, self.y + self.height / 2

    @property
    def left(self) -> tuple[float, float]:
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y


@dataclass(frozen=True)
class Word:
    """A token that enters or leaves the model, or a small remark."""

    text: str
    x: float
    y: float
    role: Role
    step: int = 0
    size: Literal["word", "small"] = "word"
    anchor: Literal["start", "middle", "end"] = "middle"


@dataclass(frozen=True)
class Line:
    """A connection: the commands of an SVG path."""

    path: str
    role: Role
    step: int = 0
    dashed: bool = False
    weight: float | None = None
    """The attention weight that it stands for."""
    query: str = ""
    """The block that looks: the line is drawn only if the reader or the film points at it."""
    arrow: bool = True


@dataclass(frozen=True)
class Frame:
    """A rectangle around boxes that belong together."""

    x: float
    y: float
    width: float
    height: float
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """An image that is read, as the address of its data."""

    x: float
    y: float
    side: float
    address: str


@dataclass(frozen=True)
class Tile:
    """A region of a picture, as dark as a word looks at it."""

    x: float
    y: float
    side: float
    weight: float
    query: str


@dataclass(frozen=True)
class Moment:
    """A moment of the film: what enters or is computed at it."""

    label: str
    role: Role
    claims: Sequence[str]
    """Sentences that say what happens."""
    looks: Sequence[str] = ()
    """The blocks whose attention is drawn."""
    block: str = ""
    """The block that the panel opens."""
    candidates: Sequence[tuple[str, float]] = ()
    """The likeliest next tokens, or answers."""


@dataclass(frozen=True)
class Diagram(Part):
    """The drawing of one model and one sentence, as a part of a report."""

    kind = "diagram"
    width: float
    height: float
    blocks: Sequence[Block]
    words: Sequence[Word]
    lines: Sequence[Line]
    frames: Sequence[Frame]
    moments: Sequence[Moment]
    components: Mapping[str, Component]
    pictures: Sequence[Picture] = ()
    tiles: Sequence[Tile] = ()
    title: str = ""

    def to_json(self) -> dict[str, Any]:
        from regard.views.diagrams.svg import svg  # which imports this module

        blocks = {
            block.key: {
                "component": block.component,
                "name": block.name or block.label,
                "role": block.role,
                "step": block.step,
                "count": len(block.values),
                "values": [float(f"{value:.4g}") for value in block.values[:MAX_SHOWN_VALUES]],
                "weights": self._weights_of(block.key),
            }
            for block in self.blocks
        }
        moments = [
            {
                **vars(moment),
                "claim": " ".join(map(shown, moment.claims)),
                "label": shown(moment.label),
            }
            for moment in self.moments
        ]
        return {
            "kind": self.kind,
            "title": self.title,
            "svg": svg(self),
            "blocks": blocks,
            "moments": moments,
            "components": {key: one.to_json() for key, one in self.components.items()},
            "texts": {name: shown(text) for name, text in PANEL_TEXTS.items()},
        }

    def _weights_of(self, query: str) -> list[float]:
        """The attention weights of a block, largest first."""
        weights = [line.weight for line in self.lines if line.query == query and line.weight]
        return sorted(map(float, weights), reverse=True)[:5]


PANEL_TEXTS = {
    "play": "Play the film",
    "film": "Moments of the film",
    "likeliest": "The likeliest",
    "equation": "The equation",
    "numbers": "The numbers",
    "code": "The code",
    "more": "and {} more numbers",
    "hint": "Choose a box for its numbers, its equation and its code.",
}
"""Texts of the film and the panel, by their names in diagram.js."""


def place_of(function: Any) -> dict[str, Any]:
    """A function's source text, with its file below the package and its lines."""
    plain = inspect.unwrap(getattr(function, "fget", function))
    lines, first = inspect.getsourcelines(plain)
    path = Path(inspect.getsourcefile(plain) or "").relative_to(Path(__file__).parents[3])
    return {
        **source_of(function),
        "file": path.as_posix(),
        "first": first,
        "last": first + len(lines) - 1,
    }


def equation(owner: Any, *beginnings: str) -> tuple[str, ...]:
    """The lines of a docstring that begin so, without the remarks behind them: the equations of the
    code itself."""
    lines = [line.strip() for line in inspect.getdoc(owner).splitlines()]  # type: ignore[union-attr]
    found = []
    for beginning in beginnings:
        line = next(line for line in lines if line.startswith(beginning) and "=" in line)
        found.append(formula_and_remark(line)[0])
    return tuple(found)


def text_width(text: str, size: float = 17) -> float:
    """About how wide a text is drawn: a Korean character is as wide as it is high."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return size * (wide + 0.58 * (len(text) - wide))


def label_of(token: str) -> str:
    """A token as the drawing shows it: without the mark of the beginning of a word."""
    return shorten(token_label(token.lstrip(MARK) or token), MAX_LABEL_CHARACTERS)


def pitch_of(tokens: Sequence[str]) -> float:
    """The distance between two columns with these tokens."""
    return max([MIN_PITCH, *(text_width(label_of(token)) + 20 for token in tokens)])


def columns_of(tokens: Sequence[str]) -> list[float]:
    """The columns of states that only stand beside each other, as close as their tokens allow."""
    widths = [text_width(label_of(token)) + 20 for token in tokens]
    xs = [0.0]
    for one, other in pairwise(widths):
        xs.append(xs[-1] + max(MIN_STACK_PITCH, (one + other) / 2))
    return xs


@dataclass
class Canvas:
    """A drawing that grows from the bottom to the top; y is 0 at its bottom and negative above."""

    blocks: list[Block] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    components: dict[str, Component] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)

    def block(self, block: Block) -> Block:
        self.blocks.append(block)
        return block

    def states(  # noqa: PLR0913  (the columns of a row)
        self,
        component: str,
        xs: Sequence[float],
        y: float,
        labels: Sequence[str],
        role: Role,
        values: Numbers | None,
        *,
        steps: Sequence[int],
        width: float = 60,
        names: Sequence[str] = (),
    ) -> list[Block]:
        """A row of boxes, one per position; `values` [positions, D] are their states."""
        peak = 1.0 if values is None or not values.size else float(abs(values).max()) or 1.0
        return [
            self.block(
                Block(
                    f"{component}-{place}",
                    label,
                    role,
                    xs[place],
                    y,
                    width,
                    BOX_HEIGHT,
                    component,
                    steps[place],
                    () if values is None else values[place].tolist(),
                    peak,
                    names[place] if names else label,
                )
            )
            for place, label in enumerate(labels)
        ]

    def tokens(
        self,
        tokens: Sequence[str],
        xs: Sequence[float],
        y: float,
        role: Role,
        steps: Sequence[int],
    ) -> None:
        for token, x, step in zip(tokens, xs, steps, strict=True):
            self.words.append(Word(label_of(token), x, y, role, step))

    def join(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        role: Role,
        step: int = 0,
        *,
        dashed: bool = False,
        arrow: bool = True,
    ) -> None:
        """A straight line, or one that leaves and arrives upright if it goes aside."""
        (x1, y1), (x2, y2) = start, end
        straight = abs(x1 - x2) < 1 or abs(y1 - y2) < 1
        path = f"M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" if straight else upright(start, end)
        self.lines.append(Line(path, role, step, dashed, arrow=arrow))

    def look(self, query: Block, keys: Sequence[Block], weights: Sequence[float]) -> None:
        """Lines from the keys to the block that looks, as strong as their weights."""
        for key, weight in zip(keys, weights, strict=False):
            if weight < MIN_DRAWN_WEIGHT:
                continue
            start = key.top if key.y > query.y else key.bottom
            end = query.bottom if key.y > query.y else query.top
            path = upright(start, end)
            self.lines.append(
                Line(path, "context", query.step, weight=float(weight), query=query.key)
            )

    def finish(self, title: str) -> Diagram:
        """The drawing, moved to the corner (0, 0)."""
        boxes = [
            *((b.x - b.width / 2, b.y - b.height / 2, b.width, b.height) for b in self.blocks),
            *((f.x, f.y - 16 * bool(f.label), f.width, f.height + 16) for f in self.frames),
            *((p.x, p.y, p.side, p.side) for p in self.pictures),
            *map(_extent, self.words),
        ]
        left = min(x for x, _, _, _ in boxes) - EDGE
        top = min(y for _, y, _, _ in boxes) - EDGE
        width = max(x + w for x, _, w, _ in boxes) + EDGE - left
        height = max(y + h for _, y, _, h in boxes) + EDGE - top

        def moved(one: Any) -> Any:
            return replace(one, x=one.x - left, y=one.y - top)

        return Diagram(
            width,
            height,
            [*map(moved, self.blocks)],
            [*map(moved, self.words)],
            [replace(line, path=_moved_path(line.path, left, top)) for line in self.lines],
            [*map(moved, self.frames)],
            self.moments,
            self.components,
            [*map(moved, self.pictures)],
            [*map(moved, self.tiles)],
            title,
        )


def upright(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve that is vertical at both ends."""
    (x1, y1), (x2, y2) = start, end
    middle = (y1 + y2) / 2
    return f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"


def _extent(word: Word) -> tuple[float, float, float, float]:
    width = text_width(word.text, 19 if word.size == "word" else 13)
    x = {"start": word.x, "middle": word.x - width / 2, "end": word.x - width}[word.anchor]
    return x, word.y - 14, width, 26


def _moved_path(path: str, left: float, top: float) -> str:
    """All coordinates of a path are absolute, in pairs."""
    numbers = iter(range(10**6))

    def move(number: re.Match[str]) -> str:
        return f"{float(number[0]) - (top if next(numbers) % 2 else left):.1f}"

    return re.sub(r"-?\d+(?:\.\d+)?", move, path)
