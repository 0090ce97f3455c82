"""Kernels for scaled dot-product attention, for `attend` in layers/attention.py.

A kernel takes queries, keys and values as [B, H, Q or K, E], a value that says who may look at
whom, the scale and the dropout, and returns softmax(Q K^T scale) V. Kernels that cannot drop weights
apply only without dropout. The last kernel of the table handles all padded sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakIdKeyDictionary

from regard.data.batches import real_positions
from regard.engine.packing import PackedRow, PackedSentences, PackedVisible, has_packed_kernel
from regard.engine.products import multiply_small_matrices

MAX_QUERIES_OF_PRODUCTS = 4
"""Up to this many queries per sentence, as in a step of a search, two products can be faster on a
CPU than torch's kernel for attention, which is written for long texts."""
MIN_SENTENCES_OF_PRODUCTS = 16
"""Two products are faster from this many sentences on: numpy multiplies the small matrices of all
sentences in one call."""
EQUAL_LENGTH_KERNELS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""The kernels among which torch chooses for texts of one length. For other texts cuDNN stays off: it
would make a plan for each new shape."""


class Visibility(Protocol):
    """Who may look at whom, whatever the layout of the sentences."""

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor: ...


class PaddedVisible(Visibility, Protocol):
    """Padded sentences: `Visible` in layers/attention.py."""

    @property
    def key_lengths_B(self) -> Tensor | None: ...
    @property
    def causal(self) -> bool: ...


@dataclass(frozen=True)
class CachedRowsVisible:
    """One step of a search on a GPU: key k of row r is in row rows_KR[k, r] of the cache
    (`RowCache` in caches.py)."""

    length_1: Tensor
    """The number of filled positions."""
    rows_KR: Tensor

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """For the written-out equation, to which the cache gives the filled part in rows of their
        own."""
        return torch.ones(1, queries, keys, dtype=torch.bool, device=device)


@dataclass(frozen=True)
class SlotsVisible:
    """One step of a search on a CPU: all hypotheses of a source attend to all slots (`SlotCache` in
    caches.py)."""

    bias_B1QK: Tensor | None
    """Added to the scores: 0 for keys that a query sees, -inf for keys of other hypotheses; None if
    each source has only one hypothesis."""

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        if self.bias_B1QK is None:
            return torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        return self.bias_B1QK[:, 0] == 0


# What is added to the scores of padded sentences

_biases: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Lengths of the keys -> the bias made from them, which all layers of a model share. An entry lives
as long as its tensor of lengths, which is never written to."""


def bias_of(visible: PaddedVisible | SlotsVisible, keys: int, dtype: torch.dtype) -> Tensor | None:
    """The bias that is added to the scores, [B, 1, 1 or Q, K]: 0 for keys that a query sees, -inf
    for the rest; None if all keys are visible.

    Padding is on the right, so no real query of a causal attention sees it.
    """
    if isinstance(visible, SlotsVisible):
        return visible.bias_B1QK
    if visible.causal or visible.key_lengths_B is None:
        return None
    return shared_padding_bias(visible.key_lengths_B, keys, dtype)


def shared_padding_bias(key_lengths_B: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """`padding_bias`, computed once for all layers, which have the same lengths."""
    if torch.compiler.is_compiling():
        return padding_bias(key_lengths_B, keys, dtype)
    bias: Tensor | None = _biases.get(key_lengths_B)  # type: ignore[no-untyped-call]
    needed = (keys, dtype, torch.is_inference_mode_enabled())
    if bias is None or needed != (bias.shape[-1], bias.dtype, bias.is_inference()):
        bias = padding_bias(key_lengths_B, keys, dtype)
        _biases[key_lengths_B] = bias
    return bias


def padding_bias(key_lengths_B: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """The bias of padded keys, [B, 1, 1, K]. Rows start at multiples of 8, as kernels require."""
    visible_BK = real_positions(key_lengths_B, keys)
    wide_BK = torch.zeros(len(visible_BK), -(-keys // 8) * 8, dtype=dtype, device=visible_BK.device)
    return wide_BK[:, :keys].masked_fill_(~visible_BK, -torch.inf)[:, None, None]


# The kernels


def attend_to_cached_rows(
    q_RH1E: Tensor,
    k_RHKE: Tensor,
    v_RHKE: Tensor,
    visible: CachedRowsVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    from regard.engine import triton_kernels

    assert not dropout, "a search has no dropout"
    return triton_kernels.attend_to_cache(
        q_RH1E, k_RHKE, v_RHKE, visible.rows_KR, visible.length_1, scale
    )


def attend_by_tiles(
    q_1HPE: Tensor,
    k_1HPE: Tensor,
    v_1HPE: Tensor,
    visible: PackedVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """Compiled code, rows of fixed size: only the tiles that share a sentence are computed."""
    # Imported here: it takes a second
    from torch.nn.attention.flex_attention import flex_attention

    context_1HPE: Tensor = flex_attention(
        q_1HPE, k_1HPE, v_1HPE, block_mask=visible.tiles, scale=scale
    )
    return context_1HPE


def attend_in_equal_lengths(
    q_1HPE: Tensor,
    k_1HPE: Tensor,
    v_1HPE: Tensor,
    visible: PackedVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """A packed row of sentences of one length is a batch without padding."""
    heads, width = q_1HPE.shape[1], q_1HPE.shape[-1]
    q_BHQE, k_BHKE, v_BHKE = (
        x_1HPE.view(heads, visible.equal, -1, width).transpose(0, 1)
        for x_1HPE in (q_1HPE, k_1HPE, v_1HPE)
    )
    with sdpa_kernel(EQUAL_LENGTH_KERNELS):
        context_BHQE = attend_to_whole_sentences(
            q_BHQE, k_BHKE, v_BHKE, None, visible.causal, scale, dropout
        )
    return context_BHQE.transpose(0, 1).flatten(1, 2)[None]


def attend_by_bounds(
    q_1HPE: Tensor,
    k_1HPE: Tensor,
    v_1HPE: Tensor,
    visible: PackedVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """All sentences of a batch in one row, by a kernel that takes the bounds of the sentences."""
    # Imported here: it takes a second, and only a GPU needs it
    from torch.nn.attention.varlen import varlen_attn

    # squeeze, not [0]: the gradient of an index is a copy
    q_PHE, k_PHE, v_PHE = (x_1HPE.squeeze(0).transpose(0, 1) for x_1HPE in (q_1HPE, k_1HPE, v_1HPE))
    context_PHE = varlen_attn(
        q_PHE,
        k_PHE,
        v_PHE,
        visible.queries.bounds,
        visible.keys.bounds,
        visible.queries.longest,
        visible.keys.longest,
        scale=scale,
        window_size=(-1, 0 if visible.causal else -1),
    )
    assert isinstance(context_PHE, Tensor)
    return context_PHE.transpose(0, 1)[None]


def attend_with_matrix(
    q_1HPE: Tensor,
    k_1HPE: Tensor,
    v_1HPE: Tensor,
    visible: PackedVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """Rows of fixed size if no better kernel applies: P x P scores, most of which are hidden."""
    mask_1PP = visible.matrix_BQK(q_1HPE.shape[2], k_1HPE.shape[2], q_1HPE.device)
    return F.scaled_dot_product_attention(
        q_1HPE, k_1HPE, v_1HPE, attn_mask=mask_1PP, scale=scale, dropout_p=dropout
    )


def attend_after_unpacking(
    q_1HPE: Tensor,
    k_1HPE: Tensor,
    v_1HPE: Tensor,
    visible: PackedVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """Pad for the attention only; the layers around it stay packed."""
    queries = visible.queries
    keys = visible.keys
    assert isinstance(keys, PackedSentences)
    q_BHQE = queries.restore_heads(q_1HPE)
    k_BHKE = keys.restore_heads(k_1HPE)
    v_BHKE = keys.restore_heads(v_1HPE)
    bias = None
    if not visible.causal:
        bias = shared_padding_bias(keys.lengths_B, k_BHKE.shape[2], q_BHQE.dtype)
    context_BHQE = attend_to_whole_sentences(
        q_BHQE, k_BHKE, v_BHKE, bias, visible.causal, scale, dropout
    )
    return queries.arrange(context_BHQE.transpose(1, 2)).transpose(1, 2)


def attend_with_two_products(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: PaddedVisible | SlotsVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """Few queries for each of many sentences on a CPU."""
    bias = bias_of(visible, k_BHKE.shape[2], q_BHQE.dtype)
    scores_BHQK = multiply_small_matrices(q_BHQE * scale, k_BHKE.transpose(-2, -1))
    weights_BHQK = (scores_BHQK if bias is None else scores_BHQK + bias).softmax(-1)
    return multiply_small_matrices(weights_BHQK, v_BHKE)


def attend_by_torch(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: PaddedVisible | SlotsVisible,
    scale: float,
    dropout: float,
) -> Tensor:
    """torch's kernel for padded sentences."""
    bias = bias_of(visible, k_BHKE.shape[2], q_BHQE.dtype)
    return attend_to_whole_sentences(
        q_BHQE, k_BHKE, v_BHKE, bias, is_causal(visible), scale, dropout
    )


def attend_to_whole_sentences(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    bias: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    queries = q_BHQE.shape[2]
    causal = causal and queries > 1
    assert not causal or queries == k_BHKE.shape[2], (
        "the kernel aligns queries with the first keys, not with the last"
    )
    return F.scaled_dot_product_attention(
        q_BHQE, k_BHKE, v_BHKE, attn_mask=bias, is_causal=causal, scale=scale, dropout_p=dropout
    )


def attend_in_window(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: Visibility,
    scale: float,
    dropout: float,
) -> Tensor:
    """torch's kernel, with a matrix of who may look at whom."""
    visible_BQK = visible.matrix_BQK(q_BHQE.shape[2], k_BHKE.shape[2], q_BHQE.device)
    return F.scaled_dot_product_attention(
        q_BHQE, k_BHKE, v_BHKE, attn_mask=visible_BQK[:, None], scale=scale, dropout_p=dropout
    )


def attend_with_bias(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: Visibility,
    scale: float,
    dropout: float,
    bias_BHQK: Tensor,
) -> Tensor:
    """torch's kernel, with a bias for each query and key."""
    visible_BQK = visible.matrix_BQK(q_BHQE.shape[2], k_BHKE.shape[2], q_BHQE.device)
    bias_BHQK = bias_BHQK.to(q_BHQE.dtype).masked_fill(~visible_BQK[:, None], -torch.inf)
    bias_BHQK = bias_BHQK.expand(*q_BHQE.shape[:3], -1)
    return F.scaled_dot_product_attention(
        q_BHQE, k_BHKE, v_BHKE, attn_mask=bias_BHQK, scale=scale, dropout_p=dropout
    )


# When each of them applies


def always(q_BHQE: Tensor) -> bool:
    return True


def is_causal(visible: Visibility) -> bool:
    return getattr(visible, "causal", False)


def has_cached_rows(q_RH1E: Tensor, visible: Visibility, dropout: float) -> bool:
    return isinstance(visible, CachedRowsVisible)


def has_tiles(q_1HPE: Tensor, visible: Visibility, dropout: float) -> bool:
    return isinstance(visible, PackedVisible) and visible.tiles is not None and not dropout


def has_equal_lengths(q_1HPE: Tensor, visible: Visibility, dropout: float) -> bool:
    return isinstance(visible, PackedVisible) and visible.equal > 0


def has_bounds_kernel(q_1HPE: Tensor, visible: Visibility, dropout: float) -> bool:
    return isinstance(visible, PackedVisible) and has_packed_kernel(
        q_1HPE, q_1HPE.shape[-1], dropout
    )


def has_fixed_rows(q_1HPE: Tensor, visible: Visibility, dropout: float) -> bool:
    return isinstance(visible, PackedVisible) and isinstance(visible.queries, PackedRow)


def is_packed(q_1HPE: Tensor, visible: Visibility, dropout: float) -> bool:
    return isinstance(visible, PackedVisible)


def has_window(q_BHQE: Tensor, visible: Visibility, dropout: float) -> bool:
    return getattr(visible, "window", None) is not None


def has_few_queries_on_cpu(q_BHQE: Tensor, visible: Visibility, dropout: float) -> bool:
    queries = q_BHQE.shape[2]
    if q_BHQE.device.type != "cpu" or dropout:
        return False
    if queries > MAX_QUERIES_OF_PRODUCTS or len(q_BHQE) < MIN_SENTENCES_OF_PRODUCTS:
        return False
    return not (is_causal(visible) and queries > 1)


def is_padded(q_BHQE: Tensor, visible: Visibility, dropout: float) -> bool:
    return not isinstance(visible, PackedVisible | CachedRowsVisible)


ATTENTION: list[tuple[Callable[..., bool], Callable[..., Tensor]]] = [
    (has_cached_rows, attend_to_cached_rows),
    (has_tiles, attend_by_tiles),
    (has_equal_lengths, attend_in_equal_lengths),
    (has_bounds_kernel, attend_by_bounds),
    (has_fixed_rows, attend_with_matrix),
    (is_packed, attend_after_unpacking),
    (has_window, attend_in_window),
    (has_few_queries_on_cpu, attend_with_two_products),
    (is_padded, attend_by_torch),
]


BIASED_ATTENTION: list[tuple[Callable[[Tensor], bool], Callable[..., Tensor]]] = [
    (always, attend_with_bias),
]


# Queries, keys and values of self-attention


def is_packed_training(visible: Visibility) -> bool:
    return isinstance(visible, PackedVisible) and torch.is_grad_enabled()


def project_together(x_BLD: Tensor, W_Q: nn.Linear, W_KV: nn.Linear) -> tuple[Tensor, ...]:
    """Queries, keys and values by one product instead of two."""
    W_QKV = torch.cat([W_Q.weight, W_KV.weight])
    b_QKV = torch.cat([W_Q.bias, W_KV.bias])
    return F.linear(x_BLD, W_QKV, b_QKV).chunk(3, dim=-1)


SELF_PROJECTIONS: list[tuple[Callable[[Visibility], bool], Callable[..., tuple[Tensor, ...]]]] = [
    (is_packed_training, project_together),
]
