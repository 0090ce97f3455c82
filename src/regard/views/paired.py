"""Paired tests of metrics that are made of sums over documents or examples.

Each unit has a row of numbers; a metric is a function of their sums: a share is right / all, a perplexity
exp(loss / words). So thousands of resamples are a matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05
"""The p-value below which a difference is called significant."""
RESAMPLES, TRIALS, SEED = 1_000, 10_000, 12_345
"""As many as sacreBLEU takes, and its seed."""
TIE = 1e-9
"""Differences that are smaller by this share are equal: the same sums in another order differ by less."""
AT_ONCE = 2**24
"""Numbers that are drawn together."""

Rows = NDArray[np.float64]
Metric = Callable[[Rows], Rows]
"""Sums [..., K] -> values [...]."""


@dataclass(frozen=True)
class Tested:
    """One system's score under one metric, against the baseline's."""

    metric: str
    system: str
    score: float
    difference: float
    """From the baseline's score; 0 for the baseline itself."""
    interval: float
    """Half the width of the score's 95 % interval, by bootstrap."""
    p_bootstrap: float | None
    """None for the baseline, and where there is a single unit: all that can be drawn of it is that unit."""
    p_randomisation: float | None

    @property
    def significant(self) -> bool:
        """Whether both tests say so. Five units never are: of the 32 ways to swap them 2 differ as much."""
        return all(p is not None and p < LEVEL for p in (self.p_bootstrap, self.p_randomisation))


def against_baseline(metrics: Mapping[str, Metric], rows: Mapping[str, Rows], baseline: str) -> list[Tested]:
    """Every metric of every system against the baseline, by bootstrap and by randomisation.

    Bootstrap, Efron & Tibshirani 1993, chapter 16: how often a resample's difference, less their mean, is as large as
    the one found. Randomisation, Noreen 1989: how often, when systems are swapped at random units.
    """
    base, found = rows[baseline], []
    drawn = {name: np.concatenate([weights @ one for weights in _resamples(len(base))]) for name, one in rows.items()}
    for metric, value in metrics.items():
        score, spread = float(value(base.sum(0))), value(drawn[baseline])
        found.append(Tested(metric, baseline, score, 0.0, _half_interval(spread), None, None))
        for name, one in rows.items():
            if name == baseline:
                continue
            own = float(value(one.sum(0)))
            resampled = value(drawn[name]) - spread
            p_bootstrap = _p(resampled - resampled.mean(), own - score) if len(base) > 1 else None
            p_swapped = p_of_swaps(value, base, one)
            half = _half_interval(value(drawn[name]))
            found.append(Tested(metric, name, own, own - score, half, p_bootstrap, p_swapped))
    return found


def _resamples(units: int) -> Iterator[Rows]:
    """How often each unit is drawn in each resample; the same ones for every system, which makes the test paired."""
    generator = np.random.default_rng(SEED)
    at_once = max(1, AT_ONCE // units)
    for first in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - first)
        drawn = generator.integers(0, units, (count, units)) + np.arange(count)[:, None] * units
        yield np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units).astype(np.float64)


def p_of_swaps(value: Metric, one: Rows, other: Rows) -> float:
    """How often the two differ as much as they do where they are swapped at random units."""
    return _p(np.concatenate([*_swapped(value, one, other)]), float(value(other.sum(0)) - value(one.sum(0))))


def _swapped(value: Metric, one: Rows, other: Rows) -> Iterator[Rows]:
    """The differences where the two are swapped at random units."""
    generator = np.random.default_rng(SEED)
    at_once = max(1, AT_ONCE // len(one))
    moved, total = other - one, other.sum(0)
    for first in range(0, TRIALS, at_once):
        swaps = generator.integers(0, 2, (min(at_once, TRIALS - first), len(one))).astype(np.float64)
        change = swaps @ moved
        yield value(total - change) - value(one.sum(0) + change)


def _p(differences: Rows, found: float) -> float:
    """The share that is as far from zero or farther, the one found itself counted among them."""
    if found == 0:
        return 1.0
    as_large = np.abs(differences) >= abs(found) * (1 - TIE)
    return float((as_large.sum() + 1) / (len(differences) + 1))


def _half_interval(values: Rows) -> float:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(high - low) / 2


@dataclass(frozen=True)
class McNemar:
    """McNemar 1947: of the examples that only one of two systems has right, does each have half?"""

    only_baseline: int
    only_system: int

    @property
    def p_exact(self) -> float:
        """Two-sided, by the binomial distribution."""
        either, fewer = self.only_baseline + self.only_system, min(self.only_baseline, self.only_system)
        tail = sum(math.comb(either, count) for count in range(fewer + 1))
        return min(1.0, float(2 * tail / 2**either))

    @property
    def chi_square(self) -> float:
        """With the continuity correction of Edwards 1948: (|b - c| - 1)^2 / (b + c)."""
        either = self.only_baseline + self.only_system
        return max(0, abs(self.only_baseline - self.only_system) - 1) ** 2 / either if either else 0.0

    @property
    def p_chi_square(self) -> float:
        """One degree of freedom."""
        return math.erfc(math.sqrt(self.chi_square / 2))
