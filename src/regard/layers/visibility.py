"""Which keys each query may attend to, as a small value instead of a matrix. True means visible, everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.layers.packing import Packing


@dataclass(frozen=True)
class Visibility:
    """A query sees the first `key_lengths_B[b]` keys of its sentence and, if causal, none after its own position."""

    key_lengths_B: Tensor | None = None
    causal: bool = False
    packed: tuple[Packing, Packing] | None = None
    """The packing of queries and of keys, if all sentences are in one row: a query sees only its own sentence."""

    @staticmethod
    def of(tokens: Tokens) -> Visibility:
        """All tokens of each sentence; without lengths if there is no padding."""
        padded = int(tokens.host_lengths_B.min()) < tokens.ids_BL.shape[1]
        return Visibility(tokens.lengths_B if padded else None)

    def keys_BK(self, keys: int) -> Tensor | None:
        """True for keys that are not padding; None if there is no padding."""
        if self.key_lengths_B is None:
            return None
        return torch.arange(keys, device=self.key_lengths_B.device) < self.key_lengths_B[:, None]

    def bias_B11K(self, keys: int, dtype: torch.dtype) -> Tensor | None:
        """What a kernel adds to the scores: 0 for real keys, -inf for padding; None if there is no padding.

        All layers of a model need the same bias, so it is cached. Rows start at multiples of 8, as kernels require.
        """
        cached: Tensor | None = self.__dict__.get("_bias_B11K")
        if cached is not None and cached.shape[-1] == keys and cached.dtype == dtype:
            return cached
        if (visible_BK := self.keys_BK(keys)) is None:
            return None
        wide_BK = torch.zeros(len(visible_BK), -(-keys // 8) * 8, dtype=dtype, device=visible_BK.device)
        bias_B11K = wide_BK[:, :keys].masked_fill_(~visible_BK, -torch.inf)[:, None, None]
        if not torch.compiler.is_compiling():
            self.__dict__["_bias_B11K"] = bias_B11K
        return bias_B11K

    def select(self, sentences_B: Tensor) -> Visibility:
        """The visibility of some of the sentences."""
        lengths_B = None if self.key_lengths_B is None else self.key_lengths_B.index_select(0, sentences_B)
        return Visibility(lengths_B, self.causal)

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole matrix, for the written-out equation; the fast path never builds it.

        With fewer queries than keys, the queries of a causal attention are at the last positions.
        """
        if self.packed is not None:
            return self._matrix_packed(*self.packed)[None]
        visible_BQK = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            visible_BQK = visible_BQK.tril(diagonal=keys - queries)
        real_BK = self.keys_BK(keys)
        return visible_BQK if real_BK is None else visible_BQK & real_BK[:, None, :]

    def _matrix_packed(self, queries: Packing, keys: Packing) -> Tensor:
        own_QK = queries.sentences_P[:, None] == keys.sentences_P
        return own_QK & (queries.places_P[:, None] >= keys.places_P) if self.causal else own_QK
