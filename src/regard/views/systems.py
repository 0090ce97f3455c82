"""What is compared: runs, and the outputs of other systems, measured on the same units."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.run import read_metrics
from regard.runs.settings import Progress
from regard.views.report import HeatMap
from regard.views.search_errors import Tally
from regard.views.significance import Tested

Rows = list[dict[str, Any]]
"""A table: each row maps columns to values, so that JSON and CSV are the same."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What to compare, on what, and how."""

    runs: Sequence[Run]
    """All of one task."""
    recipes: Sequence[AnyRecipe]
    """The runs' own, with the search and evaluation of this comparison."""
    names: Sequence[str]
    """Of the runs."""
    hypotheses: Mapping[str, str | Path]
    """Files with the outputs of other systems, by their names."""
    baseline: str
    split: str | None
    files: Sequence[str]
    checkpoint: str
    device: str
    progress: Progress


@dataclass(frozen=True, eq=False)
class System:
    """One column of the comparison."""

    name: str
    outputs: tuple[str, ...]
    """What it writes or says of every unit."""
    run: Run | None = None
    """None for outputs that came from a file."""
    recipe: AnyRecipe | None = None
    """The run's, with the search of this comparison."""
    parameters: int | None = None
    speed: Mapping[str, float | None] = field(default_factory=dict)
    """Seconds that it took here, without loading the model, and units a second."""
    tally: Tally | None = None
    """Its search errors and model errors, where it searches."""
    alignments: Mapping[int, HeatMap] = field(default_factory=dict)
    """Attention over the source, for the sentences that are shown; none for a model without attention."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Systems measured: all that differs between systems that write texts and others."""

    unit: str
    """What is counted: sentences, documents or examples."""
    count: int
    systems: tuple[System, ...]
    scores: Mapping[str, Mapping[str, float]]
    """By the system's name, then by metric."""
    tests: Sequence[Tested]
    tables: Mapping[str, Rows]
    """Those that only this kind of system has."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else JSON says beside the tables."""
    note: str | None = None
    """What a reader must know of the scores."""
    decodes: bool = False
    """Whether outputs are searched for."""


def names_of(runs: Sequence[Run]) -> list[str]:
    """The folder's name for each run, its path where two folders are named alike, a number where paths are equal."""
    names = [run.folder.resolve().name for run in runs]
    for longer in ([str(run.folder) for run in runs], [f"{run.folder} ({n})" for n, run in enumerate(runs, 1)]):
        counts = Counter(names)
        names = [name if counts[name] == 1 else other for name, other in zip(names, longer, strict=True)]
    return names


def check_same(runs: Sequence[Run], texts: Sequence[object], unit: str) -> None:
    """Refuse runs that would be measured on other texts than the first."""
    for run, own in zip(runs, texts, strict=False):
        if own != texts[0]:
            what = f"its examples are not those of {runs[0].folder}"
            hint = f"give the {unit} to compare on with --file; a split drawn by the seed differs from run to run"
            raise DataError(what, where=str(run.folder), hint=hint)


# ------------------------------------------------------------------------------------------------ recipes and groups


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """A recipe's leaves by their config paths: `data.train.0.corpus`."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if items is None:
        return {path: tree}
    return {
        key: value for name, part in items for key, value in flat(part, f"{path}.{name}" if path else str(name)).items()
    }


def differences(recipes: Mapping[str, AnyRecipe]) -> Rows:
    """The config paths on which recipes differ, each with its value in every recipe; None where it has no such path."""
    leaves = {name: flat(recipe.model_dump(mode="json")) for name, recipe in recipes.items()}
    every = dict.fromkeys(path for own in leaves.values() for path in own)
    sections = list(dict.fromkeys(path.partition(".")[0] for path in every))
    paths = sorted(every, key=lambda path: sections.index(path.partition(".")[0]))
    return [
        {"key": path, **{name: own.get(path) for name, own in leaves.items()}}
        for path in paths
        if len({json.dumps(own.get(path, "no such path")) for own in leaves.values()}) > 1
    ]


def groups_of(systems: Sequence[System]) -> dict[str, tuple[str, ...]]:
    """The names of systems that differ only in the seed of their training, by the name of their group.

    Runs with the same seed are not repetitions of each other, so each of them begins a group of its own.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for system in systems:
        if system.recipe is None:
            groups[system.name, 0] = [system.name]
            continue
        tree = system.recipe.model_dump(mode="json")
        seed = tree["training"].pop("seed")
        key = json.dumps(tree, sort_keys=True)
        groups.setdefault((key, seen[key, seed]), []).append(system.name)
        seen[key, seed] += 1
    return {_group_name(names): tuple(names) for names in groups.values()}


def _group_name(names: Sequence[str]) -> str:
    """What the names of its members begin with, without the seed."""
    if len(names) == 1:
        return names[0]
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    shared = re.sub(r"([-_. ]+seed)?[-_. ]*\d*$", "", "".join(column[0] for column in letters))
    return f"{shared or names[0]} ({len(names)} seeds)"


# ---------------------------------------------------------------------------------------------------------- training


def learning_curve(system: System) -> Rows:
    """The validations in a run's log: step, loss, perplexity and the task's metrics."""
    if system.run is None:
        return []
    lines = (line for line in read_metrics(system.run.folder / "metrics.jsonl") if line["event"] == "validation")
    return [{name: value for name, value in line.items() if isinstance(value, int | float)} for line in lines]


def training_time(system: System) -> dict[str, float | int | None]:
    """Steps and seconds of training by the run's log, without validations and the start."""
    if system.run is None:
        return {"training_steps": None, "training_seconds": None}
    step, seconds = 0, 0.0
    for line in read_metrics(system.run.folder / "metrics.jsonl"):
        if line["event"] == "train":
            seconds += line["seconds_per_step"] * (line["step"] - step)
            step = line["step"]
    return {"training_steps": step, "training_seconds": seconds}
