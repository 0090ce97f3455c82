"""A comparison in words and in the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from regard.views.compare import Comparison
from regard.views.compare_units import UnitComparison
from regard.views.page import shown

TITLES = {
    "bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L", "word_perplexity": "perplexity a word", "bits_per_character": "bits a character",
    "masked_accuracy": "masked accuracy", "f1_macro": "macro F1", "f1": "F1", "pearson": "Pearson's r",
}  # fmt: skip
DECIMALS = dict.fromkeys(
    ("exact_match", "accuracy", "masked_accuracy", "f1_macro", "f1", "pearson", "bits_per_character", "loss"), 3
)
"""Of a share, between 0 and 1; other metrics go to 100 or beyond and get two."""


def title(metric: str) -> str:
    return TITLES.get(metric, metric)


def score_text(metric: str, score: float, *, sign: str = "") -> str:
    """A score or, with the sign "+", a difference of scores; none is written as -0.00."""
    text = f"{score:{sign}.{DECIMALS.get(metric, 2)}f}"
    return text if float(text) else text.replace("-", "+" if sign else "")


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def findings(found: Comparison | UnitComparison) -> list[str]:
    """What the tests say, a sentence for each system but the baseline, by the task's first metric."""
    metric = found.metrics[0]
    sentences = []
    for row in found.tables["significance"]:
        if row["metric"] != metric or row["system"] == found.baseline:
            continue
        difference = row["difference"]
        change = f"{score_text(metric, abs(difference))} {'above' if difference > 0 else 'below'} {found.baseline}"
        verdict = "a significant difference" if row["significant"] else "which may be chance"
        p_values = f"p {p_text(row['p_bootstrap'])} by bootstrap, {p_text(row['p_randomisation'])} by randomisation"
        score = f"{row['system']}: {title(metric)} {score_text(metric, row['score'])}"
        tested = f"{change}, {verdict} ({p_values})" if difference else f"the same as {found.baseline}"
        sentences.append(f"{score}, {tested}.")
    return sentences


def show(found: Comparison | UnitComparison) -> None:
    """Print the systems with their metrics, then a sentence for each test."""
    unit, count, speed = (
        ("sentences", len(found.texts), "sentences_per_second")
        if isinstance(found, Comparison)
        else (found.unit, found.units, "per_second")
    )
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("system")
    for name in ("parameters", *map(title, found.metrics), f"{unit} / s"):
        table.add_column(name, justify="right")
    significant = {(row["system"], row["metric"]) for row in found.tables["significance"] if row["significant"]}
    for row in found.tables["systems"]:
        marks = ["*" if (row["system"], metric) in significant else " " for metric in found.metrics]
        scores = [score_text(metric, row[metric]) + mark for metric, mark in zip(found.metrics, marks, strict=True)]
        table.add_row(row["system"], shown(row["parameters"]), *scores, shown(row[speed]))
    console.print(f"{count:,} {unit}", table, f"* differs significantly from {found.baseline}", sep="\n")
    for sentence in findings(found):
        console.print(f"  {sentence}", markup=False)
    for row in found.tables.get("mcnemar", []):
        console.print(f"  {mcnemar_text(row, found.baseline)}", markup=False)


def mcnemar_text(row: dict[str, Any], baseline: str) -> str:
    """One of McNemar's tests in a sentence."""
    counts = f"right alone {row['only_system_right']:,} times, {baseline} {row['only_baseline_right']:,} times"
    p_values = f"McNemar p {p_text(row['p_exact'])} exact, {p_text(row['p_chi_square'])} by chi-square"
    return f"{row['system']}: {counts} ({p_values})."
