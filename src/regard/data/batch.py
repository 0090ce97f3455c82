"""What a model reads: padded tokens with their lengths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PAD, UNK, BEGIN, END = 0, 1, 2, 3
"""Ids of `<pad>`, `<unk>`, `<s>` and `</s>` in every vocabulary that is trained here."""


@dataclass(frozen=True)
class Tokens:
    """Sentences of unequal length, padded on the right."""

    ids_BL: Tensor
    lengths_B: Tensor

    def to(self, device: torch.device | str) -> Tokens:
        return Tokens(self.ids_BL.to(device, non_blocking=True), self.lengths_B.to(device, non_blocking=True))

    def __len__(self) -> int:
        return self.ids_BL.shape[0]


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences. A source ends in `</s>`; a target begins with `<s>` and ends in `</s>`."""

    source: Tokens
    target: Tokens
    examples: tuple[int, ...] = ()
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = 0
    """How many target tokens are predicted: each target without its `<s>`."""

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.source.to(device), self.target.to(device), self.examples, self.tokens)
