"""Pictures of two shapes and what one says of them, in English and Korean: drawn and written by the
package.

A picture is a line of text that says what stands where, in hundredths of its side:

    shapes: small red circle 20 32, large blue square 68 40

so that it is stored, split and passed around like any other source, and drawn when it is looked at.
Two kinds of things (a colour and a shape each) that stand together in a test picture never do so in
a training picture; each word is in all parts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, did_you_mean
from regard.language import particle_after

Language = Literal["english", "korean"]
Relation = Literal["left", "right", "above", "below"]

PREFIX = "shapes:"
# half the side of the box around a thing, in hundredths of the picture's
RADIUS = {"small": 11, "large": 20}
COLOURS = {
    "red": (214, 40, 40),
    "green": (34, 150, 70),
    "blue": (45, 90, 215),
    "yellow": (240, 205, 45),
    "black": (30, 30, 30),
    "purple": (140, 60, 170),
}
INK = 2  # each pixel is drawn as so many by so many points, for smooth edges

KOREAN = {
    "small": "작은",
    "large": "큰",
    "red": "빨간",
    "green": "초록색",
    "blue": "파란",
    "yellow": "노란",
    "black": "검은",
    "purple": "보라색",
    "circle": "원",
    "square": "사각형",
    "triangle": "삼각형",
    "star": "별",
    "cross": "십자가",
    "diamond": "마름모",
    "left": "왼쪽에",
    "right": "오른쪽에",
    "above": "위에",
    "below": "아래에",
}

Points = NDArray[np.float64]


def _in_star(x: Points, y: Points) -> NDArray[np.bool_]:
    """Five rays: of each half of a ray, turned to the right, all that lies on this side of its
    straight edge."""
    turned = np.abs((np.arctan2(x, -y) / (2 * np.pi) * 5 + 0.5) % 1 - 0.5) * (2 * np.pi / 5)
    along, across = np.hypot(x, y) * np.cos(turned), np.hypot(x, y) * np.sin(turned)
    inner_along, inner_across = 0.42 * np.cos(np.pi / 5), 0.42 * np.sin(np.pi / 5)
    inside: NDArray[np.bool_] = (inner_along - 1) * across - inner_across * (along - 1) >= 0
    return inside


OUTLINES: dict[str, Callable[[Points, Points], NDArray[np.bool_]]] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.78,
    "triangle": lambda x, y: (y <= 0.9) & (y >= 2 * abs(x) - 0.95),
    "star": _in_star,
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) <= 0.3) & (np.maximum(abs(x), abs(y)) <= 1),
    "diamond": lambda x, y: abs(x) / 0.75 + abs(y) <= 1,
}
"""Which points of the box from -1 to 1 belong to a shape; y points down."""


class Thing(NamedTuple):
    """One shape, and where its middle stands."""

    size: str
    colour: str
    shape: str
    x: int
    y: int

    @property
    def kind(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge, as shares of the picture's side."""
        radius = RADIUS[self.size]
        left, top, right, bottom = (
            self.x - radius,
            self.y - radius,
            self.x + radius,
            self.y + radius,
        )
        return left / 100, top / 100, right / 100, bottom / 100


class Scene(NamedTuple):
    """Two things; the caption is about the first, as it stands to the second."""

    first: Thing
    second: Thing

    @property
    def kinds(self) -> str:
        """What decides the part of the corpus."""
        return " and ".join(sorted((self.first.kind, self.second.kind)))

    @property
    def relation(self) -> Relation:
        dx, dy = self.first.x - self.second.x, self.first.y - self.second.y
        if abs(dx) > abs(dy):
            return "left" if dx < 0 else "right"
        return "above" if dy < 0 else "below"

    @property
    def code(self) -> str:
        return f"{PREFIX} {', '.join(' '.join(map(str, thing)) for thing in self)}"

    def caption(self, language: Language) -> str:
        """ "a small red circle left of a large blue square", "큰 파란 사각형 왼쪽에 작은 빨간 원이 있다"."""
        if language == "english":
            first, second = (" ".join(thing[:3]) for thing in self)
            return (
                f"a {first} {self.relation}{' of' * (self.relation in ('left', 'right'))} a "
                f"{second}"
            )
        first, second = (" ".join(KOREAN[word] for word in thing[:3]) for thing in self)
        return f"{second} {KOREAN[self.relation]} {first}{particle_after(first, '이')} 있다"


def in_order(scene: Scene) -> Scene:
    """The small thing first, since one says where it is by the large one; of equals the left or the
    upper one.

    So that a picture has one caption.
    """
    if scene.first.size != scene.second.size:
        turned = scene.first.size == "large"
    else:
        turned = scene.relation in ("right", "below")
    return Scene(scene.second, scene.first) if turned else scene


def parse(code: str, where: str) -> Scene:
    """The scene of a line as `Scene.code` writes it; `where` names it in messages."""
    parts = code.removeprefix(PREFIX).split(",")
    things = [re.fullmatch(r"\s*(\w+) (\w+) (\w+) (\d{1,3}) (\d{1,3})\s*", part) for part in parts]
    if len(things) != 2 or not all(things):
        hint = "for example: shapes: small red circle 20 32, large blue square 68 40"
        raise DataError(f"not a picture of two shapes: {code[:60]!r}", where=where, hint=hint)
    scene = [
        Thing(match[1], match[2], match[3], int(match[4]), int(match[5]))
        for match in things
        if match
    ]
    for thing in scene:
        if max(thing.x, thing.y) > 100:
            what = f"{' '.join(thing[:3])} stands at {thing.x} {thing.y}, outside"
            raise DataError(what, where=where, hint="hundredths of the side: 0 to 100")
        for word, known in (
            (thing.size, [*RADIUS]),
            (thing.colour, [*COLOURS]),
            (thing.shape, [*OUTLINES]),
        ):
            if word not in known:
                raise DataError(
                    f"there is no {word!r} to draw", where=where, hint=did_you_mean(word, known)
                )
    return Scene(*scene)


def draw(scene: Scene, side: int) -> NDArray[np.uint8]:
    """The picture, [side, side, 3]: slightly varied flat colours on a light, noisy background.

    The random numbers are seeded by the scene, so that it is always drawn the same.
    """
    random = np.random.Generator(np.random.PCG64(zlib.crc32(scene.code.encode())))
    points = (np.arange(side * INK) + 0.5) / (side * INK) * 100
    canvas = np.full((side * INK, side * INK, 3), 225 + 20 * random.random(), dtype=np.float32)
    for thing in scene:
        x, y = (points - thing.x) / RADIUS[thing.size], (points - thing.y) / RADIUS[thing.size]
        columns, rows = (np.flatnonzero(abs(distance) <= 1) for distance in (x, y))
        inked = OUTLINES[thing.shape](x[columns][None], y[rows][:, None])
        box = canvas[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        box[inked] = np.array(COLOURS[thing.colour]) + random.uniform(-12, 12, 3)
    pixels = canvas.reshape(side, INK, side, INK, 3).mean((1, 3)) + random.normal(
        0, 4, (side, side, 3)
    )
    drawn: NDArray[np.uint8] = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return drawn
