"""Whether one system is better than another, or only luckier: paired tests.

Bootstrap resampling: draw as many units as there are, with repetition, and count how often the difference, less the
mean of all draws, is as large as the observed one (Efron and Tibshirani 1993, chapter 16; Koehn 2004, "Statistical
Significance Tests for Machine Translation Evaluation"). Approximate randomisation: swap the two systems at random
units, and count how often the difference is as large (Noreen 1989; Riezler and Maxwell 2005, "On Some Pitfalls in
Automatic Evaluation and Significance Testing for MT").

A metric is a function of sums over units: each sentence, document or example has a row of numbers; an accuracy is
right / all, a perplexity exp(loss / words), and BLEU and chrF are computed from counts of n-grams (sacreBLEU's). The
bootstrap of texts is sacreBLEU's own. Its randomisation counts only differences that are larger than the observed one,
so that two sentences are significant: swapping all outputs gives exactly the difference observed. It is counted here,
as in any permutation test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import Config
from regard.tasks import TextToText

LEVEL = 0.05
"""The p-value below which a difference is called significant."""
RESAMPLES, TRIALS, SEED = 1_000, 10_000, 12_345
"""As many as sacreBLEU takes, and its seed."""
TIE = 1e-9
"""Differences that are smaller by this share are equal: the same sums in another order differ by less."""
AT_ONCE = 2**24
"""Numbers that are drawn together."""
ORDERS = {"bleu1": 1, "bleu2": 2, "bleu3": 3, "bleu": 4}
"""The longest n-grams that each kind of BLEU counts."""

Rows = NDArray[np.float64]
Metric = Callable[[Rows], Rows]
"""Sums [..., K] -> values [...]."""
Row = dict[str, Any]
"""Of the table of tests."""
PValues = tuple[float | None, float | None]
"""By bootstrap and by randomisation."""
NO_TEST: PValues = (None, None)


def _row(metric: str, system: str, score: float, interval: float, difference: float, p_values: PValues) -> Row:
    """One system's score under one metric, against the baseline's.

    `interval` is half the width of the score's 95 % interval, by bootstrap. There are no p-values for the baseline, and
    none by bootstrap for a single unit, of which all draws are equal. Significant is what both tests call so. Five
    units never are: of the 32 ways to swap them 2 differ as much.
    """
    p_bootstrap, p_randomisation = p_values
    significant = all(p is not None and p < LEVEL for p in p_values)
    return {
        "metric": metric, "system": system, "score": score, "interval": interval, "difference": difference,
        "p_bootstrap": p_bootstrap, "p_randomisation": p_randomisation, "significant": significant,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ sums over units


def paired_tests_of_sums(metrics: Mapping[str, Metric], rows: Mapping[str, Rows], baseline: str) -> list[Row]:
    """Every metric of every system against the baseline's, by bootstrap and by randomisation."""
    base, tests = rows[baseline], []
    drawn = {name: np.concatenate([weights @ own for weights in _resamples(len(base))]) for name, own in rows.items()}
    for metric, value in metrics.items():
        base_score, base_draws = float(value(base.sum(0))), value(drawn[baseline])
        for name, own in rows.items():
            score, draws, p_values = float(value(own.sum(0))), value(drawn[name]), NO_TEST
            if name != baseline:
                differences = draws - base_draws
                p_bootstrap = _p(differences - differences.mean(), score - base_score) if len(base) > 1 else None
                p_values = p_bootstrap, _p_of_swaps(value, base, own)
            low, high = np.percentile(draws, [2.5, 97.5])
            tests.append(_row(metric, name, score, float(high - low) / 2, score - base_score, p_values))
    return tests


def _resamples(units: int) -> Iterator[Rows]:
    """How often each unit is drawn in each resample; the same for every system, which makes the test paired."""
    generator = np.random.default_rng(SEED)
    at_once = max(1, AT_ONCE // units)
    for first in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - first)
        drawn = generator.integers(0, units, (count, units)) + np.arange(count)[:, None] * units
        yield np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units).astype(np.float64)


def _p_of_swaps(value: Metric, one: Rows, other: Rows) -> float:
    """How often the two differ as much as observed where they are swapped at random units."""
    generator = np.random.default_rng(SEED)
    at_once = max(1, AT_ONCE // len(one))
    moved, total, other_total, differences = other - one, one.sum(0), other.sum(0), []
    for first in range(0, TRIALS, at_once):
        swaps = generator.integers(0, 2, (min(at_once, TRIALS - first), len(one))).astype(np.float64)
        change = swaps @ moved
        differences.append(value(other_total - change) - value(total + change))
    return _p(np.concatenate(differences), float(value(other_total) - value(total)))


def _p(differences: Rows, observed: float) -> float:
    """The share that is as far from zero or farther, the observed difference itself counted among them."""
    if observed == 0:
        return 1.0
    as_large = np.abs(differences) >= abs(observed) * (1 - TIE)
    return float((as_large.sum() + 1) / (len(differences) + 1))


def mcnemar(only_baseline: int, only_system: int) -> dict[str, float]:
    """McNemar 1947: of the examples that only one of two systems has right, does each have half?

    The exact p-value is two-sided, by the binomial distribution. chi^2 = (|b - c| - 1)^2 / (b + c) has the continuity
    correction of Edwards 1948, and one degree of freedom.
    """
    less, either = min(only_baseline, only_system), only_baseline + only_system
    tail = sum(math.comb(either, count) for count in range(less + 1))
    chi_square = max(0, abs(only_baseline - only_system) - 1) ** 2 / max(1, either)
    return {
        "only_baseline_right": only_baseline,
        "only_system_right": only_system,
        "p_exact": min(1.0, float(2 * tail / 2**either)),
        "chi_square": chi_square,
        "p_chi_square": math.erfc(math.sqrt(chi_square / 2)),
    }


# ------------------------------------------------------------------------------------------- texts and references


def paired_tests_of_texts(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    measures: Mapping[str, Any],
    baseline: str,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Row]:
    """Every metric of `sacrebleu_metrics` of every system against the baseline's.

    Texts are in NFC; `references` are all of a sentence.
    """
    from sacrebleu.significance import PairedTest

    streams, tests = streams_of(references), []
    ordered = sorted(outputs, key=lambda name: name != baseline)
    named = [(name, outputs[name]) for name in ordered]
    for metric, measure in measures.items():
        columns: Mapping[str, list[Any]] = PairedTest(named, {metric: measure}, streams, test_type="bs")()[1]  # type: ignore[arg-type]
        # sacreBLEU gives the names of the systems, then the results under a name of its own for the metric.
        results = dict(zip(ordered, list(columns.values())[1], strict=True))
        base, base_rows = results[baseline], statistics_of(measure, outputs[baseline], streams)
        for name, texts in outputs.items():
            result, p_values = results[name], NO_TEST
            difference = float(result.score) - float(base.score)
            if name != baseline:
                # sacreBLEU counts only what is larger than the observed difference: two equal systems would differ.
                p_bootstrap = None if len(texts) == 1 else float(result.p_value) if difference else 1.0
                rows = statistics_of(measure, texts, streams)
                p_values = p_bootstrap, _p_of_swaps(partial(score_of, measure), base_rows, rows)
            tests.append(_row(metric, name, float(result.score), float(result.ci), difference, p_values))
        progress(1)
    return tests


def streams_of(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References as sacreBLEU takes them: the first of every sentence, then the second, None where there is none."""
    return [list(stream) for stream in zip_longest(*references)]


def for_metrics(references: Sequence[Sequence[str]]) -> list[Any]:
    """References as a task's metrics take them: a text a sentence, or several where there are several."""
    return [texts[0] if len(texts) == 1 else texts for texts in references]


def statistics_of(measure: Any, outputs: Sequence[str], streams: Sequence[Sequence[str | None]]) -> Rows:
    """What a metric is computed from, sentence by sentence: [sentences, K], to be summed."""
    return np.array(measure._extract_corpus_statistics(outputs, streams), dtype=np.float64)


def score_of(measure: Any, sums: Rows) -> Rows:
    """The metric of many sums, [..., K] -> [...]."""
    scores = [measure._compute_score_from_stats(row.tolist()).score for row in sums.reshape(-1, sums.shape[-1])]
    return np.array(scores).reshape(sums.shape[:-1])


def sacrebleu_metrics(names: Sequence[str], task: TextToText, config: Config) -> dict[str, Any]:
    """Metrics of a task as objects with the methods of sacreBLEU's metrics.

    What sacreBLEU lacks (exact match, ROUGE) is the mean of the values for single sentences.
    """
    from sacrebleu.metrics.base import Score, Signature
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    of_sentence = cache(lambda output, texts: task.metrics([output], for_metrics([texts]), config))

    def sentence_mean(name: str) -> SimpleNamespace:
        def statistics(outputs: Sequence[str], streams: Sequence[Sequence[str | None]]) -> list[list[float]]:
            present = (tuple(text for text in texts if text is not None) for texts in zip(*streams, strict=True))
            return [[of_sentence(*pair)[name], 1.0] for pair in zip(outputs, present, strict=True)]

        def score(sums: Sequence[float]) -> Score:
            return Score(name, float(sums[0] / sums[1]))

        return SimpleNamespace(
            _extract_corpus_statistics=statistics,
            _compute_score_from_stats=score,
            _aggregate_and_compute=lambda rows: score(np.sum(np.asarray(rows, dtype=np.float64), axis=0)),
            get_signature=lambda: Signature({"num_refs": 1}),
        )

    settings, measures = config.model_dump(), dict[str, Any]()
    for name in names:
        if name in ORDERS:
            options = {"lowercase": settings["lowercase"], "tokenize": settings["tokenize"]}
            measures[name] = BLEU(max_ngram_order=ORDERS[name], **options)
        else:
            measures[name] = CHRF(lowercase=settings["lowercase"]) if name == "chrf" else sentence_mean(name)
    return measures
