"""`compare`: several runs, and the outputs of other systems, on the same sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from regard.data.dataset import Dataset
from regard.errors import ConfigError, DataError, RegardError, did_you_mean
from regard.runs import Run
from regard.runs.settings import Progress, device_named, opened, summed, with_search
from regard.runs.splits import SplitName, measured_on
from regard.tasks import TextToText
from regard.tasks.text_to_text import LengthsOf
from regard.views.compare_tables import (
    Table,
    Tabled,
    curves_table,
    errors_table,
    groups_table,
    lengths_table,
    measured,
    sentences_table,
    significance_table,
    systems_table,
)
from regard.views.compare_units import UnitComparison, compare_units, refuse_options
from regard.views.lengths import lengths_in, unit_of
from regard.views.significance import paired_tests
from regard.views.systems import (
    System,
    Texts,
    decoded,
    differences,
    groups_of,
    names_of,
    read_hypotheses,
    same_sentences,
    same_task,
)
from regard.views.verdicts import for_metrics, sentence_chrf

DIFFER_MOST = 20
"""Sentences on which the systems differ most that are shown."""
SHOWN_AT = (0.1, 0.5, 0.9)
"""Which sentences are shown with their attention: those at these quantiles of length."""
LONGEST_PICTURE = 40
"""Source tokens beyond which a picture of attention no longer fits beside another."""


@dataclass(frozen=True, eq=False)
class Comparison(Tabled):
    """What was found. The tables are what the page, the JSON and the CSV files show."""

    task: str
    baseline: str
    """The system that the others are tested against."""
    metrics: tuple[str, ...]
    signatures: Mapping[str, str]
    length_unit: str
    """What lengths are counted in."""
    lengths_of: LengthsOf
    texts: Texts
    systems: tuple[System, ...]
    groups: Mapping[str, tuple[str, ...]]
    """Systems that differ only in the seed, by the group's name; a system of its own is a group of one."""
    shown: tuple[int, ...]
    """The sentences that are shown for every system, with attention."""
    tables: Mapping[str, Table]
    measured_on: Mapping[str, Any]
    """Which split or files the sentences are (runs/splits.py)."""

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            **self.measured_on,
            "sentences": len(self.texts),
            "baseline": self.baseline,
            "metrics": list(self.metrics),
            "signatures": dict(self.signatures),
            "length_unit": self.length_unit,
            "lengths_of": self.lengths_of,
            **self.tables,
        }


def can_write_csv(folder: Path | None) -> None:
    """Refuse a place where no tables can be written, before the work for them is done."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise RegardError("this is a file, not a folder", where=str(folder), hint="give another --csv")


def named_files(given: Sequence[str]) -> dict[str, str]:
    """What `--hypotheses NAME=FILE` names."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, file = one.partition("=")
        if not (name and equals and file):
            raise DataError(
                f"{one!r} names no system", where="--hypotheses", hint="NAME=FILE, for example other=out.txt"
            )
        if name in found:
            raise DataError(f"the name {name!r} is given twice", where="--hypotheses", hint="give another name")
        found[name] = file
    return found


def compare(
    runs: Sequence[str | Path | Run],
    *,
    split: SplitName | None = None,
    files: Sequence[str] = (),
    hypotheses: Mapping[str, str | Path] | None = None,
    baseline: str | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    progress: Progress = lambda what, done, total: None,
) -> Comparison | UnitComparison:
    """Compare runs of one task, and files of outputs by name, on a split or on files.

    Every run decodes once, with its own search unless another is asked for; all that is measured is measured on that.
    Outputs are measured as the first run's recipe says. The baseline of the tests is the first run, or the one named.
    """
    opened_runs = [opened(run) for run in runs]
    names = _names(opened_runs, hypotheses or {}, baseline)
    same_task(opened_runs)
    if not isinstance(opened_runs[0].task, TextToText):
        options = {"--hypotheses": hypotheses, "--beam": beam, "--length-penalty": length_penalty}
        refuse_options(opened_runs[0].recipe.task, options)
        return compare_units(
            opened_runs, names, split=split, files=files, baseline=baseline or names[0], overrides=overrides,
            checkpoint=checkpoint, device=device, progress=progress,
        )  # fmt: skip
    recipes = [with_search(run.recipe, beam, 1, length_penalty, overrides) for run in opened_runs]
    if any(recipe.search.sample for recipe in recipes):
        raise ConfigError("samples cannot be compared", where="search.sample", hint="--set search.sample=false")
    asked = [run.under(recipe) for run, recipe in zip(opened_runs, recipes, strict=True)]
    texts, datasets = same_sentences(asked, split, files)
    others = [read_hypotheses(name, file, texts) for name, file in (hypotheses or {}).items()]
    long = texts.measured(opened_runs[0].task.lengths_of)
    shown = _shown(long, [_lengths(run, dataset) for run, dataset in zip(opened_runs, datasets, strict=True)])
    systems = []
    for name, run, recipe, dataset in zip(names, opened_runs, recipes, datasets, strict=False):
        model = run.load_model(checkpoint, device_named(device))
        systems.append(decoded(name, run, recipe, model, dataset, shown, summed(partial(progress, name), len(texts))))
    on = measured_on(opened_runs[0], split, files)
    return _compared((*systems, *others), texts, baseline or names[0], shown, progress, on)


def _compared(
    systems: tuple[System, ...],
    texts: Texts,
    baseline: str,
    shown: tuple[int, ...],
    progress: Progress,
    measured_on: Mapping[str, Any],
) -> Comparison:
    run, recipe = systems[0].run, systems[0].recipe
    assert run is not None
    assert recipe is not None
    references = for_metrics(texts.references)
    found = {one.name: run.task.metrics(one.outputs, references, recipe.evaluation) for one in systems}
    metrics, signatures = measured(found[systems[0].name])
    progress("testing", 0, len(metrics))
    outputs = {one.name: one.outputs for one in sorted(systems, key=lambda one: one.name != baseline)}
    tested = summed(partial(progress, "testing"), len(metrics))
    tests = paired_tests(outputs, texts.references, run.task, recipe.evaluation, metrics, tested)
    chrf = {
        one.name: sentence_chrf(one.outputs, texts.references, lowercase=recipe.evaluation.lowercase) for one in systems
    }
    groups = {name: tuple(one.name for one in group) for name, group in groups_of(systems).items()}
    lengths_of = run.task.lengths_of
    unit = unit_of(texts.measured(lengths_of))
    rows = _differ_most(chrf, len(texts))
    tables = {
        "systems": systems_table(systems, groups, found, metrics),
        "groups": groups_table(groups, found, metrics),
        "recipes": differences({one.name: one.recipe for one in systems if one.recipe is not None}),
        "significance": significance_table(tests, systems),
        "lengths": lengths_table(systems, texts, unit, run.task, recipe.evaluation, metrics),
        "curves": curves_table(systems),
        "errors": errors_table(systems),
        "examples": sentences_table(shown, systems, texts, chrf),
        "differ_most": sentences_table(rows, systems, texts, chrf),
    }
    return Comparison(
        run.recipe.task, baseline, metrics, signatures, unit, lengths_of, texts, systems, groups, shown, tables,
        measured_on,
    )  # fmt: skip


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


def _shown(texts: Sequence[str], tokens: Sequence[Any]) -> tuple[int, ...]:
    """Short, middling and long sentences, among those whose attention fits a picture for every run."""
    fitting = [row for row in range(len(texts)) if all(lengths[row] < LONGEST_PICTURE for lengths in tokens)]
    lengths = lengths_in("characters", texts)
    ordered = sorted(fitting, key=lambda row: lengths[row])
    return tuple(dict.fromkeys(ordered[round(share * (len(ordered) - 1))] for share in SHOWN_AT)) if ordered else ()


def _lengths(run: Run, dataset: Dataset) -> list[int]:
    """Of the sources, as the run reads them."""
    return [len(run.task.source(dataset, examples[0])) for examples in run.task.by_input(dataset)]


def _differ_most(chrf: Mapping[str, Sequence[float]], sentences: int) -> list[int]:
    """The sentences with the largest distance of the best to the worst output; none where all outputs are as good."""
    gaps = [max(one[row] for one in chrf.values()) - min(one[row] for one in chrf.values()) for row in range(sentences)]
    ordered = sorted(range(sentences), key=lambda row: (-gaps[row], row))
    return [row for row in ordered[:DIFFER_MOST] if gaps[row] > 0]
