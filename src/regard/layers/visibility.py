"""Who may look at whom, as a small value instead of a matrix. True means "may look", everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Visibility:
    """A query sees the first `key_lengths_B[b]` keys of its sentence and, if causal, none that stand after it."""

    key_lengths_B: Tensor | None = None
    causal: bool = False

    def keys_BK(self, keys: int) -> Tensor | None:
        """Which keys are no padding; None where there is none."""
        if self.key_lengths_B is None:
            return None
        return torch.arange(keys, device=self.key_lengths_B.device) < self.key_lengths_B[:, None]

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole matrix, for the written-out equation; the fast path never makes it.

        A causal query stands as far from the end as its key: with fewer queries than keys, the queries are the last.
        """
        visible_BQK = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            visible_BQK = visible_BQK.tril(diagonal=keys - queries)
        padding_BK = self.keys_BK(keys)
        return visible_BQK if padding_BK is None else visible_BQK & padding_BK[:, None, :]
