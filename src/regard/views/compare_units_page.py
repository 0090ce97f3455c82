"""The report of a comparison of language models, masked models or classifiers: one page, nothing beside it."""

from __future__ import annotations

from regard.runs.splits import measured_text
from regard.views.compare_page import against_baseline, curves_section, groups_html, recipes_section
from regard.views.compare_text import findings, how_many, mcnemar_text, p_text, score_text, title, unknown_text
from regard.views.compare_units import UnitComparison
from regard.views.old_page import Cell, Html, Section, bullets, element, page, paragraph, section, table
from regard.views.paired import LEVEL

NOTES = {
    "language_modeling": "Perplexity is a word's, the end of a document counted as one, and bits are a character's: so "
    "models with different tokenizers can be compared.",
    "masked_language_modeling": "The tokens that are masked are those of each run's own tokenizer: only runs with the "
    "same one can be compared.",
}


def units_report(found: UnitComparison) -> Html:
    """The whole page; a section that would have nothing to show is left out."""
    names = ", ".join(one.name for one in found.systems)
    task = found.task.replace("_", " ").capitalize()
    on = f"{how_many(found.units, found.unit)} of {measured_text(found.measured_on)}"
    opening = paragraph(f"{task}, {on}, baseline {found.baseline}.")
    said = [*findings(found), *(mcnemar_text(row, found.baseline) for row in found.tables["mcnemar"])]
    parts = [
        _quality(found), _unknown(found), _mcnemar(found), curves_section(found), _speed(found),
        recipes_section(found), _differ(found), _methods(found),
    ]  # fmt: skip
    return page(f"Comparison: {names}", opening, bullets(said), *(part for part in parts if part is not None))


def _quality(found: UnitComparison) -> Section:
    head = ["system", "score", "±", "difference", "p (bootstrap)", "p (randomisation)", ""]
    parts = []
    for metric in found.metrics:
        body: list[list[Cell]] = []
        for row in found.tables["significance"]:
            if row["metric"] == metric:
                scores = [score_text(metric, row[key]) for key in ("score", "interval")]
                body.append([row["system"], *scores, *against_baseline(found, row)])
        parts.append(element("div", element("h3", title(metric)), table(head, body)))
    note = (
        f"± is half the 95 % interval by bootstrap over {found.unit}. Better or worse than {found.baseline}: both "
        f"paired tests give a p-value below {LEVEL}. {NOTES.get(found.task, '')}"
    )
    return section("Quality", groups_html(found), *parts, paragraph(note, kind="muted"))


def _unknown(found: UnitComparison) -> Section | None:
    if found.note is None:
        return None
    body: list[list[Cell]] = [[row["system"], unknown_text(row["unknown"])] for row in found.tables["systems"]]
    note = f"{found.note[0].upper()}{found.note[1:]}."
    return section("Unknown tokens", table(["system", "share"], body), paragraph(note, kind="muted"))


def _mcnemar(found: UnitComparison) -> Section | None:
    rows = found.tables["mcnemar"]
    head = ["system", "right alone", f"{found.baseline} right alone", "p (exact)", "chi-square", "p (chi-square)"]
    body: list[list[Cell]] = [
        [
            row["system"], row["only_system_right"], row["only_baseline_right"], p_text(row["p_exact"]),
            f"{row['chi_square']:.2f}", p_text(row["p_chi_square"]),
        ]
        for row in rows
    ]  # fmt: skip
    note = "McNemar's test looks only at the examples that one of two systems has right and the other has wrong."
    return section("Right and wrong", table(head, body), paragraph(note, kind="muted")) if rows else None


def _speed(found: UnitComparison) -> Section:
    head = ["system", "model", "parameters", f"{found.unit} / s", "measuring (s)", "training steps", "training (s)"]
    keys = ("system", "model", "parameters", "per_second", "measuring_seconds", "training_steps", "training_seconds")
    body: list[list[Cell]] = [[row[key] for key in keys] for row in found.tables["systems"]]
    return section("Speed and size", table(head, body))


def _differ(found: UnitComparison) -> Section | None:
    rows, each = found.tables["differ_most"], len(found.systems)
    parts: list[str] = []
    for first in range(0, len(rows), each):
        group = rows[first : first + each]
        body: list[list[Cell]] = [[row["system"], row["says"]] for row in group]
        parts += [element("h3", f"{group[0]['number']}. {group[0]['text'][:300]}"), table(["", ""], body)]
    return section("Where they differ most", *parts) if parts else None


def _methods(found: UnitComparison) -> Section:
    tests = (
        f"Paired bootstrap (1,000 resamples) and approximate randomisation (10,000 trials) over {found.unit}, with a "
        "fixed seed; two equal scores have the p-value 1. Many tests on one page will find some difference by chance."
    )
    return section("How it was measured", paragraph(tests))
