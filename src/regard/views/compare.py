"""`compare`: several runs, and the outputs of other systems, on the same sentences, documents or examples."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from regard.errors import DataError, DecodeError, RegardError, did_you_mean
from regard.runs import Run
from regard.runs.settings import Progress, measured_on, noted, opened, with_search
from regard.tasks import TextToText
from regard.views.compare_report import report_of
from regard.views.files import write
from regard.views.report import Report
from regard.views.significance import Tested
from regard.views.systems import (
    Measured,
    Plan,
    Rows,
    System,
    differences,
    groups_of,
    learning_curve,
    names_of,
    training_time,
)
from regard.views.text_systems import measure_texts
from regard.views.unit_systems import measure_units

TABLES = (
    "systems", "groups", "recipes", "significance", "lengths", "mcnemar", "curves", "errors", "examples", "differ_most",
)  # fmt: skip
"""The tables of all comparisons, in their order; each comparison has some of them."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found. All numbers are in the tables; JSON and CSV hold the same ones."""

    task: str
    baseline: str
    """The system that the others are tested against."""
    metrics: tuple[str, ...]
    higher_is_better: Mapping[str, bool]
    measured: Measured
    groups: Mapping[str, tuple[str, ...]]
    """Systems that differ only in the seed, by the group's name; a system of its own is a group of one."""
    tables: Mapping[str, Rows]
    measured_on: Mapping[str, Any]
    """Which split or files the units are of (runs/settings.py)."""

    @property
    def systems(self) -> tuple[System, ...]:
        return self.measured.systems

    def to_json(self) -> dict[str, Any]:
        note = {} if self.measured.note is None else {"note": self.measured.note}
        return {
            "task": self.task,
            **noted(self.measured_on, note),
            self.measured.unit: self.measured.count,
            "baseline": self.baseline,
            "metrics": list(self.metrics),
            **self.measured.facts,
            **self.tables,
        }

    def report(self) -> Report:
        return report_of(self)

    def write_csv(self, folder: str | Path) -> None:
        """A file a table; each is written whole or not at all."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            write(Path(folder) / f"{name}.csv", _csv(table).encode(), option="--csv")


def _csv(table: Rows) -> str:
    """The rows under the names of all columns, after a byte order mark: without it Excel garbles Korean."""
    columns = list(dict.fromkeys(column for row in table for column in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return "\ufeff" + stream.getvalue()


def check_csv(folder: Path | None) -> None:
    """Refuse, before any work is done, a place where no tables can be written."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise RegardError("this is a file, not a folder", where=str(folder), hint="give another --csv")


def named_files(options: Sequence[str]) -> dict[str, str]:
    """The files that `--hypotheses NAME=FILE` names."""
    files: dict[str, str] = {}
    for option in options:
        name, equals, file = option.partition("=")
        if not (name and equals and file):
            hint = "NAME=FILE, for example other=out.txt"
            raise DataError(f"{option!r} names no system", where="--hypotheses", hint=hint)
        if name in files:
            raise DataError(f"the name {name!r} is given twice", where="--hypotheses", hint="give another name")
        files[name] = file
    return files


def compare(
    runs: Sequence[str | Path | Run],
    *,
    split: str | None = None,
    files: Sequence[str] = (),
    hypotheses: Mapping[str, str | Path] | None = None,
    baseline: str | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    progress: Progress = lambda what, done, total: None,
) -> Comparison:
    """Compare runs of one task, and files of outputs by name, on a split or on files.

    Every run decodes or is measured once, with its own search unless another is given; outputs are measured as the
    first run's recipe says. The baseline of the tests is the first run, or the one named.
    """
    opened_runs = [opened(run) for run in runs]
    names = _names(opened_runs, hypotheses or {}, baseline)
    _check_task(opened_runs)
    first, texts = opened_runs[0], isinstance(opened_runs[0].task, TextToText)
    if not texts:
        options = {"--hypotheses": hypotheses, "--beam": beam, "--length-penalty": length_penalty}
        _refuse_search(first.recipe.task, options)
    recipes = [with_search(run.recipe, beam, 1 if texts else None, length_penalty, overrides) for run in opened_runs]
    plan = Plan(
        opened_runs, recipes, names[: len(opened_runs)], hypotheses or {}, baseline or names[0], split, files,
        checkpoint, device, progress,
    )  # fmt: skip
    measured = measure_texts(plan) if texts else measure_units(plan)
    return _compared(first, measured, plan.baseline, measured_on(first, split, files))


def _names(runs: Sequence[Run], hypotheses: Mapping[str, str | Path], baseline: str | None) -> list[str]:
    """The names of the runs, then of the files."""
    names = [*names_of(runs), *hypotheses]
    if not runs or len(names) < 2:
        raise DataError("there is nothing to compare", where="compare", hint="give two runs, or a run and --hypotheses")
    for name in hypotheses:
        if names.count(name) > 1:
            raise DataError(f"the name {name!r} is a run's", where="--hypotheses", hint="give another name")
    if baseline is not None and baseline not in names:
        raise DataError(f"there is no system {baseline!r}", where="--baseline", hint=did_you_mean(baseline, names))
    return names


def _check_task(runs: Sequence[Run]) -> None:
    for run in runs[1:]:
        if run.recipe.task != runs[0].recipe.task:
            what = f"the run's task is {run.recipe.task}, that of {runs[0].folder} is {runs[0].recipe.task}"
            raise DataError(what, where=str(run.folder), hint="compare runs of one task")


def _refuse_search(task: str, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value:
            what = f"runs of the task {task} are compared by what they predict, nothing is searched for"
            raise DecodeError(what, where=option, hint="leave it out")


# ------------------------------------------------------------------------------------------------------------ tables


def _compared(first: Run, measured: Measured, baseline: str, on: Mapping[str, Any]) -> Comparison:
    systems, groups = measured.systems, groups_of(measured.systems)
    metrics = tuple(measured.scores[systems[0].name])
    tables = {
        "systems": [_system_row(system, groups, measured) for system in systems],
        "groups": [_group_row(group, [measured.scores[name] for name in names]) for group, names in groups.items()],
        "recipes": differences({system.name: system.recipe for system in systems if system.recipe is not None}),
        "significance": _significance_table(measured.tests, [system.name for system in systems]),
        "curves": [{"system": system.name} | line for system in systems for line in learning_curve(system)],
        **measured.tables,
    }
    ordered = {name: tables[name] for name in TABLES if name in tables}
    higher = {metric: first.task.higher_is_better.get(metric, True) for metric in metrics}
    return Comparison(first.recipe.task, baseline, metrics, higher, measured, groups, ordered, on)


def _system_row(system: System, groups: Mapping[str, Sequence[str]], measured: Measured) -> dict[str, Any]:
    """What a system is, how good and how fast."""
    recipe = system.recipe
    return {
        "system": system.name,
        "group": next(group for group, names in groups.items() if system.name in names),
        "run": str(system.run.folder) if system.run else None,
        "model": recipe.model.kind if recipe else None,
        "seed": recipe.training.seed if recipe else None,
        **({"beam": recipe.search.beam if recipe else None} if measured.decodes else {}),
        "parameters": system.parameters,
        **measured.scores[system.name],
        **training_time(system),
        **system.speed,
    }


def _group_row(group: str, scores: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Mean and spread over the seeds: the sample's standard deviation, the lowest and the highest."""
    row: dict[str, Any] = {"group": group, "runs": len(scores)}
    for metric in scores[0]:
        values = [own[metric] for own in scores]
        row |= {metric: mean(values), f"{metric}_deviation": stdev(values) if len(values) > 1 else None,
                f"{metric}_lowest": min(values), f"{metric}_highest": max(values)}  # fmt: skip
    return row


def _significance_table(tests: Sequence[Tested], names: Sequence[str]) -> Rows:
    """The tests metric by metric, in the order of the systems."""
    metrics = list(dict.fromkeys(test.metric for test in tests))
    ordered = sorted(tests, key=lambda test: (metrics.index(test.metric), names.index(test.system)))
    return [{**asdict(test), "significant": test.significant} for test in ordered]
