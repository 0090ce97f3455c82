"""Packed sentences: all tokens of a batch in one row, without padding, and who may look at whom.

    padded   A1 A2 A3 __            packed   A1 A2 A3 B1 B2 B3 B4
             B1 B2 B3 B4

`PackedSentences` are packed inside a model and unpacked at its end. A `PackedRow` arrives packed,
has a fixed size, and stays packed up to the loss (shapes.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self

import torch
from torch import Tensor, nn

from regard.data.batches import Padded, Tensors, Tokens, real_places
from regard.data.tiles import TILE
from regard.engine import is_plain

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

MAX_REAL_SHARE = 0.8
"""If at most this share of the padded positions holds tokens, packing saves more time than its
copies cost."""


# The two packed layouts


@dataclass(frozen=True)
class Packed(Tensors):
    """Sentences in one row, one after another. It is a `Tokens` (data/batches.py)."""

    ids_1P: Tensor
    sentences_P: Tensor
    """The sentence of each token, ascending."""
    places_P: Tensor
    """The place of each token in its sentence."""
    bounds: Tensor
    """The start of each sentence, then the end of the row, as int32 for the kernel."""
    longest: int
    """The most tokens of a sentence."""

    @property
    def ids(self) -> Tensor:
        return self.ids_1P

    @property
    def inputs(self) -> Packed:
        raise NotImplementedError

    def predicted(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @property
    def is_real(self) -> Tensor:
        return torch.ones_like(self.ids_1P, dtype=torch.bool)

    def with_ids(self, ids: Tensor) -> Self:
        return replace(self, ids_1P=ids)

    def arrange(self, values_BL: Tensor) -> Tensor:
        raise NotImplementedError

    def restore(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError

    def restore_heads(self, keys: Tensor) -> Tensor:
        raise NotImplementedError

    def position_vectors(self, known: int, *, may_grow: bool) -> int:
        """How many position vectors to choose from, if a model has `known` of them; whether it can
        compute more is `may_grow`."""
        return self.longest


@dataclass(frozen=True)
class PackedSentences(Packed):
    """Sentences that a model packed itself and will unpack."""

    lengths_B: Tensor
    width: int
    """The positions of the padded sentences."""

    @staticmethod
    def of(text: Padded) -> PackedSentences:
        sentences_P, places_P = real_places(text.lengths_B, text.host_lengths_B)
        width = text.ids_BL.shape[1]
        ids_1P = text.ids_BL.flatten().index_select(0, sentences_P * width + places_P)[None]
        return PackedSentences(
            ids_1P=ids_1P,
            sentences_P=sentences_P,
            places_P=places_P,
            bounds=torch.nn.functional.pad(text.lengths_B.cumsum(0), (1, 0)).int(),
            longest=int(text.host_lengths_B.max()),
            lengths_B=text.lengths_B,
            width=width,
        )

    @cached_property
    def index_P(self) -> Tensor:
        """The index of each token in the padded [B, L], flattened."""
        return self.sentences_P * self.width + self.places_P

    def arrange(self, values_BL: Tensor) -> Tensor:
        return values_BL.flatten(0, 1).index_select(0, self.index_P)[None]

    def restore(self, hidden: Tensor) -> Tensor:
        """[1, P, ...] -> [B, L, ...], zero on padding."""
        return unpack(hidden.squeeze(0), self.index_P, len(self.lengths_B), self.width)

    def restore_heads(self, keys: Tensor) -> Tensor:
        """[1, H, P, E] -> [B, H, L, E]."""
        return self.restore(keys.transpose(1, 2)).transpose(1, 2)


@dataclass(frozen=True)
class PackedRow(Packed):
    """Sentences that arrive in a row of a fixed size, with filler at its end: the loss is computed
    on the packed row.

    The filler consists of sentences of one tile each. As the input of a decoder, a row has no last
    tokens; their labels are in `next_P`.
    """

    next_P: Tensor
    """The token after each; NO_TAG in the filler."""
    equal: int = 0
    """How many sentences there are, if all have one length and fill the row; else 0."""

    @property
    def inputs(self) -> PackedRow:
        return self

    def predicted(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return hidden.flatten(0, 1), self.next_P

    @property
    def is_real(self) -> Tensor:
        return (self.next_P >= 0)[None]

    def arrange(self, values_BL: Tensor) -> Tensor:
        return values_BL

    def restore(self, hidden: Tensor) -> Tensor:
        return hidden

    def restore_heads(self, keys: Tensor) -> Tensor:
        return keys

    def position_vectors(self, known: int, *, may_grow: bool) -> int:
        """Always all of them, so that compiled code meets one shape."""
        return max(self.longest, known) if may_grow else known


def unpack(x_P: Tensor, index_P: Tensor, sentences: int, width: int) -> Tensor:
    """[P, ...] -> [B, L, ...]: token p goes to index_P[p] of the flattened [B, L]; the rest is
    zero."""
    padded = x_P.new_zeros(sentences * width, *x_P.shape[1:])
    return padded.index_copy_(0, index_P, x_P).view(sentences, width, *x_P.shape[1:])


# When to pack


class AttentionSizes(Protocol):
    """The config of a model with attention heads."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def attention_dropout(self) -> float: ...


def packed_if_faster(
    text: Tokens,
    model: nn.Module,
    sizes: AttentionSizes,
    *,
    for_kernel: bool = True,
    for_padding: bool = True,
) -> Tokens:
    """A padded text packed, if one of these reasons applies; else the text as it is.

    for_kernel     a kernel attends to packed sentences: on a recent GPU in half precision, without
                   dropout of the weights (`has_packed_kernel`)
    for_padding    there is so much padding that the layers between the attentions save more time
                   than it takes to unpack for each attention (`worth_packing`)

    GPT and BERT pack for both reasons; an encoder-decoder in training only for the kernel, in a
    search only for the padding of its sources. A text whose shape is to repeat stays padded.
    """
    if not isinstance(text, Padded) or text.keeps_shape:
        return text
    dropout = sizes.attention_dropout if model.training else 0.0
    like = next(model.parameters())
    if for_kernel and has_packed_kernel(like, sizes.width // sizes.heads, dropout):
        return PackedSentences.of(text)
    if for_padding and worth_packing(text):
        return PackedSentences.of(text)
    return text


def worth_packing(text: Padded) -> bool:
    """Whether a batch has so much padding that packing saves more time than it costs."""
    return not is_plain() and int(text.host_lengths_B.sum()) < MAX_REAL_SHARE * text.ids_BL.numel()


def has_packed_kernel(like: Tensor, head_width: int, dropout: float) -> bool:
    """Whether a kernel for packed sentences applies: half precision, a recent GPU, no dropout."""
    if like.device.type != "cuda" or is_plain() or dropout or head_width % 8 or head_width > 256:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else like.dtype
    return dtype in (torch.float16, torch.bfloat16) and torch.cuda.get_device_capability(
        like.device
    ) >= (8, 0)


def computes_first_only(text: Padded) -> bool:
    """Whether the last block of an encoder should compute only the first token of each text, for a
    head that reads no other.

    On a GPU the other tokens cost little, and packed texts stay packed.
    """
    return not is_plain() and text.ids_BL.device.type == "cpu"


# Who may look at whom


@dataclass(frozen=True)
class PackedVisible:
    """A query sees the keys of its own sentence and, if causal, none after its own position."""

    queries: Packed
    keys: Packed
    causal: bool = False
    tiles: BlockMask | None = None
    """In compiled code, for rows of fixed size: the tiles of keys that each tile of queries looks
    at."""
    equal: int = 0
    """The number of sentences, if all their queries and all their keys have one length; else 0."""

    @staticmethod
    def between(queries: Packed, keys: Packed, *, causal: bool = False) -> PackedVisible:
        equal = 0
        tiles = None
        if isinstance(queries, PackedRow) and isinstance(keys, PackedRow):
            equal = queries.equal if queries.equal == keys.equal else 0
            on_gpu = queries.sentences_P.device.type == "cuda"
            if torch.compiler.is_compiling() and on_gpu and not equal:
                tiles = visible_tiles(queries, keys, causal)
        return PackedVisible(queries, keys, causal, tiles, equal)

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole matrix, [1, P, P], for the written-out equation."""
        visible_PP = self.queries.sentences_P[:, None] == self.keys.sentences_P
        if self.causal:
            visible_PP = visible_PP & (self.keys.places_P <= self.queries.places_P[:, None])
        return visible_PP[None]


def visible_tiles(queries: Packed, keys: Packed, causal: bool) -> BlockMask:
    """Which tiles of keys each tile of queries looks at.

    The sentences lie in the same order in both rows, so the tiles that a tile looks at lie side by
    side.
    """
    from torch.nn.attention.flex_attention import BlockMask

    q_P = queries.sentences_P
    k_P = keys.sentences_P

    def tiles_of(own_P: Tensor, other_P: Tensor, *, are_queries: bool) -> tuple[Tensor, Tensor]:
        """For each own tile, how many tiles of the other row it shares a sentence with, and
        which."""
        own_T2 = own_P.view(-1, TILE)[:, [0, -1]].contiguous()
        first_T = torch.searchsorted(other_P, own_T2[:, 0].contiguous()) // TILE
        last_T = (torch.searchsorted(other_P, own_T2[:, 1].contiguous(), right=True) - 1) // TILE
        number_T = torch.arange(len(own_T2), device=own_P.device)
        if causal and are_queries:
            last_T = torch.minimum(last_T, number_T)
        elif causal:
            first_T = torch.maximum(first_T, number_T)
        counts_T = (last_T - first_T + 1).clamp(min=0)
        tiles = len(other_P) // TILE
        seen_TT = (first_T[:, None] + torch.arange(tiles, device=own_P.device)).clamp(max=tiles - 1)
        return counts_T.int()[None, None], seen_TT.int()[None, None]

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        is_same_sentence = q_P[q] == k_P[k]
        return is_same_sentence & (k <= q) if causal else is_same_sentence

    key_counts, keys_seen = tiles_of(q_P, k_P, are_queries=True)
    query_counts, queries_seeing = tiles_of(k_P, q_P, are_queries=False)
    no_full_tiles = (None, None)  # each tile is masked: knowing the full ones saves too little
    return BlockMask(
        (len(q_P), len(k_P)),
        key_counts,
        keys_seen,
        *no_full_tiles,
        query_counts,
        queries_seeing,
        *no_full_tiles,
        (TILE, TILE),
        visible,
    )
