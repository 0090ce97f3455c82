"""The report of a comparison: findings in sentences, tables and curves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from regard.runs.settings import measured_text
from regard.views.metrics import count_text, main_metric, rounds_to_zero, score_text, title
from regard.views.report import Bars, Cell, Curves, HeatMaps, Part, Report, Section, Series, Table, Text, Tone, Value
from regard.views.significance import LEVEL
from regard.views.systems import Rows

if TYPE_CHECKING:
    from regard.views.compare import Comparison

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


def report_of(comparison: Comparison) -> Report:
    """A section that would have nothing to show is left out; the terminal has the first table alone."""
    tables, measured = comparison.tables, comparison.measured
    details = [
        _lengths(comparison), _mcnemar(comparison), _curves(comparison), _speed(comparison),
        _errors(comparison), _recipes(comparison), _examples(comparison), _differ_most(comparison),
        Section("How it was measured", _methods(comparison)),
    ]  # fmt: skip
    task = comparison.task.replace("_", " ").capitalize()
    units = f"{count_text(measured.count, measured.unit)} of {measured_text(comparison.measured_on)}"
    conclusions = [*findings(comparison), *(_mcnemar_text(row, comparison) for row in tables.get("mcnemar", []))]
    sections = [_quality(comparison), *(Section(one.heading, one.parts, 0) for one in details if one is not None)]
    names = ", ".join(system.name for system in comparison.systems)
    opening = f"{task}, {units}, baseline {comparison.baseline}."
    return Report(f"Comparison: {names}", sections, opening, conclusions)


# ------------------------------------------------------------------------------------------------------ in sentences


def verdict(comparison: Comparison, row: dict[str, Any]) -> str:
    """What the tests say of a system: better, worse, or why neither."""
    if any({row["system"], comparison.baseline} <= {*names} for names in comparison.groups.values()):
        return "another seed"
    if not row["significant"]:
        return "no significant difference"
    if rounds_to_zero(row["metric"], row["difference"]):
        return "no visible difference"
    return "better" if (row["difference"] > 0) == comparison.higher_is_better[row["metric"]] else "worse"


def findings(comparison: Comparison) -> list[str]:
    """A sentence for each system but the baseline, by the main metric; one for all seeds of a group."""
    metric = main_metric(comparison.metrics)
    rows = {row["system"]: row for row in comparison.tables["significance"] if row["metric"] == metric}
    return [
        _seeds_text(comparison, group, [rows[name] for name in names])
        if len(names) > 1
        else _system_text(comparison, rows[names[0]])
        for group, names in comparison.groups.items()
        if names != (comparison.baseline,)
    ]


def _system_text(comparison: Comparison, row: dict[str, Any]) -> str:
    metric, difference, baseline = row["metric"], row["difference"], comparison.baseline
    score = f"{row['system']}: {title(metric)} {score_text(metric, row['score'])}"
    if rounds_to_zero(metric, difference):
        return f"{score}, the same as {baseline}{' in the digits shown' if difference else ''}."
    chance = "a significant difference" if row["significant"] else "which may be chance"
    p_values = f"p {_p_text(row['p_bootstrap'])} by bootstrap, {_p_text(row['p_randomisation'])} by randomisation"
    return f"{score}, {_change_text(metric, difference)} {baseline}, {chance} ({p_values})."


def _seeds_text(comparison: Comparison, group: str, rows: Sequence[dict[str, Any]]) -> str:
    """Mean and spread of the seeds of one system, and how many of them differ significantly."""
    metric, table = rows[0]["metric"], {row["group"]: row for row in comparison.tables["groups"]}
    score = f"{group}: {title(metric)} {_spread_text(table[group], metric)}"
    if any(row["system"] == comparison.baseline for row in rows):
        return f"{score}."
    base = next(name for name, names in comparison.groups.items() if comparison.baseline in names)
    difference = table[group][metric] - table[base][metric]
    change = "the same as" if rounds_to_zero(metric, difference) else _change_text(metric, difference)
    alone = sum(verdict(comparison, row) in ("better", "worse") for row in rows)
    return f"{score}, {change} {base}; {alone} of {len(rows)} seeds differ significantly from {comparison.baseline}."


def _change_text(metric: str, difference: float) -> str:
    return f"{score_text(metric, abs(difference))} {'above' if difference > 0 else 'below'}"


def _spread_text(row: dict[str, Any], metric: str) -> str:
    """The mean over a group's seeds and their standard deviation."""
    score = score_text(metric, row[metric])
    return score if row["runs"] == 1 else f"{score} ± {score_text(metric, row[f'{metric}_deviation'])}"


def _mcnemar_text(row: dict[str, Any], comparison: Comparison) -> str:
    other = f"{comparison.baseline} {row['only_baseline_right']:,} times"
    p_values = f"McNemar p {_p_text(row['p_exact'])} exact, {_p_text(row['p_chi_square'])} by chi-square"
    return f"{row['system']}: right alone {row['only_system_right']:,} times, {other} ({p_values})."


def _p_text(p: float | None) -> str:
    """A p-value; `unknown` where a test had nothing to draw from."""
    if p is None:
        return "unknown"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _unknown_text(share: float) -> str:
    """The share of unknown tokens; not rounded to none where there are some."""
    return "< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


# ---------------------------------------------------------------------------------------------------------- sections


def _quality(comparison: Comparison) -> Section:
    """All groups in one table, then a table of the tests for each metric."""
    baseline, unit = comparison.baseline, comparison.measured.unit
    note = (
        f"± is half the 95 % interval by bootstrap over {unit}. Better or worse than {baseline}: both paired tests "
        f"give a p-value below {LEVEL}.{NOTES.get(comparison.task, '')}"
    )
    tests = [_tests(comparison, metric) for metric in comparison.metrics]
    return Section("Quality", [_summary(comparison), *tests, Text([note], tone="muted")], in_terminal=1)


def _summary(comparison: Comparison) -> Table:
    """A row a group, the most important column first; a star marks a significant difference of a single system."""
    measured = comparison.measured
    differing = {
        (row["system"], row["metric"])
        for row in comparison.tables["significance"]
        if row["system"] != comparison.baseline and verdict(comparison, row) in ("better", "worse")
    }
    main, systems = main_metric(comparison.metrics), {row["system"]: row for row in comparison.tables["systems"]}
    metrics = sorted(comparison.metrics, key=lambda metric: metric != main)
    speed, rows, starred = "sentences_per_second" if measured.decodes else "per_second", [], False
    for group in comparison.tables["groups"]:
        names = comparison.groups[group["group"]]
        own = [systems[name] for name in names]
        stars = ["*" if len(names) == 1 and (names[0], metric) in differing else " " for metric in metrics]
        starred = starred or "*" in stars
        scores = [_spread_text(group, metric) + star for metric, star in zip(metrics, stars, strict=True)]
        unknown = [_unknown_text(own[0]["unknown"])] if measured.note else []
        speeds = [row[speed] for row in own]
        rows.append([group["group"], *scores, *unknown, own[0]["parameters"], None if None in speeds else mean(speeds)])
    columns = ["system", *map(title, metrics), *(["unknown"] if measured.note else [])]
    notes = [f"* differs significantly from {comparison.baseline}"] if starred else []
    notes += ["± is the standard deviation over the seeds"] if len(rows) < len(systems) else []
    notes += [f"note: {measured.note}"] if measured.note else []
    return Table([*columns, "parameters", f"{measured.unit} / s"], rows, notes=notes)


def _tests(comparison: Comparison, metric: str) -> Table:
    rows: list[list[Value]] = []
    tones: dict[str, Tone] = {"better": "good", "worse": "bad"}
    for row in (row for row in comparison.tables["significance"] if row["metric"] == metric):
        against: list[Value] = [None, None, None, "baseline"]
        if row["system"] != comparison.baseline:
            result = verdict(comparison, row)
            against = [score_text(metric, row["difference"], sign="+"), _p_text(row["p_bootstrap"]),
                       _p_text(row["p_randomisation"]), Cell(result, tone=tones.get(result, "muted"))]  # fmt: skip
        scores = [score_text(metric, row[key]) for key in ("score", "interval")]
        rows.append([row["system"], *scores, *against])
    columns = ["system", "score", "±", "difference", "p (bootstrap)", "p (randomisation)", ""]
    return Table(columns, rows, title=title(metric))


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


def _lengths(comparison: Comparison) -> Section | None:
    """Quality by length, a figure a metric: it falls with length where there is no attention."""
    rows, facts = comparison.tables.get("lengths"), comparison.measured.facts
    if not rows:
        return None
    names = [system.name for system in comparison.systems]
    buckets = list(dict.fromkeys((row["from"], row["to"], row["sentences"], row["mean_length"]) for row in rows))
    ticks = [(length, f"{first}–{last}") for first, last, _, length in buckets]
    curves, tables = [], []
    for metric in comparison.metrics:
        series = [_series(comparison, "lengths", group, "mean_length", metric) for group in comparison.groups]
        axis = f"{facts['lengths_of']} length ({facts['length_unit']})"
        curves.append(Curves(series, axis, title(metric), y_range=(0, None), x_ticks=ticks))
        scores = {(row["from"], row["system"]): score_text(metric, row[metric]) for row in rows}
        body: list[list[Value]] = [
            [f"{first}–{last}", sentences, *(scores[first, name] for name in names)]
            for first, last, sentences, _ in buckets
        ]
        heading = f"The numbers: {title(metric)}"
        tables.append(Table([facts["length_unit"], "sentences", *names], body, title=heading, folded=True))
    several = len(comparison.groups) < len(comparison.systems)
    note = [Text(["A band spans the seeds."], tone="muted")] if several else []
    return Section(f"Quality by {facts['lengths_of']} length", [*curves, *note, *tables])


def _table(rows: Rows, columns: Mapping[str, str], *notes: str) -> Table:
    """Some columns of rows, by their keys, under the titles given for them."""
    formats = {"p_exact": _p_text, "p_chi_square": _p_text, "chi_square": "{:.2f}".format}
    cells = [[formats[key](row[key]) if key in formats else row[key] for key in columns] for row in rows]
    return Table([*columns.values()], cells, notes=notes)


def _mcnemar(comparison: Comparison) -> Section | None:
    columns = {"system": "system", "only_system_right": "right alone",
               "only_baseline_right": f"{comparison.baseline} right alone", "p_exact": "p (exact)",
               "chi_square": "chi-square", "p_chi_square": "p (chi-square)"}  # fmt: skip
    note = "McNemar's test looks only at the examples that one of two systems has right and the other has wrong."
    rows = comparison.tables.get("mcnemar")
    return Section("Right and wrong", [_table(rows, columns, note)]) if rows else None


def _curves(comparison: Comparison) -> Section | None:
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
    return Section("Learning curves", [*curves, Text([note], tone="muted")]) if curves else None


def _speed(comparison: Comparison) -> Section:
    columns = {"system": "system", "model": "model", "parameters": "parameters"}
    if comparison.measured.decodes:
        columns |= {"beam": "beam", "sentences_per_second": "sentences / s", "tokens_per_second": "target tokens / s",
                    "decoding_seconds": "decoding (s)"}  # fmt: skip
        note = "Decoding was measured here, on all sentences, without loading the model. "
    else:
        columns |= {"per_second": f"{comparison.measured.unit} / s", "measuring_seconds": "measuring (s)"}
        note = ""
    columns |= {"training_steps": "training steps", "training_seconds": "training (s)"}
    note += "Training is the time of the steps in the run's log, on the machine it was trained on, without validations."
    return Section("Speed and size", [_table(comparison.tables["systems"], columns, note)])


def _errors(comparison: Comparison) -> Section | None:
    rows = comparison.tables.get("errors")
    if not rows:
        return None
    columns = ["system", "sentences", "errors", "search errors", "model errors", "search errors, share",
               "95 % interval"]  # fmt: skip
    body: list[list[Value]] = []
    for row in rows:
        low, high = (f"{row[f'search_errors_{end}']:.1%}" for end in ("low", "high"))
        shares: list[Value] = [None, None]
        if row["errors"]:
            shares = [Cell(row["search_errors"] / row["errors"], ".1%"), f"{low} – {high}"]
        body.append(
            [row["system"], row["sentences"], row["errors"], row["search_errors"], row["model_errors"], *shares]
        )
    kinds = {f"{kind} errors": [float(row[f"{kind}_errors"]) for row in rows] for kind in ("search", "model")}
    note = (
        "An output that is worse than its reference is a search error if the model scores the reference higher under "
        "the objective of the search, and a model error otherwise, or where the reference holds unknown tokens, which "
        "no search could write. For one run, 'regard diagnose RUN' says more."
    )
    bars = Bars([row["system"] for row in rows], kinds, "sentences", stacked=True)
    return Section("Search and model errors", [Table(columns, body), bars, Text([note], tone="muted")])


def _recipes(comparison: Comparison) -> Section:
    """The settings that all recipes have and that differ, then those that only some have."""
    names = [system.name for system in comparison.systems if system.recipe is not None]
    shared: list[list[Value]] = []
    others: list[list[Value]] = []
    for row in comparison.tables["recipes"]:
        values = [row[name] for name in names]
        shown = [value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                 for value in values]  # fmt: skip
        (others if None in values else shared).append([Cell(row["key"], tone="code"), *shown])
    heading = "Settings that only some of them have"
    parts: list[Part] = [Table(["", *names], shared)] if shared else []
    parts += [Table(["", *names], others, title=heading, folded=True)] if others else []
    return Section("Recipes: only the differences", parts or [Text(["The recipes are the same."])])


def _examples(comparison: Comparison) -> Section | None:
    """The same sentences by all systems, each with the attention of those that have any."""
    parts: list[Part] = []
    for number, table in _sentences(comparison, "examples"):
        maps = [system.alignments.get(number - 1) for system in comparison.systems]
        parts += [table, *(HeatMaps([one], title=one.title) for one in maps if one is not None)]
    without = [system.name for system in comparison.systems if system.run is not None and not system.alignments]
    if without:
        parts.append(Text([f"There is no attention to show of {', '.join(without)}."], tone="muted"))
    return Section("The same sentences, with attention", parts) if comparison.tables.get("examples") else None


def _differ_most(comparison: Comparison) -> Section | None:
    parts = [table for _, table in _sentences(comparison, "differ_most")]
    return Section("Where they differ most", parts) if parts else None


def _sentences(comparison: Comparison, name: str) -> list[tuple[int, Table]]:
    """A table for each sentence or document, with what every system makes of it."""
    rows, each = comparison.tables.get(name, []), len(comparison.systems)
    tables = []
    for start in range(0, len(rows), each):
        group = rows[start : start + each]
        first = group[0]
        if "sentence" in first:
            body: list[list[Value]] = [["reference", None, first["reference"]]]
            body += [[row["system"], Cell(row["sentence_chrf"], ".1f"), row["output"]] for row in group]
            heading = f"{first['sentence']}. {first['source']}"
            tables.append((first["sentence"], Table(["", "chrF", ""], body, title=heading)))
        else:
            body = [[row["system"], row["says"]] for row in group]
            heading = f"{first['number']}. {first['text'][:LONGEST]}"
            tables.append((first["number"], Table(["", ""], body, title=heading)))
    return tables


def _methods(comparison: Comparison) -> list[Part]:
    measured = comparison.measured
    if not measured.decodes:
        return [Text([TESTS_OF_SUMS.format(measured.unit)])]
    signatures = [f"{title(name)}: {text}" for name, text in measured.facts["signatures"].items()]
    return [Text(signatures, bullets=True), Text([TESTS_OF_TEXTS])]
