"""Metrics as functions of sums over units: each sentence, document or example has a row of numbers.

An accuracy is right / all, a perplexity exp(loss / words); BLEU and chrF are computed from counts of n-grams,
as sacreBLEU does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import Config
from regard.data.conll import entities_in, is_chunk_tag
from regard.objectives.cross_entropy import perplexity
from regard.tasks.pairs import TextScores
from regard.text.normalise import fold_white_space
from regard.views.labels import number_text

MAX_F1_CLASSES = 64
"""F1 is computed for at most this many classes, since all pairs of classes are counted."""
Floats = NDArray[np.float64]
MetricOfSums = Callable[[Floats], Floats]
"""Sums [..., K] -> values [...]."""
TextStatistics = Callable[[Sequence[str], Sequence[Sequence[str]]], Floats]
"""Outputs and all references of each -> [sentences, K]."""
TextMeasure = tuple[TextStatistics, MetricOfSums]
"""How a metric is computed from sums over sentences."""


def text_metrics(
    names: Sequence[str],
    text_scores: TextScores,
    config: Config,
    bleu_orders: Mapping[str, int],
) -> dict[str, TextMeasure]:
    """Metrics of texts in NFC: statistics per sentence, and the function of their sums.

    Metrics that sacreBLEU lacks (exact match, ROUGE) are means of the values for single sentences.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    of_sentence = cache(lambda output, texts: text_scores([output], [texts]))

    def counts(
        measure: BLEU | CHRF, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Floats:
        # sacreBLEU takes the first reference of every sentence, then the second, or None.
        streams: list[Any] = [list(stream) for stream in zip_longest(*references)]
        return np.array(measure._extract_corpus_statistics(outputs, streams), dtype=np.float64)

    def values(name: str, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        pairs = zip(outputs, map(tuple, references), strict=True)
        return np.array([[1.0, of_sentence(*pair)[name]] for pair in pairs])

    settings = config.model_dump()
    metrics = dict[str, TextMeasure]()
    for name in names:
        if name in bleu_orders:
            options = {"lowercase": settings["lowercase"], "tokenize": settings["tokenize"]}
            metrics[name] = (
                partial(counts, BLEU(max_ngram_order=bleu_orders[name], force=True, **options)),
                bleu_of,
            )
        elif name == "chrf":
            metrics[name] = partial(counts, CHRF(lowercase=settings["lowercase"])), chrf_of
        else:
            metrics[name] = partial(values, name), _share
    return metrics


def bleu_of(sums: Floats) -> Floats:
    """BLEU as sacreBLEU computes it, from sums of: tokens written, tokens expected, then per order
    the n-grams that are right, then all n-grams written.

    If an order has no n-gram right, half an n-gram is counted; a quarter at the second such order,
    and so on.
    """
    written = sums[..., 0]
    expected = sums[..., 1]
    right, every = np.split(sums[..., 2:], 2, axis=-1)
    smoothed = np.where(right > 0, right, 0.5 ** np.cumsum(right == 0, axis=-1))
    mean = np.log(100 * smoothed / np.maximum(1, every)).sum(-1) / every.shape[-1]
    brevity = np.exp(np.minimum(0, 1 - expected / np.maximum(1, written)))
    return np.where((right[..., 0] > 0) & (every[..., -1] > 0), brevity * np.exp(mean), 0.0)


def chrf_of(sums: Floats) -> Floats:
    """chrF as sacreBLEU computes it, from sums of n-grams written, expected and shared, order by
    order: F2 of the mean precision and recall."""
    written, expected, both = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    counted = (written > 0) & (expected > 0)
    precision, recall = (
        np.where(counted, both / np.maximum(1, every), 0).sum(-1) / np.maximum(1, counted.sum(-1))
        for every in (written, expected)
    )
    f2: Floats = 100 * (5 * precision * recall / np.where(precision > 0, 4 * precision + recall, 1))
    return f2


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """The performance of one run on every unit."""

    rows: Floats
    """[units, K], from whose sums the metrics are computed."""
    metrics: Mapping[str, MetricOfSums]
    """The first metric decides."""
    gains: Floats
    """[units]: how well each unit is done, the higher the better."""
    outputs: Sequence[str]
    """The run's prediction for each unit, as it is shown."""
    right: Floats | None = None
    """[units]: 1 if the run is right, for tasks whose answers are right or wrong."""
    classes: Sequence[str] = ()
    """The classes whose pairs are counted for F1, in all columns of `rows` but the first two."""


UnitPredictions = Sequence[Mapping[str, Any]]
"""The result of `Metrics.by_unit` for each unit."""


def counts_of(predictions: UnitPredictions) -> UnitCounts:
    """Counts for the metrics that suit the predictions: the cost of texts, accuracy and F1 of
    classes, the correlation of numbers."""
    first = predictions[0]
    if "nats" in first:
        return _language_counts(predictions)
    if "masked" in first:
        return _masked_counts(predictions)
    if "right" not in first:
        return _regression_counts(predictions)
    if "tags" in first:
        return _tagging_counts(predictions)
    return (
        _class_counts(predictions)
        if "label" in first and "f1" not in first
        else _answer_counts(predictions)
    )


def _column(predictions: UnitPredictions, key: str) -> Floats:
    return np.array([prediction[key] for prediction in predictions], dtype=np.float64)


def _share(sums: Floats) -> Floats:
    share: Floats = sums[..., 1] / sums[..., 0]
    return share


def _language_counts(predictions: UnitPredictions) -> UnitCounts:
    """Perplexity per word, with the end of a document counted as a word, and bits per character.
    Both are independent of the tokenizer if the losses include what it costs to spell out unknown
    tokens."""
    losses = _column(predictions, "nats")
    texts = [prediction["input"] for prediction in predictions]
    words = np.array([len(text.split()) + 1 for text in texts], dtype=np.float64)
    characters = np.array([len(fold_white_space(text)) for text in texts], dtype=np.float64)
    metrics: dict[str, MetricOfSums] = {
        "word_perplexity": lambda sums: np.exp(np.minimum(sums[..., 0] / sums[..., 1], 700.0)),
        "bits_per_character": lambda sums: (
            sums[..., 0] / math.log(2) / np.maximum(1.0, sums[..., 2])
        ),
    }
    outputs = [f"perplexity {number_text(perplexity(mean), 1)}" for mean in losses / words]
    return UnitCounts(
        np.stack([losses, words, characters], axis=1), metrics, -losses / words, outputs
    )


def _masked_counts(predictions: UnitPredictions) -> UnitCounts:
    """The share of masked tokens that are predicted correctly, and their loss."""
    rows = np.stack([_column(predictions, key) for key in ("loss", "correct", "masked")], axis=1)
    metrics: dict[str, MetricOfSums] = {
        "masked_accuracy": lambda sums: sums[..., 1] / np.maximum(1.0, sums[..., 2]),
        "loss": lambda sums: sums[..., 0] / np.maximum(1.0, sums[..., 2]),
    }
    outputs = [
        f"{right:.0f} of {masked:.0f} found, loss {loss / max(1, masked):.2f}"
        for loss, right, masked in rows
    ]
    return UnitCounts(rows, metrics, -rows[:, 0] / np.maximum(1.0, rows[:, 2]), outputs)


def _regression_counts(predictions: UnitPredictions) -> UnitCounts:
    true, predicted = (_column(predictions, key) for key in ("label", "output"))
    # Sums of large numbers would cancel, those of tiny ones count as no spread. All systems share
    # the labels, so their rows stay exchangeable; a power of two changes no digit.
    x, y = np.ldexp([true - true.mean(), predicted - true.mean()], -np.frexp(true.std())[1])
    rows = np.stack([np.ones_like(x), x, y, x**2, y**2, x * y], axis=1)
    return UnitCounts(
        rows,
        {"pearson": correlation},
        -np.abs(true - predicted),
        [f"{value:.3f}" for value in predicted],
    )


def correlation(sums: Floats) -> Floats:
    """Pearson's correlation from n, sum x, sum y, sum x^2, sum y^2, sum x y; 0 if x or y does not
    vary."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.sqrt(np.maximum(0, (n * xx - x * x) * (n * yy - y * y)))
    r: Floats = np.divide(n * xy - x * y, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return r


def _tagging_counts(predictions: UnitPredictions) -> UnitCounts:
    """Counts per sentence: words, right tags, and entities predicted, expected and shared."""
    pairs = [(prediction["tags"], prediction["expected_tags"]) for prediction in predictions]
    counts = []
    for tags, true in pairs:
        predicted = {*entities_in(tags)}
        expected = {*entities_in(true)}
        right = sum(map(eq, map(_in_iob2, tags), map(_in_iob2, true)))
        counts.append([len(true), right, len(predicted), len(expected), len(predicted & expected)])
    rows = np.array(counts, dtype=np.float64)
    metrics = {"accuracy": _share}
    if all(is_chunk_tag(tag) for both in pairs for tags in both for tag in tags):
        metrics = {
            "f1": lambda sums: 2 * sums[..., 4] / np.maximum(1.0, sums[..., 2] + sums[..., 3]),
            **metrics,
        }
    all_right = (rows[:, 0] == rows[:, 1]).astype(np.float64)
    outputs = [f"{prediction['output']}" for prediction in predictions]
    return UnitCounts(rows, metrics, rows[:, 1] - rows[:, 0], outputs, all_right)


def _in_iob2(tag: str) -> str:
    """A BIOES tag in IOB2, so that runs that learned either scheme are compared by the same
    tags."""
    return {"S": "B", "E": "I"}.get(tag[0], tag[0]) + tag[1:] if is_chunk_tag(tag) else tag


def _answer_counts(predictions: UnitPredictions) -> UnitCounts:
    """Exact matches and the mean F1 of the answers, or accuracy alone if there is no F1."""
    right = _column(predictions, "right")
    has_f1 = "f1" in predictions[0]
    f1 = _column(predictions, "f1") if has_f1 else np.zeros_like(right)
    metrics: dict[str, MetricOfSums] = {"accuracy": _share}
    if has_f1:
        metrics = {"f1": lambda sums: sums[..., 2] / sums[..., 0], "exact_match": _share}
    outputs = [f"{prediction['output']}" for prediction in predictions]
    return UnitCounts(
        np.stack([np.ones_like(right), right, f1], axis=1), metrics, right + f1, outputs, right
    )


def _class_counts(predictions: UnitPredictions) -> UnitCounts:
    """Each row counts one pair of a true and a predicted class, which makes F1 a function of sums
    too."""
    pairs = [(f"{prediction['label']}", f"{prediction['output']}") for prediction in predictions]
    named = predictions[0].get("probabilities")
    classes = sorted(
        {*(label for pair in pairs for label in pair), *(named if isinstance(named, dict) else ())}
    )
    right = _column(predictions, "right")
    rows = np.stack([np.ones_like(right), right], axis=1)
    metrics = {"accuracy": _share}
    if len(classes) <= MAX_F1_CLASSES:
        places = [
            classes.index(true) * len(classes) + classes.index(output) for true, output in pairs
        ]
        rows = np.concatenate([rows, np.eye(len(classes) ** 2)[places]], axis=1)
        metrics["f1_macro"] = lambda sums: f1_of(
            sums[..., 2:].reshape(*sums.shape[:-1], len(classes), len(classes))
        )
    outputs = [output if output == true else f"{output} ({true})" for true, output in pairs]
    return UnitCounts(rows, metrics, right, outputs, right, classes)


def f1_of(confusion: Floats) -> Floats:
    """The mean F1 of the classes that occur or are predicted; true classes are rows, predicted ones
    columns."""
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    both = confusion.sum(-1) + confusion.sum(-2)
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
    mean: Floats = f1.sum(-1) / np.maximum(1, (both > 0).sum(-1))
    return mean
