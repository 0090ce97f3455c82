"""Paired tests: is one system better than another, or only luckier?

Bootstrap resampling: draw as many units as there are, with repetition, and count how often the
difference is as far from the observed one as that is from zero (Efron and Tibshirani 1993, chapter
16; Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation"). Approximate
randomisation: swap the two systems at random units, and count how often the difference is as large
(Noreen 1989; Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation and Significance
Testing for MT").

Both tests are two-sided. sacreBLEU's differ: the p-value of its bootstrap is one-sided, below 0.05
for about one in nine pairs of equally good systems. Its randomisation counts only differences that
are larger than the observed one, so that two sentences are significant: swapping all outputs gives
exactly the difference observed. It is counted here, as in any permutation test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from regard.tasks.answers import Done, ignore
from regard.views.metric_sums import (
    Floats,
    MetricOfSums,
    TextStatistics,
)

SIGNIFICANCE_LEVEL = 0.05
"""The p-value below which a difference is called significant."""
RESAMPLES = 1_000
TRIALS = 10_000
SEED = 12_345
"""sacreBLEU's numbers of resamples and trials, and its seed."""
DIFFERENCE_TOLERANCE = 1e-9
"""Differences that are smaller by this share are equal: the same sums in another order differ by
less."""
NUMBERS_PER_DRAW = 2**24
"""Random numbers that are drawn at once."""

TestRow = dict[str, Any]
"""A row of the table of tests."""


def paired_tests_of_sums(
    metrics: Mapping[str, MetricOfSums], rows: Mapping[str, Floats], baseline: str
) -> list[TestRow]:
    """Every metric of every system against the baseline's, by bootstrap and by randomisation.

    `interval` is half the width of the score's 95 % interval, by bootstrap. There are no p-values
    for the baseline, and none by bootstrap for a single unit, of which all draws are equal.
    Significant is what both tests call so. Five units never are: of the 32 ways to swap them 2
    differ as much.
    """
    base = rows[baseline]
    tests = []
    drawn = {
        name: np.concatenate([weights @ own for weights in resamples(len(base))])
        for name, own in rows.items()
    }
    for metric, value in metrics.items():
        base_score = float(value(base.sum(0)))
        base_draws = value(drawn[baseline])
        for name, own in rows.items():
            score = float(value(own.sum(0)))
            draws = value(drawn[name])
            by_draws = None
            by_swaps = None
            difference = score - base_score
            if name != baseline:
                # The mean of the draws would be off by chance, and break ties where counts are few.
                by_draws = (
                    _p(draws - base_draws - difference, difference) if len(base) > 1 else None
                )
                by_swaps = _p_of_swaps(value, base, own)
            low, high = np.percentile(draws, [2.5, 97.5])
            tests.append(
                {
                    "metric": metric,
                    "system": name,
                    "score": score,
                    "interval": float(high - low) / 2,
                    "difference": difference,
                    "p_bootstrap": by_draws,
                    "p_randomisation": by_swaps,
                    "significant": all(
                        p is not None and p < SIGNIFICANCE_LEVEL for p in (by_draws, by_swaps)
                    ),
                }
            )
    return tests


def resamples(units: int, seed: int = SEED) -> Iterator[Floats]:
    """How often each unit is drawn in each resample; the same for every system, which makes the
    test paired."""
    generator = np.random.default_rng(seed)
    at_once = max(1, NUMBERS_PER_DRAW // units)
    for first in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - first)
        drawn = generator.integers(0, units, (count, units)) + np.arange(count)[:, None] * units
        yield (
            np.bincount(drawn.ravel(), minlength=count * units)
            .reshape(count, units)
            .astype(np.float64)
        )


def _p_of_swaps(value: MetricOfSums, base: Floats, other: Floats) -> float:
    """How often the two differ as much as observed if they are swapped at random units."""
    generator = np.random.default_rng(SEED)
    at_once = max(1, NUMBERS_PER_DRAW // len(base))
    moved = other - base
    total = base.sum(0)
    other_total = other.sum(0)
    differences = []
    for first in range(0, TRIALS, at_once):
        swaps = generator.integers(0, 2, (min(at_once, TRIALS - first), len(base))).astype(
            np.float64
        )
        change = swaps @ moved
        differences.append(value(other_total - change) - value(total + change))
    return _p(np.concatenate(differences), float(value(other_total) - value(total)))


def _p(differences: Floats, observed: float) -> float:
    """The share of differences at least as far from zero as the observed one, which is counted
    among them."""
    if observed == 0:
        return 1.0
    as_large = np.abs(differences) >= abs(observed) * (1 - DIFFERENCE_TOLERANCE)
    return float((as_large.sum() + 1) / (len(differences) + 1))


def mcnemar(only_baseline: int, only_system: int) -> dict[str, float]:
    """McNemar 1947: of the examples that only one of two systems has right, does each have half?

    The exact p-value is two-sided, by the binomial distribution. chi^2 = (|b - c| - 1)^2 / (b + c)
    has the continuity correction of Edwards 1948, and one degree of freedom.
    """
    less = min(only_baseline, only_system)
    either = only_baseline + only_system
    tail = sum(math.comb(either, count) for count in range(less + 1))
    chi_square = max(0, abs(only_baseline - only_system) - 1) ** 2 / max(1, either)
    return {
        "only_baseline_right": only_baseline,
        "only_system_right": only_system,
        "p_exact": min(1.0, float(2 * tail / 2**either)),
        "chi_square": chi_square,
        "p_chi_square": math.erfc(math.sqrt(chi_square / 2)),
    }


def paired_tests_of_texts(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Mapping[str, tuple[TextStatistics, MetricOfSums]],
    baseline: str,
    progress: Done = ignore,
) -> list[TestRow]:
    """Every one of `text_metrics` of every system against the baseline's; `references` are all of a
    sentence."""
    tests = []
    for metric, (statistics, value) in metrics.items():
        rows = {name: statistics(texts, references) for name, texts in outputs.items()}
        tests += paired_tests_of_sums({metric: value}, rows, baseline)
        progress(1)
    return tests
