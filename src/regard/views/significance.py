"""Whether one system is better than another, or only luckier: paired tests.

Bootstrap resampling: draw as many units as there are, with repetition, and count how often the difference, less the
mean of all draws, is as large as the observed one (Efron and Tibshirani 1993, chapter 16; Koehn 2004, "Statistical
Significance Tests for Machine Translation Evaluation"). Approximate randomisation: swap the two systems at random
units, and count how often the difference is as large (Noreen 1989; Riezler and Maxwell 2005, "On Some Pitfalls in
Automatic Evaluation and Significance Testing for MT").

A metric is a function of sums over units: each sentence, document or example has a row of numbers; an accuracy is
right / all, a perplexity exp(loss / words), and BLEU and chrF are made of counts of n-grams (sacreBLEU's). The
bootstrap of texts is sacreBLEU's own. Its randomisation counts only differences that are larger than the observed one,
so that two sentences are significant: swapping all outputs gives the very difference observed. It is counted here, as
in any permutation test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
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
Memory = dict[tuple[str, tuple[str, ...]], Mapping[str, Any]]
"""The task's metrics of single outputs with their references, each computed once."""


@dataclass(frozen=True)
class Tested:
    """One system's score under one metric, against the baseline's."""

    metric: str
    system: str
    score: float
    interval: float
    """Half the width of the score's 95 % interval, by bootstrap."""
    difference: float
    """From the baseline's score; 0 for the baseline itself."""
    p_bootstrap: float | None
    """None for the baseline, and for a single unit, of which all draws are equal."""
    p_randomisation: float | None

    @property
    def significant(self) -> bool:
        """Whether both tests say so. Five units never are: of the 32 ways to swap them 2 differ as much."""
        return all(p is not None and p < LEVEL for p in (self.p_bootstrap, self.p_randomisation))


# ------------------------------------------------------------------------------------------------ sums over units


def paired_tests_of_sums(metrics: Mapping[str, Metric], rows: Mapping[str, Rows], baseline: str) -> list[Tested]:
    """Every metric of every system against the baseline's, by bootstrap and by randomisation."""
    base, tests = rows[baseline], []
    drawn = {name: np.concatenate([weights @ own for weights in _resamples(len(base))]) for name, own in rows.items()}
    for metric, value in metrics.items():
        score, resampled = float(value(base.sum(0))), value(drawn[baseline])
        tests.append(Tested(metric, baseline, score, _half_interval(resampled), 0.0, None, None))
        for name in (name for name in rows if name != baseline):
            own, others = float(value(rows[name].sum(0))), value(drawn[name])
            differences = others - resampled
            p_bootstrap = _p(differences - differences.mean(), own - score) if len(base) > 1 else None
            p_swapped = _p_of_swaps(value, base, rows[name])
            tests.append(Tested(metric, name, own, _half_interval(others), own - score, p_bootstrap, p_swapped))
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


def _half_interval(values: Rows) -> float:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(high - low) / 2


@dataclass(frozen=True)
class McNemar:
    """McNemar 1947: of the examples that only one of two systems has right, does each have half?"""

    only_baseline_right: int
    only_system_right: int

    @property
    def p_exact(self) -> float:
        """Two-sided, by the binomial distribution."""
        b, c = self.only_baseline_right, self.only_system_right
        tail = sum(math.comb(b + c, count) for count in range(min(b, c) + 1))
        return min(1.0, float(2 * tail / 2 ** (b + c)))

    @property
    def chi_square(self) -> float:
        """With the continuity correction of Edwards 1948: (|b - c| - 1)^2 / (b + c)."""
        b, c = self.only_baseline_right, self.only_system_right
        return max(0, abs(b - c) - 1) ** 2 / (b + c) if b + c else 0.0

    @property
    def p_chi_square(self) -> float:
        """One degree of freedom."""
        return math.erfc(math.sqrt(self.chi_square / 2))


# ------------------------------------------------------------------------------------------- texts and references


def paired_tests_of_texts(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    task: TextToText,
    config: Config,
    metrics: Sequence[str],
    progress: Callable[[int], None] = lambda done: None,
) -> list[Tested]:
    """Every metric of every system against the first system's. Texts are in NFC; `references` are all of a sentence."""
    memory: Memory = {}
    tests = []
    for metric in metrics:
        tests += _test_metric(metric, sacrebleu_metric(metric, task, config, memory), outputs, streams_of(references))
        progress(1)
    return tests


def _test_metric(
    metric: str, measure: Any, outputs: Mapping[str, Sequence[str]], streams: list[list[str | None]]
) -> list[Tested]:
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = list(outputs.items())
    columns: Mapping[str, list[Any]] = PairedTest(named, {metric: measure}, streams, test_type="bs")()[1]  # type: ignore[arg-type]
    # sacreBLEU gives the names of the systems, then the results under a name of its own for the metric.
    (baseline, base), *others = zip(outputs, list(columns.values())[1], strict=True)
    rows, score = statistics_of(measure, outputs[baseline], streams), float(base.score)
    tests = [Tested(metric, baseline, score, float(base.ci), 0.0, None, None)]
    for name, result in others:
        difference = float(result.score) - score
        # sacreBLEU counts only what is larger than the observed difference: it would call none at all significant.
        p_drawn = None if len(rows) == 1 else float(result.p_value) if difference else 1.0
        p_swapped = _p_of_swaps(partial(score_of, measure), rows, statistics_of(measure, outputs[name], streams))
        tests.append(Tested(metric, name, float(result.score), float(result.ci), difference, p_drawn, p_swapped))
    return tests


def streams_of(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References as sacreBLEU wants them: the first of every sentence, then the second, None where there is none."""
    return [list(stream) for stream in zip_longest(*references)]


def for_metrics(references: Sequence[Sequence[str]]) -> list[Any]:
    """References as a task's metrics take them: a text a sentence, or several where there are several."""
    return [texts[0] if len(texts) == 1 else texts for texts in references]


def statistics_of(measure: Any, outputs: Sequence[str], streams: Sequence[Sequence[str | None]]) -> Rows:
    """What a metric is made of, sentence by sentence: [sentences, K], to be summed."""
    return np.array(measure._extract_corpus_statistics(outputs, streams), dtype=np.float64)


def score_of(measure: Any, sums: Rows) -> Rows:
    """The metric of many sums, [..., K] -> [...]."""
    scores = [measure._compute_score_from_stats(row.tolist()).score for row in sums.reshape(-1, sums.shape[-1])]
    return np.array(scores).reshape(sums.shape[:-1])


def sacrebleu_metric(metric: str, task: TextToText, config: Config, memory: Memory) -> Any:
    """The metric as an object with the methods of sacreBLEU's metrics."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    settings = config.model_dump()
    if metric in ORDERS:
        order = ORDERS[metric]
        return BLEU(lowercase=settings["lowercase"], tokenize=settings["tokenize"], max_ngram_order=order)
    if metric == "chrf":
        return CHRF(lowercase=settings["lowercase"])
    return SentenceMean(metric, task, config, memory)


@dataclass(frozen=True)
class MeanScore:
    """What sacreBLEU calls a score."""

    name: str
    score: float


class SentenceMean:
    """A metric that is the mean of its values for single sentences (exact match, ROUGE), for sacreBLEU's tests."""

    def __init__(self, name: str, task: TextToText, config: Config, memory: Memory) -> None:
        self.name, self._task, self._config, self._memory = name, task, config, memory

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str | None]]
    ) -> list[list[float]]:
        """For each sentence its value, and a one to count it."""
        present = (tuple(text for text in texts if text is not None) for texts in zip(*references, strict=True))
        return [[self._metrics(*pair)[self.name], 1.0] for pair in zip(hypotheses, present, strict=True)]

    def _metrics(self, output: str, references: tuple[str, ...]) -> Mapping[str, Any]:
        if (output, references) not in self._memory:
            self._memory[output, references] = self._task.metrics([output], for_metrics([references]), self._config)
        return self._memory[output, references]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> MeanScore:
        return self._compute_score_from_stats(np.sum(np.asarray(stats, dtype=np.float64), axis=0))

    def _compute_score_from_stats(self, stats: NDArray[np.floating]) -> MeanScore:
        return MeanScore(self.name, float(stats[0] / stats[1]))

    @staticmethod
    def get_signature() -> Any:
        """An empty one, for what a test adds to it."""
        from sacrebleu.metrics.base import Signature

        return Signature({"num_refs": 1})
