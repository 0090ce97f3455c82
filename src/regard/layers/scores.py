"""Attention of recurrent decoders: the papers' scores for a decoder state and an encoder state.

Each class is one score. The softmax over the visible positions and the average are in the base class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import Linear, Visibility, is_recording, linear, record


@dataclass(frozen=True)
class Memory:
    """What the decoder attends to, once per source: encoder states, and the part of the score that needs only them."""

    h_BSD: Tensor
    keys_BSA: Tensor
    visible_BS: Tensor
    lengths_B: Tensor

    def select(self, sources_B: Tensor) -> Memory:
        parts = (self.h_BSD, self.keys_BSA, self.visible_BS, self.lengths_B)
        return Memory(*(part.index_select(0, sources_B) for part in parts))

    def select_groups(self, rows_BW: Tensor, rows: int) -> Memory:
        """The memory for the groups of a `State.select` out of `rows` old rows."""
        sources = len(self.h_BSD)  # groups keep their order, so as many groups as before are the same ones
        return self if len(rows_BW) == sources else self.select(rows_BW[:, 0] // (rows // sources))


@dataclass(frozen=True)
class Focus:
    """A window on the source for each query: which positions it covers, and a factor for their weights."""

    near_BQS: Tensor
    factor_BQS: Tensor | None = None


class ScoredAttention(nn.Module):
    """Score every source position against a decoder state, then average the source.

    Bahdanau et al. 2015, arXiv:1409.0473, section 3.1, and Luong et al. 2015, arXiv:1508.04025, section 3.1:
        alpha_ij = softmax_j(score(s_i, h_j))
        c_i      = sum_j alpha_ij h_j
    """

    def keys(self, h_BSD: Tensor) -> Tensor:
        """The part of the score that does not depend on s_i, computed once per source."""
        raise NotImplementedError

    def scores(self, s_BQD: Tensor, keys_BSA: Tensor) -> Tensor:
        """score(s_i, h_j) as e_BQS, for every i and j."""
        raise NotImplementedError

    def memory(self, h_BSD: Tensor, lengths_B: Tensor) -> Memory:
        visible_BS = Visibility(lengths_B).keys_BK(h_BSD.shape[1])
        assert visible_BS is not None
        return Memory(h_BSD, self.keys(h_BSD), visible_BS, lengths_B)

    def forward(self, s_BQD: Tensor, memory: Memory, focus: Focus | None = None) -> Tensor:
        visible_BQS = memory.visible_BS[:, None] if focus is None else memory.visible_BS[:, None] & focus.near_BQS
        e_BQS = self.scores(s_BQD, memory.keys_BSA).masked_fill(~visible_BQS, -torch.inf)
        alpha_BQS = e_BQS.softmax(dim=-1)
        if focus is not None and focus.factor_BQS is not None:
            alpha_BQS = alpha_BQS * focus.factor_BQS
        record(self, alpha_BQS[:, None], visible_BQS)
        c_BQD: Tensor = alpha_BQS @ memory.h_BSD
        return c_BQD

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
        e_BQS: Tensor = self.v(torch.relu(sum_BQSA) if self.rectified else torch.tanh(sum_BQSA)).squeeze(-1)
        return e_BQS

    def attend_to(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        if is_recording() or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().attend_to(memory)
        v_A = self.v.weight[0]
        attention = RepeatedAttention(memory.keys_BSA, memory.h_BSD, v_A, memory.visible_BS, rectified=self.rectified)
        return lambda s_BQD: attention(self.query(s_BQD))


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

    The same function as the additive score: with W_b = [W_a U_a], W_b [s ; h] = W_a s + U_a h. It is computed in these
    two halves, so that W_b is applied to each h_j once and not once for every i.
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

    One layer is not enough: in w_s . s_i + w_h . h_j the first term is the same for every j, and the softmax over j
    cancels it, so all queries would get the same weights. The second layer has no bias for the same reason.
    """

    rectified = True


class DotAttention(ScoredAttention):
    """Luong et al. 2015, section 3.1, "dot"; scaled as in Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1:

        e_ij = s_i . h_j          e_ij = s_i . h_j / sqrt(width)

    Both states must have the same width.
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


# The fast path of SummedAttention. A decoder that loops over time attends to the same keys in every step. With plain
# autograd each step creates its own gradient of the whole memory and adds it to the others, in three times as many
# kernels as the equations need. Here all steps add to one gradient in place.


class MemoryGradients:
    """d loss / d keys, h and v, summed over the steps so far. The graph refers to it, not the other way round."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def add(self, dkeys_BSA: Tensor, alpha_BQS: Tensor, dc_BQD: Tensor, f_BQSA: Tensor, de_BQS: Tensor) -> None:
        """Add the gradients of one step."""
        if not self.parts:
            h_BSD, v_A = alpha_BQS.transpose(1, 2) @ dc_BQD, f_BQSA.flatten(0, 2).t() @ de_BQS.flatten()
            self.parts = [dkeys_BSA.clone(), h_BSD, v_A]
            return
        keys_BSA, h_BSD, v_A = self.parts
        keys_BSA += dkeys_BSA
        h_BSD.baddbmm_(alpha_BQS.transpose(1, 2), dc_BQD)
        v_A.addmv_(f_BQSA.flatten(0, 2).t(), de_BQS.flatten())


class RepeatedAttention:
    """alpha = softmax(v . f(q + keys)), c = alpha h for one q after another, f being tanh or ReLU."""

    def __init__(self, keys_BSA: Tensor, h_BSD: Tensor, v_A: Tensor, visible_BS: Tensor, *, rectified: bool) -> None:
        self.rectified, self.gradients = rectified, MemoryGradients()
        bias_BS = torch.zeros_like(visible_BS, dtype=keys_BSA.dtype).masked_fill_(~visible_BS, -torch.inf)
        self.bias_B1S = bias_BS[:, None]
        inputs = keys_BSA, h_BSD.to(keys_BSA.dtype), v_A.to(keys_BSA.dtype)
        self.memory: tuple[Tensor, ...] = SharedMemory.apply(*inputs, self.gradients)  # type: ignore[no-untyped-call]

    def __call__(self, q_BQA: Tensor) -> Tensor:
        options = self.bias_B1S, self.rectified, self.gradients
        c_BQD: Tensor = AttentionStep.apply(q_BQA, *self.memory, *options)  # type: ignore[no-untyped-call]
        return c_BQD


class SharedMemory(torch.autograd.Function):
    """The memory unchanged; its backward pass returns the gradients that all steps have added up."""

    @staticmethod
    def forward(
        ctx: Any, keys_BSA: Tensor, h_BSD: Tensor, v_A: Tensor, gradients: MemoryGradients
    ) -> tuple[Tensor, ...]:
        ctx.gradients = gradients
        ctx.set_materialize_grads(False)
        return tuple(part.view_as(part) for part in (keys_BSA, h_BSD, v_A))

    @staticmethod
    def backward(ctx: Any, *unused: None) -> tuple[Tensor | None, ...]:
        return *ctx.gradients.parts, None


class AttentionStep(torch.autograd.Function):
    """One attention step, with its chain rule written out."""

    @staticmethod
    def forward(
        ctx: Any,
        q_BQA: Tensor,
        keys_BSA: Tensor,
        h_BSD: Tensor,
        v_A: Tensor,
        bias_B1S: Tensor,
        rectified: bool,
        gradients: MemoryGradients,
    ) -> Tensor:
        f_BQSA = q_BQA[:, :, None] + keys_BSA[:, None]
        f_BQSA = f_BQSA.relu_() if rectified else f_BQSA.tanh_()
        e_BQS = (f_BQSA @ v_A).add_(bias_B1S)
        alpha_BQS = e_BQS.softmax(-1, dtype=torch.promote_types(e_BQS.dtype, torch.float32)).to(e_BQS.dtype)
        ctx.save_for_backward(alpha_BQS, f_BQSA, h_BSD, v_A)
        ctx.rectified, ctx.gradients = rectified, gradients
        return alpha_BQS @ h_BSD

    @staticmethod
    def backward(ctx: Any, dc_BQD: Tensor) -> tuple[Tensor | None, ...]:
        alpha_BQS, f_BQSA, h_BSD, v_A = ctx.saved_tensors
        dalpha_BQS = dc_BQD @ h_BSD.transpose(1, 2)
        de_BQS = torch.ops.aten._softmax_backward_data(dalpha_BQS, alpha_BQS, -1, alpha_BQS.dtype)
        through = torch.ops.aten.threshold_backward if ctx.rectified else torch.ops.aten.tanh_backward
        df_BQSA = de_BQS[..., None] * v_A
        sum_BQSA = through(df_BQSA, f_BQSA, 0) if ctx.rectified else through(df_BQSA, f_BQSA)
        dkeys_BSA = sum_BQSA[:, 0] if sum_BQSA.shape[1] == 1 else sum_BQSA.sum(1)
        ctx.gradients.add(dkeys_BSA, alpha_BQS, dc_BQD, f_BQSA, de_BQS)
        return sum_BQSA.sum(2), None, None, None, None, None, None
