"""How metrics are named and written for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

TITLES = {
    "bleu": "BLEU", "bleu1": "BLEU-1", "bleu2": "BLEU-2", "bleu3": "BLEU-3", "chrf": "chrF",
    "exact_match": "exact match", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L",
    "word_perplexity": "perplexity a word", "bits_per_character": "bits a character",
    "reconstruction_word_perplexity": "perplexity a word, given the text",
    "reconstruction_bits_per_character": "bits a character, given the text",
    "masked_accuracy": "masked accuracy", "f1_macro": "macro F1", "f1": "F1", "pearson": "Pearson's r",
}  # fmt: skip
DECIMALS = dict.fromkeys(
    ("exact_match", "accuracy", "masked_accuracy", "f1_macro", "f1", "pearson", "bits_per_character", "loss",
     "reconstruction_bits_per_character"), 3
)  # fmt: skip
"""Of metrics that are about 1; others go to 100 or beyond and get two decimals."""
COLUMNS = 12
"""Most columns of a table of metrics; what has more is listed line by line, without counts of zero."""
HUGE = 1e7
"""A perplexity from here on is written with three digits and its power of ten."""


def title(metric: str) -> str:
    return TITLES.get(metric, metric)


def main_metric(metrics: Sequence[str]) -> str:
    """The metric that findings are about: BLEU where it is measured, else the task's first."""
    return "bleu" if "bleu" in metrics else metrics[0]


def number_text(value: float, decimals: int, *, sign: str = "") -> str:
    """With commas between the thousands; with three digits where it is huge."""
    return f"{value:{sign}.3g}" if abs(value) >= HUGE else f"{value:{sign},.{decimals}f}"


def score_text(metric: str, score: float, *, sign: str = "") -> str:
    """A score or, with the sign "+", a difference of scores; zero is never written as -0.00."""
    text = number_text(score, DECIMALS.get(metric, 2), sign=sign)
    return text.replace("-", "+" if sign else "") if rounds_to_zero(metric, score) else text


def rounds_to_zero(metric: str, difference: float) -> bool:
    """Whether a difference is zero in the digits that are shown."""
    return round(difference, DECIMALS.get(metric, 2)) == 0


def count_text(count: int, units: str) -> str:
    """`12 sentences`, or `1 sentence`."""
    return f"{count:,} {units.removesuffix('s') if count == 1 else units}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# ----------------------------------------------------------------------------------------------- `regard evaluate`


def metric_lines(name: str, value: Any) -> list[str]:
    """A metric; a group of metrics below their name; or a table, where each of a group has the same parts."""
    if not isinstance(value, dict):
        return [f"{name:15} {_text(value)}"]
    parts = list(value.values())
    alike = all(isinstance(part, dict) and part.keys() == parts[0].keys() for part in parts)
    if alike and parts and len(parts[0]) <= COLUMNS:
        return _table(name, value)
    shown = {key: part for key, part in value.items() if isinstance(part, float) or part != 0}
    return [name, *(f"  {line}" for key, part in shown.items() for line in metric_lines(key, part))]


def _table(name: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    """The first column to the left, the others to the right."""
    columns = list(next(iter(rows.values())))
    cells = [[name, *columns], *([f"  {row}", *map(_text, values.values())] for row, values in rows.items())]
    widths = [max(cell_len(line[column]) for line in cells) for column in range(len(columns) + 1)]
    widths[0] = max(widths[0], 15)
    return [" ".join([set_cell_size(first, widths[0]), *map(_right, others, widths[1:])]) for first, *others in cells]


def _right(text: str, width: int) -> str:
    return text.rjust(width - cell_len(text) + len(text))


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
