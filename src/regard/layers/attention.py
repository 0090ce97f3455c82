"""Dot-product attention: the equation, the fast kernels that compute it, and a recorder for its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.linear import Linear
from regard.layers.packing import Packing
from regard.layers.visibility import Visibility


class Recording:
    """The attention weights computed while recording, in the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[nn.Module, Tensor]] = []

    def by_name(self, model: nn.Module) -> dict[str, Tensor]:
        """Weights [B, H, Q, K] by the name of the attention module in `model`; calls of a module are joined over Q.

        Step by step decoding has fewer keys in early calls; the missing keys get weight 0.
        """
        names = {id(module): name for name, module in model.named_modules()}
        calls: dict[str, list[Tensor]] = {}
        for module, weights_BHQK in self.calls:
            calls.setdefault(names[id(module)], []).append(weights_BHQK)
        return {name: _join_queries(weights) for name, weights in calls.items()}


def _join_queries(calls: list[Tensor]) -> Tensor:
    keys = max(weights_BHQK.shape[-1] for weights_BHQK in calls)
    return torch.cat([F.pad(weights_BHQK, (0, keys - weights_BHQK.shape[-1])) for weights_BHQK in calls], dim=2)


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recording() -> Iterator[Recording]:
    """Inside this context attention runs as the written-out equation and its weights are kept."""
    recorded = Recording()
    token = _recording.set(recorded)
    try:
        yield recorded
    finally:
        _recording.reset(token)


def is_recording() -> bool:
    return _recording.get() is not None


def record(owner: nn.Module, weights_BHQK: Tensor) -> None:
    """Store the weights that the module `owner` computed, if a recording is active."""
    if (recorded := _recording.get()) is not None:
        recorded.calls.append((owner, weights_BHQK.detach()))


def attend(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: Visibility,
    *,
    owner: nn.Module,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention, by the fastest kernel that applies.

    Vaswani et al. 2017, arXiv:1706.03762, equation 1:
        Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V
    """
    scale = q_BHQE.shape[-1] ** -0.5 if scaled else 1.0
    if is_recording():
        weights_BHQK = dot_product_weights(q_BHQE, k_BHKE, visible, scale)
        record(owner, weights_BHQK)
        context_BHQE: Tensor = F.dropout(weights_BHQK, dropout) @ v_BHKE
        return context_BHQE
    queries, keys = q_BHQE.shape[2], k_BHKE.shape[2]
    if visible.packed is not None:
        if has_packed_kernel(q_BHQE, q_BHQE.shape[-1], dropout):
            return _attend_packed(q_BHQE, k_BHKE, v_BHKE, visible.packed, visible.causal, scale)
        return _attend_unpacked(q_BHQE, k_BHKE, v_BHKE, visible, owner=owner, scaled=scaled, dropout=dropout)
    # Padding is on the right, so no real query of a causal attention sees it: the kernel needs no mask.
    mask = None if visible.causal else visible.bias_B11K(keys, q_BHQE.dtype)
    causal = visible.causal and queries > 1
    assert not causal or queries == keys, "the kernel aligns queries with the first keys, not with the last"
    return F.scaled_dot_product_attention(
        q_BHQE, k_BHKE, v_BHKE, attn_mask=mask, is_causal=causal, scale=scale, dropout_p=dropout
    )


def _attend_packed(
    q_1HPE: Tensor, k_1HPE: Tensor, v_1HPE: Tensor, packed: tuple[Packing, Packing], causal: bool, scale: float
) -> Tensor:
    """All sentences of a batch in one row, by a kernel that takes the sentence bounds."""
    from torch.nn.attention.varlen import varlen_attn  # takes a second to import, and only a GPU needs it

    queries, keys = packed
    # squeeze, not [0]: the gradient of an index is a copy
    q_PHE, k_PHE, v_PHE = (x.squeeze(0).transpose(0, 1) for x in (q_1HPE, k_1HPE, v_1HPE))
    attended_PHE = varlen_attn(
        q_PHE, k_PHE, v_PHE, queries.bounds, keys.bounds, queries.longest, keys.longest,
        scale=scale, window_size=(-1, 0 if causal else -1),
    )  # fmt: skip
    assert isinstance(attended_PHE, Tensor)
    return attended_PHE.transpose(0, 1)[None]


def _attend_unpacked(
    q_1HPE: Tensor,
    k_1HPE: Tensor,
    v_1HPE: Tensor,
    visible: Visibility,
    *,
    owner: nn.Module,
    scaled: bool,
    dropout: float,
) -> Tensor:
    """Without such a kernel: pad for the attention only; the layers around it stay packed."""
    assert visible.packed is not None
    queries, keys = visible.packed
    padded = Visibility(keys.lengths_B, visible.causal)
    k_BHKE, v_BHKE = keys.unpack_heads(k_1HPE), keys.unpack_heads(v_1HPE)
    attended_BHQE = attend(
        queries.unpack_heads(q_1HPE), k_BHKE, v_BHKE, padded, owner=owner, scaled=scaled, dropout=dropout
    )
    return queries.pack(attended_BHQE.transpose(1, 2)).transpose(1, 2)


def has_packed_kernel(like: Tensor, head_width: int, dropout: float) -> bool:
    """Whether a kernel for packed sentences applies: half precision, a recent GPU, no dropout.

    A recording needs the written-out equation, which works on padded sentences.
    """
    if like.device.type != "cuda" or is_recording() or dropout or head_width % 8 or head_width > 256:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else like.dtype
    return dtype in (torch.float16, torch.bfloat16) and torch.cuda.get_device_capability(like.device) >= (8, 0)


def dot_product_weights(q_BHQE: Tensor, k_BHKE: Tensor, visible: Visibility, scale: float) -> Tensor:
    """softmax(scale Q K^T) over the visible keys of each query, written out."""
    scores_BHQK = q_BHQE @ k_BHKE.transpose(-2, -1) * scale
    visible_BQK = visible.matrix_BQK(q_BHQE.shape[2], k_BHKE.shape[2], q_BHQE.device)
    return scores_BHQK.masked_fill(~visible_BQK[:, None], -torch.inf).softmax(dim=-1)


def split_heads(x_BLD: Tensor, heads: int) -> Tensor:
    """[B, L, H * E] -> [B, H, L, E]."""
    return x_BLD.view(*x_BLD.shape[:-1], heads, -1).transpose(1, 2)


def join_heads(x_BHLE: Tensor) -> Tensor:
    """[B, H, L, E] -> [B, L, H * E]."""
    return x_BHLE.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """Several attentions in parallel, each with its own projections.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2:
        head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)
        MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O

    W^K and W^V of all heads are one matrix, since keys and values are always projected together.
    """

    def __init__(self, width: int, heads: int, *, scaled: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.scaled, self.dropout = heads, scaled, dropout
        self.W_Q = Linear(width, width)
        self.W_KV = Linear(width, 2 * width)
        self.W_O = Linear(width, width)
        for weight in (self.W_Q.weight, *self.W_KV.weight.chunk(2), self.W_O.weight):
            nn.init.xavier_uniform_(weight)
        for bias in (self.W_Q.bias, self.W_KV.bias, self.W_O.bias):
            nn.init.zeros_(bias)

    def keys_values(self, x_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and the values of a text, [B, H, K, E] each."""
        k_BKD, v_BKD = self.W_KV(x_BKD).chunk(2, dim=-1)
        return split_heads(k_BKD, self.heads), split_heads(v_BKD, self.heads)

    def attend_to_self(self, x_BLD: Tensor, visible: Visibility) -> Tensor:
        """Self-attention over whole texts. For packed texts one product computes queries, keys and values."""
        if visible.packed is None:
            attended_BLD: Tensor = self(x_BLD, *self.keys_values(x_BLD), visible)
            return attended_BLD
        W_QKV, b_QKV = torch.cat([self.W_Q.weight, self.W_KV.weight]), torch.cat([self.W_Q.bias, self.W_KV.bias])
        q_BHLE, k_BHLE, v_BHLE = (split_heads(y, self.heads) for y in F.linear(x_BLD, W_QKV, b_QKV).chunk(3, dim=-1))
        return self._attend(q_BHLE, k_BHLE, v_BHLE, visible)

    def forward(self, x_BQD: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility) -> Tensor:
        return self._attend(split_heads(self.W_Q(x_BQD), self.heads), k_BHKE, v_BHKE, visible)

    def _attend(self, q_BHQE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        context_BHQE = attend(q_BHQE, k_BHKE, v_BHKE, visible, owner=self, scaled=self.scaled, dropout=dropout)
        attended: Tensor = self.W_O(join_heads(context_BHQE))
        return attended
