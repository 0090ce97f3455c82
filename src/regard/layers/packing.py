"""Sentences of unequal length laid end to end instead of padded to the longest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import Tokens


@dataclass(frozen=True)
class Packing:
    """Where each sentence's tokens stand in one row of all of them."""

    sentences_P: Tensor
    """Which sentence each token belongs to."""
    places_P: Tensor
    """The place of each token in its sentence."""
    lengths_B: Tensor
    bounds: Tensor
    """Where each sentence begins, and where the last one ends: [B + 1], int32 as the kernel wants it."""
    width: int
    """Of the padded sentences."""
    longest: int

    @staticmethod
    def of(tokens: Tokens, without: int = 0) -> Packing:
        """The packing of sentences, `without` their last tokens. Sizes come from the host: nothing waits."""
        host_B = tokens.host_lengths_B - without
        lengths_B = tokens.lengths_B - without
        width, total = tokens.ids_BL.shape[1] - without, int(host_B.sum())
        bounds = F.pad(lengths_B.cumsum(0), (1, 0))
        all_P = torch.arange(total, device=lengths_B.device)
        sentences_P = torch.repeat_interleave(lengths_B, output_size=total)
        places_P = all_P - bounds[sentences_P]
        return Packing(sentences_P, places_P, lengths_B, bounds.int(), width, int(host_B.max()))

    @cached_property
    def rows_P(self) -> Tensor:
        """The place of each token among the padded ones, [B, L] read row by row."""
        return self.sentences_P * self.width + self.places_P

    def pack(self, x_BL: Tensor) -> Tensor:
        """[B, L, ...] -> [1, P, ...]: one row, no padding."""
        return x_BL.flatten(0, 1).index_select(0, self.rows_P)[None]

    def unpack(self, x_1PD: Tensor) -> Tensor:
        """[1, P, ...] -> [B, L, ...], zero on padding."""
        return put_back(x_1PD.squeeze(0), self.rows_P, len(self.lengths_B), self.width)

    def unpack_heads(self, x_1HPE: Tensor) -> Tensor:
        """[1, H, P, E] -> [B, H, L, E]."""
        return self.unpack(x_1HPE.transpose(1, 2)).transpose(1, 2)


def put_back(x_P: Tensor, rows_P: Tensor, sentences: int, width: int) -> Tensor:
    """[P, ...] -> [B, L, ...]: each token at its place among the padded ones, read row by row; zero elsewhere."""
    padded = x_P.new_zeros(sentences * width, *x_P.shape[1:])
    return padded.index_copy(0, rows_P, x_P).view(sentences, width, *x_P.shape[1:])


def pays(tokens: Tokens) -> bool:
    """Whether so much of a batch is padding that packing it is worth the copies."""
    return int(tokens.host_lengths_B.sum()) < 0.8 * tokens.ids_BL.numel()
