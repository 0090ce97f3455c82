"""An experiment with several seeds: one process per seed, means with their ranges, and claims, whose
verdicts follow from what each seed found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from regard.data.parallel import in_order, processors
from regard.views.report import Cell, Curves, HeatMaps, Series, Table

if TYPE_CHECKING:
    from regard.course.lab import Lab

Findings = dict[str, Any]
"""The findings of an experiment or of a part of it, by name: figures and tables, and numbers or
words that the text tells and claims check."""
SEED_CHOOSER = "seed"
"""The chooser of a heat map of which each seed has its own."""
SEEDS = 3
"""Seeds with which a chapter runs, unless it is quick."""


# Means


class Mean(float):
    """The mean of a number over seeds; it knows the number of each seed."""

    by_seed: tuple[float, ...]

    def __new__(cls, by_seed: Iterable[float]) -> Mean:
        values = tuple(by_seed)
        mean = super().__new__(cls, fmean(values))
        mean.by_seed = values
        return mean

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.by_seed,)

    def text(self, written: Callable[[float], str], unit: str = "") -> str:
        """The mean, then the lowest and the highest: `0.62 (0.58–0.66)`; the mean alone if all are
        written alike. The unit is written once."""
        counts = self.is_integer() and all(isinstance(value, int) for value in self.by_seed)
        mean, low, high = (
            written(value).removesuffix(unit)
            for value in (
                int(self) if counts else float(self),
                min(self.by_seed),
                max(self.by_seed),
            )
        )
        return f"{mean}{unit}" if low == high else f"{mean}{unit} ({low}–{high})"


def over_seeds(values: Sequence[Any]) -> Any:
    """What several seeds found under one name: numbers become means, and so do tables and curves of
    the same rows and lines. Heat maps that are chosen by seed are put together. All else is the
    first seed's."""
    first = values[0]
    if len(values) == 1 or any(type(value) is not type(first) for value in values):
        return first
    if isinstance(first, Table):
        return _mean_table(values)
    if isinstance(first, Curves):
        return _mean_curves(values)
    if is_chosen_by_seed(first):
        return replace(first, maps=[one for value in values for one in value.maps])
    if isinstance(first, list) and len({len(value) for value in values}) == 1:
        return [over_seeds(parts) for parts in zip(*values, strict=True)]
    is_number = isinstance(first, int | float) and not isinstance(first, bool)
    return Mean(values) if is_number and len({*values}) > 1 else first


def is_chosen_by_seed(value: Any) -> TypeGuard[HeatMaps]:
    """Whether this is a heat map of one seed, to be shown beside those of the others."""
    return isinstance(value, HeatMaps) and [*value.choosers] == [SEED_CHOOSER]


def _mean_table(tables: Sequence[Table]) -> Table:
    first = tables[0]
    by_place = [
        [*zip(*rows, strict=False)] for rows in zip(*(t.cells for t in tables), strict=False)
    ]
    same_shape = all(
        (t.columns, [len(row) for row in t.cells])
        == (first.columns, [len(row) for row in first.cells])
        for t in tables
    )
    if not same_shape:
        return first
    cells = [[_mean_cell(own) for own in row] for row in by_place]
    if any(cell is None for row in cells for cell in row):
        return first
    return replace(first, rows=cells)


def _mean_cell(cells: Sequence[Cell]) -> Cell | None:
    """One cell for those of all seeds; None if their words differ."""
    first = cells[0]
    if len({repr(cell.value) for cell in cells}) == 1:
        return first
    values = [cell.value for cell in cells if isinstance(cell.value, int | float)]
    if len(values) < len(cells):
        return None
    if not all(math.isfinite(value) for value in values):  # a training that diverged
        return replace(first, value=", ".join(cell.text for cell in cells), format="")
    form = first.format or (".2f" if isinstance(first.value, float) else ".0f")
    text = Mean(values).text(lambda value: Cell(value, form).text)
    return replace(first, value=text, format="")


def _mean_curves(curves: Sequence[Curves]) -> Curves:
    first = curves[0]
    lines = [[(line.name, [*line.x]) for line in own.series] for own in curves]
    if any(own != lines[0] for own in lines):
        return first
    series = [
        Series(
            same[0].name,
            same[0].x,
            *(
                [of([*y]) for y in zip(*(line.y for line in same), strict=True)]
                for of in (fmean, min, max)
            ),
        )
        for same in zip(*(own.series for own in curves), strict=True)
    ]
    return replace(first, series=series)


# Claims


@dataclass(frozen=True)
class Claim:
    """A statement of a chapter, and whether the numbers of one seed bear it out."""

    text: str
    holds: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Verdict:
    """With how many of the seeds a claim holds."""

    held: int
    seeds: int
    language: str = "en"

    @property
    def holds(self) -> bool:
        """Whether it holds with every seed."""
        return self.held == self.seeds

    @property
    def fails(self) -> bool:
        """Whether it holds with none."""
        return self.held == 0

    @property
    def differs(self) -> bool:
        """Whether it holds with some seeds only."""
        return not self.holds and not self.fails

    def __str__(self) -> str:
        """What the text of a chapter says: a clause about "this"."""
        name = "holds" if self.holds else "fails" if self.fails else "differs"
        if self.seeds == 1:
            name += " once"
        return VERDICTS[self.language][name].format(held=self.held, seeds=self.seeds)


VERDICTS = {
    "en": {
        "holds": "this holds with all {seeds} seeds",
        "fails": "this does not hold here, with none of {seeds} seeds",
        "differs": "this differs by seed: it holds with {held} of {seeds}",
        "holds once": "this holds in this run",
        "fails once": "this does not hold in this run",
    },
    "ko": {
        "holds": "시드 {seeds}개 모두에서 성립합니다",
        "fails": "여기서는 시드 {seeds}개 중 어느 것에서도 성립하지 않습니다",
        "differs": "시드에 따라 달라서, {seeds}개 중 {held}개에서만 성립합니다",
        "holds once": "이번 실행에서는 성립합니다",
        "fails once": "이번 실행에서는 성립하지 않습니다",
    },
}
Verdicts = dict[str, Verdict]


def verdicts_on(claims: Mapping[str, Claim], by_seed: Sequence[Findings]) -> Verdicts:
    """With how many seeds each claim holds."""
    return {
        key: Verdict(sum(bool(claim.holds(found)) for found in by_seed), len(by_seed))
        for key, claim in claims.items()
    }


def claims_table(claims: Mapping[str, Claim], verdicts: Verdicts) -> Table:
    """The table at the end of a chapter: each claim, and what became of it."""
    rows = []
    for key, claim in claims.items():
        own = verdicts[key]
        word = "holds" if own.holds else "does not hold here" if own.fails else "differs by seed"
        rows.append([claim.text, word, f"{own.held} / {own.seeds}"])
    return Table(["claim", "here", "seeds"], rows)


# Seeds in processes


def gathered(claims: Mapping[str, Claim], by_seed: Sequence[Findings]) -> tuple[Findings, Verdicts]:
    """The findings of all seeds as one, with a table of the claims. Examples, which only the first
    seed has, stay as they are."""
    found = {name: over_seeds([own[name] for own in by_seed if name in own]) for name in by_seed[0]}
    verdicts = verdicts_on(claims, by_seed)
    return found | {"claims": claims_table(claims, verdicts)}, verdicts


@dataclass(frozen=True)
class SeedWork:
    """The experiment of a chapter as the work of a process; a piece is the lab of a seed."""

    chapter: str

    def start(self, number: int, workers: int) -> None:
        if workers > 1:
            torch.set_num_threads(max(1, processors() // workers))

    def __call__(self, piece: Lab) -> Findings:
        found: Findings = import_module(f"regard.course.{self.chapter}").experiment(piece)
        return found


def run_seeds(chapter: str, labs: Sequence[Lab]) -> list[Findings]:
    """What the experiment of a chapter finds with each seed: a process per seed if there are cores
    for two. What measures time, `experiment_alone`, runs when they have ended."""
    workers = len(labs) if processors() > 1 else 1
    found = [*in_order(SeedWork(chapter), labs, workers)]
    if alone := vars(import_module(f"regard.course.{chapter}")).get("experiment_alone"):
        found = [own | alone(lab) for own, lab in zip(found, labs, strict=True)]
    return found
