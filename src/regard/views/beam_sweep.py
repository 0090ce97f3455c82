"""What a wider beam buys: quality and time for several widths, and the one from which wider no longer pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import Config
from regard.tasks import TextToText
from regard.text.normalise import nfc
from regard.views.significance import measure, score_of, statistics_of, streams_of
from regard.views.tallies import Tally

MARGIN = 0.1
"""Points of a metric from 0 to 100 that nobody would see."""
RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Width:
    """What one width of the beam gives."""

    beam: int
    seconds: float
    """To decode all sentences."""
    metrics: Mapping[str, float]
    """The task's own, over all outputs."""
    resampled: NDArray[np.float64]
    """What the metric that the widths are compared by might have been, with other sentences of the same kind."""
    tally: Tally


@dataclass(frozen=True)
class Behind:
    """How many points a width is behind another, with the interval of 95 %."""

    difference: float
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether the difference is both certain and large enough to be seen."""
        return self.difference > MARGIN and self.low > 0


@dataclass(frozen=True, eq=False)
class Sweep:
    """Several widths, narrowest first."""

    metric: str
    """What they are compared by."""
    widths: tuple[Width, ...]

    def quality(self, width: Width) -> float:
        return width.metrics[self.metric]

    @cached_property
    def best(self) -> Width:
        """The highest quality; among equals the narrowest."""
        return max(self.widths, key=lambda width: (self.quality(width), -width.beam))

    @cached_property
    def enough(self) -> Width:
        """From here on wider no longer pays: the narrowest that is not behind the best in a way that matters."""
        return next(width for width in self.widths if not self.behind(width).matters)

    def best_above(self, beam: int) -> Width | None:
        """The best of the wider ones; None where there is none."""
        wider = [width for width in self.widths if width.beam > beam]
        return max(wider, key=lambda width: (self.quality(width), -width.beam), default=None)

    def at(self, beam: int) -> Width:
        return next(width for width in self.widths if width.beam == beam)

    def behind(self, width: Width, other: Width | None = None) -> Behind:
        """Of a width, against another or the best one: all are measured on the same draws, so this is a paired test."""
        other = other or self.best
        low, high = np.quantile(other.resampled - width.resampled, [0.025, 0.975])
        return Behind(self.quality(other) - self.quality(width), float(low), float(high))

    def to_json(self) -> list[dict[str, Any]]:
        return [self._row(width) for width in self.widths]

    def _row(self, width: Width) -> dict[str, Any]:
        found = self.behind(width)
        return {
            "beam": width.beam,
            **width.metrics,
            "behind_best": {"difference": found.difference, "low": found.low, "high": found.high},
            "enough": width is self.enough,
            "errors": width.tally.errors,
            "search_errors": width.tally.search_errors,
            "model_errors": width.tally.model_errors,
            "seconds": width.seconds,
        }


def metric_of(task: TextToText) -> str:
    """What the widths of a beam are compared by: chrF, which is fair to short outputs, or the task's first metric."""
    better = [name for name, higher in task.higher_is_better.items() if higher]
    return "chrf" if "chrf" in better else better[0]


def resampled(
    outputs: Sequence[str], references: Sequence[Sequence[str]], task: TextToText, config: Config
) -> NDArray[np.float64]:
    """The metric of so many sentences drawn anew, with replacement, many times over.

    Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation". The seed is fixed, so the same
    rows are drawn of all outputs for the same references.
    """
    metric = measure(metric_of(task), task, config, {})
    streams = streams_of([[*map(nfc, all_of)] for all_of in references])
    statistics = statistics_of(metric, [*map(nfc, outputs)], streams)
    generator, size = np.random.default_rng(1), len(statistics)
    draws = [statistics[generator.integers(0, size, size)].sum(axis=0) for _ in range(RESAMPLES)]
    return score_of(metric, np.stack(draws))
