"""Scaled dot-product attention, multi-head attention and the feed-forward layer of the Transformer.

Read this file alongside Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762,
sections 3.2 and 3.3. Nothing here knows about devices. `regard/engine` has faster ways to compute
the same numbers; with REGARD_ENGINE=plain the code below is what runs.

Axis letters: B sentences, H heads, Q queries, K keys, E width of a head, D width of the model, L
positions of a text (docs/axes.md has all of them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import engine
from regard.data.batches import Padded, Tokens, real_positions
from regard.engine.attention import ATTENTION, BIASED_ATTENTION, SELF_PROJECTIONS, Visibility
from regard.engine.packing import Packed, PackedVisible
from regard.layers.linear import Dropout, Linear

# ------------------------------------------------------------------------------------- who may look at whom


@dataclass(frozen=True)
class Visible:
    """Which keys each query may look at: those before the padding and, if causal, none after the
    query itself."""

    key_lengths_B: Tensor | None = None
    """Number of keys per sentence without padding; None if no sentence is padded."""
    causal: bool = False
    """True in a decoder: a position must not see the words that it is trained to predict."""
    window: int | None = None
    """The largest distance between a query and a key that it sees; None if there is no limit."""

    def matrix_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """True where a query may look. With a cache, the queries are the last of the keys'
        positions."""
        visible_BQK = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            visible_BQK = visible_BQK.tril(diagonal=keys - queries)
        if self.window is not None:
            visible_BQK = visible_BQK & self._near_BQK(queries, keys, device)
        if self.key_lengths_B is not None:
            visible_BQK = visible_BQK & real_positions(self.key_lengths_B, keys)[:, None]
        return visible_BQK

    def _near_BQK(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """True within the window; everywhere for padding, which would else see no key at all."""
        assert self.window is not None
        query_Q1 = torch.arange(keys - queries, keys, device=device)[:, None]
        near_QK = (query_Q1 - torch.arange(keys, device=device)).abs() <= self.window
        if self.key_lengths_B is None:
            return near_QK[None]
        return near_QK | (query_Q1 >= self.key_lengths_B[:, None, None])

    def select(self, sentences_B: Tensor) -> Visible:
        """The visibility for these sentences, in this order."""
        if self.key_lengths_B is None:
            return self
        return replace(self, key_lengths_B=self.key_lengths_B.index_select(0, sentences_B))


def visible_between(queries: Tokens, keys: Tokens, *, causal: bool = False) -> Visibility:
    """Each query may look at the keys of its own sentence, in whichever layout both arrive."""
    if isinstance(keys, Packed):
        assert isinstance(queries, Packed), "queries and keys have one layout"
        return PackedVisible.between(queries, keys, causal=causal)
    assert isinstance(keys, Padded)
    return Visible(keys.lengths_B, causal)


def visible_source(source: Padded) -> Visible:
    """`visible_between` for the steps of a search, which all look at the source: without lengths if
    no sentence is padded, so that no step hides anything."""
    has_padding = int(source.host_lengths_B.min()) < source.ids_BL.shape[1]
    return Visible(source.lengths_B if has_padding else None)


# ------------------------------------------------------------------------------------------- the equation


def attend(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: Visibility,
    *,
    owner: nn.Module,
    scaled: bool = True,
    dropout: float = 0.0,
    bias_BHQK: Tensor | None = None,
) -> Tensor:
    """`attend_as_written`, or the first kernel of `regard/engine` that computes the same and applies.

    `visible` is a `Visible`, or its counterpart for packed sentences or cached keys in
    `regard/engine`. `scaled` off is an ablation. `bias_BHQK` is added to the scores, in models whose
    attention also depends on the distance between query and key. `dropout` is 0 unless training.
    """
    scale = q_BHQE.shape[-1] ** -0.5 if scaled else 1.0
    if bias_BHQK is not None:
        if biased := engine.first_that_applies(BIASED_ATTENTION, q_BHQE):
            return biased(q_BHQE, k_BHKE, v_BHKE, visible, scale, dropout, bias_BHQK)
    elif kernel := engine.first_that_applies(ATTENTION, q_BHQE, visible, dropout):
        return kernel(q_BHQE, k_BHKE, v_BHKE, visible, scale, dropout)
    return attend_as_written(
        q_BHQE,
        k_BHKE,
        v_BHKE,
        visible,
        owner=owner,
        scale=scale,
        dropout=dropout,
        bias_BHQK=bias_BHQK,
    )


def attend_as_written(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    visible: Visibility,
    *,
    owner: nn.Module,
    scale: float,
    dropout: float,
    bias_BHQK: Tensor | None,
) -> Tensor:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V          Vaswani et al. 2017, equation 1

    Dividing by sqrt(d_k) keeps the variance of a score at 1, whatever the width of a head (section
    3.2.1). Scores of keys that a query may not look at become -inf, so that their weights are 0
    (section 3.2.3).
    """
    scores_BHQK = q_BHQE @ k_BHKE.mT * scale
    if bias_BHQK is not None:
        scores_BHQK = scores_BHQK + bias_BHQK
    visible_BQK = visible.matrix_BQK(q_BHQE.shape[2], k_BHKE.shape[2], q_BHQE.device)
    weights_BHQK = scores_BHQK.masked_fill(~visible_BQK[:, None], -torch.inf).softmax(-1)
    weights_BHQK = record(owner, weights_BHQK, visible_BQK)
    return F.dropout(weights_BHQK, dropout) @ v_BHKE


# --------------------------------------------------------------------------------- recording what was computed


Change = Callable[[nn.Module, Tensor, int], Tensor]
"""The weights [B, H, Q, K] that a module shall use, from those that it computed and how many
queries it had before."""


class Recording:
    """The attention weights of every call and where each query may look, in the order of the
    calls."""

    def __init__(self, change: Change | None = None) -> None:
        self.calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        self._change = change

    def add(self, owner: nn.Module, weights_BHQK: Tensor, visible_BQK: Tensor) -> Tensor:
        if self._change is not None:
            before = sum(weights.shape[2] for module, weights, _ in self.calls if module is owner)
            weights_BHQK = self._change(owner, weights_BHQK, before)
        visible_B1QK = visible_BQK.expand_as(weights_BHQK[:, 0])[:, None]
        self.calls.append((owner, weights_BHQK.detach(), visible_B1QK))
        return weights_BHQK

    def by_name(self, model: nn.Module, *, visible: bool = False) -> dict[str, Tensor]:
        """Weights [B, H, Q, K] by the name of the attention module in `model`; calls of a module
        are joined over Q.

        Step by step decoding has fewer keys in early calls; the missing keys get weight 0. With
        `visible`, where each query may look, [B, 1, Q, K]: padding, look-ahead and windows are
        False.
        """
        names = {id(module): name for name, module in model.named_modules()}
        calls_by_name: dict[str, list[Tensor]] = {}
        for module, weights_BHQK, visible_B1QK in self.calls:
            part_BHQK = visible_B1QK if visible else weights_BHQK
            calls_by_name.setdefault(names[id(module)], []).append(part_BHQK)
        return {name: join_over_queries(parts) for name, parts in calls_by_name.items()}


def join_over_queries(parts: list[Tensor]) -> Tensor:
    """Several [B, H, Q, K] as one; keys that a call did not have yet become 0."""
    if len(parts) == 1:
        return parts[0]  # not copied: a long text has hundreds of megabytes
    keys = max(part_BHQK.shape[-1] for part_BHQK in parts)
    return torch.cat(
        [F.pad(part_BHQK, (0, keys - part_BHQK.shape[-1])) for part_BHQK in parts], dim=2
    )


_active: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recording(change: Change | None = None) -> Iterator[Recording]:
    """Compute everything as written inside this context, and keep the weights of every attention,
    or change them."""
    recorded = Recording(change)
    token = _active.set(recorded)
    try:
        with engine.plain():
            yield recorded
    finally:
        _active.reset(token)


def record(owner: nn.Module, weights_BHQK: Tensor, visible_BQK: Tensor) -> Tensor:
    """The weights that the module `owner` computed; an active recording keeps them, and may change
    them."""
    recorded = _active.get()
    return weights_BHQK if recorded is None else recorded.add(owner, weights_BHQK, visible_BQK)


# ---------------------------------------------------------------------------------- the layers of a Transformer


def split_heads(x_BLD: Tensor, heads: int) -> Tensor:
    """[B, L, D] -> [B, H, L, E]: every head gets its part of the width."""
    return x_BLD.view(*x_BLD.shape[:-1], heads, -1).transpose(1, 2)


AddKeysValues = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Stores the keys and values of the newest tokens -> all keys and values to attend to."""


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each with its own view of the words.

    Vaswani et al. 2017, section 3.2.2:
        head_i             = Attention(Q W_i^Q, K W_i^K, V W_i^V)
        MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O

    The matrices of all heads are one matrix here: `W_Q` holds W_1^Q to W_h^Q side by side, and
    `W_KV` those of the keys, then those of the values, since both are always computed from the same
    text.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        scaled: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.scaled = scaled
        self.dropout = dropout
        self.W_Q = Linear(width, width, bias=bias)
        self.W_KV = Linear(width, 2 * width, bias=bias)
        self.W_O = Linear(width, width, bias=bias)
        for weight in (self.W_Q.weight, *self.W_KV.weight.chunk(2), self.W_O.weight):
            nn.init.xavier_uniform_(weight)
        for linear in (self.W_Q, self.W_KV, self.W_O):
            if bias:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        x_BQD: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        visible: Visibility,
        bias_BHQK: Tensor | None = None,
    ) -> Tensor:
        """Attention of a text to keys and values, which may be its own, those of another text, or
        cached. `bias_BHQK` is added to the scores.

        The queries are computed here from `x_BQD`. Keys and values come computed, by `keys_values`:
        a decoder computes them once per source, and stores its own from step to step.
        """
        return self.attend_with_heads(self.queries(x_BQD), k_BHKE, v_BHKE, visible, bias_BHQK)

    def queries(self, x_BQD: Tensor) -> Tensor:
        """The queries of a text, [B, H, Q, E]."""
        return split_heads(self.W_Q(x_BQD), self.heads)

    def keys_values(self, x_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and the values of a text, [B, H, K, E] each."""
        k_BKD, v_BKD = self.W_KV(x_BKD).chunk(2, dim=-1)
        return split_heads(k_BKD, self.heads), split_heads(v_BKD, self.heads)

    def attend_to_self(self, x_BLD: Tensor, visible: Visibility) -> Tensor:
        """Self-attention: queries, keys and values all come from the same text."""
        if project := engine.first_that_applies(SELF_PROJECTIONS, visible):
            q_BHLE, k_BHLE, v_BHLE = (
                split_heads(y, self.heads) for y in project(x_BLD, self.W_Q, self.W_KV)
            )
            return self.attend_with_heads(q_BHLE, k_BHLE, v_BHLE, visible)
        return self(x_BLD, *self.keys_values(x_BLD), visible)

    def attend_with_heads(
        self,
        q_BHQE: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        visible: Visibility,
        bias_BHQK: Tensor | None = None,
    ) -> Tensor:
        """Concat(head_1, ..., head_h) W^O"""
        context_BHQE = attend(
            q_BHQE,
            k_BHKE,
            v_BHKE,
            visible,
            owner=self,
            scaled=self.scaled,
            dropout=self.dropout if self.training else 0.0,
            bias_BHQK=bias_BHQK,
        )
        return self.W_O(context_BHQE.transpose(1, 2).flatten(2))


def add_sublayer(
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    norm: nn.Module,
    dropout: nn.Module,
    *,
    pre: bool,
    residual: bool = True,
) -> Tensor:
    """Residual connection, dropout and norm around a sub-layer; `residual` off is an ablation.

    post    LayerNorm(x + Dropout(Sublayer(x)))       Vaswani et al. 2017, sections 3.1 and 5.4
    pre     x + Dropout(Sublayer(LayerNorm(x)))       Xiong et al. 2020, arXiv:2002.04745
    """
    out = dropout(sublayer(norm(x) if pre else x))
    total = x + out if residual else out
    return total if pre else norm(total)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or another activation instead of max.

    Vaswani et al. 2017, equation 2.
    """

    def __init__(self, width: int, inner: int, activation: str, dropout: float = 0.0) -> None:
        super().__init__()
        self.W_1 = Linear(width, inner)
        self.W_2 = Linear(inner, width)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(self.dropout(self.W_1(x, self.activation)))
