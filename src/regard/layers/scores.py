"""Attention by a score: how well a state of the decoder and a state of the encoder fit, in the papers' variants.

Each class is one score. What they share, the softmax over what may be seen and the average, stands once in the base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import is_recording, record
from regard.layers.linear import Linear, linear
from regard.layers.looks import Looks
from regard.layers.visibility import Visibility


@dataclass(frozen=True)
class Memory:
    """What the decoder looks at, once a source: the encoder's states, and what of a score does not need the decoder."""

    h_BSD: Tensor
    keys_BSA: Tensor
    visible_BS: Tensor
    lengths_B: Tensor

    def select(self, sources_B: Tensor) -> Memory:
        parts = (self.h_BSD, self.keys_BSA, self.visible_BS, self.lengths_B)
        return Memory(*(part.index_select(0, sources_B) for part in parts))

    def of_groups(self, rows_BW: Tensor, rows: int) -> Memory:
        """What the groups of a `State.select` look at, out of `rows` old rows; as many as before are the same."""
        sources = len(self.h_BSD)
        return self if len(rows_BW) == sources else self.select(rows_BW[:, 0] // (rows // sources))


@dataclass(frozen=True)
class Focus:
    """A part of the source for each query: where it may look, and by how much its weights count there."""

    near_BQS: Tensor
    factor_BQS: Tensor | None = None


class ScoredAttention(nn.Module):
    """Score every source position against a state of the decoder, then average the source.

    Bahdanau et al. 2015, arXiv:1409.0473, section 3.1, and Luong et al. 2015, arXiv:1508.04025, section 3.1:
        alpha_ij = softmax_j(score(s_i, h_j))
        c_i      = sum_j alpha_ij h_j
    """

    def keys(self, h_BSD: Tensor) -> Tensor:
        """What of the score does not depend on s_i, so that it is computed once a source."""
        raise NotImplementedError

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        """score(s_i, h_j) as e_BQS, for every i and j."""
        raise NotImplementedError

    def remember(self, h_BSD: Tensor, lengths_B: Tensor) -> Memory:
        visible_BS = Visibility(lengths_B).keys_BK(h_BSD.shape[1])
        assert visible_BS is not None
        return Memory(h_BSD, self.keys(h_BSD), visible_BS, lengths_B)

    def forward(self, s_BQD: Tensor, memory: Memory, focus: Focus | None = None) -> Tensor:
        visible_BQS = memory.visible_BS[:, None] if focus is None else memory.visible_BS[:, None] & focus.near_BQS
        e_BQS = self.scores(s_BQD, memory.keys_BSA).masked_fill(~visible_BQS, -torch.inf)
        alpha_BQS = e_BQS.softmax(dim=-1)
        if focus is not None and focus.factor_BQS is not None:
            alpha_BQS = alpha_BQS * focus.factor_BQS
        record(self, alpha_BQS[:, None])
        c_BQD: Tensor = alpha_BQS @ memory.h_BSD
        return c_BQD

    def looking(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """`forward` for one state after another and the same memory."""
        return lambda s_BQD: self(s_BQD, memory)


class SummedAttention(ScoredAttention):
    """Scores that look at the sum of a query and a key, e_ij = v . f(q_i + k_j), f being tanh or the rectifier."""

    rectified: ClassVar[bool] = False

    def query(self, s_BQD: Tensor) -> Tensor:
        """What of the sum depends on s_i."""
        raise NotImplementedError

    @property
    def v(self) -> nn.Linear:
        raise NotImplementedError

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        sum_BQSA = self.query(s_BQD)[:, :, None] + keys_BSA[:, None]
        e_BQS: Tensor = self.v(torch.relu(sum_BQSA) if self.rectified else torch.tanh(sum_BQSA)).squeeze(-1)
        return e_BQS

    def looking(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        if is_recording() or not torch.is_grad_enabled():
            return super().looking(memory)
        v_A = self.v.weight[0]
        looks = Looks(memory.keys_BSA, memory.h_BSD, v_A, memory.visible_BS, rectified=self.rectified)
        return lambda s_BQD: looks(self.query(s_BQD))


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
        keys_BSA: Tensor = self.U_a(h_BSD)
        return keys_BSA

    def query(self, s_BQD: Tensor) -> Tensor:
        query_BQA: Tensor = self.W_a(s_BQD)
        return query_BQA


class ConcatAttention(SummedAttention):
    """Luong et al. 2015, arXiv:1508.04025, section 3.1, "concat":

        e_ij = w . tanh(W_b [s_i ; h_j])

    The additive score under another name: with W_b = [W_a U_a], W_b [s ; h] = W_a s + U_a h. It is computed in those
    two halves as well, so that W_b meets each h_j once and not once for every i.
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

    One layer would not do: w_s . s_i + w_h . h_j has the same first term for every j, which the softmax over j cancels,
    so that all queries would look at the same place. For the same reason the second layer has no bias.
    """

    rectified = True


class DotAttention(ScoredAttention):
    """Luong et al. 2015, section 3.1, "dot"; scaled as in Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1:

        e_ij = s_i . h_j          e_ij = s_i . h_j / sqrt(width)

    Both states must be of the same width.
    """

    def __init__(self, *, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled

    def keys(self, h_BSD: Tensor) -> Tensor:
        return h_BSD * h_BSD.shape[-1] ** -0.5 if self.scaled else h_BSD

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        return s_BQD @ keys_BSA.transpose(1, 2)


class GeneralAttention(ScoredAttention):
    """Luong et al. 2015, section 3.1, "general":

    e_ij = s_i . W_a h_j
    """

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.W_a = Linear(memory_width, query_width, bias=False)

    def keys(self, h_BSD: Tensor) -> Tensor:
        keys_BSA: Tensor = self.W_a(h_BSD)
        return keys_BSA

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        return s_BQD @ keys_BSA.transpose(1, 2)
