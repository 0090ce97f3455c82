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
    host_lengths_B: Tensor
    """The lengths once more, always in main memory: packing reads them there without waiting for a device."""

    @staticmethod
    def of(ids_BL: Tensor, lengths_B: Tensor) -> Tokens:
        return Tokens(ids_BL, lengths_B, lengths_B.cpu())

    def to(self, device: torch.device | str) -> Tokens:
        ids_BL, lengths_B = (tensor.to(device, non_blocking=True) for tensor in (self.ids_BL, self.lengths_B))
        return Tokens(ids_BL, lengths_B, self.host_lengths_B)

    def pin(self) -> Tokens:
        return Tokens(self.ids_BL.pin_memory(), self.lengths_B.pin_memory(), self.host_lengths_B)

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

    def unnamed(self) -> Batch:
        """The tensors alone: what a compiled model may depend on."""
        return Batch(self.source, self.target)

    def pin(self) -> Batch:
        return Batch(self.source.pin(), self.target.pin(), self.examples, self.tokens)
