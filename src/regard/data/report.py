"""What preparing the data found: what was kept, what was dropped and why, and what the tokens look like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from regard.data.corpora import Part
from regard.errors import DataError

NAMED = 3
"""How many places are named for each finding; the rest are counted."""

SPLITS: dict[Part, str] = {"train": "training", "validation": "validation", "test": "test"}
"""The splits and their names in sentences."""


@dataclass(frozen=True)
class Found:
    """How often something was found, and the first places."""

    count: int = 0
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Histogram:
    """How many rows have a length; bin k holds lengths from k * width up to, but without, (k + 1) * width."""

    width: int
    counts: tuple[int, ...]
    mean: float
    longest: int

    @classmethod
    def of(cls, lengths: NDArray[np.int32]) -> Histogram:
        """At most 20 bins of a round width."""
        longest = int(lengths.max(initial=0))
        width = next(step * 10**power for power in range(10) for step in (1, 2, 5) if longest < 20 * step * 10**power)
        counts = np.bincount(lengths // width).tolist() if len(lengths) else []
        return cls(width, tuple(counts), float(lengths.mean()) if len(lengths) else 0.0, longest)


@dataclass(frozen=True)
class ColumnReport:
    """The tokens of one column."""

    tokens: int
    unknown: float
    """The share of the tokens that are `<unk>`."""
    lengths: Histogram


@dataclass(frozen=True)
class SplitReport:
    """The examples of one split."""

    read: int
    kept: int
    set_aside: int = 0
    """How many of those read were set aside for validation and test."""
    dropped: dict[str, Found] = field(default_factory=dict)
    """By reason: empty, over_long_line, cells, duplicate, max_length, max_ratio, image."""
    leaks: Found = Found()
    """Held-out examples whose source also stands in the training data."""
    columns: dict[str, ColumnReport] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The report of a whole dataset, split by split."""

    splits: dict[Part, SplitReport]
    limits: dict[str, int | float]
    """The limits that examples were dropped by, by the reason's name."""
    unit: str = "pairs"
    """What the examples are."""
    notes: tuple[str, ...] = ()
    """What else there is to say."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Report:
        return TypeAdapter(cls).validate_python(tree)

    def sentences(self) -> list[str]:
        """What was read, what was dropped and what leaks, for people."""
        found = [sentence for name, split in self.splits.items() for sentence in self._sentences_of(name, split)]
        return [*self.notes, *found]

    def refuse_empty(self, hint: str = "") -> None:
        """An error for the first split of which nothing is left."""
        one = self.unit.removesuffix("s")
        for name, split in self.splits.items():
            if split.kept == 0:
                read = f"1 {one} was read" if split.read == 1 else f"{split.read:,} {self.unit} were read"
                reasons = [*self._sentences_of(name, split)] or [read]
                if split.set_aside:
                    were = "was" if split.set_aside == 1 else "were"
                    reasons.append(f"{split.set_aside:,} {were} set aside for validation and test")
                    hint = hint or "those that are alike are set aside together, and there are too few different ones"
                what = f"no {SPLITS[name]} {one} is left: {'; '.join(reasons)}"
                raise DataError(what, where=f"data.{name}", hint=hint)

    def _sentences_of(self, name: Part, split: SplitReport) -> Iterator[str]:
        count = sum(found.count for found in split.dropped.values())
        if count:
            reasons = ", ".join(self._reason(reason, found) for reason, found in split.dropped.items() if found.count)
            yield f"dropped {count:,} of {split.read:,} {SPLITS[name]} {self.unit}: {reasons}"
        if split.leaks.count:
            sources = {"pairs": "the sources of ", "questions": "the texts of "}.get(self.unit, "")
            yield (
                f"{sources}{split.leaks.count:,} of {split.kept:,} {SPLITS[name]} {self.unit} also stand in the "
                f"training data (first: {split.leaks.places[0]})"
            )

    def _reason(self, reason: str, found: Found) -> str:
        limit = f"{self.limits.get(reason, 0):g}"
        words = {
            "empty": "with an empty side" if self.unit == "pairs" else "empty",
            "over_long_line": f"over data.max_characters={limit}",
            "cells": "that cannot be read" if self.unit == "questions" else "with cells missing, too many or no text",
            "duplicate": "seen before",
            "max_length": f"longer than data.max_length={limit} tokens",
            "max_ratio": f"more unequal than data.max_ratio={limit}",
            "image": "with an image that cannot be read",
        }[reason]
        return f"{found.count:,} {words} (first: {found.places[0]})"
