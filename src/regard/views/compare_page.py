"""The report of a comparison: one page that needs nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from regard.runs.splits import measured_text
from regard.views.compare import Comparison
from regard.views.compare_plots import curve_plots, error_plot, length_plots
from regard.views.compare_tables import Table
from regard.views.compare_text import findings, how_many, mean_and_spread, p_text, score_text, title, verdict
from regard.views.compare_units import UnitComparison
from regard.views.old_page import (
    Cell,
    Html,
    Section,
    bullets,
    columns,
    details,
    element,
    figure,
    page,
    paragraph,
    section,
    table,
)
from regard.views.paired import LEVEL
from regard.views.svg import to_svg


def report(found: Comparison) -> Html:
    """The whole page; a section that would have nothing to show is left out."""
    sections = [
        _quality(found),
        _lengths(found),
        curves_section(found),
        _speed(found),
        _errors(found),
        recipes_section(found),
        _examples(found),
        _differ_most(found),
        _methods(found),
    ]
    names = ", ".join(one.name for one in found.systems)
    on = f"{how_many(len(found.texts), 'sentences')} of {measured_text(found.measured_on)}"
    opening = paragraph(f"{found.task.capitalize()}, {on}, baseline {found.baseline}.")
    written = [one for one in sections if one is not None]
    return page(f"Comparison: {names}", opening, bullets(findings(found)), *written)


def _quality(found: Comparison) -> Section:
    parts = [element("div", element("h3", title(metric)), _tests(found, metric)) for metric in found.metrics]
    note = (
        f"± is the 95 % interval by bootstrap. Better or worse than {found.baseline}: both paired tests give a p-value "
        f"below {LEVEL}."
    )
    return section("Quality", groups_html(found), *parts, paragraph(note, kind="muted"))


def _tests(found: Comparison, metric: str) -> Html:
    head = ["system", "score", "±", "difference", "p (bootstrap)", "p (randomisation)", ""]
    rows = [row for row in found.tables["significance"] if row["metric"] == metric]
    body: list[list[Cell]] = [
        [
            row["system"], score_text(metric, row["score"]), score_text(metric, row["interval"]),
            *against_baseline(found, row),
        ]
        for row in rows
    ]  # fmt: skip
    return table(head, body)


def against_baseline(found: Comparison | UnitComparison, row: dict[str, Any]) -> list[Cell]:
    """The difference, both p-values, and what follows."""
    if row["system"] == found.baseline:
        return [None, None, None, "baseline"]
    said = verdict(found, row)
    shown = element("span", said, kind={"better": "good", "worse": "bad"}.get(said, "muted"))
    difference = score_text(row["metric"], row["difference"], sign="+")
    return [difference, p_text(row["p_bootstrap"]), p_text(row["p_randomisation"]), shown]


def groups_html(found: Comparison | UnitComparison) -> Html:
    """Mean and spread, only where there is a group of several seeds."""
    rows = found.tables["groups"]
    if all(row["runs"] == 1 for row in rows):
        return Html("")
    body: list[list[Cell]] = [
        [row["group"], row["runs"], *(mean_and_spread(row, metric, reach=True) for metric in found.metrics)]
        for row in rows
    ]
    head = ["system", "runs", *map(title, found.metrics)]
    return table(head, body, caption="Mean over the seeds ± standard deviation (lowest – highest)")


def _lengths(found: Comparison) -> Section:
    parts = []
    for metric in found.metrics:
        body: list[list[Cell]] = [
            [f"{first}–{last}", sentences, *(score_text(metric, row[metric]) for row in rows)]
            for (first, last, sentences), rows in _by(found.tables["lengths"], "from", "to", "sentences")
        ]
        head = [found.length_unit, "sentences", *(one.name for one in found.systems)]
        parts.append(table(head, body, caption=title(metric)))
    pictures = columns(*(figure(plot) for plot in length_plots(found).values()))
    note = paragraph("A band spans the seeds.", kind="muted") if len(found.groups) < len(found.systems) else Html("")
    return section(f"Quality by {found.lengths_of} length", pictures, note, details("The numbers", *parts))


def _by(rows: Table, *keys: str) -> Iterator[tuple[tuple[Any, ...], Table]]:
    """Rows that agree in some columns, together."""
    found: dict[tuple[Any, ...], Table] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from found.items()


def curves_section(found: Comparison | UnitComparison) -> Section | None:
    plots = curve_plots(found)
    note = "From the runs' own logs, on the validation examples."
    if isinstance(found, Comparison) or found.unit == "documents":
        note += " Losses are per token: only runs with the same tokenizer can be compared by them."
    if isinstance(found, Comparison):
        note += " Metrics are those of greedy search on the first of them (training.decode)."
    return section("Learning curves", columns(*map(figure, plots)), paragraph(note, kind="muted")) if plots else None


def _speed(found: Comparison) -> Section:
    head = ["system", "model", "parameters", "beam", "sentences / s", "target tokens / s", "decoding (s)",
            "training steps", "training (s)"]  # fmt: skip
    keys = ("system", "model", "parameters", "beam", "sentences_per_second", "tokens_per_second", "decoding_seconds",
            "training_steps", "training_seconds")  # fmt: skip
    body: list[list[Cell]] = [[row[key] for key in keys] for row in found.tables["systems"]]
    note = (
        "Decoding was measured here, on all sentences, without loading the model. Training is the time of the steps in "
        "the run's log, on the machine it was trained on, without validations."
    )
    return section("Speed and size", table(head, body), paragraph(note, kind="muted"))


def _errors(found: Comparison) -> Section:
    head = ["system", "sentences", "errors", "search errors", "model errors", "search errors, share", "95 % interval"]
    body: list[list[Cell]] = [
        [
            row["system"], row["sentences"], row["errors"], row["search_errors"], row["model_errors"],
            f"{row['search_errors'] / row['errors']:.1%}" if row["errors"] else None,
            f"{row['search_errors_low']:.1%} – {row['search_errors_high']:.1%}" if row["errors"] else None,
        ]
        for row in found.tables["errors"]
    ]  # fmt: skip
    note = (
        "An output that is worse than its reference is the search's fault if the model scores the reference higher "
        "under the objective of the search, and the model's otherwise, or where the reference holds unknown tokens, "
        "which no search could write. For one run, "
    )
    command = element("code", "regard diagnose RUN")
    explained = paragraph(note, command, " says more.", kind="muted")
    return section("Search and model errors", table(head, body), figure(error_plot(found)), explained)


def recipes_section(found: Comparison | UnitComparison) -> Section:
    """What all recipes have and do not agree on, then what only some have."""
    rows = found.tables["recipes"]
    names = [one.name for one in found.systems if one.recipe is not None]
    shared = [row for row in rows if all(row[name] is not None for name in names)]
    others = [row for row in rows if row not in shared]
    parts: list[str] = [_values(shared, names)] if shared else []
    if others:
        parts.append(details("Settings that only some of them have", _values(others, names)))
    return section("Recipes: only the differences", *(parts or [paragraph("The recipes are the same.")]))


def _values(rows: Table, names: Sequence[str]) -> Html:
    body: list[list[Cell]] = [[element("code", row["key"]), *(_value(row[name]) for name in names)] for row in rows]
    return table(["", *names], body)


def _value(value: Any) -> Cell:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _examples(found: Comparison) -> Section | None:
    parts: list[str] = []
    for (number, source, reference), rows in _by(found.tables["examples"], "sentence", "source", "reference"):
        pictures = [
            element("div", element("h4", one.name), figure(to_svg(one.alignments[number - 1])))
            for one in found.systems
            if number - 1 in one.alignments
        ]
        parts += [*_sentence(number, source, reference, rows), columns(*pictures)]
    without = [one.name for one in found.systems if one.run is not None and not one.alignments]
    if without:
        parts.append(paragraph(f"There is no attention to show of {', '.join(without)}.", kind="muted"))
    return section("The same sentences, with attention", *parts) if found.shown else None


def _differ_most(found: Comparison) -> Section | None:
    parts: list[str] = []
    for (number, source, reference), rows in _by(found.tables["differ_most"], "sentence", "source", "reference"):
        parts += _sentence(number, source, reference, rows)
    return section("Where they differ most", *parts) if parts else None


def _sentence(number: int, source: str, reference: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    body: list[list[Cell]] = [["reference", None, reference]]
    body += [[row["system"], f"{row['sentence_chrf']:.1f}", row["output"]] for row in rows]
    return [element("h3", f"{number}. {source}"), table(["", "chrF", ""], body)]


def _methods(found: Comparison) -> Section:
    signatures = [f"{title(name)}: {text}" for name, text in found.signatures.items()]
    tests = (
        "Paired bootstrap resampling (Koehn 2004; 1,000 resamples) is sacreBLEU's. Approximate randomisation (Riezler "
        "and Maxwell 2005; 10,000 trials) differs from sacreBLEU's in that it counts the trials that give the very "
        "difference found, so that a handful of sentences is never significant. Seeds are fixed, and two equal scores "
        "have the p-value 1. Many tests on one page will find some difference by chance. Sentences are told apart by "
        "sentence chrF."
    )
    return section("How it was measured", bullets(signatures), paragraph(tests))
