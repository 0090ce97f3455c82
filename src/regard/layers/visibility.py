"""Who may look at whom, as a small value instead of a matrix. True means "may look", everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.layers.packing import Packing


@dataclass(frozen=True)
class Visibility:
    """A query sees the first `key_lengths_B[b]` keys of its sentence and, if causal, none that stand after it."""

    key_lengths_B: Tensor | None = None
    causal: bool = False
    packed: tuple[Packing, Packing] | None = None
    """How queries and keys are packed, where they are: all sentences in one row, and each sees its own keys only."""

    @staticmethod
    def of(tokens: Tokens) -> Visibility:
        """Of whole sentences; with nothing to leave out where all are of one length."""
        padded = int(tokens.host_lengths_B.min()) < tokens.ids_BL.shape[1]
        return Visibility(tokens.lengths_B if padded else None)

    def keys_BK(self, keys: int) -> Tensor | None:
        """Which keys are no padding; None where there is none."""
        if self.key_lengths_B is None:
            return None
        return torch.arange(keys, device=self.key_lengths_B.device) < self.key_lengths_B[:, None]

    def bias_B11K(self, keys: int, dtype: torch.dtype) -> Tensor | None:
        """What a kernel adds to scores: 0 for keys that are no padding, -inf for the others; None where all are.

        All layers of a model ask for the same one, so it is kept. Rows are a multiple of 8 apart, as kernels want it.
        """
        kept: Tensor | None = self.__dict__.get("_bias_B11K")
        if kept is not None and kept.shape[-1] == keys and kept.dtype == dtype:
            return kept
        if (visible_BK := self.keys_BK(keys)) is None:
            return None
        wide_BK = torch.zeros(len(visible_BK), -(-keys // 8) * 8, dtype=dtype, device=visible_BK.device)
        bias_B11K = wide_BK[:, :keys].masked_fill_(~visible_BK, -torch.inf)[:, None, None]
        if not torch.compiler.is_compiling():
            self.__dict__["_bias_B11K"] = bias_B11K
        return bias_B11K

    def select(self, sentences_B: Tensor) -> Visibility:
        """The same for some of the sentences."""
        lengths_B = None if self.key_lengths_B is None else self.key_lengths_B.index_select(0, sentences_B)
        return Visibility(lengths_B, self.causal)

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole matrix, for the written-out equation; the fast path never makes it.

        A causal query stands as far from the end as its key: with fewer queries than keys, the queries are the last.
        """
        if self.packed is not None:
            return self._matrix_packed(*self.packed)[None]
        visible_BQK = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            visible_BQK = visible_BQK.tril(diagonal=keys - queries)
        padding_BK = self.keys_BK(keys)
        return visible_BQK if padding_BK is None else visible_BQK & padding_BK[:, None, :]

    def _matrix_packed(self, queries: Packing, keys: Packing) -> Tensor:
        own_QK = queries.sentences_P[:, None] == keys.sentences_P
        return own_QK & (queries.places_P[:, None] >= keys.places_P) if self.causal else own_QK
