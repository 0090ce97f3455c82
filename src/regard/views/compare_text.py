"""A comparison in words and in the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from regard.views.compare import Comparison
from regard.views.page import shown

TITLES = {
    "bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}  # fmt: skip
DECIMALS = {"exact_match": 3}
"""Of a share, between 0 and 1; other metrics go to 100 and get two."""


def title(metric: str) -> str:
    return TITLES.get(metric, metric)


def score_text(metric: str, score: float, *, sign: str = "") -> str:
    """A score or, with the sign "+", a difference of scores; none is written as -0.00."""
    text = f"{score:{sign}.{DECIMALS.get(metric, 2)}f}"
    return text if float(text) else text.replace("-", "+" if sign else "")


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def findings(found: Comparison) -> list[str]:
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


def show(found: Comparison) -> None:
    """Print the systems with their metrics, then a sentence for each test."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("system")
    for name in ("parameters", *map(title, found.metrics), "sentences / s"):
        table.add_column(name, justify="right")
    significant = {(row["system"], row["metric"]) for row in found.tables["significance"] if row["significant"]}
    for row in found.tables["systems"]:
        marks = ["*" if (row["system"], metric) in significant else " " for metric in found.metrics]
        scores = [score_text(metric, row[metric]) + mark for metric, mark in zip(found.metrics, marks, strict=True)]
        table.add_row(row["system"], shown(row["parameters"]), *scores, shown(row["sentences_per_second"]))
    console.print(f"{len(found.texts):,} sentences", table, f"* differs significantly from {found.baseline}", sep="\n")
    for sentence in findings(found):
        console.print(f"  {sentence}", markup=False)
