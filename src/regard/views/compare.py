"""`compare`: measure several runs and the outputs of other systems on the same sentences, documents
or examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from regard.errors import DataError, did_you_mean, refuse
from regard.recipes.search_options import SearchOptions, with_search
from regard.runs import Run
from regard.runs.examples import ReportProgress, examples_of, measured_on
from regard.views.comparison import (
    TABLE_NAMES,
    Comparison,
    SeedGroups,
)
from regard.views.measuring import measure_texts, measure_units
from regard.views.systems import Measurements, System, TableRows, differences, groups_of, names_of


def compare(  # noqa: PLR0913  (one keyword per option, as in the command)
    runs: Sequence[str | Path | Run],
    *,
    split: str | None = None,
    files: Sequence[str] = (),
    hypotheses: Mapping[str, str | Path] | None = None,
    baseline: str | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
    progress: ReportProgress = lambda what, done, total: None,
) -> Comparison:
    """Compare runs of one task and named files of outputs, on a split or on files.

    Every run decodes or is measured once, with its own search unless another is given; outputs are
    measured as the first run's recipe says (`evaluation`). The baseline of the tests is the first
    run, or the one named.
    """
    hypotheses = hypotheses or {}
    named = _named([Run.open(run, accept_recipe) for run in runs], hypotheses, baseline)
    baseline = baseline or next(iter(named))
    first = named[next(iter(named))]
    texts = first.task.views.text_metrics is not None
    if not texts:
        options = {
            "--hypotheses": hypotheses or None,
            "--beam": beam,
            "--length-penalty": length_penalty,
        }
        what = (
            f"runs of the task {first.recipe.task} are compared by their predictions, without a "
            "search"
        )
        refuse(options, what)
    search = SearchOptions(beam, 1 if texts else None, length_penalty, overrides=tuple(overrides))
    named = _measured_alike(
        {name: run.under(with_search(run.recipe, search)) for name, run in named.items()}
    )
    examples = [examples_of(run, split, files) for run in named.values()]

    def load(run: Run) -> Any:
        return run.load_model(checkpoint, device)

    if texts:
        measured = measure_texts(named, examples, hypotheses, baseline, load, progress)
    else:
        measured = measure_units(named, examples, baseline, load, progress)
    metrics = {
        metric: metric not in first.task.lower_is_better for metric in measured.scores[baseline]
    }
    groups = groups_of({system.name: system.recipe for system in measured.systems})
    own = {"task": first.recipe.task, "baseline": baseline, "metrics": metrics, "groups": groups}
    tables = _tables(measured, groups)
    on = measured_on(first, split, files, examples[0])
    return Comparison(**{**vars(measured), **own, "tables": tables, "measured_on": on})


def _named(
    runs: Sequence[Run], hypotheses: Mapping[str, str | Path], baseline: str | None
) -> dict[str, Run]:
    """The runs by their names, checked to be of one task and to differ from the names of files."""
    names = names_of(runs)
    if not runs or len(names) + len(hypotheses) < 2:
        raise DataError(
            "there is nothing to compare",
            where="compare",
            hint="give two runs, or a run and --hypotheses",
        )
    for name in hypotheses:
        if name in names:
            raise DataError(
                f"the name {name!r} is a run's", where="--hypotheses", hint="give another name"
            )
    if baseline is not None and baseline not in (systems := [*names, *hypotheses]):
        raise DataError(
            f"there is no system {baseline!r}",
            where="--baseline",
            hint=did_you_mean(baseline, systems),
        )
    for run in runs[1:]:
        if run.recipe.task != runs[0].recipe.task:
            what = (
                f"the run's task is {run.recipe.task}, that of {runs[0].folder} is "
                f"{runs[0].recipe.task}"
            )
            raise DataError(what, where=str(run.folder), hint="compare runs of one task")
    return dict(zip(names, runs, strict=True))


def _measured_alike(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The runs, each measured as the first one's recipe says (`evaluation`), except for the
    threshold above which it does not answer: that is a run's own."""
    evaluation = next(iter(runs.values())).recipe.evaluation
    alike = {}
    for name, run in runs.items():
        own = (
            {"threshold": run.recipe.evaluation.threshold}
            if hasattr(evaluation, "threshold")
            else {}
        )
        update = {"evaluation": evaluation.model_copy(update=own)}
        alike[name] = run.under(run.recipe.model_copy(update=update))
    return alike


def _tables(measured: Measurements, groups: SeedGroups) -> dict[str, TableRows]:
    runs = {system.name: system.run for system in measured.systems if system.run is not None}
    logs = {name: [*run.events()] for name, run in runs.items()}
    tables = {
        "systems": [
            _system_row(system, logs.get(system.name), groups, measured)
            for system in measured.systems
        ],
        "groups": [],
        "recipes": differences({name: run.recipe for name, run in runs.items()}),
        "curves": [
            {"system": name}
            | {key: value for key, value in line.items() if isinstance(value, int | float)}
            for name, log in logs.items()
            for line in log
            if line["event"] == "validation"
        ],
        **measured.tables,
    }
    for group, names in groups.items():
        row: dict[str, Any] = {"group": group, "runs": len(names)}
        for metric in measured.scores[names[0]]:
            values = [measured.scores[name][metric] for name in names]
            row |= {
                metric: mean(values),
                f"{metric}_deviation": stdev(values) if len(values) > 1 else None,
                f"{metric}_lowest": min(values),
                f"{metric}_highest": max(values),
            }
        tables["groups"].append(row)
    return {name: tables[name] for name in TABLE_NAMES if name in tables}


def training_length(log: Iterable[Mapping[str, Any]]) -> tuple[int, float]:
    """Steps and seconds of a training by its log, without validations."""
    step = 0
    seconds = 0.0
    for line in log:
        if line["event"] == "train":
            seconds += line["seconds_per_step"] * (line["step"] - step)
            step = line["step"]
    return step, seconds


def _system_row(
    system: System, log: TableRows | None, groups: SeedGroups, measured: Measurements
) -> dict[str, Any]:
    """One row of the table of systems: model, scores and speed."""
    recipe = system.recipe
    step, seconds = training_length(log or ())
    return {
        "system": system.name,
        "group": next(group for group, names in groups.items() if system.name in names),
        "run": str(system.run.folder) if system.run else None,
        "model": recipe.model.kind if recipe else None,
        "seed": recipe.training.seed if recipe else None,
        **({"beam": recipe.search.beam if recipe else None} if measured.decodes else {}),
        "parameters": system.parameters,
        **measured.scores[system.name],
        "training_steps": step if log else None,
        "training_seconds": seconds if log else None,
        **system.speed,
    }
