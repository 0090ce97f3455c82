"""Examples that are ready for batches: encoded columns, the texts they came from, and where those stand."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import AnyBatch
from regard.data.plans import Rows, plan
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
