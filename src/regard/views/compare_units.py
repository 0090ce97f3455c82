"""`compare` for runs that write no text for a source: language models, masked models, classifiers and their like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from regard.errors import DataError, DecodeError
from regard.runs import Run
from regard.runs.settings import Progress, device_named, with_search
from regard.runs.splits import SplitName, measured_on, noted
from regard.tasks.language_modeling import UNKNOWN_NOTE, LanguageModeling
from regard.views.compare_tables import Table, Tabled, curves_table, groups_table, significance_table, systems_table
from regard.views.paired import McNemar, Metric, Rows, against_baseline
from regard.views.systems import System, differences, groups_of
from regard.views.units import Counted, counted

DIFFER_MOST = 20
"""Units on which the systems differ most that are shown."""


@dataclass(frozen=True, eq=False)
class UnitComparison(Tabled):
    """What was found. The tables are what the page, the JSON and the CSV files show."""

    task: str
    unit: str
    """What is counted: documents, or examples."""
    units: int
    baseline: str
    metrics: tuple[str, ...]
    higher_is_better: Mapping[str, bool]
    systems: tuple[System, ...]
    groups: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Table]
    measured_on: Mapping[str, Any]
    """Which split or files the units are of (runs/splits.py)."""

    @property
    def note(self) -> str | None:
        """How unknown tokens are paid for, where a system has any."""
        return UNKNOWN_NOTE if any(row.get("unknown") for row in self.tables["systems"]) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            **noted(self.measured_on, {} if self.note is None else {"note": self.note}),
            self.unit: self.units,
            "baseline": self.baseline,
            "metrics": list(self.metrics),
            **self.tables,
        }


def compare_units(
    runs: Sequence[Run],
    names: Sequence[str],
    *,
    split: SplitName | None = None,
    files: Sequence[str] = (),
    baseline: str,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    progress: Progress = lambda what, done, total: None,
) -> UnitComparison:
    """Compare runs of one task on a split or on files; every run is measured once, unit by unit."""
    _refuse_mixed(runs)
    systems: list[System] = []
    counts: dict[str, Counted] = {}
    for name, run in zip(names, runs, strict=True):
        recipe = with_search(run.recipe, None, None, None, overrides)
        system, counts[name] = counted(
            name, run, recipe, split=split, files=files, checkpoint=checkpoint, device=device_named(device),
            progress=partial(progress, name),
        )  # fmt: skip
        systems.append(system)
        _refuse_others(run, counts[name], runs[0], counts[names[0]])
    progress("testing", 0, 1)
    return _compared(runs[0], tuple(systems), counts, baseline, measured_on(runs[0], split, files))


def refuse_options(task: str, options: Mapping[str, object]) -> None:
    """Refuse what only a comparison of texts that were searched for can take."""
    for option, value in options.items():
        if value:
            what = f"runs of the task {task} are compared by what they predict, nothing is searched for"
            raise DecodeError(what, where=option, hint="leave it out")


def _refuse_mixed(runs: Sequence[Run]) -> None:
    """An autoencoder has read the very text that it is measured on."""
    kinds = [isinstance(run.task, LanguageModeling) and run.task.rewrites for run in runs]
    for run, rewrites in zip(runs, kinds, strict=True):
        if rewrites and not all(kinds):
            what = "it writes texts that it has read (model.objective: autoencoder), others predict what they have not"
            raise DataError(what, where=str(run.folder), hint="compare it with other autoencoders")


def _refuse_others(run: Run, found: Counted, first: Run, expected: Counted) -> None:
    if found.texts != expected.texts:
        what = f"its examples are not those of {first.folder}"
        hint = "give the texts to compare on with --file; a split drawn by the seed differs from run to run"
        raise DataError(what, where=str(run.folder), hint=hint)


def _compared(
    first: Run,
    systems: tuple[System, ...],
    counts: Mapping[str, Counted],
    baseline: str,
    measured_on: Mapping[str, Any],
) -> UnitComparison:
    base = counts[baseline]
    metrics, rows = _shared(counts, base)
    tests = against_baseline(metrics, rows, baseline)
    found = {
        name: {metric: float(value(one.sum(0))) for metric, value in metrics.items()} for name, one in rows.items()
    }
    groups = {name: tuple(one.name for one in group) for name, group in groups_of(systems).items()}
    unit = "documents" if base.right is None and "pearson" not in metrics else "examples"
    tables = {
        "systems": [
            _row(row, len(base.texts), counts[row["system"]].unknown)
            for row in systems_table(systems, groups, found, tuple(metrics))
        ],
        "groups": groups_table(groups, found, tuple(metrics)),
        "recipes": differences({one.name: one.recipe for one in systems if one.recipe is not None}),
        "significance": significance_table(tests, systems),
        "mcnemar": mcnemar_table(counts, baseline),
        "curves": curves_table(systems),
        "differ_most": _differ_most(counts),
    }
    higher = {metric: first.task.higher_is_better.get(metric, True) for metric in metrics}
    return UnitComparison(
        first.recipe.task, unit, len(base.texts), baseline, tuple(metrics), higher, systems, groups, tables, measured_on
    )


def _shared(counts: Mapping[str, Counted], base: Counted) -> tuple[dict[str, Metric], dict[str, Rows]]:
    """The metrics and what they are made of; without F1 where the systems tell different classes apart."""
    if all(one.classes == base.classes for one in counts.values()):
        return dict(base.metrics), {name: one.rows for name, one in counts.items()}
    metrics = {name: metric for name, metric in base.metrics.items() if name != "f1_macro"}
    return metrics, {name: one.rows[:, :2] for name, one in counts.items()}


def _row(row: dict[str, Any], units: int, unknown: float | None) -> dict[str, Any]:
    """Without what belongs to a search, and with the share of unknown tokens, if there are tokens."""
    seconds = row["decoding_seconds"]
    left_out = ("beam", "decoding_seconds", "sentences_per_second", "tokens_per_second")
    kept = {name: value for name, value in row.items() if name not in left_out}
    share = {} if unknown is None else {"unknown": unknown}
    return kept | share | {"measuring_seconds": seconds, "per_second": units / seconds if seconds else None}


def mcnemar_table(counts: Mapping[str, Counted], baseline: str) -> Table:
    """Each system against the baseline; empty where nothing is right or wrong."""
    base = counts[baseline].right
    table: Table = []
    for name, one in counts.items():
        if base is None or one.right is None or name == baseline:
            continue
        test = McNemar(int(((base > 0) & (one.right == 0)).sum()), int(((base == 0) & (one.right > 0)).sum()))
        table.append(
            {
                "system": name,
                "only_baseline_right": test.only_baseline,
                "only_system_right": test.only_system,
                "p_exact": test.p_exact,
                "chi_square": test.chi_square,
                "p_chi_square": test.p_chi_square,
            }
        )
    return table


def _differ_most(counts: Mapping[str, Counted]) -> Table:
    """The units with the largest distance of the best to the worst; counted from 1."""
    gains = np.stack([one.gains for one in counts.values()])
    distances = gains.max(0) - gains.min(0)
    texts = next(iter(counts.values())).texts
    ordered = [int(row) for row in np.argsort(-distances, kind="stable")[:DIFFER_MOST] if distances[row] > 0]
    return [
        {"number": row + 1, "text": texts[row], "system": name, "says": one.said[row]}
        for row in ordered
        for name, one in counts.items()
    ]
