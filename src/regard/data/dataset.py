"""Examples that are ready for batches: encoded columns, the texts they came from, and where those stand."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import AnyBatch
from regard.data.report import ColumnReport
from regard.data.store import Integers, TextColumn, TokenColumn
from regard.text.tokenizers import Tokenizer, Tokenizers

Columns = Mapping[str, Sequence[Sequence[int]]]
"""Rows of numbers by the name of their column: tokens, labels, positions."""


class Examples(ABC):
    """The examples of one split, whatever they are: what training asks of them."""

    corpora: Integers
    """The number of the corpus that each example came from."""
    weights: tuple[float, ...]
    """How often an epoch shows the examples of each corpus."""

    def __len__(self) -> int:
        return len(self.corpora)

    @property
    @abstractmethod
    def lengths(self) -> NDArray[np.int32]:
        """The most positions that each example takes up in a model."""

    @property
    def slants(self) -> NDArray[np.int32] | None:
        """How much longer the first of two columns is than the second, where there are two."""
        return None

    @abstractmethod
    def where(self, example: int) -> str:
        """The place of an example in the user's files: `train.en:17`."""

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch, in order; the same for the same seed and epoch on every machine."""
        return plan(self, batch_tokens, seed, epoch)

    @abstractmethod
    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> AnyBatch:
        """These examples as tensors; random choices depend on the seed and the epoch alone."""

    @abstractmethod
    def frequencies(self) -> NDArray[np.int64]:
        """How often each token of the vocabulary is a target."""

    @abstractmethod
    def pieces(self, example: int) -> dict[str, list[str]]:
        """An example token by token, as a model reads it."""

    def label_counts(self) -> dict[str, int]:
        """How often each label occurs, for tasks with labels."""
        return {}

    def longest_example(self) -> int:
        """The example that needs the most memory."""
        return int(np.argmax(self.lengths))

    def fingerprint(self) -> int:
        """A checksum of what the order of the batches depends on."""
        return zlib.crc32(self.lengths.tobytes())


class Encoder(Protocol):
    """The part of a task that makes examples from texts: what the data pipeline calls."""

    @property
    def recipe(self) -> Any:
        """The recipe as the task knows it, with what the training texts have told."""
        ...

    @property
    def tokenizers(self) -> Tokenizers: ...
    def settled(self, train: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Self:
        """The task with what only the training texts can tell, such as the labels, in its recipe."""
        ...

    def encoding(self) -> list[Any]:
        """What decides the encoded columns besides texts and tokenizers, as plain values: part of the cache key."""
        ...

    def encode(self, texts: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Columns:
        """Rows of texts by column -> rows of numbers by column; `where` names a row in messages."""
        ...

    def tokenizer_of(self, column: str) -> Tokenizer | None: ...
    def dropped(self, columns: Columns) -> Mapping[str, NDArray[np.bool_]]:
        """Training examples that are left out, by reason; no row has two reasons."""
        ...

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]: ...
    def lengths(self, examples: Dataset) -> NDArray[np.int32]: ...
    def slants(self, examples: Dataset) -> NDArray[np.int32] | None: ...
    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> AnyBatch: ...
    def frequencies(self, examples: Dataset) -> NDArray[np.int64]: ...
    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]: ...
    def label_counts(self, examples: Dataset) -> dict[str, int]: ...
    def longest_example(self, examples: Dataset) -> int: ...
    def fingerprint(self, examples: Dataset) -> int: ...


@dataclass(frozen=True, eq=False)
class Dataset(Examples):
    """Rows of encoded columns; row i of every column is example i. The task makes batches of them."""

    task: Encoder
    columns: Mapping[str, TokenColumn]
    texts: Mapping[str, TextColumn]
    corpora: Integers
    weights: tuple[float, ...]
    place: Callable[[int], str]

    @classmethod
    def of(cls, task: Encoder, texts: Mapping[str, Sequence[str]], place: Callable[[int], str]) -> Dataset:
        """Texts encoded in memory; `place` names where each stands."""
        columns = {name: TokenColumn.of(rows) for name, rows in task.encode(texts, place).items()}
        size = len(next(iter(texts.values())))
        in_memory = {name: TextColumn.of(rows) for name, rows in texts.items()}
        return cls(task, columns, in_memory, np.zeros(size, dtype=np.int16), (1.0,), place)

    def select(self, rows: Integers) -> Dataset:
        """These examples alone, in this order."""
        columns = {
            name: TokenColumn.of([column[int(row)].tolist() for row in rows]) for name, column in self.columns.items()
        }
        texts = {name: column.select(rows) for name, column in self.texts.items()}
        return replace(
            self, columns=columns, texts=texts, corpora=self.corpora[rows], place=lambda row: self.place(int(rows[row]))
        )

    def where(self, example: int) -> str:
        return self.place(example)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        return self.task.lengths(self)

    @cached_property
    def slants(self) -> NDArray[np.int32] | None:
        return self.task.slants(self)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> AnyBatch:
        return self.task.collate(self, examples, seed, epoch)

    def frequencies(self) -> NDArray[np.int64]:
        return self.task.frequencies(self)

    def pieces(self, example: int) -> dict[str, list[str]]:
        return self.task.pieces(self, example)

    def label_counts(self) -> dict[str, int]:
        return self.task.label_counts(self)

    def longest_example(self) -> int:
        return self.task.longest_example(self)

    def fingerprint(self) -> int:
        return self.task.fingerprint(self)


Rows = NDArray[np.int64]
"""Numbers of examples."""


class Measured(Protocol):
    """What a plan goes by."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The positions that each example takes up in a model."""
        ...

    @property
    def slants(self) -> NDArray[np.int32] | None:
        """By how much the first of two columns is longer than the second, where there are two."""
        ...

    @property
    def corpora(self) -> Integers:
        """The number of the corpus that each example came from."""
        ...

    @property
    def weights(self) -> tuple[float, ...]:
        """How often an epoch shows the examples of each corpus."""
        ...

    def __len__(self) -> int: ...


def plan(dataset: Measured, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
    """The batches of an epoch, in order; the same for the same seed and epoch on every machine.

    A batch has rows * longest <= batch_tokens, where longest is the greatest of its `lengths`; an example that
    is longer than the budget is a batch of its own. Batches are cut from the examples sorted by length, and shuffled.
    """
    # Raw bits and not `Generator.permutation`: NumPy promises to keep the first the same between its versions
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    examples = _drawn(dataset, bits)
    batches = _cut(_sorted_by_length(dataset, examples, bits), dataset.lengths, batch_tokens)
    return [batches[number] for number in np.argsort(bits.random_raw(len(batches)), kind="stable")]


def _drawn(dataset: Measured, bits: np.random.PCG64) -> Rows:
    """The examples of an epoch: weight 2 shows each one twice, 1.5 each one and a half of them again."""
    if all(weight == 1 for weight in dataset.weights):
        return np.arange(len(dataset))
    drawn = []
    for number, weight in enumerate(dataset.weights):
        examples = np.flatnonzero(dataset.corpora == number)
        part = ceil((weight - floor(weight)) * len(examples))
        chosen = np.argsort(bits.random_raw(len(examples)), kind="stable")[:part]
        drawn += [examples] * floor(weight) + [examples[chosen]]
    return np.concatenate(drawn)


def _sorted_by_length(dataset: Measured, examples: Rows, bits: np.random.PCG64) -> Rows:
    """Shortest first; among equals by how much the first column is longer than the last, give or take a token.

    The second key keeps the padding of both columns small, up and down in turn so that it does not jump where the
    length grows by one. The random token mixes the batches anew in each epoch.
    """
    lengths = dataset.lengths[examples].astype(np.int64)
    noise = (bits.random_raw(len(examples)) >> np.uint64(47)).astype(np.int64)  # 17 bits: two tokens of 2**16
    slants = 0 if dataset.slants is None else dataset.slants[examples].astype(np.int64) << 16
    second = slants + noise
    keys = (lengths << 40) + np.where(lengths % 2 == 0, second, -second)
    return examples[np.argsort(keys, kind="stable")]


def _cut(examples: Rows, lengths: NDArray[np.int32], batch_tokens: int) -> list[Rows]:
    """As many examples a batch as the budget allows; they come sorted by length, so the last one is the longest."""
    batches = []
    sorted_lengths = lengths[examples].astype(np.int64)
    start = 0
    while start < len(examples):
        most = max(1, batch_tokens // int(sorted_lengths[start]))
        cost = sorted_lengths[start : start + most]
        rows = max(1, int(np.searchsorted(cost * np.arange(1, len(cost) + 1), batch_tokens, side="right")))
        batches.append(examples[start : start + rows])
        start += rows
    return batches


def fixed_batches(dataset: Measured, batch_tokens: int) -> list[Rows]:
    """Each example once, shortest first: for validation and test, where the order does not matter."""
    return _cut(np.argsort(dataset.lengths, kind="stable"), dataset.lengths, batch_tokens)


def auto_batch_tokens(dataset: Measured, *, on_cpu: bool) -> int:
    """The budget that `training.batch_tokens: auto` stands for: a hundredth of an epoch's positions.

    So an epoch has about a hundred steps; not below 1,024, where gradients get noisy, nor above 16,384, which any
    current GPU holds, or 4,096 on a CPU, which larger batches would only fill with activations; a multiple of 256.
    """
    weights = np.asarray(dataset.weights)[dataset.corpora]
    positions = float(dataset.lengths @ weights)
    return int(np.clip(round(positions / 100 / 256) * 256, 1024, 4096 if on_cpu else 16384))
