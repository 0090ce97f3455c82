"""How tokens, numbers and metrics are written for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, chop_cells, split_graphemes

from regard.text.normalise import one_line
from regard.views.report import Cell, Report, Result, Section, Table

METRIC_TITLES = {
    "bleu": "BLEU",
    "bleu1": "BLEU-1",
    "bleu2": "BLEU-2",
    "bleu3": "BLEU-3",
    "chrf": "chrF",
    "exact_match": "exact match",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "word_perplexity": "perplexity per word",
    "bits_per_character": "bits per character",
    "reconstruction_word_perplexity": "perplexity per word, given the text",
    "reconstruction_bits_per_character": "bits per character, given the text",
    "mae": "MAE",
    "rmse": "RMSE",
    "masked_accuracy": "masked accuracy",
    "replaced_loss": "loss of detection",
    "replaced_accuracy": "accuracy of detection",
    "replaced_f1": "F1 of replaced tokens",
    "f1_macro": "macro F1",
    "f1": "F1",
    "pearson": "Pearson's r",
}
METRIC_DECIMALS = dict.fromkeys(
    (
        "exact_match",
        "accuracy",
        "masked_accuracy",
        "replaced_loss",
        "replaced_accuracy",
        "replaced_f1",
        "f1_macro",
        "f1",
        "pearson",
        "bits_per_character",
        "loss",
        "reconstruction_bits_per_character",
        "mae",
        "rmse",
    ),
    3,
)
"""Decimals of metrics that are about 1; others go to 100 or beyond and get two."""
HUGE_VALUE = 1e7
"""From here on a perplexity is written with three digits and a power of ten."""
MAX_METRIC_COLUMNS = 12
"""Maximum number of columns in a table of metrics."""
CONFUSION_NOTE = "rows are true labels, columns are predicted labels"


def token_label(piece: str) -> str:
    """A token as it is shown beside a figure.

    a space, or "▁" alone      ␣      what character models write between words
    </s>                       ⏎      one column wide, so that the maps of character models need no tall labels
    ▁Haus                      ▁Haus  the mark of a word start stays: it tells words from their continuations
    a control character        �      it must neither control the terminal nor break the XML
    """
    if piece == "</s>":
        return "⏎"
    if not piece.strip().strip("▁"):
        return "␣"
    text = one_line(piece)
    # A combining mark alone would be drawn on the neighbour's letter.
    return f"◌{text}" if cell_len(text[:1]) == 0 else text


def clusters(text: str) -> list[str]:
    """Letters, each with its combining marks."""
    return [text[start:end] for start, end, _ in split_graphemes(text)[0]]


def shorten(text: str, width: int) -> str:
    """The text in at most `width` columns, with "…" for what is left out."""
    return text if cell_len(text) <= width else f"{chop_cells(text, width - 1)[0]}…"


def number(value: float) -> str:
    """Two decimals, or one significant digit of a smaller number."""
    return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"


def number_text(value: float, decimals: int, *, sign: str = "") -> str:
    """A number with commas between the thousands; with three digits if it is huge."""
    return f"{value:{sign}.3g}" if abs(value) >= HUGE_VALUE else f"{value:{sign},.{decimals}f}"


def count_text(count: int, units: str) -> str:
    """`12 sentences`, or `1 sentence`."""
    return f"{count:,} {units.removesuffix('s') if count == 1 else units}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def metric_title(metric: str) -> str:
    return METRIC_TITLES.get(metric, metric)


def main_metric(metrics: Sequence[str]) -> str:
    """The metric that findings are about: BLEU if it is measured, else the task's first."""
    return "bleu" if "bleu" in metrics else metrics[0]


def rounds_to_zero(metric: str, difference: float) -> bool:
    """Whether a difference is zero in the digits that are shown."""
    return round(difference, METRIC_DECIMALS.get(metric, 2)) == 0


def score_text(metric: str, score: float, *, sign: str = "") -> str:
    """A score or, with the sign "+", a difference of scores; zero is never written as -0.00."""
    text = number_text(score, METRIC_DECIMALS.get(metric, 2), sign=sign)
    return text.replace("-", "+" if sign else "") if rounds_to_zero(metric, score) else text


class Metrics(dict[str, Any], Result):
    """The result of `evaluate`: metrics by name."""

    def to_json(self) -> dict[str, Any]:
        return self

    def report(self) -> Report:
        return Report("Evaluation", [Section("", [*metric_tables(self)])])


def metric_tables(metrics: Mapping[str, Any]) -> Iterator[Table]:
    """A table of metrics, then one per group of metrics. A confusion matrix that would be too wide
    becomes one row per pair that occurs."""
    baseline = metrics.get("baseline", {})
    groups = {
        key: value
        for key, value in metrics.items()
        if isinstance(value, dict) and key != "baseline"
    }
    if baseline:
        own = {key: metrics[key] for key in baseline if key in metrics}
        rows = [[key, _value_text(value), _value_text(baseline[key])] for key, value in own.items()]
        yield Table(
            ["metric", "value", "baseline"], rows, notes=[f"the baseline: {baseline['model']}"]
        )
    if single := {
        key: value for key, value in metrics.items() if key not in (*groups, *baseline, "baseline")
    }:
        cells = {key: Cell(_value_text(value), ours=key == "note") for key, value in single.items()}
        yield Table(["metric", "value"], [*cells.items()])
    for key, group in groups.items():
        parts = {
            name: part if isinstance(part, dict) else {"value": part}
            for name, part in group.items()
        }
        columns = [*next(iter(parts.values()), {})]
        if len(columns) <= MAX_METRIC_COLUMNS and all(
            [*part] == columns for part in parts.values()
        ):
            rows = [[name, *map(_value_text, part.values())] for name, part in parts.items()]
            notes = [CONFUSION_NOTE] if key == "confusion" else []
            yield from [Table([key, *columns], rows, notes=notes)] if rows else []
        else:
            counts = [
                [name, *item]
                for name, part in parts.items()
                for item in part.items()
                if item[1] != 0
            ]
            yield Table([key, "predicted", "count"], counts)


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)
