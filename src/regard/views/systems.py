"""The systems of a comparison: runs, and the outputs of other systems, measured on the same
sentences, documents or examples.

A system that writes texts is decoded once, and its outputs are measured against references. Any
other is measured unit by unit: each document or example has a row of numbers, and a metric is a
function of their sums.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any, Literal

from regard.errors import DataError
from regard.recipes.recipe import AnyRecipe, leaves
from regard.runs import Run
from regard.views.report import HeatMap
from regard.views.search_errors import Tally

TableRows = list[dict[str, Any]]
"""Each row maps columns to values, so that JSON and CSV are the same."""

Unit = Literal["sentences", "documents", "examples"]
OTHER_EXAMPLES = (
    "its examples differ from those of {}",
    "give the texts to compare on with --file; a split drawn by training.seed differs, "
    "data.split_seed=1 keeps it",
)
OTHER_ANSWERS = (
    "its expected answers differ from those of {}",
    "compare runs whose recipes read the answers from the same column",
)
OTHER_TOKENS = (
    "other tokens are hidden from it than from {}, or are shown to it in another way",
    "compare runs with the same tokenizer, data.max_length, data.mask_rate, data.mask_share, "
    "data.random_share, "
    "data.whole_words and model.next_sentence",
)
SHARED_FIELDS = {
    "input": OTHER_EXAMPLES,
    "context": OTHER_EXAMPLES,
    "label": OTHER_ANSWERS,
    "expected": OTHER_ANSWERS,
    "hidden": OTHER_TOKENS,
}
"""Fields that the units of all runs must share -> the error and the hint if they differ."""


@dataclass(frozen=True, eq=False)
class System:
    """One column of the comparison."""

    name: str
    outputs: Sequence[str]
    """Its output or prediction for every unit."""
    run: Run | None = None
    """The run, with the search of this comparison; None for outputs from a file."""
    parameters: int | None = None
    speed: Mapping[str, float | None] = field(default_factory=dict)
    """Seconds it took here, without loading the model, and units per second."""
    tally: Tally | None = None
    """Its search errors and model errors, if it searches."""
    alignments: Mapping[int, HeatMap] = field(default_factory=dict)
    """Attention over the source, for the sentences that are shown; none for a model without
    attention."""

    @property
    def recipe(self) -> AnyRecipe | None:
        return None if self.run is None else self.run.recipe


@dataclass(frozen=True, eq=False)
class Measurements:
    """The measured systems, with everything that differs between systems that write texts and
    others."""

    unit: Unit
    systems: Sequence[System]
    scores: Mapping[str, Mapping[str, float]]
    """Scores by the system's name, then by metric."""
    tables: Mapping[str, TableRows]
    """The significance tests, and tables that only this kind of system has."""
    facts: Mapping[str, Any]
    """Other fields of the JSON, beside the tables."""
    note: str | None
    """A remark that readers of the scores need."""

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.systems[0].outputs)

    @property
    def decodes(self) -> bool:
        return self.unit == "sentences"


def names_of(runs: Sequence[Run]) -> list[str]:
    """The folder's name for each run; its path if two folders have the same name; a number if paths
    are equal."""
    names = [run.folder.resolve().name for run in runs]
    for longer in (
        [str(run.folder) for run in runs],
        [f"{run.folder} ({n})" for n, run in enumerate(runs, 1)],
    ):
        counts = Counter(names)
        names = [
            name if counts[name] == 1 else other for name, other in zip(names, longer, strict=True)
        ]
    return names


def groups_of(recipes: Mapping[str, AnyRecipe | None]) -> dict[str, list[str]]:
    """The names of systems that differ only in the seed of their training, by the name of their
    group.

    Runs with the same seed are not repetitions of each other, so each of them begins a group of its
    own.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for name, recipe in recipes.items():
        key = name
        seed = 0
        if recipe is not None:
            tree = recipe.model_dump(mode="json")
            seed = tree["training"].pop("seed")
            key = json.dumps(tree, sort_keys=True)
        groups.setdefault((key, seen[key, seed]), []).append(name)
        seen[key, seed] += 1
    named: dict[str, list[str]] = {}
    for names in groups.values():  # by what the names of the members begin with, without the seed
        shared = re.sub(r"([-_. ]+seed)?[-_. ]*\d*$", "", commonprefix(names))  # noqa: RUF071
        named[names[0] if len(names) == 1 else f"{shared or names[0]} ({len(names)} seeds)"] = names
    return named


def differences(recipes: Mapping[str, AnyRecipe]) -> TableRows:
    """The config paths on which recipes differ, each with its value in every recipe; None if the
    recipe has no such path."""
    values = {name: leaves(recipe.model_dump(mode="json")) for name, recipe in recipes.items()}
    every = dict.fromkeys(path for own in values.values() for path in own)
    sections = list(dict.fromkeys(path.partition(".")[0] for path in every))
    return [
        {"key": path, **{name: own.get(path) for name, own in values.items()}}
        for path in sorted(every, key=lambda path: sections.index(path.partition(".")[0]))
        if len({json.dumps(own.get(path, "no such path")) for own in values.values()}) > 1
    ]


def check_same(runs: Mapping[str, Run], units: Sequence[Mapping[str, object]]) -> None:
    """Refuse runs that would be measured on other units than the first; `units` of each run has
    keys of SHARED_FIELDS."""
    first = next(iter(runs.values()))
    for run, own in zip(runs.values(), units, strict=False):
        for name, value in units[0].items():
            if own[name] != value:
                what, hint = SHARED_FIELDS[name]
                raise DataError(what.format(first.folder), where=str(run.folder), hint=hint)
