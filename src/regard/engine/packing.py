"""Packed sentences: all tokens of a batch in one row, without padding, and attention between
them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import TILE, Padded
from regard.engine import is_plain

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


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
    fixed: bool = False
    """Whether the sentences arrive packed, in a row of fixed size."""
    equal: int = 0
    """The number of sentences, if they have the same length and fill the row."""

    @staticmethod
    def of(tokens: Padded, without: int = 0) -> Packing:
        """The packing of sentences `without` their last tokens. Lengths are read on the host, to
        avoid a GPU sync."""
        if (row := tokens.fixed) is not None:
            return Packing(
                row.sentences_P,
                row.places_P,
                row.bounds,
                row.bounds,
                0,
                row.longest,
                True,
                row.equal,
            )
        host_lengths_B = tokens.host_lengths_B - without
        lengths_B = tokens.lengths_B - without
        total = int(host_lengths_B.sum())
        bounds = F.pad(lengths_B.cumsum(0), (1, 0))
        sentences_P = torch.repeat_interleave(lengths_B, output_size=total)
        places_P = torch.arange(total, device=lengths_B.device) - bounds[sentences_P]
        width = tokens.ids_BL.shape[1] - without
        return Packing(
            sentences_P, places_P, lengths_B, bounds.int(), width, int(host_lengths_B.max())
        )

    @cached_property
    def rows_P(self) -> Tensor:
        """The index of each token in the padded [B, L], flattened."""
        return self.sentences_P * self.width + self.places_P

    def pack(self, x_BL: Tensor) -> Tensor:
        """[B, L, ...] -> [1, P, ...]; what arrived packed stays as it is."""
        return x_BL if self.fixed else x_BL.flatten(0, 1).index_select(0, self.rows_P)[None]

    def unpack(self, x_1PD: Tensor) -> Tensor:
        """[1, P, ...] -> [B, L, ...], zero on padding; what arrived packed stays packed."""
        if self.fixed:
            return x_1PD
        return unpack_rows(x_1PD.squeeze(0), self.rows_P, len(self.lengths_B), self.width)

    def unpack_heads(self, x_1HPE: Tensor) -> Tensor:
        """[1, H, P, E] -> [B, H, L, E]."""
        return self.unpack(x_1HPE.transpose(1, 2)).transpose(1, 2)


def unpack_rows(x_P: Tensor, rows_P: Tensor, sentences: int, width: int) -> Tensor:
    """[P, ...] -> [B, L, ...]: token p goes to index rows_P[p] of the flattened [B, L]; the rest is
    zero."""
    padded = x_P.new_zeros(sentences * width, *x_P.shape[1:])
    return padded.index_copy_(0, rows_P, x_P).view(sentences, width, *x_P.shape[1:])


# When to pack


def worth_packing(tokens: Padded) -> bool:
    """Whether a batch has so much padding that packing saves more than its copies cost."""
    return not is_plain() and int(tokens.host_lengths_B.sum()) < 0.8 * tokens.ids_BL.numel()


def has_packed_kernel(like: Tensor, head_width: int, dropout: float) -> bool:
    """Whether a kernel for packed sentences applies: half precision, a recent GPU, no dropout."""
    if like.device.type != "cuda" or is_plain() or dropout or head_width % 8 or head_width > 256:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else like.dtype
    return dtype in (torch.float16, torch.bfloat16) and torch.cuda.get_device_capability(
        like.device
    ) >= (8, 0)


def should_pack(text: Padded, like: Tensor, head_width: int, dropout: float) -> bool:
    """Whether to compute on packed texts: there is a kernel for it, or much padding."""
    return has_packed_kernel(like, head_width, dropout) or worth_packing(text)


def computes_first_only(text: Padded) -> bool:
    """Whether the last block of an encoder computes only the first token of each text, if no other
    is read.

    On a GPU the other tokens cost little, and packed texts stay packed.
    """
    return not is_plain() and text.ids_BL.device.type == "cpu" and text.fixed is None


# Who may look at whom


@dataclass(frozen=True)
class PackedVisible:
    """A query sees the keys of its own sentence and, if causal, none after its own position."""

    queries: Packing
    keys: Packing
    causal: bool = False
    tiles: BlockMask | None = None
    """In compiled code, for rows of fixed size: the tiles of keys that each tile of queries looks
    at."""
    equal: int = 0
    """The number of sentences, if all their queries and all their keys have one length."""

    @staticmethod
    def between(queries: Packing, keys: Packing, *, causal: bool = False) -> PackedVisible:
        equal = queries.equal if queries.equal == keys.equal else 0
        tiled = (
            queries.fixed
            and torch.compiler.is_compiling()
            and queries.sentences_P.device.type == "cuda"
        )
        tiles = visible_tiles(queries, keys, causal) if tiled and not equal else None
        return PackedVisible(queries, keys, causal, tiles, equal)

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole matrix, [1, P, P], for the written-out equation."""
        visible_PP = self.queries.sentences_P[:, None] == self.keys.sentences_P
        if self.causal:
            visible_PP = visible_PP & (self.keys.places_P <= self.queries.places_P[:, None])
        return visible_PP[None]


def visible_tiles(queries: Packing, keys: Packing, causal: bool) -> BlockMask:
    """Which tiles of keys each tile of queries looks at.

    The sentences lie in the same order in both rows, so a tile looks at some tiles that lie side by
    side.
    """
    from torch.nn.attention.flex_attention import BlockMask

    def tiles_of(own_P: Tensor, other_P: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """How many tiles of the other row each own tile sees, and which; `place` is what limits
        them if causal."""
        own_T2 = own_P.view(-1, TILE)[:, [0, -1]].contiguous()
        first_T = torch.searchsorted(other_P, own_T2[:, 0].contiguous()) // TILE
        last_T = (torch.searchsorted(other_P, own_T2[:, 1].contiguous(), right=True) - 1) // TILE
        number_T = torch.arange(len(own_T2), device=own_P.device)
        tiles = len(other_P) // TILE
        if causal and place < 0:
            last_T = torch.minimum(last_T, number_T)
        elif causal:
            first_T = torch.maximum(first_T, number_T)
        counts_T = (last_T - first_T + 1).clamp(min=0)
        seen_TT = (first_T[:, None] + torch.arange(tiles, device=own_P.device)).clamp(max=tiles - 1)
        return counts_T.int()[None, None], seen_TT.int()[None, None]

    q_P = queries.sentences_P
    k_P = keys.sentences_P

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = q_P[q] == k_P[k]
        return same & (k <= q) if causal else same

    keys_seen = tiles_of(q_P, k_P, -1)
    queries_seeing = tiles_of(k_P, q_P, 1)
    return BlockMask(
        (len(q_P), len(k_P)),
        *keys_seen,
        None,
        None,
        *queries_seeing,
        None,
        None,
        (TILE, TILE),
        visible,
    )
