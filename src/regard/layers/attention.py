"""Dot-product attention and the parts of a Transformer block.

In this order: linear layers; packed sentences; visibility, who may look at whom; a recorder of attention weights; the
equation and the kernels that compute it; multi-head attention and feed-forward layers; captured decoding steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.data.batches import TILE, Tokens

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

FEW_ROWS = range(1, 9)
"""Numbers of rows for which a CPU computes W x^T instead of x W^T."""
LARGE_WEIGHT = 1 << 17
"""Elements of W from which this is faster for a single row too."""
PACKED_WEIGHT = 1 << 16
"""Elements of W from which packing it pays."""
TRAINED_ROWS = 512
"""Rows from which oneDNN pays in training."""
MANY_DRAWS = 1 << 17
"""Elements from which a CPU draws the random numbers of dropout four at once."""
FEW_QUERIES, MANY_SENTENCES = 4, 16
"""With at most so many queries for each of at least so many sentences, two products are faster on a CPU than its kernel
for attention."""
KERNELS = [
    SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
]  # fmt: skip
"""Torch's choice for texts of one length. For others cuDNN is off, since it makes a plan for each new shape."""
CPU_FACTS = Path("/proc/cpuinfo")


def _gelu_tanh(x: Tensor) -> Tensor:
    """In compiled code with 1 + tanh(y) = 2 sigmoid(2 y): a GPU computes tanh longer than it reads and writes x."""
    if not torch.compiler.is_compiling():
        return F.gelu(x, approximate="tanh")
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
}
"""`model.activation` -> function. Hendrycks & Gimpel 2016, arXiv:1606.08415, with X standard normal:
GELU(x) = x P(X <= x) ~ 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
ONEDNN: dict[str, tuple[str, list[float], str]] = {
    "none": ("none", [], ""), "relu": ("relu", [], ""), "swish": ("swish", [], ""), "gelu": ("gelu", [], "none"),
    "gelu_tanh": ("gelu", [], "tanh"),
}  # fmt: skip
"""The same for oneDNN: name, numbers and kind."""


class _Product(torch.autograd.Function):
    """x W^T + b, where oneDNN multiplies by W; MKL needs no transposed copies for the gradient of W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, W, b, *ONEDNN["none"])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (x, W), dy_RE = ctx.saved_tensors, dy.reshape(-1, dy.shape[-1])
        of_x, of_W, of_b = ctx.needs_input_grad
        dx = torch.ops.mkldnn._linear_pointwise(dy, W.t(), None, *ONEDNN["none"]) if of_x else None
        dW = dy_RE.t() @ x.reshape(-1, x.shape[-1]) if of_W else None
        return dx, dW, dy_RE.sum(0) if of_b else None


def _trained_by_onednn(x: Tensor, W: Tensor) -> bool:
    """Not for few rows, where it is slower: a recurrent model has few in each of many steps."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    usual = x.numel() < TRAINED_ROWS * x.shape[-1] or not torch._C._has_mkldnn or _made_by_intel()
    return not usual and torch.is_grad_enabled() and x.dtype == W.dtype == torch.float32


class Linear(nn.Linear):
    """torch's linear layer. On a CPU, without gradients, W is first brought into the layout that oneDNN reads fastest:
    products of a few rows then take half the time, those of many a tenth less. In training oneDNN has W as it is, and
    takes a tenth less for many rows."""

    _packed: tuple[tuple[int, int], Tensor] | None = None
    """Which weight was packed (its address and version), and the result."""

    def forward(self, x: Tensor, then: str = "none") -> Tensor:
        """`then` is the activation of the result, which oneDNN computes at once."""
        W, b = self.weight, self.bias
        several, large = x.numel() > x.shape[-1], W.numel() >= PACKED_WEIGHT
        if self.training and large and _trained_by_onednn(x, W):
            return ACTIVATIONS[then](_Product.apply(x, W, b))  # type: ignore[no-untyped-call]
        if not (several and large and x.dtype == W.dtype == torch.float32 and _may_pack(x, W)):
            return ACTIVATIONS[then](linear(x, W, b))
        of = W.data_ptr(), W._version
        if self._packed is None or self._packed[0] != of:
            self._packed = of, torch.ops.mkldnn._reorder_linear_weight(W.detach(), None)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed[1], b, *ONEDNN[then])
        return y

    def train(self, mode: bool = True) -> Self:
        self._packed = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        """Without the packed weight, which cannot be copied."""
        return {name: value for name, value in vars(self).items() if name != "_packed"}


def _may_pack(x: Tensor, W: Tensor) -> bool:
    if x.device.type != "cpu" or torch.is_grad_enabled() or W.is_inference() or torch.compiler.is_compiling():
        return False
    return torch._C._has_mkldnn and not torch.is_autocast_enabled("cpu")


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W^T + b. For few rows a CPU is limited by reading W, and W x^T reads it two to eight times as fast, but not on
    Intel's, for which torch's library of products is written."""
    if x.device.type != "cpu" or x.dtype != W.dtype or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return F.linear(x, W, b)
    rows = x.numel() // x.shape[-1]
    if rows not in FEW_ROWS or (rows == 1 and W.numel() < LARGE_WEIGHT) or _made_by_intel():
        return F.linear(x, W, b)
    x_RD = x.reshape(rows, -1).expand(max(rows, 2), -1)  # a single column would use the slow kernel
    y_RE = (W @ x_RD.contiguous().t()).t()[:rows]
    return (y_RE if b is None else y_RE + b).reshape(*x.shape[:-1], -1)


def small_products(x: Tensor, y: Tensor) -> Tensor:
    """x @ y for many small matrices. On one thread torch's library first copies them, which takes longer than the
    products; numpy's does not, but has no second thread here. Intel's processors are the exception again."""
    usual = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.get_num_threads() > 1 or _made_by_intel()
    if usual or not x.dtype == y.dtype == torch.float32:
        return x @ y
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.matmul(x.numpy(), y.numpy()))


@cache
def _made_by_intel() -> bool:
    return CPU_FACTS.is_file() and "GenuineIntel" in CPU_FACTS.read_text()


# Packed sentences: all tokens of a batch in one row, without padding


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
    def of(tokens: Tokens, without: int = 0) -> Packing:
        """The packing of sentences `without` their last tokens. Uses the lengths on the host, to avoid a GPU sync."""
        if (row := tokens.fixed) is not None:
            return Packing(row.sentences_P, row.places_P, row.bounds, row.bounds, 0, row.longest, True, row.equal)
        host_B, lengths_B = tokens.host_lengths_B - without, tokens.lengths_B - without
        total = int(host_B.sum())
        bounds = F.pad(lengths_B.cumsum(0), (1, 0))
        sentences_P = torch.repeat_interleave(lengths_B, output_size=total)
        places_P = torch.arange(total, device=lengths_B.device) - bounds[sentences_P]
        width = tokens.ids_BL.shape[1] - without
        return Packing(sentences_P, places_P, lengths_B, bounds.int(), width, int(host_B.max()))

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
    """[P, ...] -> [B, L, ...]: token p goes to index rows_P[p] of the flattened [B, L]; the rest is zero."""
    padded = x_P.new_zeros(sentences * width, *x_P.shape[1:])
    return padded.index_copy_(0, rows_P, x_P).view(sentences, width, *x_P.shape[1:])


def worth_packing(tokens: Tokens) -> bool:
    """Whether a batch has so much padding that packing saves more than its copies cost."""
    return int(tokens.host_lengths_B.sum()) < 0.8 * tokens.ids_BL.numel()


def has_packed_kernel(like: Tensor, head_width: int, dropout: float) -> bool:
    """Whether a kernel for packed sentences applies: half precision, a recent GPU, no dropout, no recording."""
    if like.device.type != "cuda" or is_recording() or dropout or head_width % 8 or head_width > 256:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else like.dtype
    return dtype in (torch.float16, torch.bfloat16) and torch.cuda.get_device_capability(like.device) >= (8, 0)


def should_pack(text: Tokens, like: Tensor, head_width: int, dropout: float) -> bool:
    """Whether to compute on packed texts: there is a kernel for it, or much padding. A recording needs padded texts."""
    return has_packed_kernel(like, head_width, dropout) or (worth_packing(text) and not is_recording())


# Visibility


def real_positions(lengths_B: Tensor, width: int) -> Tensor:
    """True for the first `lengths_B[b]` of `width` positions, [B, width]."""
    return torch.arange(width, device=lengths_B.device) < lengths_B[:, None]


@dataclass(frozen=True)
class Visibility:
    """A query sees the first `key_lengths_B[b]` keys of its sentence and, if causal, none after its own position."""

    key_lengths_B: Tensor | None = None
    causal: bool = False
    packed: tuple[Packing, Packing] | None = None
    """The packing of queries and of keys, if all sentences are in one row: a query sees only its own sentence."""
    tiles: BlockMask | None = None
    """In compiled code, for rows of fixed size: the tiles of keys that each tile of queries looks at."""
    equal: int = 0
    """The number of packed sentences, if all their queries and all their keys have one length."""
    rows_KR: Tensor | None = None
    """On a GPU, for a step of a search: the row of the cache that has key k of row r (`RowCache.rows_MR`)."""
    bias_B1QK: Tensor | None = None
    """What is added to the scores, if the others do not say it: 0 for what a query sees, -inf for the rest."""

    @staticmethod
    def between(queries: Packing, keys: Packing, *, causal: bool = False) -> Visibility:
        """Of packed sentences."""
        equal = queries.equal if queries.equal == keys.equal else 0
        tiled = queries.fixed and torch.compiler.is_compiling() and queries.sentences_P.device.type == "cuda"
        tiles = _tiles(queries, keys, causal) if tiled and not equal else None
        return Visibility(None, causal, (queries, keys), tiles, equal)

    @staticmethod
    def of(tokens: Tokens) -> Visibility:
        """All tokens of each sentence; without lengths if there is no padding."""
        padded = int(tokens.host_lengths_B.min()) < tokens.ids_BL.shape[1]
        return Visibility(tokens.lengths_B if padded else None)

    def bias(self, keys: int, dtype: torch.dtype) -> Tensor | None:
        """What a kernel adds to the scores, [B, 1, 1 or Q, K]: 0 for real keys, -inf for padding; None without padding.

        All layers of a model need the same bias, so it is cached. Rows start at multiples of 8, as kernels require.
        """
        if self.key_lengths_B is None:
            return self.bias_B1QK
        cached: Tensor | None = self.__dict__.get("_bias_B11K")
        if cached is not None and cached.shape[-1] == keys and cached.dtype == dtype:
            return cached
        visible_BK = real_positions(self.key_lengths_B, keys)
        wide_BK = torch.zeros(len(visible_BK), -(-keys // 8) * 8, dtype=dtype, device=visible_BK.device)
        bias_B11K = wide_BK[:, :keys].masked_fill_(~visible_BK, -torch.inf)[:, None, None]
        if not torch.compiler.is_compiling():
            self.__dict__["_bias_B11K"] = bias_B11K
        return bias_B11K

    def select(self, sentences_B: Tensor) -> Visibility:
        lengths_B = None if self.key_lengths_B is None else self.key_lengths_B.index_select(0, sentences_B)
        return Visibility(lengths_B, self.causal)

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole matrix, for the written-out equation; the fast path never builds it.

        With fewer queries than keys, the queries of a causal attention are at the last positions.
        """
        if self.bias_B1QK is not None:
            return self.bias_B1QK[:, 0] == 0
        visible_BQK = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            visible_BQK = visible_BQK.tril(diagonal=keys - queries)
        if self.key_lengths_B is None:
            return visible_BQK
        return visible_BQK & real_positions(self.key_lengths_B, keys)[:, None]


def _tiles(queries: Packing, keys: Packing, causal: bool) -> BlockMask:
    """The sentences lie in the same order in both rows, so a tile looks at some tiles that lie side by side."""
    from torch.nn.attention.flex_attention import BlockMask

    def tiles_of(own_P: Tensor, other_P: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """How many tiles of the other row each own tile sees, and which; `place` is what limits them if causal."""
        own_T2 = own_P.view(-1, TILE)[:, [0, -1]].contiguous()
        first_T = torch.searchsorted(other_P, own_T2[:, 0].contiguous()) // TILE
        last_T = (torch.searchsorted(other_P, own_T2[:, 1].contiguous(), right=True) - 1) // TILE
        number_T, tiles = torch.arange(len(own_T2), device=own_P.device), len(other_P) // TILE
        if causal and place < 0:
            last_T = torch.minimum(last_T, number_T)
        elif causal:
            first_T = torch.maximum(first_T, number_T)
        counts_T = (last_T - first_T + 1).clamp(min=0)
        seen_TT = (first_T[:, None] + torch.arange(tiles, device=own_P.device)).clamp(max=tiles - 1)
        return counts_T.int()[None, None], seen_TT.int()[None, None]

    q_P, k_P = queries.sentences_P, keys.sentences_P

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = q_P[q] == k_P[k]
        return same & (k <= q) if causal else same

    keys_seen, queries_seeing = tiles_of(q_P, k_P, -1), tiles_of(k_P, q_P, 1)
    return BlockMask((len(q_P), len(k_P)), *keys_seen, None, None, *queries_seeing, None, None, (TILE, TILE), visible)


# Recording


Change = Callable[[nn.Module, Tensor, int], Tensor]
"""The weights [B, H, Q, K] that a module shall use, from those that it computed and how many queries it had before."""


class Recording:
    """The attention weights computed while recording and where they may look, in the order of the calls."""

    def __init__(self, change: Change | None = None) -> None:
        self.calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        self._change = change

    def add(self, owner: nn.Module, weights_BHQK: Tensor, visible_BQK: Tensor) -> Tensor:
        if self._change is not None:
            before = sum(weights.shape[2] for module, weights, _ in self.calls if module is owner)
            weights_BHQK = self._change(owner, weights_BHQK, before)
        self.calls.append((owner, weights_BHQK.detach(), visible_BQK.expand_as(weights_BHQK[:, 0])[:, None]))
        return weights_BHQK

    def by_name(self, model: nn.Module, *, visible: bool = False) -> dict[str, Tensor]:
        """Weights [B, H, Q, K] by the name of the attention module in `model`; calls of a module are joined over Q.

        Step by step decoding has fewer keys in early calls; the missing keys get weight 0. With `visible`, where each
        query may look, [B, 1, Q, K]: padding, look-ahead and windows are False.
        """
        names, parts = {id(module): name for name, module in model.named_modules()}, dict[str, list[Tensor]]()
        for module, weights_BHQK, visible_B1QK in self.calls:
            parts.setdefault(names[id(module)], []).append(visible_B1QK if visible else weights_BHQK)
        keys = {name: max(part_BHQK.shape[-1] for part_BHQK in of_module) for name, of_module in parts.items()}
        return {
            name: torch.cat([F.pad(part_BHQK, (0, keys[name] - part_BHQK.shape[-1])) for part_BHQK in of_module], dim=2)
            if len(of_module) > 1
            else of_module[0]  # not copied: a long text has hundreds of megabytes
            for name, of_module in parts.items()
        }


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recording(change: Change | None = None) -> Iterator[Recording]:
    """Inside this context attention runs as the written-out equation and its weights are kept, or changed."""
    recorded = Recording(change)
    token = _recording.set(recorded)
    try:
        yield recorded
    finally:
        _recording.reset(token)


def is_recording() -> bool:
    return not torch.compiler.is_compiling() and _recording.get() is not None  # compiled code cannot ask


def record(owner: nn.Module, weights_BHQK: Tensor, visible_BQK: Tensor) -> Tensor:
    """The weights that the module `owner` computed, given where it may look. If a recording is active they are stored,
    and it may change them."""
    recorded = _recording.get()
    return weights_BHQK if recorded is None else recorded.add(owner, weights_BHQK, visible_BQK)


# The equation


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
    if visible.rows_KR is not None and visible.key_lengths_B is not None:
        from regard.layers import kernels

        return kernels.attend_to_cache(q_BHQE, k_BHKE, v_BHKE, visible.rows_KR, visible.key_lengths_B, scale)
    if visible.tiles is not None:
        from torch.nn.attention.flex_attention import flex_attention  # takes a second to import

        context_1HPE: Tensor = flex_attention(q_BHQE, k_BHKE, v_BHKE, block_mask=visible.tiles, scale=scale)
        return context_1HPE
    if visible.equal:
        heads, width = q_BHQE.shape[1], q_BHQE.shape[-1]
        q, k, v = (x.view(heads, visible.equal, -1, width).transpose(0, 1) for x in (q_BHQE, k_BHKE, v_BHKE))
        with sdpa_kernel(KERNELS):
            context_BHQE = attend(
                q, k, v, Visibility(causal=visible.causal), owner=owner, scaled=scaled, dropout=dropout
            )
        return context_BHQE.transpose(0, 1).flatten(1, 2)[None]
    if visible.packed is not None:
        if has_packed_kernel(q_BHQE, q_BHQE.shape[-1], dropout):
            return _attend_packed(q_BHQE, k_BHKE, v_BHKE, *visible.packed, causal=visible.causal, scale=scale)
        queries, keys = visible.packed
        if queries.fixed:
            visible_PP = queries.sentences_P[:, None] == keys.sentences_P
            mask_PP = visible_PP.tril() if visible.causal else visible_PP
            return F.scaled_dot_product_attention(q_BHQE, k_BHKE, v_BHKE, attn_mask=mask_PP, scale=scale)
        # Without such a kernel, pad for the attention only; the layers around it stay packed.
        q_BHQE, k_BHKE, v_BHKE = queries.unpack_heads(q_BHQE), keys.unpack_heads(k_BHKE), keys.unpack_heads(v_BHKE)
        padded = Visibility(keys.lengths_B, visible.causal)
        context_BHQE = attend(q_BHQE, k_BHKE, v_BHKE, padded, owner=owner, scaled=scaled, dropout=dropout)
        return queries.pack(context_BHQE.transpose(1, 2)).transpose(1, 2)
    length, keys_length = q_BHQE.shape[2], k_BHKE.shape[2]
    if is_recording():
        return attend_as_written(q_BHQE, k_BHKE, v_BHKE, visible, owner, scale, dropout)
    # Padding is on the right, so no real query of a causal attention sees it: the kernel needs no mask.
    mask = None if visible.causal else visible.bias(keys_length, q_BHQE.dtype)
    causal = visible.causal and length > 1
    assert not causal or length == keys_length, "the kernel aligns queries with the first keys, not with the last"
    few = length <= FEW_QUERIES and len(q_BHQE) >= MANY_SENTENCES
    if few and q_BHQE.device.type == "cpu" and not (causal or dropout):
        scores_BHQK = small_products(q_BHQE * scale, k_BHKE.transpose(-2, -1))
        return small_products((scores_BHQK if mask is None else scores_BHQK + mask).softmax(-1), v_BHKE)
    return F.scaled_dot_product_attention(
        q_BHQE, k_BHKE, v_BHKE, attn_mask=mask, is_causal=causal, scale=scale, dropout_p=dropout
    )


def attend_as_written(
    q_BHQE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility, owner: nn.Module, scale: float, dropout: float
) -> Tensor:
    """The equation without a kernel; its weights are recorded."""
    visible_BQK = visible.matrix_BQK(q_BHQE.shape[2], k_BHKE.shape[2], q_BHQE.device)
    scores_BHQK = (q_BHQE @ k_BHKE.transpose(-2, -1)).mul_(scale).masked_fill_(~visible_BQK[:, None], -torch.inf)
    weights_BHQK = record(owner, scores_BHQK.softmax(dim=-1), visible_BQK)
    return F.dropout(weights_BHQK, dropout) @ v_BHKE


def _attend_packed(
    q_1HPE: Tensor, k_1HPE: Tensor, v_1HPE: Tensor, queries: Packing, keys: Packing, *, causal: bool, scale: float
) -> Tensor:
    """All sentences of a batch in one row, by a kernel that takes the sentence bounds."""
    from torch.nn.attention.varlen import varlen_attn  # takes a second to import, and only a GPU needs it

    # squeeze, not [0]: the gradient of an index is a copy
    q_PHE, k_PHE, v_PHE = (x.squeeze(0).transpose(0, 1) for x in (q_1HPE, k_1HPE, v_1HPE))
    context_PHE = varlen_attn(
        q_PHE, k_PHE, v_PHE, queries.bounds, keys.bounds, queries.longest, keys.longest,
        scale=scale, window_size=(-1, 0 if causal else -1),
    )  # fmt: skip
    assert isinstance(context_PHE, Tensor)
    return context_PHE.transpose(0, 1)[None]


# The sub-layers of a Transformer block


class Dropout(nn.Dropout):
    """torch's dropout: 0 with probability p, else x / (1 - p). Compiled code for a GPU, and a CPU for large x, draw
    numbers of 16 bits, several at once, and round p to them. torch calls its generator for each: on a GPU that takes
    longer than all else around a norm, on a CPU it is a twentieth of a step."""

    def forward(self, x: Tensor) -> Tensor:
        limit, compiled = round(self.p * 2**16), torch.compiler.is_compiling()
        many = not compiled and x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= MANY_DRAWS
        fast = x.device.type == "cuda" if compiled else many and not _made_by_intel()
        if not (fast and self.training) or limit in (0, 2**16):
            return super().forward(x)
        scale = 2**16 / (2**16 - limit)
        if many:
            drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
            return x * (drawn[: x.numel()].view(x.shape) >= limit - 2**15).float().mul_(scale)
        from regard.layers import kernels

        return torch.where(kernels.kept(x, limit) != 0, x * scale, 0.0)


def split_heads(x_BLD: Tensor, heads: int) -> Tensor:
    """[B, L, H * E] -> [B, H, L, E]."""
    return x_BLD.view(*x_BLD.shape[:-1], heads, -1).transpose(1, 2)


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
        """Self-attention over whole texts. In training, one product computes all of it for packed texts."""
        if visible.packed is None or not torch.is_grad_enabled():
            return self(x_BLD, *self.keys_values(x_BLD), visible)
        W_QKV, b_QKV = torch.cat([self.W_Q.weight, self.W_KV.weight]), torch.cat([self.W_Q.bias, self.W_KV.bias])
        q_BHLE, k_BHLE, v_BHLE = (split_heads(y, self.heads) for y in F.linear(x_BLD, W_QKV, b_QKV).chunk(3, dim=-1))
        return self._attend(q_BHLE, k_BHLE, v_BHLE, visible)

    def forward(self, x_BQD: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility) -> Tensor:
        return self._attend(split_heads(self.W_Q(x_BQD), self.heads), k_BHKE, v_BHKE, visible)

    def _attend(self, q_BHQE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        context_BHQE = attend(q_BHQE, k_BHKE, v_BHKE, visible, owner=self, scaled=self.scaled, dropout=dropout)
        return self.W_O(context_BHQE.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or another activation instead of max.

    Vaswani et al. 2017, arXiv:1706.03762, equation 2.
    """

    def __init__(self, width: int, inner: int, activation: str, dropout: float = 0.0) -> None:
        super().__init__()
        self.W_1, self.W_2 = Linear(width, inner), Linear(inner, width)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(self.dropout(self.W_1(x, self.activation)))


# Decoding steps as CUDA graphs

Cache = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Stores the keys and values of the input tokens -> all keys and values to attend to."""
Step = Callable[[Tensor, int], Tensor]
"""Tokens [R], and the number of cached tokens per row to attend to -> logits [R, V]."""


@dataclass(frozen=True)
class StepGraph:
    """A captured step. It reads `tokens_R`, updates the tensors it was captured with, and writes `logits_RV`."""

    graph: torch.cuda.CUDAGraph
    tokens_R: Tensor
    logits_RV: Tensor
    capacity: int
    """The number of cached tokens per row that the step attends to."""

    @staticmethod
    def capture(tokens_R: Tensor, capacity: int, step: Step) -> StepGraph:
        """Capture `step(tokens, capacity)` without running it. A step must have run before, so kernels are loaded."""
        tokens_R, graph = tokens_R.clone(), torch.cuda.CUDAGraph()
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            # thread_local: other threads, such as the one that prepares batches, may use the GPU meanwhile
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                logits_RV = step(tokens_R, capacity)
            finally:
                graph.capture_end()
        main.wait_stream(side)
        return StepGraph(graph, tokens_R, logits_RV, capacity)

    def run(self, tokens_R: Tensor) -> Tensor:
        """One step. The next one overwrites its logits."""
        self.tokens_R.copy_(tokens_R)
        self.graph.replay()
        return self.logits_RV


def step_with_cache(
    step: Step, tokens_R: Tensor, cached: int, limit: int, graph: StepGraph | None, *, warm: bool
) -> tuple[Tensor, StepGraph | None]:
    """The logits of `step(tokens, capacity)` with `cached` tokens in a cache of size `limit`, and the graph to reuse.

    A step is captured on a GPU, without gradients or recording, and if it is `warm`: one has run before. Its capacity
    is a power of two, so that a long text needs only a few captures.
    """
    if not (warm and tokens_R.device.type == "cuda" and torch.is_inference_mode_enabled() and not is_recording()):
        return step(tokens_R, cached + 1), graph
    if graph is None or graph.capacity <= cached:
        graph = StepGraph.capture(tokens_R, min(max(64, 1 << cached.bit_length()), limit), step)
    return graph.run(tokens_R), graph
