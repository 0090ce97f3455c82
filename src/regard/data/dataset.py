"""Examples that are ready for batches: tokens, the texts they came from, and where those stand."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import AnyBatch, Batch, Tokens
from regard.data.images import Picture
from regard.data.plans import Rows, plan
from regard.data.store import Integers, TextColumn, TokenColumn
from regard.text.tokenizers import Tokenizer

Encoded = Sequence[int] | Picture
"""A source as a model reads it: its tokens without `</s>`, or an image."""


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
        """The positions that each example takes up in a model, at the most."""

    @property
    def slants(self) -> NDArray[np.int32] | None:
        """By how much the first of two columns is longer than the second, where there are two."""
        return None

    @abstractmethod
    def where(self, example: int) -> str:
        """The place of an example in the user's files: `train.en:17`."""

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch, in order; the same for the same seed and epoch on every machine."""
        return plan(self, batch_tokens, seed, epoch)

    @abstractmethod
    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> AnyBatch:
        """These examples as tensors; what is drawn for them hangs on the seed and the epoch alone."""

    @abstractmethod
    def frequencies(self) -> NDArray[np.int64]:
        """How often each token of the vocabulary is to be written."""

    @abstractmethod
    def pieces(self, example: int) -> dict[str, list[str]]:
        """An example token by token, as a model reads it."""

    def label_counts(self) -> dict[str, int]:
        """How often each label occurs, where there are any."""
        return {}

    def longest_example(self) -> int:
        """The one that takes up the most memory."""
        return int(np.argmax(self.lengths))

    def fingerprint(self) -> int:
        """Of the lengths of all examples: what the order of the batches hangs on."""
        return zlib.crc32(self.lengths.tobytes())


@dataclass(frozen=True, eq=False)
class Dataset(Examples):
    """Texts of one or more columns; row i of every column is example i."""

    columns: Mapping[str, TokenColumn]
    texts: Mapping[str, TextColumn]
    tokenizers: Mapping[str, Tokenizer]
    corpora: Integers
    weights: tuple[float, ...]
    place: Callable[[int], str]

    @classmethod
    def of(
        cls, texts: Mapping[str, Sequence[str]], tokenizers: Mapping[str, Tokenizer], place: Callable[[int], str]
    ) -> Dataset:
        """Texts that were not prepared, those with a tokenizer encoded in memory; `place` names where one stands."""
        columns = {name: TokenColumn.of(one.encode_batch(texts[name])) for name, one in tokenizers.items()}
        in_memory = {name: TextColumn.of(rows) for name, rows in texts.items()}
        size = len(next(iter(columns.values())))
        return cls(columns, in_memory, tokenizers, np.zeros(size, dtype=np.int16), (1.0,), place)

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

    def source(self, example: int) -> Encoded:
        """What a model reads of an example: the tokens of its source, without `</s>`."""
        ids: list[int] = self.columns["source"][example].tolist()
        return ids

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The positions that an example takes up in a model: its longest column and one more.

        One more, since an encoder reads a source with its `</s>`, and a decoder reads a target from `<s>` on and
        predicts it up to `</s>`.
        """
        longest: NDArray[np.int32] = np.max([column.lengths for column in self.columns.values()], axis=0)
        return longest + np.int32(1)

    @cached_property
    def slants(self) -> NDArray[np.int32]:
        first, *_, last = (column.lengths for column in self.columns.values())
        return first - last

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> Batch:
        """A source up to `</s>`, a target from `<s>` to `</s>`; nothing is drawn."""
        source = self._tokens("source", examples, begin=False)
        target = self._tokens("target", examples, begin=True)
        predicted = int(target.lengths_B.sum()) - len(examples)
        return Batch(source, target, tuple(examples.tolist()), predicted)

    def _tokens(self, column: str, examples: Integers, *, begin: bool) -> Tokens:
        special = self.tokenizers[column]
        first = special.begin if begin else None
        ids_BL, lengths_B = self.columns[column].padded(examples, begin=first, end=special.end, pad=special.pad)
        return Tokens.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))

    def frequencies(self) -> NDArray[np.int64]:
        """How often each target token is to be written; `</s>` ends every example."""
        target = self.tokenizers["target"]
        counts = self.columns["target"].counts(target.size)
        counts[target.end] += len(self)
        return counts

    def pieces(self, example: int) -> dict[str, list[str]]:
        return {name: self.tokenizers[name].pieces(column[example].tolist()) for name, column in self.columns.items()}

    def longest_example(self) -> int:
        """The one with the most tokens in all its columns."""
        return int(np.argmax(np.sum([column.lengths for column in self.columns.values()], axis=0, dtype=np.int64)))

    def fingerprint(self) -> int:
        checksum = 0
        for column in self.columns.values():
            checksum = zlib.crc32(column.lengths.tobytes(), checksum)
        return checksum
