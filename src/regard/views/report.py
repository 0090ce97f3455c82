"""A report: the result of a verb as one value, made of titled sections of texts, tables and
figures.

terminal.py, page.py and picture.py render it; they know sections and their parts only.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from regard.language import REPORT_SECTIONS, default_language, korean, shown
from regard.views.mathml import looks_like_equation, mathml

Numbers = npt.NDArray[np.floating]
Tone = Literal["", "good", "bad", "muted", "code", "blank", "answer"]
"""The look of a cell or a paragraph. `blank` is a box to write in, `answer` fills such a box."""

MAX_HEAT_MAP_BYTES = 1_900_000
"""Maximum size of the values of all heat maps of a part. Base64 adds a third, and a page should
stay below 3 MB."""
SPARSE_VALUE_BYTES = 3
"""Bytes of a value that is stored with its column: one for the value, two for the column."""


class Part:
    """Base class of the parts of a section."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """All fields, for the script of a page. nan, which JSON lacks, becomes None."""
        return {
            "kind": self.kind,
            **{field.name: plain(getattr(self, field.name)) for field in fields(self)},  # type: ignore[arg-type]
        }


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(part) for part in value]
    return plain(vars(value)) if is_dataclass(value) else value


@dataclass(frozen=True)
class Cell:
    """A value of a table, how it is written (a Python format), and its colour."""

    value: str | int | float | None
    format: str = ""
    tone: Tone = ""
    ours: bool = False
    """Whether the text is regard's and is shown in the user's language; False if it comes from the
    data."""
    asked: bool = False
    """Whether an exercise leaves the cell blank, for the reader to compute."""

    @property
    def text(self) -> str:
        """The value as its format says; without one, integers with commas, other numbers with two
        decimals or three digits, None as a dash."""
        if self.value is None:
            return "–"
        if self.format or isinstance(self.value, str):
            return format(self.value, self.format)
        if isinstance(self.value, int):
            return f"{self.value:,}"
        return (
            f"{self.value:,.2f}" if abs(self.value) >= 1 or self.value == 0 else f"{self.value:.3g}"
        )


@dataclass(frozen=True)
class Text(Part):
    """Paragraphs."""

    kind = "text"
    paragraphs: Sequence[str]
    tone: Tone = ""

    def to_json(self) -> dict[str, Any]:
        """With the paragraphs that are equations as MathML, by their numbers."""
        drawn = {
            str(number): mathml(text)
            for number, text in enumerate(self.paragraphs)
            if looks_like_equation(text)
        }
        return super().to_json() | {"equations": drawn}


def muted(text: str) -> Text:
    """An explanation below a table or a figure."""
    return Text([text], tone="muted")


@dataclass(frozen=True)
class Prose(Part):
    """A text in Markdown. With a title, a page shows only that until the reader unfolds it."""

    kind = "prose"
    text: str
    title: str = ""


@dataclass(frozen=True)
class Guess(Part):
    """A question that the reader answers before a page shows what follows it."""

    kind = "guess"
    question: str
    answer: float
    low: float = 0
    high: float = 100
    unit: str = ""
    title: str = ""

    def to_json(self) -> dict[str, Any]:
        texts = {name: shown(text) for name, text in GUESS_TEXTS.items()}
        return super().to_json() | {"texts": texts}


GUESS_TEXTS = {
    "first": "Guess first.",
    "guess": "That is my guess",
    "skip": "Show me",
    "guessed": "You guessed {}; it is {}.",
    "told": "It is {}.",
    "rest": "What follows is shown when you have guessed.",
}
"""The texts of a question, by their names in report.js."""


@dataclass(frozen=True)
class Table(Part):
    """Rows of cells or of their values, under the names of their columns."""

    kind = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    notes: Sequence[str] = ()
    folded: bool = False
    """Whether a page shows only the title until the reader unfolds it."""
    formats: Sequence[str] = ("",)
    """Formats of the floats in each column; the last one also applies to the columns after it."""
    in_picture: bool = False
    """Whether a picture draws the table too, beside the figures."""

    @cached_property
    def cells(self) -> list[list[Cell]]:
        formats = [*self.formats, *repeat(self.formats[-1], len(self.columns))]

        def cell(value: Any, form: str) -> Cell:
            return (
                value
                if isinstance(value, Cell)
                else Cell(value, form if isinstance(value, float) else "")
            )

        return [[*map(cell, row, formats)] for row in self.rows]

    @cached_property
    def numeric(self) -> list[bool]:
        """For each column, whether all its cells are numbers, or texts made of numbers: "0.5 ±
        0.1", "< 0.001"."""
        number = re.compile(r"[-+−–±×*<=≤∞ .,:%()\d]*(?:e[-+]?\d+)?")
        columns = zip(*self.cells, strict=True) if self.cells else [()] * len(self.columns)
        return [
            bool(cells)
            and all(cell.tone == "blank" or number.fullmatch(cell.text) for cell in cells)
            for cells in columns
        ]

    def to_json(self) -> dict[str, Any]:
        cells = [[{"text": cell.text, "tone": cell.tone} for cell in row] for row in self.cells]
        return super().to_json() | {"rows": cells, "numeric": self.numeric}


@dataclass(frozen=True)
class Series:
    """A named line: one value per x, with its interval if known. A value of nan is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Curves(Part):
    """Series over the same axes. `x_ticks` are positions with their texts; None derives them from
    the data."""

    kind = "curves"
    series: Sequence[Series]
    x_label: str
    y_label: str
    title: str = ""
    from_zero: bool = False
    x_ticks: Sequence[tuple[float, str]] | None = None


@dataclass(frozen=True)
class Bars(Part):
    """Horizontal bars, one per category; several series are stacked."""

    kind = "bars"
    categories: Sequence[str]
    series: Mapping[str, Sequence[float]]
    value_label: str = ""
    title: str = ""
    span: float = 0.0
    """The axis reaches at least this value."""

    @property
    def whole(self) -> bool:
        """Whether all values are counts."""
        values = [value for series in self.series.values() for value in series]
        return all(isinstance(value, int) for value in values)

    @property
    def longest(self) -> float:
        """The largest absolute value on the axis; 1 if all are 0."""
        ends = [sum(map(abs, values)) for values in zip(*self.series.values(), strict=True)]
        return max(self.span, *ends) or 1.0

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"longest": self.longest, "whole": self.whole}


@dataclass(frozen=True, eq=False)
class HeatMap:
    """`values[r, c]` belongs to `rows[r]` and `columns[c]`; an empty label leaves its place
    blank."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Numbers
    title: str = ""
    choice: tuple[str, ...] = ()
    """The option of each chooser of `HeatMaps` that selects this map: ("attention over the source",
    "layer 1", "head 2")."""
    label_width: int = 18
    """Terminal columns that a label may take; longer ones are cut."""

    @property
    def peak(self) -> float:
        """The largest absolute value, which gets the darkest shade; 1 if all are 0."""
        return float(np.abs(self.values).max()) or 1.0

    @property
    def signed(self) -> bool:
        """Whether there are values below 0: white is then the middle of the scale."""
        return bool((self.values < 0).any())

    @property
    def binary(self) -> bool:
        """Whether all values are yes or no, as in a mask."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    def packed(self, kept: int | None) -> dict[str, Any]:
        """The values for the page: one byte per value, or one bit if all are 0 or 1. With `kept`,
        only that many values per row, with their columns.

        code = 255 sqrt(v / peak), so that small values keep their digits; 128 + 127 v / peak if
        some are negative.
        """
        packed: dict[str, Any] = {
            "choice": self.choice,
            "title": self.title,
            "peak": self.peak,
            "signed": self.signed,
        }
        if self.binary:
            return packed | {"bits": base64_of(np.packbits(self.values.astype(bool)))}
        values = self.values
        shares = np.abs(self.values)
        if kept is not None and kept < values.shape[1]:
            places = np.argpartition(shares, -kept, axis=1)[:, -kept:]
            values = np.take_along_axis(values, places, axis=1)
            packed["places"] = base64_of(places.astype("<u2"))
            packed["share"] = round(float(np.abs(values).sum() / shares.sum()), 3)
        codes = 128 + 127 * values / self.peak if self.signed else 255 * np.sqrt(values / self.peak)
        return packed | {"cells": base64_of(np.rint(codes).astype(np.uint8))}


@dataclass(frozen=True, eq=False)
class HeatMaps(Part):
    """One heat map, or several with a chooser for each part of their `choice`."""

    kind = "heat_maps"
    maps: Sequence[HeatMap]
    choosers: Sequence[str] = ()
    """The names of the choosers, the most general first; the options of a later one depend on the
    earlier ones."""
    shown: Sequence[int] = (0,)
    """The selected maps: the terminal and pictures draw these, a page opens with the first of
    them."""
    title: str = ""
    tokens: Collection[str] = ()
    """The options of the first chooser whose rows and columns are tokens: a page also shows these
    as two lines of text, of which the first reacts to the pointer."""

    @property
    def drawn(self) -> list[HeatMap]:
        return [self.maps[place] for place in self.shown]

    @property
    def kept(self) -> int | None:
        """How many values of each row fit into MAX_HEAT_MAP_BYTES beside the selected maps; None if
        all fit."""
        bytes_of = [0 if heat_map.binary else heat_map.values.size for heat_map in self.maps]
        if sum(bytes_of) <= MAX_HEAT_MAP_BYTES:
            return None
        others = [
            place for place in range(len(self.maps)) if place not in self.shown and bytes_of[place]
        ]
        rows = sum(len(self.maps[place].rows) for place in others)
        return max(
            1,
            (MAX_HEAT_MAP_BYTES - sum(bytes_of[place] for place in self.shown))
            // (SPARSE_VALUE_BYTES * max(1, rows)),
        )

    def to_json(self) -> dict[str, Any]:
        labels: dict[
            tuple[str, ...], int
        ] = {}  # maps of one kind have the same labels, which are stored once
        kept = self.kept
        maps = []
        for place, heat_map in enumerate(self.maps):
            sides = {"rows": tuple(heat_map.rows), "columns": tuple(heat_map.columns)}
            numbers = {side: labels.setdefault(texts, len(labels)) for side, texts in sides.items()}
            maps.append(heat_map.packed(None if place in self.shown else kept) | numbers)
        own = {name: plain(getattr(self, name)) for name in ("kind", "title", "choosers", "tokens")}
        return own | {
            "first": self.shown[0],
            "kept": kept,
            "labels": [*map(list, labels)],
            "maps": maps,
        }


@dataclass(frozen=True, eq=False)
class ImageMap(Part):
    """An image, and for each word how much it looked at each region of it."""

    kind = "image_map"
    pixels: npt.NDArray[np.uint8]
    """[height, width, 3]"""
    grid: tuple[int, int]
    """Rows and columns of the regions."""
    words: Sequence[str]
    weights: Numbers
    """[words, regions]"""
    regions: Sequence[str]
    title: str = ""

    def veils(self) -> Numbers:
        """[words, rows, columns], how dark each region is drawn: from 0, where the word looked
        most, to 0.82."""
        weights = np.zeros((len(self.words), math.prod(self.grid)))
        weights[:, : self.weights.shape[1]] = self.weights
        veils: Numbers = 0.82 * (1 - weights / np.maximum(weights.max(1, keepdims=True), 1e-9))
        return veils.reshape(len(self.words), *self.grid)

    def to_json(self) -> dict[str, Any]:
        veils = self.veils().round(3).reshape(len(self.words), -1).tolist()
        return super().to_json() | {
            "weights": self.weights.tolist(),
            "veils": veils,
            "pixels": base64_of(self.pixels),
            "size": list(self.pixels.shape[:2]),
        }


@dataclass(frozen=True)
class Branch:
    """A node of a tree, after another one."""

    parent: int | None
    """The index of the parent among the branches, smaller than this one's; None: the root."""
    depth: int
    """The distance from the root; 1 for its children."""
    label: str
    value: str = ""
    tone: Tone = ""
    """`good`: on the winning path; `muted`: abandoned."""
    note: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Tree(Part):
    """Branches from left to right."""

    kind = "tree"
    branches: Sequence[Branch]
    title: str = ""

    @property
    def depth(self) -> int:
        return max((branch.depth for branch in self.branches), default=0)

    @cached_property
    def children(self) -> dict[int | None, list[int]]:
        """The indices of the children of each branch."""
        children: dict[int | None, list[int]] = {}
        for place, branch in enumerate(self.branches):
            children.setdefault(branch.parent, []).append(place)
        return children

    @cached_property
    def rows(self) -> list[float]:
        """How far down each branch is drawn: leaves one below another, others in the middle of
        their children; the winning path in one line, which is easy to follow."""
        order = list[int]()
        stack = [*reversed(self.children.get(None, []))]
        rows = [0.0] * len(self.branches)
        while stack:
            order.append(place := stack.pop())
            stack += reversed(self.children.get(place, []))
        for row, place in enumerate(place for place in order if place not in self.children):
            rows[place] = float(row)
        for place in reversed(order):
            if below := self.children.get(place):
                ends = [child for child in below if self.branches[child].tone == "good"] or below
                rows[place] = (rows[ends[0]] + rows[ends[-1]]) / 2
        return rows

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"rows": self.rows}


@dataclass(frozen=True)
class Points(Part):
    """Labelled points in a plane."""

    kind = "points"
    labels: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    groups: Sequence[int]
    """Points of one group are drawn alike."""
    lines: Sequence[tuple[int, int]] = ()
    """Pairs of points that are joined."""
    title: str = ""
    """The axes have no labels: only the distances between points mean something."""


Figure = Curves | Bars | HeatMaps | ImageMap | Tree | Points


@dataclass(frozen=True)
class Section:
    """A heading and the parts below it."""

    heading: str
    parts: Sequence[Part]
    in_terminal: int | None = None
    """How many of the parts the terminal shows; None: all of them."""
    in_picture: bool = True
    new_page: bool = False
    """Whether the section begins a page when the report is printed."""
    side_by_side: bool = False
    """Whether a page puts narrow tables and figures next to each other."""

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.heading.lower()).strip("-")


@dataclass(frozen=True, repr=False)
class Report:
    """A title, what it is about, what follows from it, and the sections. It displays itself in
    Python and Jupyter."""

    title: str
    sections: Sequence[Section]
    opening: str = ""
    conclusions: Sequence[str] = ()
    """Findings or advice: a page has them at the top, the terminal at the end."""
    note: str = ""
    """Where the numbers come from, in Markdown: a page has it below the opening, the terminal at
    the end."""
    language: str = ""
    """The language of the texts; empty: they are English, and shown in the user's language."""

    def to_json(self) -> dict[str, Any]:
        """JSON for a page that draws the report; the cells of tables are texts."""
        sections = [
            {"heading": section.heading, "parts": [part.to_json() for part in section.parts]}
            for section in self.sections
        ]
        return {
            "title": self.title,
            "opening": self.opening,
            "conclusions": [*self.conclusions],
            "sections": sections,
        }

    @property
    def figures(self) -> list[Figure]:
        """The figures that a picture shows."""
        return [part for part in self._drawn if isinstance(part, Figure)]

    @property
    def figure_rows(self) -> list[list[Figure | Table]]:
        """The figures that a picture shows, and tables if they say so: then those of each section
        begin a row, and a table without a title has the heading of its section."""
        if not any(isinstance(part, Table) for part in self._drawn):
            return [[*self.figures]]
        rows = []
        for section in self.sections:
            parts = [part for part in self._drawn if any(part is own for own in section.parts)]
            if parts and isinstance(first := parts[0], Table) and not first.title:
                parts[0] = replace(first, title=section.heading)
            rows.append(parts)
        return [*filter(None, rows)]

    @property
    def _drawn(self) -> list[Figure | Table]:
        return [
            part
            for section in self.sections
            if section.in_picture
            for part in section.parts
            if isinstance(part, Figure) or (isinstance(part, Table) and part.in_picture)
        ]

    def __repr__(self) -> str:
        from regard.views.terminal import as_text  # which imports this module

        return as_text(self)

    def _repr_html_(self) -> str:
        from regard.views.page import framed  # which imports this module

        return framed(self)


TRANSLATED_FIELDS: dict[type, tuple[str, ...]] = {
    Report: ("title", "opening", "conclusions", "sections"),
    Section: ("heading", "parts"),
    Text: ("paragraphs",),
    Table: ("columns", "title", "notes"),
    Series: ("name",),
    Curves: ("series", "x_label", "y_label", "title"),
    Bars: ("series", "value_label", "title"),
    HeatMap: ("title", "choice"),
    HeatMaps: ("maps", "choosers", "title", "tokens"),
    ImageMap: ("title",),
    Points: ("title",),
    Tree: ("branches", "title"),
    Branch: ("note",),
}
"""The fields whose texts are translated; others hold tokens, names and sentences of the data."""
TRANSLATED_LABELS = re.compile(r"(layer|hop) \d.*|(right|each other) class| +\(nothing\)")
"""Labels beside a figure that are not tokens, and are translated."""


def in_language(report: Report) -> Report:
    """The report in the user's language, unless its texts have a language of their own."""
    language = report.language or default_language()
    return replace(
        report if report.language or language == "en" else _korean(report), language=language
    )


def _korean(value: Any) -> Any:
    if isinstance(value, str):
        return korean(value, REPORT_SECTIONS)
    if isinstance(value, list | tuple):
        return [*map(_korean, value)]
    if isinstance(value, Mapping):
        return {_korean(name): part for name, part in value.items()}
    texts = {name: _korean(getattr(value, name)) for name in TRANSLATED_FIELDS.get(type(value), ())}
    if isinstance(value, Table):
        cells = [
            [replace(cell, value=korean(cell.text)) if cell.ours else cell for cell in row]
            for row in value.cells
        ]
        texts["rows"] = cells
    if isinstance(value, Curves) and value.x_ticks:
        texts["x_ticks"] = [(x, _korean(text)) for x, text in value.x_ticks]
    for name in {HeatMap: ("rows", "columns"), Bars: ("categories",)}.get(type(value), ()):
        texts[name] = [
            _korean(text) if TRANSLATED_LABELS.fullmatch(text) else text
            for text in getattr(value, name)
        ]
    return replace(value, **texts) if texts else value


class Result(Protocol):
    """The value that a verb returns: all its numbers, and a report for people, which Python and
    Jupyter display."""

    def to_json(self) -> dict[str, Any]: ...

    def report(self) -> Report: ...

    def __repr__(self) -> str:
        return repr(self.report())

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


def json_parts(value: object) -> Iterator[str]:
    """A result as JSON, in parts that need little memory: arrays are written row by row, with four
    digits per number."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.astype(int) if value.dtype == bool else value
        number = "%.4g" if value.dtype.kind == "f" else "%d"
        yield f"[{', '.join([number] * len(value))}]" % tuple(value.tolist())
    elif isinstance(value, Mapping):
        for place, (key, part) in enumerate(value.items()):
            yield f"{', ' if place else '{'}{json.dumps(str(key), ensure_ascii=False)}: "
            yield from json_parts(part)
        yield "}" if value else "{}"
    elif isinstance(value, np.ndarray | list | tuple):
        for place, part in enumerate(value):
            yield ", " if place else "["
            yield from json_parts(part)
        yield "]" if len(value) else "[]"
    else:
        yield json.dumps(
            float(f"{value:.4g}") if isinstance(value, float) else value, ensure_ascii=False
        )


def base64_of(array: npt.NDArray[Any]) -> str:
    """The bytes of an array, row by row, as text."""
    return base64.b64encode(array.tobytes()).decode()
