"""Sentences of different lengths concatenated in one row instead of padded to the longest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import Tokens


@dataclass(frozen=True)
class Packing:
    """Where the tokens of each sentence are in the packed row."""

    sentences_P: Tensor
    """The sentence of each token."""
    places_P: Tensor
    """The position of each token in its sentence."""
    lengths_B: Tensor
    bounds: Tensor
    """The start of each sentence, and the end of the last: [B + 1], int32 for the kernel."""
    width: int
    """The length of the padded sentences."""
    longest: int

    @staticmethod
    def of(tokens: Tokens, without: int = 0) -> Packing:
        """The packing of sentences `without` their last tokens. Uses the lengths on the host, to avoid a GPU sync."""
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
        """The index of each token in the padded [B, L], flattened."""
        return self.sentences_P * self.width + self.places_P

    def pack(self, x_BL: Tensor) -> Tensor:
        """[B, L, ...] -> [1, P, ...]: one row without padding."""
        return x_BL.flatten(0, 1).index_select(0, self.rows_P)[None]

    def unpack(self, x_1PD: Tensor) -> Tensor:
        """[1, P, ...] -> [B, L, ...], zero on padding."""
        return unpack_rows(x_1PD.squeeze(0), self.rows_P, len(self.lengths_B), self.width)

    def unpack_heads(self, x_1HPE: Tensor) -> Tensor:
        """[1, H, P, E] -> [B, H, L, E]."""
        return self.unpack(x_1HPE.transpose(1, 2)).transpose(1, 2)


def unpack_rows(x_P: Tensor, rows_P: Tensor, sentences: int, width: int) -> Tensor:
    """[P, ...] -> [B, L, ...]: token p goes to index rows_P[p] of the flattened [B, L]; the rest is zero."""
    padded = x_P.new_zeros(sentences * width, *x_P.shape[1:])
    return padded.index_copy(0, rows_P, x_P).view(sentences, width, *x_P.shape[1:])


def worth_packing(tokens: Tokens) -> bool:
    """Whether a batch has so much padding that packing saves more than its copies cost."""
    return int(tokens.host_lengths_B.sum()) < 0.8 * tokens.ids_BL.numel()
