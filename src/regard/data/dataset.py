"""Examples that are ready for batches: encoded columns, the texts they came from, and a report of
both."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.batches import AnyBatch
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.epochs import Examples
from regard.data.store import Integers, TextColumn, TokenColumn, in_chunks
from regard.errors import DataError
from regard.text.tokenizers import Tokenizer, Tokenizers

Columns = Mapping[str, Sequence[Sequence[int]]]
"""Rows of numbers by the name of their column: tokens, labels, positions."""
Where = Callable[[int], str]  # the place of a row in the user's files: `train.en:17`
NAMED = 3  # how many places a report names for each finding; the rest are counted
SPLITS: dict[Part, str] = {"train": "training", "validation": "validation", "test": "test"}
"""The splits and their names in sentences."""


class Encoding:
    """Texts of examples -> numbers -> batches: the part of a task that the data pipeline uses."""

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        self.recipe = recipe
        self.tokenizers = tokenizers

    # Texts -> columns of numbers

    def settings(self) -> list[Any]:
        """What decides the encoded columns besides texts and tokenizers, as plain values."""
        return []

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        """Rows of texts by column -> rows of numbers by column; `where` names a row in messages."""
        return {
            name: tokenizer.encode_batch(texts[name]) for name, tokenizer in self.tokenizers.items()
        }

    def tokenizer_of(self, column: str) -> Tokenizer | None:
        """The tokenizer of an encoded column; None if the column does not hold tokens."""
        return self.tokenizers.get(column)

    def dropped(self, columns: Columns) -> Mapping[str, NDArray[np.bool_]]:
        """Training examples that are left out, by reason; no row has two reasons."""
        return {}

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """What `check` reports about the columns of tokens."""
        return {
            name: token_report(column, tokenizer)
            for name, column in examples.columns.items()
            if (tokenizer := self.tokenizer_of(name)) is not None
        }

    # Columns -> batches

    def examples(self, rows: Dataset, part: str) -> Any:
        """What a model reads of a split; raw text is cut into pieces."""
        return rows

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The most positions that each example takes up in a model."""
        raise NotImplementedError

    def length_differences(self, examples: Dataset) -> NDArray[np.int32] | None:
        """How much longer the first of two columns is than the second; None for a single column."""
        return None

    def longest_example(self, examples: Dataset) -> int:
        """The example that needs the most memory."""
        return int(np.argmax(examples.lengths))

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> AnyBatch:
        """These examples as tensors; random choices depend on the seed and the epoch alone."""
        raise NotImplementedError

    # What examples hold

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        """An example token by token, as a model reads it."""
        return {
            name: tokenizer.pieces(column[row].tolist())
            for name, column in examples.columns.items()
            if (tokenizer := self.tokenizer_of(name)) is not None
        }

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        """How often each token or class is a target."""
        raise NotImplementedError

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        """How often each label occurs, for tasks with labels."""
        return {}

    def fingerprint(self, examples: Dataset) -> int:
        """A checksum of the examples and their order: a resumed run must have the same."""
        checksum = zlib.crc32(examples.corpora.tobytes())
        for column in examples.columns.values():
            checksum = zlib.crc32(column.offsets.data, zlib.crc32(column.values.data, checksum))
        for texts in (
            texts for name, texts in examples.texts.items() if name not in examples.columns
        ):
            checksum = zlib.crc32(texts.sizes.data, checksum)
            for chunk in in_chunks(texts, len):
                checksum = zlib.crc32("".join(chunk).encode(), checksum)
        return checksum

    def fingerprints(self, train: Any, validation: Any) -> dict[str, int]:
        """Checksums that a resumed run must have as before, by their names in messages."""
        return {"training": self.fingerprint(train), "validation": self.fingerprint(validation)}


class Preparation(Protocol):
    """What the data pipeline asks of a task's class, before there is a task."""

    @property
    def name(self) -> str:
        """The task's name in a recipe."""

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """The names of its tokenizers."""

    def learn_tokenizers(
        self, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        """The tokenizers, trained on the training texts or read from files."""

    def settle(self, recipe: Recipe, train: Mapping[str, Sequence[str]], where: Where) -> Recipe:
        """The recipe with what only the training data can tell, such as the labels."""

    def make_encoding(self, recipe: Recipe, tokenizers: Tokenizers) -> Encoding:
        """The encoding of a task with this recipe."""


@dataclass(frozen=True, eq=False)
class Dataset(Examples):
    """Rows of encoded columns; row i of every column is example i. The encoding makes batches of
    them."""

    encoding: Encoding
    columns: Mapping[str, TokenColumn]
    texts: Mapping[str, TextColumn]
    corpora: Integers
    weights: tuple[float, ...]
    where: Where
    left_out: str = field(default="", kw_only=True)

    @classmethod
    def of(cls, encoding: Encoding, texts: Mapping[str, Sequence[str]], where: Where) -> Dataset:
        """Texts encoded in memory."""
        columns = {
            name: TokenColumn.of(rows) for name, rows in encoding.encode(texts, where).items()
        }
        size = len(next(iter(texts.values())))
        in_memory = {name: TextColumn.of(rows) for name, rows in texts.items()}
        return cls(encoding, columns, in_memory, np.zeros(size, dtype=np.int16), (1.0,), where)

    def select(self, rows: Integers) -> Dataset:
        columns = {
            name: TokenColumn.of([column[int(row)].tolist() for row in rows])
            for name, column in self.columns.items()
        }
        texts = {name: column.select(rows) for name, column in self.texts.items()}
        return replace(
            self,
            columns=columns,
            texts=texts,
            corpora=self.corpora[rows],
            where=lambda row: self.where(int(rows[row])),
        )

    def rows_with(self, token: int) -> frozenset[int]:
        """The examples that have a token in any column."""
        found = (column.rows_with(token) for column in self.columns.values())
        return frozenset().union(*(rows.tolist() for rows in found))

    def apart(self, rows: range) -> Dataset:
        """These examples in memory, so that another process can be given them alone."""
        texts = {
            name: TextColumn.of([column[row] for row in rows])
            for name, column in self.texts.items()
        }
        places = [self.where(row) for row in rows]
        return replace(self.select(np.array(rows)), texts=texts, where=places.__getitem__)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        return self.encoding.lengths(self)

    @cached_property
    def length_differences(self) -> NDArray[np.int32] | None:
        return self.encoding.length_differences(self)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> AnyBatch:
        return self.encoding.collate(self, examples, seed, epoch)

    def longest_example(self) -> int:
        return self.encoding.longest_example(self)


@dataclass(frozen=True)
class Finding:
    """How often something was found, and the first places."""

    count: int = 0
    places: tuple[str, ...] = ()

    def more(self, rows: Integers, where: Where) -> Finding:
        places = [where(int(row)) for row in rows[: max(0, NAMED - self.count)]]
        return Finding(self.count + len(rows), (*self.places, *places))


@dataclass(frozen=True)
class Histogram:
    """How many rows have a length; bin k holds lengths from k * width up to, but without, (k + 1) *
    width."""

    width: int
    counts: tuple[int, ...]
    mean: float
    longest: int

    @classmethod
    def of(cls, lengths: NDArray[np.int32]) -> Histogram:
        """At most 20 bins of a round width."""
        longest = int(lengths.max(initial=0))
        width = next(
            step * 10**power
            for power in range(10)
            for step in (1, 2, 5)
            if longest < 20 * step * 10**power
        )
        counts = np.bincount(lengths // width).tolist() if len(lengths) else []
        return cls(width, tuple(counts), float(lengths.mean()) if len(lengths) else 0.0, longest)


@dataclass(frozen=True)
class ColumnReport:
    tokens: int
    unknown: float  # the share of the tokens that are `<unk>`
    lengths: Histogram


def token_report(column: TokenColumn, tokenizer: Tokenizer) -> ColumnReport:
    """How many tokens a column has, the share that is unknown, and the lengths of its rows."""
    tokens = int(column.lengths.sum(dtype=np.int64))
    unknown = int(column.counts(tokenizer.size)[tokenizer.unk])
    return ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(column.lengths))


@dataclass(frozen=True)
class SplitReport:
    read: int
    kept: int
    set_aside: int = 0  # how many of those read were set aside for validation and test
    dropped: dict[str, Finding] = field(default_factory=dict)
    """By reason: empty, over_long_line, cells, duplicate, max_length, max_ratio, image."""
    leaks: Finding = Finding()
    """Held-out examples whose source also stands in the training data, or those of the test in the
    validation data."""
    columns: dict[str, ColumnReport] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What was kept of the data, what was dropped and why, and what the tokens look like, split by
    split."""

    splits: dict[Part, SplitReport]
    limits: dict[str, int | float]  # the limits that examples were dropped by, by the reason's name
    unit: str = "pairs"  # what messages call the examples
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        """What was read, what was dropped and what leaks, for people."""
        return [
            *self.notes,
            *(sentence for name in self.splits for sentence in self._sentences_of(name)),
        ]

    def refuse_empty(self, hint: str = "") -> None:
        """An error for the first split of which nothing is left."""
        one = self.unit.removesuffix("s")
        for name, split in self.splits.items():
            if split.kept == 0:
                read = (
                    f"1 {one} was read"
                    if split.read == 1
                    else f"{split.read:,} {self.unit} were read"
                )
                reasons = [*self._sentences_of(name if split.read else "train")] or [
                    read
                ]  # none: a share of nothing
                if split.set_aside:
                    were = "was" if split.set_aside == 1 else "were"
                    reasons.append(f"{split.set_aside:,} {were} set aside for validation and test")
                    hint = (
                        hint
                        or "those that are alike are set aside together, and there are too few "
                        "different ones"
                    )
                what = f"no {SPLITS[name]} {one} is left: {'; '.join(reasons)}"
                raise DataError(what, where=f"data.{name}", hint=hint)

    def _sentences_of(self, name: Part) -> Iterator[str]:
        split = self.splits[name]
        if count := sum(finding.count for finding in split.dropped.values()):
            reasons = [
                self._reason(reason, finding)
                for reason, finding in split.dropped.items()
                if finding.count
            ]
            yield (
                f"dropped {count:,} of {split.read:,} {SPLITS[name]} {self.unit}: "
                f"{', '.join(reasons)}"
            )
        if split.leaks.count:
            sources = {"pairs": "the sources of ", "questions": "the texts of "}.get(self.unit, "")
            others = "training or validation" if name == "test" else "training"
            yield (
                f"{sources}{split.leaks.count:,} of {split.kept:,} {SPLITS[name]} {self.unit} also "
                "occur in the "
                f"{others} data (first: {split.leaks.places[0]})"
            )

    def _reason(self, reason: str, finding: Finding) -> str:
        limit = f"{self.limits.get(reason, 0):.10g}"
        words = {
            "empty": "with an empty side" if self.unit == "pairs" else "empty",
            "over_long_line": f"over data.max_characters={limit}",
            "cells": "that cannot be read"
            if self.unit == "questions"
            else "with cells missing, too many or no text",
            "duplicate": "seen before",
            "max_length": f"longer than data.max_length={limit} tokens",
            "max_ratio": f"more unequal than data.max_ratio={limit}",
            "image": "with an image that cannot be read",
        }[reason]
        return f"{finding.count:,} {words} (first: {finding.places[0]})"
