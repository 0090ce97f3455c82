"""`compare` on several test sets, in one report: what a training gained in one place, and what it
lost in another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.runs import Run
from regard.runs.examples import ReportProgress
from regard.views.compare import compare
from regard.views.comparison import Comparison, findings, verdict
from regard.views.labels import main_metric, metric_title, score_text
from regard.views.report import Cell, Report, Result, Section, Table, Tone, muted
from regard.views.significance import SIGNIFICANCE_LEVEL

TONES: dict[str, Tone] = {"better": "good", "worse": "bad"}
COLUMNS = ("test set", "metric", "system", "score", "difference", "")


@dataclass(frozen=True, eq=False, repr=False)
class SetComparison(Result):
    """The result of `compare_sets`: the comparison on each test set, by its name."""

    sets: Mapping[str, Comparison]

    def to_json(self) -> dict[str, Any]:
        return {"test_sets": {name: one.to_json() for name, one in self.sets.items()}}

    def report(self) -> Report:
        """All test sets in one table, then the details of each."""
        first = next(iter(self.sets.values()))
        rows = [row for name, one in self.sets.items() for row in _rows(name, one)]
        note = (
            f"Better or worse than {first.baseline}: both paired tests give a p-value below "
            f"{SIGNIFICANCE_LEVEL:g}."
        )
        sections = [Section("All test sets", [Table(COLUMNS, rows), muted(note)])]
        for name, one in self.sets.items():
            parts = [part for section in one.report().sections[:1] for part in section.parts]
            sections.append(Section(name, parts, 0))
        names = ", ".join(system.name for system in first.systems)
        conclusions = [
            f"{name}: {text}" for name, one in self.sets.items() for text in findings(one)
        ]
        return Report(f"Comparison: {names}", sections, conclusions=conclusions)


def _rows(name: str, comparison: Comparison) -> Iterator[list[Any]]:
    """The main metric of every system, and its difference from the baseline."""
    metric = main_metric([*comparison.metrics])
    for row in comparison.tables["significance"]:
        if row["metric"] != metric:
            continue
        start = [name, Cell(metric_title(metric), ours=True), row["system"]]
        score = score_text(metric, row["score"])
        if row["system"] == comparison.baseline:
            yield [*start, score, None, Cell("baseline", ours=True)]
        else:
            result = verdict(comparison, row)
            difference = score_text(metric, row["difference"], sign="+")
            tone = TONES.get(result, "muted")
            yield [*start, score, difference, Cell(result, tone=tone, ours=True)]


def compare_sets(  # noqa: PLR0913  (one keyword per option, as in the command)
    runs: Sequence[str | Path | Run],
    test_sets: Mapping[str, Sequence[str]],
    *,
    baseline: str | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
    progress: ReportProgress = lambda what, done, total: None,
) -> SetComparison:
    """Compare runs of one task on several test sets: the name of each -> its file, or its source and
    its target."""
    if not test_sets:
        raise DataError("there is no test set", where="compare", hint="give at least one")

    def compared(files: Sequence[str]) -> Comparison:
        return compare(
            runs,
            files=files,
            baseline=baseline,
            beam=beam,
            length_penalty=length_penalty,
            overrides=overrides,
            checkpoint=checkpoint,
            device=device,
            accept_recipe=accept_recipe,
            progress=progress,
        )

    return SetComparison({name: compared(files) for name, files in test_sets.items()})


def named_sets(options: Sequence[str]) -> dict[str, list[str]]:
    """The files that `--test-set NAME=FILE` or `--test-set NAME=SOURCE,TARGET` names."""
    sets: dict[str, list[str]] = {}
    for option in options:
        name, _, files = option.partition("=")
        given = [file for file in files.split(",") if file]
        if not name or len(given) not in (1, 2):
            what = f"{option!r} does not name a test set"
            hint = "NAME=FILE or NAME=SOURCE,TARGET, for example news=news.en,news.fr"
            raise DataError(what, where="--test-set", hint=hint)
        if name in sets:
            what = f"the name {name!r} is given twice"
            raise DataError(what, where="--test-set", hint="give another name")
        sets[name] = given
    return sets
