"""Attention of recurrent decoders: the papers' scores for a decoder state and an encoder state.

Each class is one score. The softmax over the visible positions and the average are in the base
class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.data.batches import real_positions
from regard.engine import first_that_applies
from regard.engine.additive import ADDITIVE_STEPS
from regard.layers.attention import record
from regard.layers.linear import Linear, linear


@dataclass(frozen=True)
class Memory:
    """The encoder states that a decoder attends to, once per source, and the part of the score that
    needs only them."""

    h_BSD: Tensor
    keys_BSA: Tensor
    visible_BS: Tensor
    lengths_B: Tensor

    def __getitem__(self, sources_B: Tensor) -> Memory:
        parts = (self.h_BSD, self.keys_BSA, self.visible_BS, self.lengths_B)
        return Memory(*(part.index_select(0, sources_B) for part in parts))

    def __len__(self) -> int:
        return len(self.h_BSD)


@dataclass(frozen=True)
class Focus:
    """A window on the source for each query: which positions it covers, and a factor for their
    weights."""

    near_BQS: Tensor
    factor_BQS: Tensor | None = None


class ScoredAttention(nn.Module):
    """Score every source position against a decoder state, then average the source.

    Bahdanau et al. 2015, arXiv:1409.0473, section 3.1, and Luong et al. 2015, arXiv:1508.04025,
    section 3.1:
        alpha_ij = softmax_j(score(s_i, h_j))
        c_i      = sum_j alpha_ij h_j

    In this file s is a state of the decoder and h one of the encoder, as Bahdanau writes them;
    Luong writes h_t and h_s. At step i the query is the last state of the decoder: Bahdanau's
    s_{i-1}, Luong's h_t.
    """

    def keys(self, h_BSD: Tensor) -> Tensor:
        """The part of the score that does not depend on s_i, computed once per source."""
        raise NotImplementedError

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        """score(s_i, h_j) as e_BQS, for every i and j: dot products, unless a class says
        otherwise."""
        return s_BQD @ keys_BSA.transpose(1, 2)

    def memory(self, h_BSD: Tensor, lengths_B: Tensor) -> Memory:
        return Memory(h_BSD, self.keys(h_BSD), real_positions(lengths_B, h_BSD.shape[1]), lengths_B)

    def weights(self, s_BQD: Tensor, memory: Memory, focus: Focus | None = None) -> Tensor:
        """alpha_BQS."""
        visible_BQS = (
            memory.visible_BS[:, None]
            if focus is None
            else memory.visible_BS[:, None] & focus.near_BQS
        )
        e_BQS = self.scores(s_BQD, memory.keys_BSA).masked_fill(~visible_BQS, -torch.inf)
        alpha_BQS = e_BQS.softmax(dim=-1)
        if focus is not None and focus.factor_BQS is not None:
            alpha_BQS = alpha_BQS * focus.factor_BQS
        return record(self, alpha_BQS[:, None], visible_BQS)[:, 0]

    def forward(self, s_BQD: Tensor, memory: Memory, focus: Focus | None = None) -> Tensor:
        return self.weights(s_BQD, memory, focus) @ memory.h_BSD

    def attend_to(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """`forward` for a decoder loop: one state after another, always the same memory."""
        return lambda s_BQD: self(s_BQD, memory)


class SummedAttention(ScoredAttention):
    """Scores of the sum of a query and a key: e_ij = v . f(q_i + k_j), f being tanh or ReLU."""

    rectified: ClassVar[bool] = False
    """Whether f is ReLU."""

    def query(self, s_BQD: Tensor) -> Tensor:
        """The part of the sum that depends on s_i."""
        raise NotImplementedError

    @property
    def v(self) -> nn.Linear:
        raise NotImplementedError

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        sum_BQSA = self.query(s_BQD)[:, :, None] + keys_BSA[:, None]
        return self.v(torch.relu(sum_BQSA) if self.rectified else torch.tanh(sum_BQSA)).squeeze(-1)

    def attend_to(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        if steps := first_that_applies(ADDITIVE_STEPS, memory.keys_BSA):
            attend = steps(
                memory.keys_BSA, memory.h_BSD, self.v.weight[0], memory.visible_BS, self.rectified
            )
            return lambda s_BQD: attend(self.query(s_BQD))
        return super().attend_to(memory)


class AdditiveAttention(SummedAttention):
    """Bahdanau et al. 2015, arXiv:1409.0473, section A.1.2:

    e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j)
    """

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__()
        self.W_a = Linear(query_width, width, bias=False)
        self.U_a = Linear(memory_width, width)
        self.v_a = Linear(width, 1, bias=False)

    @property
    def v(self) -> nn.Linear:
        return self.v_a

    def keys(self, h_BSD: Tensor) -> Tensor:
        return self.U_a(h_BSD)

    def query(self, s_BQD: Tensor) -> Tensor:
        return self.W_a(s_BQD)


class ConcatAttention(SummedAttention):
    """Luong et al. 2015, arXiv:1508.04025, section 3.1, "concat":

        score(h_t, h_s) = v_a . tanh(W_a [h_t ; h_s])

    The weights v_a and W_a are `w` and `W_b` here. It is the same function as Bahdanau's additive
    score: with W_b = [W U], W_b [s ; h] = W s + U h. It is computed in these two halves, so that
    W_b is applied to each h_j once and not once for every i.
    """

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__()
        self.query_width = query_width
        self.W_b = Linear(query_width + memory_width, width)
        self.w = Linear(width, 1, bias=False)

    @property
    def v(self) -> nn.Linear:
        return self.w

    def keys(self, h_BSD: Tensor) -> Tensor:
        return linear(h_BSD, self.W_b.weight[:, self.query_width :], self.W_b.bias)

    def query(self, s_BQD: Tensor) -> Tensor:
        return linear(s_BQD, self.W_b.weight[:, : self.query_width])


class FullyConnectedAttention(ConcatAttention):
    """Two fully connected layers over both states:

        e_ij = w . max(0, W_b [s_i ; h_j] + b)

    One layer is not enough: in w_s . s_i + w_h . h_j the first term is the same for every j, and
    the softmax over j cancels it, so all queries would get the same weights. The second layer has
    no bias for the same reason.
    """

    rectified = True


class DotAttention(ScoredAttention):
    """Luong et al. 2015, section 3.1, "dot"; scaled as in Vaswani et al. 2017, arXiv:1706.03762,
    section 3.2.1:

        score(h_t, h_s) = h_t . h_s          score(h_t, h_s) = h_t . h_s / sqrt(width)

    Both states must have the same width.
    """

    def __init__(self, *, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled

    def keys(self, h_BSD: Tensor) -> Tensor:
        return h_BSD * h_BSD.shape[-1] ** -0.5 if self.scaled else h_BSD


class GeneralAttention(ScoredAttention):
    """Luong et al. 2015, section 3.1, "general":

    score(h_t, h_s) = h_t . W_a h_s
    """

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.W_a = Linear(memory_width, query_width, bias=False)

    def keys(self, h_BSD: Tensor) -> Tensor:
        return self.W_a(h_BSD)
