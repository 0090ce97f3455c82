"""The result of `compare`: systems measured on the same sentences, documents or examples, and the
report on them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from regard.errors import RegardError
from regard.runs.examples import measured_text, noted, unknown_note
from regard.text.writing import check_writable
from regard.views.labels import count_text, main_metric, metric_title, rounds_to_zero, score_text
from regard.views.render import write_file
from regard.views.report import (
    Bars,
    Cell,
    Curves,
    HeatMaps,
    Part,
    Report,
    Result,
    Section,
    Series,
    Table,
    Text,
    Tone,
    muted,
)
from regard.views.search_errors import ERROR_KINDS
from regard.views.significance import SIGNIFICANCE_LEVEL
from regard.views.systems import (
    Measurements,
    TableRows,
)

TABLE_NAMES = (
    "systems",
    "groups",
    "recipes",
    "significance",
    "lengths",
    "mcnemar",
    "curves",
    "errors",
    "examples",
    "differ_most",
)
"""The tables of all comparisons, in their order; each comparison has some of them."""
SeedGroups = Mapping[str, Sequence[str]]
"""Group name -> names of the systems in it, which differ only in the seed."""
MAX_SHOWN_CHARACTERS = 300
"""Characters of a document that are shown."""
TASK_NOTES = {
    "language_modeling": " Perplexity is per word, with the end of a document counted as a word, "
    "and bits are per character, so models with different tokenizers can be "
    "compared.",
}
TESTS_NOTE = (
    "Paired bootstrap (Koehn 2004; 1,000 resamples) and approximate randomisation (Riezler and "
    "Maxwell 2005; 10,000 trials) over {}, two-sided, with a fixed seed. Trials that give exactly "
    "the observed difference count, so that a handful of {} is never significant; two equal "
    "scores have the p-value 1. Many tests on one page will find some difference by chance."
)
ERRORS_NOTE = (
    "An output that is worse than its reference is a search error if the model scores the "
    "reference higher under the objective of the search, and a model error otherwise, or if the "
    "reference contains unknown tokens, which no search could write. If a rule of the search "
    "forbids the reference, the error is neither: it is a rule error. For one run, 'regard "
    "diagnose RUN' says more."
)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result, Measurements):
    """The result of `compare`. All numbers are in the tables; JSON and CSV hold the same ones."""

    task: str
    baseline: str
    """The system that the others are tested against."""
    metrics: Mapping[str, bool]
    """Metric -> whether higher is better; the metric that decides comes first."""
    groups: SeedGroups
    """Group name -> systems that differ only in the seed; any other system is a group of one."""
    measured_on: Mapping[str, Any]
    """Which split or files the units are of (runs/examples.py)."""

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            **noted(self.measured_on, {"note": self.note} if self.note else {}),
            self.unit: self.count,
            "baseline": self.baseline,
            "metrics": list(self.metrics),
            **self.facts,
            **self.tables,
        }

    def report(self) -> Report:
        """The whole report, without empty sections; the terminal shows only the first table."""
        signatures = [
            f"{metric_title(name)}: {text}"
            for name, text in self.facts.get("signatures", {}).items()
        ]
        tests = (
            TESTS_NOTE.format(self.unit, self.unit)
            + " Sentences are compared by sentence chrF." * self.decodes
        )
        details: dict[str, Sequence[Part]] = {
            f"Quality by {self.facts.get('lengths_of')} length": _lengths(self),
            "Right and wrong": _mcnemar(self),
            "Learning curves": _curves(self),
            "Speed and size": _speed(self),
            "Search and model errors": _errors(self),
            "Recipes: only the differences": _recipes(self),
            "The same sentences, with attention": _examples(self),
            "Where they differ most": [*_units(self, "differ_most").values()],
            "How it was measured": [Text([*signatures, tests])],
        }
        sections = [Section("Quality", _quality(self), 1)]
        sections += [Section(heading, parts, 0) for heading, parts in details.items() if parts]
        task = self.task.replace("_", " ").capitalize()
        units = f"{count_text(self.count, self.unit)} of {measured_text(self.measured_on)}"
        names = ", ".join(system.name for system in self.systems)
        return Report(
            f"Comparison: {names}",
            sections,
            f"{task}, {units}, baseline {self.baseline}.",
            [*unknown_note(self.measured_on), *findings(self)],
        )

    def write_csv(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write one file per table, each whole or not at all. Without its byte order mark Excel
        would garble Korean."""
        check_csv(Path(folder), overwrite=overwrite)
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            columns = list(dict.fromkeys(column for row in table for column in row))
            stream = io.StringIO()
            writer = csv.DictWriter(stream, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
            write_file(
                Path(folder) / f"{name}.csv",
                [stream.getvalue().encode("utf-8-sig")],
                option="--csv",
            )


def check_csv(folder: Path, inputs: Iterable[object] = (), *, overwrite: bool = False) -> None:
    """Check, before any work is done, that tables can and may be written to this folder."""
    if folder.exists() and not folder.is_dir():
        raise RegardError(
            "this is a file, not a folder", where=str(folder), hint="give another --csv"
        )
    for name in TABLE_NAMES if folder.exists() else ():
        check_writable(folder / f"{name}.csv", "--csv", inputs, overwrite=overwrite)


def verdict(comparison: Comparison, row: Mapping[str, Any]) -> str:
    """The verdict of the tests on a system: better, worse, or why neither."""
    if any(
        {row["system"], comparison.baseline} <= {*names} for names in comparison.groups.values()
    ):
        return "another seed"
    if not row["significant"]:
        return "no significant difference"
    if rounds_to_zero(row["metric"], row["difference"]):
        return "no visible difference"
    return "better" if (row["difference"] > 0) == comparison.metrics[row["metric"]] else "worse"


def findings(comparison: Comparison) -> list[str]:
    """A sentence for each system but the baseline, by the main metric, and by McNemar's test where
    there is one; all seeds of a group have one in common."""
    metric = main_metric([*comparison.metrics])
    baseline = comparison.baseline
    rows = {
        row["system"]: row for row in comparison.tables["significance"] if row["metric"] == metric
    }
    means = {row["group"]: row for row in comparison.tables["groups"]}
    base = next(group for group, names in comparison.groups.items() if baseline in names)
    sentences = []
    for group, names in comparison.groups.items():
        row = rows[names[0]]
        difference = means[group][metric] - means[base][metric]
        text = f"{group}: {metric_title(metric)} {_spread_text(means[group], metric)}"
        if len(names) > 1:
            if group != base:
                verdicts = Counter(verdict(comparison, rows[name]) for name in names)
                better = verdicts["better"]
                worse = verdicts["worse"]
                text += f", {_change_text(metric, difference)} {base}; "
                text += (
                    f"of {len(names)} seeds {better} are significantly better than "
                    f"{baseline}, {worse} worse"
                )
        elif group == base:
            continue
        elif rounds_to_zero(metric, row["difference"]):
            text += f", the same as {baseline}{' in the digits shown' if row['difference'] else ''}"
        else:
            chance = "a significant difference" if row["significant"] else "which may be chance"
            bootstrap, randomisation = (
                _p_text(row[key]) for key in ("p_bootstrap", "p_randomisation")
            )
            text += f", {_change_text(metric, row['difference'])} {baseline}, {chance} "
            text += f"(p {bootstrap} by bootstrap, {randomisation} by randomisation)"
        sentences.append(f"{text}.")
    for row in comparison.tables.get("mcnemar", []):
        right = (
            f"right alone {row['only_system_right']:,} times, {baseline} "
            f"{row['only_baseline_right']:,} times"
        )
        p_values = (
            f"McNemar p {_p_text(row['p_exact'])} exact, {_p_text(row['p_chi_square'])} "
            "by chi-square"
        )
        sentences.append(f"{row['system']}: {right} ({p_values}).")
    runs = {system.name: system.run for system in comparison.systems if system.run is not None}
    for name, run in runs.items():
        if "imported" not in run.environment and not (run.folder / "metrics.jsonl").exists():
            sentences.append(
                f"{name}: the run has no metrics.jsonl, so nothing is known about its training."
            )
    return sentences


def _change_text(metric: str, difference: float) -> str:
    if rounds_to_zero(metric, difference):
        return "the same as"
    return f"{score_text(metric, abs(difference))} {'above' if difference > 0 else 'below'}"


def _spread_text(row: Mapping[str, Any], metric: str) -> str:
    """The mean over a group's seeds and their standard deviation."""
    score = score_text(metric, row[metric])
    return (
        score if row["runs"] == 1 else f"{score} ± {score_text(metric, row[f'{metric}_deviation'])}"
    )


def _p_text(p: float | None) -> str:
    """A p-value; `unknown` if the test had nothing to draw from."""
    if p is None:
        return "unknown"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _quality(comparison: Comparison) -> list[Part]:
    """All groups in one table, the most important column first; then all tests.

    A star marks a significant difference; for a group, one that every seed shows.
    """
    note = (
        f"± is half the 95 % interval by bootstrap over {comparison.unit}. Better or worse than "
        f"{comparison.baseline}: both paired tests give a p-value below "
        f"{SIGNIFICANCE_LEVEL:g}.{TASK_NOTES.get(comparison.task, '')}"
    )
    return [_group_table(comparison), _test_table(comparison), muted(note)]


def _test_table(comparison: Comparison) -> Table:
    """Every metric of every system, tested against the baseline."""
    tones: dict[str, Tone] = {"better": "good", "worse": "bad"}
    tests = []
    for row in comparison.tables["significance"]:
        name = row["system"]
        metric = row["metric"]
        against: list[Any] = [None, None, None, Cell("baseline", ours=True)]
        if name != comparison.baseline:
            result = verdict(comparison, row)
            against = [
                score_text(metric, row["difference"], sign="+"),
                _p_text(row["p_bootstrap"]),
                _p_text(row["p_randomisation"]),
                Cell(result, tone=tones.get(result, "muted"), ours=True),
            ]
        score, interval = (score_text(metric, row[key]) for key in ("score", "interval"))
        tests.append([Cell(metric_title(metric), ours=True), name, score, interval, *against])
    columns = [
        "metric",
        "system",
        "score",
        "±",
        "difference",
        "p (bootstrap)",
        "p (randomisation)",
        "",
    ]
    return Table(columns, tests, title="Tests")


def _group_table(comparison: Comparison) -> Table:
    """The scores, size and speed of each group, the main metric first."""
    verdicts = {
        (row["system"], row["metric"]): verdict(comparison, row)
        for row in comparison.tables["significance"]
        if row["system"] != comparison.baseline
    }
    systems = {row["system"]: row for row in comparison.tables["systems"]}
    main = main_metric([*comparison.metrics])
    metrics = sorted(comparison.metrics, key=lambda metric: metric != main)
    unknown = ["unknown"] if comparison.note else []
    per_second = "sentences_per_second" if comparison.decodes else "per_second"
    rows = []
    starred = False
    for group in comparison.tables["groups"]:
        names = comparison.groups[group["group"]]
        own = [systems[name] for name in names]
        stars = [
            {verdicts.get((name, metric)) for name in names} in ({"better"}, {"worse"})
            for metric in metrics
        ]
        scores = [
            _spread_text(group, metric) + " *"[star]
            for metric, star in zip(metrics, stars, strict=True)
        ]
        share = own[0].get("unknown", 0.0)
        shares = ["< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %" for _ in unknown]
        speeds = [row[per_second] for row in own]
        speed = None if None in speeds else mean(speeds)
        named = Cell(group["group"], ours=len(names) > 1)
        rows.append([named, *scores, *shares, own[0]["parameters"], speed])
        starred |= any(stars)
    notes = _group_notes(comparison, starred=starred, grouped=len(rows) < len(systems))
    columns = [
        "system",
        *map(metric_title, metrics),
        *unknown,
        "parameters",
        f"{comparison.unit} / s",
    ]
    return Table(columns, rows, notes=notes)


def _group_notes(comparison: Comparison, *, starred: bool, grouped: bool) -> list[str]:
    """Explanations of the signs in the table of groups."""
    baseline = comparison.baseline
    notes = {
        f"* differs significantly from {baseline}": starred and not grouped,
        f"* differs significantly from {baseline}; in a group, every seed does": starred
        and grouped,
        "± is the standard deviation over the seeds": grouped,
        f"note: {comparison.note}": comparison.note,
    }
    return [text for text, shown in notes.items() if shown]


def _series(comparison: Comparison, table: str, x: str, y: str) -> list[Series]:
    """One curve per group: the mean over its systems, with a band from the lowest to the highest if
    there are several."""
    series = []
    for group, names in comparison.groups.items():
        values: dict[float, list[float]] = {}
        for row in comparison.tables[table]:
            if row["system"] in names and math.isfinite(row.get(y, math.nan)):
                values.setdefault(row[x], []).append(row[y])
        places = sorted(values)
        low, high = (
            [end(values[place]) for place in places] if len(names) > 1 else None
            for end in (min, max)
        )
        series.append(Series(group, places, [mean(values[place]) for place in places], low, high))
    return [curve for curve in series if curve.x]


def _lengths(comparison: Comparison) -> list[Part]:
    """Quality by length, one figure per metric; without attention it falls with length."""
    rows = comparison.tables.get("lengths", [])
    facts = comparison.facts
    if not rows:
        return []
    names = {row["mean_length"]: f"{row['from']}–{row['to']}" for row in rows}
    axis = f"{facts['lengths_of']} length ({facts['length_unit']})"
    parts: list[Part] = [
        Curves(
            _series(comparison, "lengths", "mean_length", metric),
            axis,
            metric_title(metric),
            from_zero=True,
            x_ticks=[*names.items()],
        )
        for metric in comparison.metrics
    ]
    if len(comparison.groups) < len(comparison.systems):
        parts.append(muted("A band spans the seeds."))
    columns = [facts["length_unit"], "sentences", "system", *map(metric_title, comparison.metrics)]
    cells = [
        [
            names[row["mean_length"]],
            row["sentences"],
            row["system"],
            *(score_text(metric, row[metric]) for metric in comparison.metrics),
        ]
        for row in rows
    ]
    return [*parts, Table(columns, cells, title="The numbers", folded=True)]


def _table(rows: TableRows, columns: Mapping[str, str], note: str) -> Table:
    """Some columns of rows, by their keys, under the titles given for them."""
    formats = {"p_exact": _p_text, "p_chi_square": _p_text, "chi_square": "{:.2f}".format}
    cells = [
        [formats[key](row[key]) if key in formats else row[key] for key in columns] for row in rows
    ]
    return Table([*columns.values()], cells, notes=[note])


def _mcnemar(comparison: Comparison) -> list[Part]:
    columns = {
        "system": "system",
        "only_system_right": "right alone",
        "only_baseline_right": f"{comparison.baseline} right alone",
        "p_exact": "p (exact)",
        "chi_square": "chi-square",
        "p_chi_square": "p (chi-square)",
    }
    note = (
        "McNemar's test looks only at the examples that one of two systems has right and "
        "the other has wrong."
    )
    return [_table(rows, columns, note)] if (rows := comparison.tables.get("mcnemar")) else []


def _curves(comparison: Comparison) -> list[Part]:
    """Loss and metrics of the validations, over the steps of the training."""
    curves: list[Part] = [
        Curves(
            series, "training step", f"validation {metric_title(name)}", from_zero=name != "loss"
        )
        for name in dict.fromkeys(("loss", *comparison.metrics))
        if (series := _series(comparison, "curves", "step", name))
    ]
    note = "From the runs' own logs, on the validation examples."
    if comparison.unit != "examples":
        note += " Losses are per token: only runs with the same tokenizer can be compared by them."
    if comparison.decodes:
        note += " Metrics are those of greedy search on a sample of them (training.decode)."
    return [*curves, muted(note)] if curves else []


def _speed(comparison: Comparison) -> list[Part]:
    columns = {"system": "system", "model": "model", "parameters": "parameters"}
    note = (
        "Training is the time of the steps in the run's log, on the machine it was trained "
        "on, without validations."
    )
    if comparison.decodes:
        columns |= {
            "beam": "beam",
            "sentences_per_second": "sentences / s",
            "tokens_per_second": "target tokens / s",
            "decoding_seconds": "decoding (s)",
        }
        note = f"Decoding was measured here, on all sentences, without loading the model. {note}"
    else:
        columns |= {"per_second": f"{comparison.unit} / s", "measuring_seconds": "measuring (s)"}
    columns |= {"training_steps": "training steps", "training_seconds": "training (s)"}
    return [_table(comparison.tables["systems"], columns, note)]


def _errors(comparison: Comparison) -> list[Part]:
    tallies = {
        system.name: system.tally for system in comparison.systems if system.tally is not None
    }
    if not tallies:
        return []
    columns = ["system", "sentences", "errors", *ERROR_KINDS.values(), "search errors, share"]
    rows = [
        [name, *own.counts.values(), own.share_texts["search_errors"]]
        for name, own in tallies.items()
    ]
    kinds = {
        name: [float(own.counts[f"{kind}_errors"]) for own in tallies.values()]
        for kind, name in ERROR_KINDS.items()
    }
    return [Table(columns, rows), Bars([*tallies], kinds, "sentences"), muted(ERRORS_NOTE)]


def _recipes(comparison: Comparison) -> list[Part]:
    """The settings that all recipes have and that differ, then those that only some have."""
    names = [system.name for system in comparison.systems if system.run is not None]
    shared = list[list[Any]]()
    others = list[list[Any]]()
    for row in comparison.tables["recipes"]:
        values = [row[name] for name in names]
        shown = [
            value
            if value is None or isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
            for value in values
        ]
        (others if None in values else shared).append([Cell(row["key"], tone="code"), *shown])
    parts: list[Part] = [Table(["", *names], shared)] if shared else []
    if others:
        parts.append(
            Table(["", *names], others, title="Settings that only some of them have", folded=True)
        )
    return parts or [Text(["The recipes are the same."])]


def _examples(comparison: Comparison) -> list[Part]:
    """A few sentences as every system writes them, with the attention of each system that has
    any."""
    parts: list[Part] = []
    for number, table in _units(comparison, "examples").items():
        maps = [system.alignments.get(number - 1) for system in comparison.systems]
        parts += [
            table,
            *(
                HeatMaps([heat_map], title=heat_map.title)
                for heat_map in maps
                if heat_map is not None
            ),
        ]
    without = [
        system.name
        for system in comparison.systems
        if system.run is not None and not system.alignments
    ]
    if parts and without:
        parts.append(muted(f"There is no attention to show for {', '.join(without)}."))
    return parts


def _units(comparison: Comparison, table: str) -> dict[int, Part]:
    """Number of a sentence or document -> a table with the prediction of every system."""
    rows = comparison.tables.get(table, [])
    systems = len(comparison.systems)
    tables = dict[int, Part]()
    for start in range(0, len(rows), systems):
        group = rows[start : start + systems]
        first = group[0]
        if "sentence" in first:
            body = [[Cell("reference", ours=True), None, first["reference"]]]
            body += [[row["system"], row["sentence_chrf"], row["output"]] for row in group]
            heading = f"{first['sentence']}. {first['source']}"
            tables[first["sentence"]] = Table(
                ["", "chrF", ""], body, title=heading, formats=[".1f"]
            )
        else:
            heading = f"{first['number']}. {first['text'][:MAX_SHOWN_CHARACTERS]}"
            tables[first["number"]] = Table(
                ["", ""], [[row["system"], row["says"]] for row in group], heading
            )
    return tables
