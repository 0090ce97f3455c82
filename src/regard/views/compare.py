"""`compare`: several runs, and the outputs of other systems, on the same sentences, documents or examples."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from regard.errors import DataError, DecodeError, RegardError, did_you_mean
from regard.recipes.recipe import with_search
from regard.runs import Run
from regard.runs.examples import Progress, examples_of, measured_on, measured_text, noted
from regard.runs.run import read_metrics
from regard.views.files import write
from regard.views.labels import count_text, main_metric, rounds_to_zero, score_text, title
from regard.views.report import Bars, Cell, Curves, HeatMaps, Part, Report, Section, Series, Text, Tone, Value
from regard.views.report import Table as TablePart
from regard.views.significance import LEVEL
from regard.views.systems import (
    Measured,
    System,
    Table,
    differences,
    groups_of,
    measure_texts,
    measure_units,
    names_of,
)

TABLES = (
    "systems", "groups", "recipes", "significance", "lengths", "mcnemar", "curves", "errors", "examples", "differ_most",
)  # fmt: skip
"""The tables of all comparisons, in their order; each comparison has some of them."""
LONGEST = 300
"""Characters of a document that are shown."""
NOTES = {
    "language_modeling": " Perplexity is a word's, the end of a document counted as one, and bits are a character's: "
    "models with different tokenizers can be compared.",
    "masked_language_modeling": " The tokens that are masked are those of each run's own tokenizer: only runs with the "
    "same one can be compared.",
}
TESTS_OF_TEXTS = (
    "Paired bootstrap resampling (Koehn 2004; 1,000 resamples) is sacreBLEU's. Approximate randomisation (Riezler and "
    "Maxwell 2005; 10,000 trials) differs from sacreBLEU's in that it counts the trials that give the very difference "
    "observed, so that a handful of sentences is never significant. Seeds are fixed, and two equal scores have the "
    "p-value 1. Many tests on one page will find some difference by chance. Sentences are compared by sentence chrF."
)
TESTS_OF_SUMS = (
    "Paired bootstrap (1,000 resamples) and approximate randomisation (10,000 trials) over {}, with a fixed seed; two "
    "equal scores have the p-value 1. Many tests on one page will find some difference by chance."
)
ERRORS = (
    "An output that is worse than its reference is a search error if the model scores the reference higher under "
    "the objective of the search, and a model error otherwise, or where the reference holds unknown tokens, which "
    "no search could write. For one run, 'regard diagnose RUN' says more."
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found. All numbers are in the tables; JSON and CSV hold the same ones."""

    task: str
    baseline: str
    """The system that the others are tested against."""
    metrics: Mapping[str, bool]
    """Whether more is better, the metric that decides first."""
    measured: Measured
    groups: Mapping[str, Sequence[str]]
    """Systems that differ only in the seed, by the group's name; a system of its own is a group of one."""
    tables: Mapping[str, Table]
    measured_on: Mapping[str, Any]
    """Which split or files the units are of (runs/examples.py)."""

    @property
    def systems(self) -> Sequence[System]:
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
        """A section that would have nothing to show is left out; the terminal has the first table alone."""
        measured = self.measured
        details = {
            f"Quality by {measured.facts.get('lengths_of')} length": _lengths(self),
            "Right and wrong": _mcnemar(self),
            "Learning curves": _curves(self),
            "Speed and size": _speed(self),
            "Search and model errors": _errors(self),
            "Recipes: only the differences": _recipes(self),
            "The same sentences, with attention": _examples(self),
            "Where they differ most": [*_units(self, "differ_most").values()],
            "How it was measured": _methods(measured),
        }
        sections = [_quality(self), *(Section(heading, parts, 0) for heading, parts in details.items() if parts)]
        task = self.task.replace("_", " ").capitalize()
        units = f"{count_text(measured.count, measured.unit)} of {measured_text(self.measured_on)}"
        names = ", ".join(system.name for system in self.systems)
        return Report(f"Comparison: {names}", sections, f"{task}, {units}, baseline {self.baseline}.", findings(self))

    def write_csv(self, folder: str | Path) -> None:
        """A file a table, each written whole or not at all; without the byte order mark Excel garbles Korean."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            columns = list(dict.fromkeys(column for row in table for column in row))
            stream = io.StringIO()
            writer = csv.DictWriter(stream, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
            write(Path(folder) / f"{name}.csv", stream.getvalue().encode("utf-8-sig"), option="--csv")


def check_csv(folder: Path | None) -> None:
    """Refuse, before any work is done, a place where no tables can be written."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise RegardError("this is a file, not a folder", where=str(folder), hint="give another --csv")


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
    hypotheses = hypotheses or {}
    named = _named([Run.open(run) for run in runs], hypotheses, baseline)
    baseline = baseline or next(iter(named))
    first = named[next(iter(named))]
    texts = first.task.writes == "target"
    for option, value in {"--hypotheses": hypotheses, "--beam": beam, "--length-penalty": length_penalty}.items():
        if value and not texts:
            what = f"runs of the task {first.recipe.task} are compared by what they predict, nothing is searched for"
            raise DecodeError(what, where=option, hint="leave it out")
    nbest = 1 if texts else None
    named = {
        name: run.under(with_search(run.recipe, beam, nbest, length_penalty, overrides)) for name, run in named.items()
    }
    examples = [examples_of(run, split, files) for run in named.values()]

    def load(run: Run) -> Any:
        return run.load_model(checkpoint, device)

    if texts:
        measured = measure_texts(named, examples, hypotheses, baseline, load, progress)
    else:
        measured = measure_units(named, examples, baseline, load, progress)
    metrics = {metric: first.task.higher_is_better.get(metric, True) for metric in measured.scores[baseline]}
    groups = groups_of({system.name: system.recipe for system in measured.systems})
    tables, on = _tables(measured, groups), measured_on(first, split, files)
    return Comparison(first.recipe.task, baseline, metrics, measured, groups, tables, on)


def _named(runs: Sequence[Run], hypotheses: Mapping[str, str | Path], baseline: str | None) -> dict[str, Run]:
    """The runs by their names, checked to be of one task and to differ from the names of files."""
    names = names_of(runs)
    if not runs or len(names) + len(hypotheses) < 2:
        raise DataError("there is nothing to compare", where="compare", hint="give two runs, or a run and --hypotheses")
    for name in hypotheses:
        if name in names:
            raise DataError(f"the name {name!r} is a run's", where="--hypotheses", hint="give another name")
    if baseline is not None and baseline not in (systems := [*names, *hypotheses]):
        raise DataError(f"there is no system {baseline!r}", where="--baseline", hint=did_you_mean(baseline, systems))
    for run in runs[1:]:
        if run.recipe.task != runs[0].recipe.task:
            what = f"the run's task is {run.recipe.task}, that of {runs[0].folder} is {runs[0].recipe.task}"
            raise DataError(what, where=str(run.folder), hint="compare runs of one task")
    return dict(zip(names, runs, strict=True))


# ------------------------------------------------------------------------------------------------------------ tables


def _tables(measured: Measured, groups: Mapping[str, Sequence[str]]) -> dict[str, Table]:
    runs = {system.name: system.run for system in measured.systems if system.run is not None}
    tables = {
        "systems": [_system_row(system, groups, measured) for system in measured.systems],
        "groups": [_group_row(group, [measured.scores[name] for name in names]) for group, names in groups.items()],
        "recipes": differences({name: run.recipe for name, run in runs.items()}),
        "curves": [
            {"system": name} | {key: value for key, value in line.items() if isinstance(value, int | float)}
            for name, run in runs.items()
            for line in read_metrics(run.folder / "metrics.jsonl")
            if line["event"] == "validation"
        ],
        **measured.tables,
    }
    return {name: tables[name] for name in TABLES if name in tables}


def _system_row(system: System, groups: Mapping[str, Sequence[str]], measured: Measured) -> dict[str, Any]:
    """What a system is, how good and how fast; steps and seconds of training by its log, without validations."""
    recipe = system.recipe
    training: dict[str, Any] = {"training_steps": None, "training_seconds": None}
    if system.run:
        step, seconds = 0, 0.0
        for line in read_metrics(system.run.folder / "metrics.jsonl"):
            if line["event"] == "train":
                seconds += line["seconds_per_step"] * (line["step"] - step)
                step = line["step"]
        training = {"training_steps": step, "training_seconds": seconds}
    return {
        "system": system.name,
        "group": next(group for group, names in groups.items() if system.name in names),
        "run": str(system.run.folder) if system.run else None,
        "model": recipe.model.kind if recipe else None,
        "seed": recipe.training.seed if recipe else None,
        **({"beam": recipe.search.beam if recipe else None} if measured.decodes else {}),
        "parameters": system.parameters,
        **measured.scores[system.name],
        **training,
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


# ------------------------------------------------------------------------------------------------------ in sentences


def verdict(comparison: Comparison, row: Mapping[str, Any]) -> str:
    """What the tests say of a system: better, worse, or why neither."""
    if any({row["system"], comparison.baseline} <= {*names} for names in comparison.groups.values()):
        return "another seed"
    if not row["significant"]:
        return "no significant difference"
    if rounds_to_zero(row["metric"], row["difference"]):
        return "no visible difference"
    return "better" if (row["difference"] > 0) == comparison.metrics[row["metric"]] else "worse"


def findings(comparison: Comparison) -> list[str]:
    """A sentence for each system but the baseline, by the main metric, and by McNemar's test where there is one; all
    seeds of a group have one in common."""
    metric, baseline = main_metric([*comparison.metrics]), comparison.baseline
    rows = {row["system"]: row for row in comparison.tables["significance"] if row["metric"] == metric}
    others = {group: names for group, names in comparison.groups.items() if [*names] != [baseline]}
    sentences = [
        _seeds_text(comparison, group, [rows[name] for name in names])
        if len(names) > 1
        else _system_text(baseline, rows[names[0]])
        for group, names in others.items()
    ]
    for row in comparison.tables.get("mcnemar", []):
        right = f"right alone {row['only_system_right']:,} times, {baseline} {row['only_baseline_right']:,} times"
        p_values = f"McNemar p {_p_text(row['p_exact'])} exact, {_p_text(row['p_chi_square'])} by chi-square"
        sentences.append(f"{row['system']}: {right} ({p_values}).")
    return sentences


def _system_text(baseline: str, row: Mapping[str, Any]) -> str:
    metric, difference = row["metric"], row["difference"]
    score = f"{row['system']}: {title(metric)} {score_text(metric, row['score'])}"
    if rounds_to_zero(metric, difference):
        return f"{score}, the same as {baseline}{' in the digits shown' if difference else ''}."
    chance = "a significant difference" if row["significant"] else "which may be chance"
    p_values = f"p {_p_text(row['p_bootstrap'])} by bootstrap, {_p_text(row['p_randomisation'])} by randomisation"
    return f"{score}, {_change_text(metric, difference)} {baseline}, {chance} ({p_values})."


def _seeds_text(comparison: Comparison, group: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Mean and spread of the seeds of one system, and how many of them differ significantly."""
    metric, table = rows[0]["metric"], {row["group"]: row for row in comparison.tables["groups"]}
    score = f"{group}: {title(metric)} {_spread_text(table[group], metric)}"
    if any(row["system"] == comparison.baseline for row in rows):
        return f"{score}."
    base = next(name for name, names in comparison.groups.items() if comparison.baseline in names)
    change = _change_text(metric, table[group][metric] - table[base][metric])
    alone = sum(verdict(comparison, row) in ("better", "worse") for row in rows)
    return f"{score}, {change} {base}; {alone} of {len(rows)} seeds differ significantly from {comparison.baseline}."


def _change_text(metric: str, difference: float) -> str:
    if rounds_to_zero(metric, difference):
        return "the same as"
    return f"{score_text(metric, abs(difference))} {'above' if difference > 0 else 'below'}"


def _spread_text(row: Mapping[str, Any], metric: str) -> str:
    """The mean over a group's seeds and their standard deviation."""
    score = score_text(metric, row[metric])
    return score if row["runs"] == 1 else f"{score} ± {score_text(metric, row[f'{metric}_deviation'])}"


def _p_text(p: float | None) -> str:
    """A p-value; `unknown` where a test had nothing to draw from."""
    if p is None:
        return "unknown"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


# ---------------------------------------------------------------------------------------------------------- sections


def _quality(comparison: Comparison) -> Section:
    """All groups in one table, then a table of the tests for each metric."""
    note = (
        f"± is half the 95 % interval by bootstrap over {comparison.measured.unit}. Better or worse than "
        f"{comparison.baseline}: both paired tests give a p-value below {LEVEL}.{NOTES.get(comparison.task, '')}"
    )
    tests = [_tests(comparison, metric) for metric in comparison.metrics]
    return Section("Quality", [_summary(comparison), *tests, Text([note], tone="muted")], in_terminal=1)


def _summary(comparison: Comparison) -> TablePart:
    """A row a group, the most important column first; a star marks a significant difference of a single system."""
    measured, main = comparison.measured, main_metric([*comparison.metrics])
    differing = {
        (row["system"], row["metric"])
        for row in comparison.tables["significance"]
        if row["system"] != comparison.baseline and verdict(comparison, row) in ("better", "worse")
    }
    systems = {row["system"]: row for row in comparison.tables["systems"]}
    metrics = sorted(comparison.metrics, key=lambda metric: metric != main)
    rows = list[list[Value]]()
    for group in comparison.tables["groups"]:
        names = comparison.groups[group["group"]]
        own = [systems[name] for name in names]
        stars = ["*" if len(names) == 1 and (names[0], metric) in differing else " " for metric in metrics]
        scores = [_spread_text(group, metric) + star for metric, star in zip(metrics, stars, strict=True)]
        share = own[0].get("unknown", 0.0)
        unknown = ["< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"] if measured.note else []
        speeds = [row["sentences_per_second" if measured.decodes else "per_second"] for row in own]
        rows.append([group["group"], *scores, *unknown, own[0]["parameters"], None if None in speeds else mean(speeds)])
    columns = ["system", *map(title, metrics), *(["unknown"] if measured.note else [])]
    starred = any(f"{cell}".endswith("*") for row in rows for cell in row[1:])
    notes = [f"* differs significantly from {comparison.baseline}"] if starred else []
    notes += ["± is the standard deviation over the seeds"] if len(rows) < len(systems) else []
    notes += [f"note: {measured.note}"] if measured.note else []
    return TablePart([*columns, "parameters", f"{measured.unit} / s"], rows, notes=notes)


def _tests(comparison: Comparison, metric: str) -> TablePart:
    rows, tones = list[list[Value]](), dict[str, Tone]({"better": "good", "worse": "bad"})
    for row in (row for row in comparison.tables["significance"] if row["metric"] == metric):
        against: list[Value] = [None, None, None, "baseline"]
        if row["system"] != comparison.baseline:
            result = verdict(comparison, row)
            against = [score_text(metric, row["difference"], sign="+"), _p_text(row["p_bootstrap"]),
                       _p_text(row["p_randomisation"]), Cell(result, tone=tones.get(result, "muted"))]  # fmt: skip
        rows.append([row["system"], *(score_text(metric, row[key]) for key in ("score", "interval")), *against])
    columns = ["system", "score", "±", "difference", "p (bootstrap)", "p (randomisation)", ""]
    return TablePart(columns, rows, title=title(metric))


def _series(comparison: Comparison, table: str, group: str, x: str, y: str) -> Series:
    """The means over the systems of a group, between the lowest and the highest where there are several."""
    values: dict[float, list[float]] = {}
    for row in comparison.tables[table]:
        if row["system"] in comparison.groups[group] and math.isfinite(row.get(y, math.nan)):
            values.setdefault(row[x], []).append(row[y])
    places = sorted(values)
    several = len(comparison.groups[group]) > 1
    low, high = ([end(values[place]) for place in places] if several else None for end in (min, max))
    return Series(group, places, [mean(values[place]) for place in places], low, high)


def _lengths(comparison: Comparison) -> list[Part]:
    """Quality by length, a figure a metric: it falls with length where there is no attention."""
    rows, facts = comparison.tables.get("lengths", []), comparison.measured.facts
    buckets = list(dict.fromkeys((row["from"], row["to"], row["sentences"], row["mean_length"]) for row in rows))
    ticks = [(length, f"{first}–{last}") for first, last, _, length in buckets]
    names = [system.name for system in comparison.systems]
    curves, tables = list[Part](), list[Part]()
    for metric in comparison.metrics if rows else ():
        series = [_series(comparison, "lengths", group, "mean_length", metric) for group in comparison.groups]
        axis = f"{facts['lengths_of']} length ({facts['length_unit']})"
        curves.append(Curves(series, axis, title(metric), y_range=(0, None), x_ticks=ticks))
        scores = {(row["from"], row["system"]): score_text(metric, row[metric]) for row in rows}
        body = [
            [f"{first}–{last}", sentences, *(scores[first, name] for name in names)]
            for first, last, sentences, _ in buckets
        ]
        columns = [facts["length_unit"], "sentences", *names]
        tables.append(TablePart(columns, body, title=f"The numbers: {title(metric)}", folded=True))
    if rows and len(comparison.groups) < len(comparison.systems):
        curves.append(Text(["A band spans the seeds."], tone="muted"))
    return curves + tables


def _table(rows: Table, columns: Mapping[str, str], note: str) -> TablePart:
    """Some columns of rows, by their keys, under the titles given for them."""
    formats = {"p_exact": _p_text, "p_chi_square": _p_text, "chi_square": "{:.2f}".format}
    cells = [[formats[key](row[key]) if key in formats else row[key] for key in columns] for row in rows]
    return TablePart([*columns.values()], cells, notes=[note])


def _mcnemar(comparison: Comparison) -> list[Part]:
    columns = {"system": "system", "only_system_right": "right alone",
               "only_baseline_right": f"{comparison.baseline} right alone", "p_exact": "p (exact)",
               "chi_square": "chi-square", "p_chi_square": "p (chi-square)"}  # fmt: skip
    note = "McNemar's test looks only at the examples that one of two systems has right and the other has wrong."
    rows = comparison.tables.get("mcnemar")
    return [_table(rows, columns, note)] if rows else []


def _curves(comparison: Comparison) -> list[Part]:
    """Loss and metrics of the validations, over the steps of the training."""
    rows, measured = comparison.tables["curves"], comparison.measured
    trained = {row["system"] for row in rows}
    groups = [group for group, names in comparison.groups.items() if trained & {*names}]
    curves: list[Part] = [
        Curves([_series(comparison, "curves", group, "step", name) for group in groups], "training step",
               f"validation {title(name)}", y_range=(None if name == "loss" else 0, None))
        for name in ("loss", *comparison.metrics)
        if any(name in row for row in rows)
    ]  # fmt: skip
    note = "From the runs' own logs, on the validation examples."
    if measured.unit != "examples":
        note += " Losses are per token: only runs with the same tokenizer can be compared by them."
    if measured.decodes:
        note += " Metrics are those of greedy search on the first of them (training.decode)."
    return [*curves, Text([note], tone="muted")] if curves else []


def _speed(comparison: Comparison) -> list[Part]:
    columns = {"system": "system", "model": "model", "parameters": "parameters"}
    note = "Training is the time of the steps in the run's log, on the machine it was trained on, without validations."
    if comparison.measured.decodes:
        columns |= {"beam": "beam", "sentences_per_second": "sentences / s", "tokens_per_second": "target tokens / s",
                    "decoding_seconds": "decoding (s)"}  # fmt: skip
        note = f"Decoding was measured here, on all sentences, without loading the model. {note}"
    else:
        columns |= {"per_second": f"{comparison.measured.unit} / s", "measuring_seconds": "measuring (s)"}
    columns |= {"training_steps": "training steps", "training_seconds": "training (s)"}
    return [_table(comparison.tables["systems"], columns, note)]


def _errors(comparison: Comparison) -> list[Part]:
    rows, body = comparison.tables.get("errors", []), list[list[Value]]()
    for row in rows:
        shares: list[Value] = [None, None]
        if row["errors"]:
            interval = f"{row['search_errors_low']:.1%} – {row['search_errors_high']:.1%}"
            shares = [Cell(row["search_errors"] / row["errors"], ".1%"), interval]
        counts = (row[key] for key in ("system", "sentences", "errors", "search_errors", "model_errors"))
        body.append([*counts, *shares])
    columns = ["system", "sentences", "errors", "search errors", "model errors", "search errors, share",
               "95 % interval"]  # fmt: skip
    kinds = {f"{kind} errors": [float(row[f"{kind}_errors"]) for row in rows] for kind in ("search", "model")}
    bars = Bars([row["system"] for row in rows], kinds, "sentences", stacked=True)
    return [TablePart(columns, body), bars, Text([ERRORS], tone="muted")] if rows else []


def _recipes(comparison: Comparison) -> list[Part]:
    """The settings that all recipes have and that differ, then those that only some have."""
    names = [system.name for system in comparison.systems if system.run is not None]
    shared, others = list[list[Value]](), list[list[Value]]()
    for row in comparison.tables["recipes"]:
        values = [row[name] for name in names]
        shown = [value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                 for value in values]  # fmt: skip
        (others if None in values else shared).append([Cell(row["key"], tone="code"), *shown])
    parts: list[Part] = [TablePart(["", *names], shared)] if shared else []
    if others:
        parts.append(TablePart(["", *names], others, title="Settings that only some of them have", folded=True))
    return parts or [Text(["The recipes are the same."])]


def _examples(comparison: Comparison) -> list[Part]:
    """The same sentences by all systems, each with the attention of those that have any."""
    parts: list[Part] = []
    for number, table in _units(comparison, "examples").items():
        maps = [system.alignments.get(number - 1) for system in comparison.systems]
        parts += [table, *(HeatMaps([heat_map], title=heat_map.title) for heat_map in maps if heat_map is not None)]
    without = [system.name for system in comparison.systems if system.run is not None and not system.alignments]
    if parts and without:
        parts.append(Text([f"There is no attention to show of {', '.join(without)}."], tone="muted"))
    return parts


def _units(comparison: Comparison, table: str) -> dict[int, Part]:
    """By its number, a table for each sentence or document with what every system predicts for it."""
    rows, systems, tables = comparison.tables.get(table, []), len(comparison.systems), dict[int, Part]()
    for start in range(0, len(rows), systems):
        group = rows[start : start + systems]
        first = group[0]
        if "sentence" in first:
            body: list[list[Value]] = [["reference", None, first["reference"]]]
            body += [[row["system"], Cell(row["sentence_chrf"], ".1f"), row["output"]] for row in group]
            heading = f"{first['sentence']}. {first['source']}"
            tables[first["sentence"]] = TablePart(["", "chrF", ""], body, title=heading)
        else:
            heading = f"{first['number']}. {first['text'][:LONGEST]}"
            tables[first["number"]] = TablePart(["", ""], [[row["system"], row["says"]] for row in group], heading)
    return tables


def _methods(measured: Measured) -> list[Part]:
    if not measured.decodes:
        return [Text([TESTS_OF_SUMS.format(measured.unit)])]
    signatures = [f"{title(name)}: {text}" for name, text in measured.facts["signatures"].items()]
    return [Text(signatures, bullets=True), Text([TESTS_OF_TEXTS])]
