"""Sentences by length, in buckets with round ends: the x-axis of quality by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

MOST = 8
"""Most buckets."""
OUTER = 0.01
"""The share of sentences at either end that make no bucket of their own: they join the first and the last one."""

Unit = Literal["words", "characters"]


@dataclass(frozen=True)
class LengthBucket:
    """The sentences of `shortest` to `longest` words (or characters)."""

    shortest: int
    longest: int
    rows: tuple[int, ...]
    mean: float
    """Of their lengths."""

    @property
    def name(self) -> str:
        return str(self.shortest) if self.shortest == self.longest else f"{self.shortest}–{self.longest}"


def unit_of(texts: Sequence[str]) -> Unit:
    """Words, unless the texts are mostly single ones: dates, spellings, scripts without spaces."""
    return "words" if np.mean([len(text.split()) for text in texts]) >= 2 else "characters"


def lengths_in(unit: Unit, texts: Sequence[str]) -> list[int]:
    return [len(text.split()) if unit == "words" else len(text) for text in texts]


def length_buckets(lengths: Sequence[int], most: int = MOST) -> list[LengthBucket]:
    """1 to 10, 11 to 20, ... : of the widths 1, 2, 5, 10, 20, ... the narrowest that needs no more than `most`."""
    low, high = (int(np.quantile(lengths, share, method="nearest")) for share in (OUTER, 1 - OUTER))
    widths = (factor * 10**power for power in count() for factor in (1, 2, 5))
    width = next(width for width in widths if (high - 1) // width - (low - 1) // width < most)
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        rows.setdefault((min(max(length, low), high) - 1) // width, []).append(row)
    return [_bucket(number, width, rows[number], lengths) for number in sorted(rows)]


def _bucket(number: int, width: int, rows: list[int], lengths: Sequence[int]) -> LengthBucket:
    """Its ends are round, except where sentences beyond them have joined it."""
    own = [lengths[row] for row in rows]
    shortest, longest = min(number * width + 1, *own), max((number + 1) * width, *own)
    return LengthBucket(shortest, longest, tuple(rows), float(np.mean(own)))
