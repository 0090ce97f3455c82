"""Examples that are ready for batches: tokens, the texts they came from, and where those stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.store import TextColumn, TokenColumn
from regard.data.tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class Dataset:
    """The examples of one split; row i of every column is example i."""

    columns: Mapping[str, TokenColumn]
    texts: Mapping[str, TextColumn]
    tokenizers: Mapping[str, Tokenizer]
    corpora: NDArray[np.integer[Any]]
    """The number of the corpus that each example came from."""
    weights: tuple[float, ...]
    """How often an epoch shows the examples of each corpus."""
    place: Callable[[int], str]

    @classmethod
    def of(
        cls, texts: Mapping[str, Sequence[str]], tokenizers: Mapping[str, Tokenizer], place: Callable[[int], str]
    ) -> Dataset:
        """Texts that were not prepared, encoded in memory; `place` names where an example stands."""
        columns = {name: TokenColumn.of(tokenizers[name].encode_batch(rows)) for name, rows in texts.items()}
        in_memory = {name: TextColumn.of(rows) for name, rows in texts.items()}
        size = len(next(iter(columns.values())))
        return cls(columns, in_memory, tokenizers, np.zeros(size, dtype=np.int16), (1.0,), place)

    def __len__(self) -> int:
        return len(self.corpora)

    def where(self, example: int) -> str:
        """The place of an example in the user's files: `train.en:17`."""
        return self.place(example)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The positions that an example takes up in a model: its longest column and one more.

        One more, since an encoder reads a source with its `</s>`, and a decoder reads a target from `<s>` on and
        predicts it up to `</s>`.
        """
        longest: NDArray[np.int32] = np.max([column.lengths for column in self.columns.values()], axis=0)
        return longest + np.int32(1)
