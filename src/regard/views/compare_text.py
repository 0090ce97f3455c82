"""A comparison in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.views.compare import Comparison
from regard.views.compare_units import UnitComparison
from regard.views.metrics import number_text

TITLES = {
    "bleu": "BLEU", "bleu1": "BLEU-1", "bleu2": "BLEU-2", "bleu3": "BLEU-3", "chrf": "chrF",
    "exact_match": "exact match", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L",
    "word_perplexity": "perplexity a word", "bits_per_character": "bits a character",
    "reconstruction_word_perplexity": "perplexity a word, given the text",
    "reconstruction_bits_per_character": "bits a character, given the text",
    "masked_accuracy": "masked accuracy", "f1_macro": "macro F1", "f1": "F1", "pearson": "Pearson's r",
}  # fmt: skip
DECIMALS = {"reconstruction_bits_per_character": 3} | dict.fromkeys(
    ("exact_match", "accuracy", "masked_accuracy", "f1_macro", "f1", "pearson", "bits_per_character", "loss"), 3
)
"""Of a share, between 0 and 1; other metrics go to 100 or beyond and get two."""


def title(metric: str) -> str:
    return TITLES.get(metric, metric)


def score_text(metric: str, score: float, *, sign: str = "") -> str:
    """A score or, with the sign "+", a difference of scores; none is written as -0.00."""
    text = number_text(score, DECIMALS.get(metric, 2), sign=sign)
    return text.replace("-", "+" if sign else "") if rounds_away(metric, score) else text


def how_many(count: int, units: str) -> str:
    """So many `sentences`, or 1 sentence."""
    return f"{count:,} {units.removesuffix('s') if count == 1 else units}"


def p_text(p: float | None) -> str:
    """A p-value; none where a test had nothing to draw from."""
    if p is None:
        return "unknown"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def unknown_text(share: float) -> str:
    """The share of unknown tokens; not rounded to none where there are some."""
    return "< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


def main_metric(metrics: Sequence[str]) -> str:
    """What the sentences are about: BLEU where it is measured, else what a task measures first."""
    return "bleu" if "bleu" in metrics else metrics[0]


def verdict(found: Comparison | UnitComparison, row: dict[str, Any]) -> str:
    """What the tests of a system say: better, worse, or why neither."""
    if any({row["system"], found.baseline} <= {*names} for names in found.groups.values()):
        return "another seed"
    if not row["significant"]:
        return "no significant difference"
    if rounds_away(row["metric"], row["difference"]):
        return "no visible difference"
    higher = isinstance(found, Comparison) or found.higher_is_better[row["metric"]]
    return "better" if (row["difference"] > 0) == higher else "worse"


def rounds_away(metric: str, difference: float) -> bool:
    """Whether a difference is none in the digits that are shown."""
    return round(difference, DECIMALS.get(metric, 2)) == 0


def findings(found: Comparison | UnitComparison) -> list[str]:
    """A sentence for each system but the baseline, by the main metric; one for all seeds of a group."""
    metric = main_metric(found.metrics)
    rows = {row["system"]: row for row in found.tables["significance"] if row["metric"] == metric}
    return [
        _of_seeds(found, group, [rows[name] for name in names]) if len(names) > 1 else _of_one(found, rows[names[0]])
        for group, names in found.groups.items()
        if names != (found.baseline,)
    ]


def _of_one(found: Comparison | UnitComparison, row: dict[str, Any]) -> str:
    metric, difference = row["metric"], row["difference"]
    score = f"{row['system']}: {title(metric)} {score_text(metric, row['score'])}"
    if difference == 0:
        return f"{score}, the same as {found.baseline}."
    if rounds_away(metric, difference):
        return f"{score}, the same as {found.baseline} in the digits shown."
    chance = "a significant difference" if row["significant"] else "which may be chance"
    p_values = f"p {p_text(row['p_bootstrap'])} by bootstrap, {p_text(row['p_randomisation'])} by randomisation"
    return f"{score}, {_change(metric, difference)} {found.baseline}, {chance} ({p_values})."


def _of_seeds(found: Comparison | UnitComparison, group: str, rows: Sequence[dict[str, Any]]) -> str:
    """Seeds of one system are no systems to be told apart: their mean and spread, and how many stand out."""
    metric, table = rows[0]["metric"], {row["group"]: row for row in found.tables["groups"]}
    score = f"{group}: {title(metric)} {mean_and_spread(table[group], metric)}"
    if any(row["system"] == found.baseline for row in rows):
        return f"{score}."
    base = next(name for name, names in found.groups.items() if found.baseline in names)
    difference = table[group][metric] - table[base][metric]
    change = "the same as" if rounds_away(metric, difference) else _change(metric, difference)
    alone = sum(verdict(found, row) in ("better", "worse") for row in rows)
    return f"{score}, {change} {base}; {alone} of {len(rows)} seeds differ significantly from {found.baseline}."


def _change(metric: str, difference: float) -> str:
    return f"{score_text(metric, abs(difference))} {'above' if difference > 0 else 'below'}"


def mean_and_spread(row: dict[str, Any], metric: str, *, reach: bool = False) -> str:
    """The mean over a group's seeds, their standard deviation, and with `reach` the lowest and the highest."""
    text = score_text(metric, row[metric])
    if row["runs"] == 1:
        return text
    spread, low, high = (score_text(metric, row[f"{metric}_{part}"]) for part in ("deviation", "lowest", "highest"))
    return f"{text} ± {spread}" + (f" ({low} – {high})" if reach else "")


def mcnemar_text(row: dict[str, Any], baseline: str) -> str:
    """One of McNemar's tests in a sentence."""
    counts = f"right alone {row['only_system_right']:,} times, {baseline} {row['only_baseline_right']:,} times"
    p_values = f"McNemar p {p_text(row['p_exact'])} exact, {p_text(row['p_chi_square'])} by chi-square"
    return f"{row['system']}: {counts} ({p_values})."
