"""A sheet: steps with tables of numbers, and the same steps with blanks for the reader to fill in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.views.report import (
    Cell,
    Figure,
    HeatMap,
    HeatMaps,
    Numbers,
    Part,
    Report,
    Result,
    Section,
    Table,
    Text,
)

BLANK = "______"
WORDS_BLANK = 2 * BLANK
MAX_WORDS = 6
"""Words of a sentence whose numbers still fit on a page."""
NAME_AND_DATE = "Name ______________________      Date ______________"
ROUNDING = "Fill in the boxes. Round to two decimals."
WORD_VECTORS = (
    (1, 0, 1, 0),
    (0, 1, 0, 1),
    (2, 0, 0, 1),
    (0, 0, 1, 1),
    (1, 0, 0, 1),
    (0, 1, 1, 0),
)
"""The vectors of the first word of a sentence, the second and so on."""


@dataclass(frozen=True, repr=False)
class Sheet(Result):
    """A worked example: what it is about, its steps, and its numbers."""

    title: str
    opening: str
    steps: Sequence[Section]
    numbers: Mapping[str, Any]
    exercise: bool = False
    """Whether the cells that are asked for are blank."""
    solution: bool = False
    """Whether the cells that are asked for are filled in and marked; after the exercise, if there
    is one."""

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, **self.numbers}

    def report(self) -> Report:
        steps = [replace(step, side_by_side=True) for step in self.steps]
        if not (self.exercise or self.solution):
            return Report(self.title, steps, self.opening)
        sections = list[Section]()
        if self.exercise:
            sections.append(Section("", [Text([NAME_AND_DATE]), Text([ROUNDING], tone="muted")]))
            sections += [step for step in map(with_blanks, steps) if step.parts]
        if self.solution and self.exercise:
            answered = [step for step in map(with_answers, steps) if any(map(asks, step.parts))]
            parts = [part for step in answered for part in (Text([step.heading]), *step.parts)]
            sections.append(Section("Solution", parts, new_page=True, side_by_side=True))
        elif self.solution:
            sections += map(with_answers, steps)
        return Report(self.title, sections, self.opening)


def asks(part: Part) -> bool:
    """Whether a part has cells for the reader to compute."""
    return isinstance(part, Table) and any(cell.asked for row in part.cells for cell in row)


def with_blanks(step: Section) -> Section:
    """The step with blanks, without figures, which would show the answers."""
    parts = [part for part in step.parts if not isinstance(part, Figure)]
    return replace(step, parts=[_with_cells(part, blank) for part in parts], in_terminal=None)


def blank(cell: Cell) -> Cell:
    """A box instead of the cell, with room to write a number or a few words."""
    return Cell(WORDS_BLANK if isinstance(cell.value, str) else BLANK, tone="blank")


def with_answers(step: Section) -> Section:
    """The step with the answers marked."""
    return replace(
        step,
        parts=[_with_cells(part, lambda cell: replace(cell, tone="answer")) for part in step.parts],
    )


def _with_cells(part: Part, change: Any) -> Part:
    if not asks(part):
        return part
    assert isinstance(part, Table)
    rows = [[change(cell) if cell.asked else cell for cell in row] for row in part.cells]
    return replace(part, rows=rows)


def number_table(
    title: str,
    columns: Sequence[str],
    names: Sequence[str],
    values: Tensor | Sequence[Sequence[float]],
    *,
    asked: Collection[int] = (),
    ours: bool = False,
) -> Table:
    """A table with a named row of numbers for each name; the rows whose numbers are `asked` are
    blank in an exercise. Integers are written without decimals. `ours`: the names are texts of
    regard, not words of the sentence."""
    rows = values.tolist() if isinstance(values, Tensor) else values
    whole = all(value == round(value) for row in rows for value in row)
    form = ".0f" if whole else ".2f"
    cells = [
        [Cell(name, ours=ours), *(Cell(value + 0.0, form, asked=place in asked) for value in row)]
        for place, (name, row) in enumerate(zip(names, rows, strict=True))
    ]
    return Table(columns, cells, title=title, in_picture=True)


def heat_map(title: str, rows: Sequence[str], columns: Sequence[str], values: Numbers) -> HeatMaps:
    """A single map with a title."""
    return HeatMaps([HeatMap(rows, columns, values, title)], title=title)


def indexed(letter: str, count: int) -> list[str]:
    """The names of the numbers of a vector: x1, x2, and so on."""
    return [f"{letter}{place}" for place in range(1, count + 1)]


def words_of(sentence: str, least: int = 2, most: int = MAX_WORDS) -> list[str]:
    """The words of a sentence, few enough to compute by hand."""
    words = sentence.split()
    if not least <= len(words) <= most:
        raise RegardError(f"{len(words)} words; a sheet is for {least} to {most}", where="sentence")
    return words


def distinct(words: Iterable[str]) -> list[str]:
    """Names for words that may occur twice: the second `the` becomes `the (2)`."""
    counts = dict[str, int]()
    names = []
    for word in words:
        counts[word] = counts.get(word, 0) + 1
        names.append(word if counts[word] == 1 else f"{word} ({counts[word]})")
    return names


@torch.no_grad()
def set_weight(layer: nn.Module, name: str, values: Any) -> None:
    """Give a parameter these numbers."""
    parameter = layer.get_parameter(name)
    parameter.copy_(torch.as_tensor(values, dtype=parameter.dtype).reshape(parameter.shape))
