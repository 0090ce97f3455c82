"""Beams of several widths, compared by the quality of what they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.views.labels import count_text, metric_title
from regard.views.report import Curves, Section, Series, Table, muted
from regard.views.search_errors import (
    Tally,
)

NOTICEABLE_DIFFERENCE = 0.1
"""Smaller differences are ignored; in points of a metric from 0 to 100."""


@dataclass(frozen=True, eq=False)
class BeamResult:
    """The outputs of a beam of one width, in numbers."""

    beam: int
    seconds: float
    """Time to decode all sentences."""
    metrics: Mapping[str, float]
    """The task's metrics over all outputs."""
    resampled: NDArray[np.float64]
    """The metric that the widths are compared by, on resamples of the sentences."""
    tally: Tally


class Gap(NamedTuple):
    """How many points a width is behind another, with the 95 % interval."""

    difference: float
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Significant, and large enough to be noticed."""
        return self.difference > NOTICEABLE_DIFFERENCE and self.low > 0


@dataclass(frozen=True, eq=False)
class Sweep:
    """Several widths, narrowest first."""

    metric: str
    """The metric by which the widths are compared."""
    widths: Sequence[BeamResult]
    beam: int
    """The width in use."""

    def quality(self, width: BeamResult) -> float:
        return width.metrics[self.metric]

    @cached_property
    def now(self) -> BeamResult:
        return next(width for width in self.widths if width.beam == self.beam)

    def best_above(self, beam: int) -> BeamResult:
        """The highest quality of wider beams; among equals the narrowest."""
        wider = [width for width in self.widths if width.beam > beam]
        return max(wider, key=lambda width: (self.quality(width), -width.beam))

    @cached_property
    def best(self) -> BeamResult:
        return self.best_above(0)

    @cached_property
    def enough(self) -> BeamResult:
        """The narrowest width that is not noticeably worse than the best one."""
        return next(width for width in self.widths if not self.behind(width).matters)

    def behind(self, width: BeamResult, other: BeamResult | None = None) -> Gap:
        """How far a width is behind another one, by default the best. All widths are measured on
        the same resamples, so the test is paired."""
        other = other or self.best
        low, high = np.quantile(other.resampled - width.resampled, [0.025, 0.975])
        return Gap(self.quality(other) - self.quality(width), float(low), float(high))

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "beam": width.beam,
                **width.metrics,
                "behind_best": self.behind(width)._asdict(),
                "enough": width is self.enough,
                **{name: width.tally.counts[name] for name in width.tally.shares},
                "seconds": width.seconds,
            }
            for width in self.widths
        ]

    def section(self) -> Section:
        """The metric by which the widths are compared is the first column, so that a narrow
        terminal shows it."""
        main = metric_title(self.metric)
        rows = []
        names = sorted(self.widths[0].metrics, key=lambda name: name != self.metric)
        for width in self.widths:
            mark = "*" * (width is self.enough) + "<" * (width is self.now)
            first, *others = (width.metrics[name] for name in names)
            behind = "{:.2f} ({:.2f}–{:.2f})".format(*self.behind(width))
            rows.append(
                [
                    f"{mark} {width.beam}",
                    first,
                    width.tally.search_errors,
                    width.seconds,
                    *others,
                    behind,
                ]
            )
        columns = [
            "beam",
            main,
            "search errors",
            "seconds",
            *map(metric_title, names[1:]),
            f"{main} behind the best",
        ]
        sentences = count_text(self.now.tally.sentences, "sentences")
        note = f"< in use; * wider beams do not improve {main}, as far as {sentences} can show"
        why = (
            f"* is the narrowest beam that is not behind the best one, {self.best.beam}, by more "
            f"than {NOTICEABLE_DIFFERENCE} points "
            f"of {main}, with an interval above 0 (paired bootstrap, 95 %)."
        )
        places = [
            float(place) for place in range(len(rows))
        ]  # evenly, since each beam is about twice the one before
        ticks = [(place, str(width.beam)) for place, width in zip(places, self.widths, strict=True)]
        lines = {
            main: [*map(self.quality, self.widths)],
            "seconds": [width.seconds for width in self.widths],
        }
        curves = [
            Curves(
                [Series(name, places, values)],
                "beam",
                name,
                from_zero=name == "seconds",
                x_ticks=ticks,
            )
            for name, values in lines.items()
        ]
        table = Table(columns, rows, notes=[note], formats=[".2f"])
        return Section("Other beams", [table, muted(why), *curves], in_terminal=1)
