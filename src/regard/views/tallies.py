"""Errors counted: in all and by length, as shares with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.views.lengths import LengthBucket, length_buckets
from regard.views.verdicts import Judged


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95 %."""
        return wilson(self.count, self.of)

    def to_json(self) -> dict[str, float]:
        low, high = self.interval
        return {"share": self.share, "low": low, "high": high}


def wilson(count: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """The interval that the true share lies in; z is the normal quantile, here for 95 %.

    Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference", with p = count / n:
        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    """
    if of == 0:
        return 0.0, 1.0
    p, z2_n = count / of, z * z / of
    middle, reach = p + z2_n / 2, math.sqrt(z2_n * p * (1 - p) + (z2_n / 2) ** 2)
    low, high = (middle - reach) / (1 + z2_n), (middle + reach) / (1 + z2_n)
    return (0.0 if count == 0 else low), (1.0 if count == of else high)


@dataclass(frozen=True)
class Tally:
    """The errors among some sentences."""

    sentences: int
    errors: int
    search_errors: int
    model_errors: int
    chrf: float
    """The mean over the sentences."""

    @classmethod
    def of(cls, judged: Sequence[Judged]) -> Tally:
        verdicts = [one.verdict for one in judged if one.error]
        mean = sum(one.chrf for one in judged) / len(judged)
        return cls(len(judged), len(verdicts), verdicts.count("search"), verdicts.count("model"), mean)

    @property
    def shares(self) -> dict[str, Share]:
        """Of errors among the sentences, and of each kind among the errors."""
        return {
            "errors": Share(self.errors, self.sentences),
            "search_errors": Share(self.search_errors, self.errors),
            "model_errors": Share(self.model_errors, self.errors),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "sentences": self.sentences,
            "errors": self.errors,
            "search_errors": self.search_errors,
            "model_errors": self.model_errors,
            "shares": {name: share.to_json() for name, share in self.shares.items()},
            "sentence_chrf": self.chrf,
        }


@dataclass(frozen=True)
class Bucket:
    """The errors among sentences whose sources are about equally long."""

    sources: LengthBucket
    tally: Tally

    def to_json(self) -> dict[str, Any]:
        return {"from": self.sources.shortest, "to": self.sources.longest, **self.tally.to_json()}


def by_length(judged: Sequence[Judged], lengths: Sequence[int]) -> tuple[Bucket, ...]:
    """The errors by these lengths, shortest first."""
    return tuple(Bucket(one, Tally.of([judged[row] for row in one.rows])) for one in length_buckets(lengths))
