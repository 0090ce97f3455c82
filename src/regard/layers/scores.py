"""Attention of recurrent decoders: the papers' scores for a decoder state and an encoder state.

Each class is one score. The softmax over the visible positions and the average are in the base class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import Linear, is_recording, linear, real_positions, record


@dataclass(frozen=True)
class Memory:
    """What the decoder attends to, once per source: encoder states, and the part of the score that needs only them."""

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
        """score(s_i, h_j) as e_BQS, for every i and j: dot products, unless a class says otherwise."""
        return s_BQD @ keys_BSA.transpose(1, 2)

    def memory(self, h_BSD: Tensor, lengths_B: Tensor) -> Memory:
        return Memory(h_BSD, self.keys(h_BSD), real_positions(lengths_B, h_BSD.shape[1]), lengths_B)

    def weights(self, s_BQD: Tensor, memory: Memory, focus: Focus | None = None) -> Tensor:
        """alpha_BQS."""
        visible_BQS = memory.visible_BS[:, None] if focus is None else memory.visible_BS[:, None] & focus.near_BQS
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
        if is_recording() or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().attend_to(memory)
        keys_BSA, visible_BS, gradients = memory.keys_BSA, memory.visible_BS, MemoryGradients()
        bias_BS = torch.zeros_like(visible_BS, dtype=keys_BSA.dtype).masked_fill_(~visible_BS, -torch.inf)
        inputs = keys_BSA, memory.h_BSD.to(keys_BSA.dtype), self.v.weight[0].to(keys_BSA.dtype)
        shared: tuple[Tensor, ...] = SharedMemory.apply(gradients, *inputs)  # type: ignore[no-untyped-call]
        options = gradients, self.rectified, bias_BS[:, None]
        step = GPUAttentionStep if keys_BSA.device.type == "cuda" and keys_BSA.dtype != torch.float64 else AttentionStep
        return lambda s_BQD: step.apply(*options, self.query(s_BQD), *shared)  # type: ignore[no-untyped-call]


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


class GeneralAttention(ScoredAttention):
    """Luong et al. 2015, section 3.1, "general":

    e_ij = s_i . W_a h_j
    """

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.W_a = Linear(memory_width, query_width, bias=False)

    def keys(self, h_BSD: Tensor) -> Tensor:
        return self.W_a(h_BSD)


# The fast path of SummedAttention. A decoder that loops over time attends to the same keys in every step. With plain
# autograd each step creates its own gradient of the whole memory and adds it to the others, in three times as many
# kernels as the equations need. Here all steps add to one gradient in place.


class MemoryGradients:
    """d loss / d keys, h and v, summed over the steps so far. The graph refers to it, not the other way round."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def add(self, dkeys_BSA: Tensor, alpha_BQS: Tensor, dc_BQD: Tensor, f_BQSA: Tensor, de_BQS: Tensor) -> None:
        alpha_BSQ, f_AP, de_P = alpha_BQS.transpose(1, 2), f_BQSA.flatten(0, 2).t(), de_BQS.flatten()
        if not self.parts:
            self.parts = [dkeys_BSA.clone(), alpha_BSQ @ dc_BQD, f_AP @ de_P]
            return
        keys_BSA, h_BSD, v_A = self.parts
        keys_BSA += dkeys_BSA
        h_BSD.baddbmm_(alpha_BSQ, dc_BQD)
        v_A.addmv_(f_AP, de_P)


class SharedMemory(torch.autograd.Function):
    """keys, h and v unchanged; the backward pass returns the gradients that all steps have added up."""

    @staticmethod
    def forward(ctx: Any, gradients: MemoryGradients, *memory: Tensor) -> tuple[Tensor, ...]:
        ctx.gradients = gradients
        ctx.set_materialize_grads(False)
        return tuple(part.view_as(part) for part in memory)

    @staticmethod
    def backward(ctx: Any, *unused: None) -> tuple[Tensor | None, ...]:
        dkeys_BSA, dh_BSD, dv = ctx.gradients.parts
        return None, dkeys_BSA, dh_BSD, dv if dv.dim() == 1 else dv.sum(0).to(dkeys_BSA.dtype)


class AttentionStep(torch.autograd.Function):
    """alpha = softmax(v . f(q + keys)), c = alpha h for one query, with its chain rule written out."""

    @staticmethod
    def forward(
        ctx: Any, gradients: MemoryGradients, rectified: bool, bias_B1S: Tensor, q_BQA: Tensor, *memory: Tensor
    ) -> Tensor:
        keys_BSA, h_BSD, v_A = memory
        sum_BQSA = q_BQA[:, :, None] + keys_BSA[:, None]
        f_BQSA = sum_BQSA.relu_() if rectified else sum_BQSA.tanh_()
        e_BQS = (f_BQSA @ v_A).add_(bias_B1S)
        alpha_BQS = e_BQS.softmax(-1, dtype=torch.promote_types(e_BQS.dtype, torch.float32)).to(e_BQS.dtype)
        ctx.save_for_backward(alpha_BQS, f_BQSA, h_BSD, v_A)
        ctx.rectified, ctx.gradients = rectified, gradients
        return alpha_BQS @ h_BSD

    @staticmethod
    def backward(ctx: Any, dc_BQD: Tensor) -> tuple[Tensor | None, ...]:
        (alpha_BQS, f_BQSA, h_BSD, v_A), aten = ctx.saved_tensors, torch.ops.aten
        dalpha_BQS = dc_BQD @ h_BSD.transpose(1, 2)
        de_BQS = aten._softmax_backward_data(dalpha_BQS, alpha_BQS, -1, alpha_BQS.dtype)
        through = partial(aten.threshold_backward, threshold=0) if ctx.rectified else aten.tanh_backward
        dsum_BQSA = through(de_BQS[..., None] * v_A, f_BQSA)
        dkeys_BSA = dsum_BQSA[:, 0] if dsum_BQSA.shape[1] == 1 else dsum_BQSA.sum(1)
        ctx.gradients.add(dkeys_BSA, alpha_BQS, dc_BQD, f_BQSA, de_BQS)
        return None, None, None, dsum_BQSA.sum(2), None, None, None


class GPUAttentionStep(torch.autograd.Function):
    """The same on a GPU, for one query a source: f(q + keys) is never stored."""

    @staticmethod
    def forward(
        ctx: Any, gradients: MemoryGradients, rectified: bool, bias_B1S: Tensor, q_B1A: Tensor, *memory: Tensor
    ) -> Tensor:
        from regard.layers import kernels

        keys_BSA, h_BSD, v_A = memory
        e_B1S = kernels.scores(q_B1A[:, 0].contiguous(), keys_BSA, v_A, rectified)[:, None]
        alpha_B1S = e_B1S.add_(bias_B1S).softmax(-1).to(h_BSD.dtype)
        ctx.save_for_backward(alpha_B1S, q_B1A, *memory)
        ctx.rectified, ctx.gradients = rectified, gradients
        return alpha_B1S @ h_BSD

    @staticmethod
    def backward(ctx: Any, dc_B1D: Tensor) -> tuple[Tensor | None, ...]:
        from regard.layers import kernels

        (alpha_B1S, q_B1A, keys_BSA, h_BSD, v_A), gradients = ctx.saved_tensors, ctx.gradients
        if not gradients.parts:
            gradients.parts = [torch.zeros_like(x) for x in (keys_BSA, h_BSD)]
            gradients.parts.append(torch.zeros_like(keys_BSA[:, 0], dtype=torch.float32))
        dkeys_BSA, dh_BSD, dv_BA = gradients.parts
        dalpha_B1S = dc_B1D @ h_BSD.transpose(1, 2)
        de_B1S = torch.ops.aten._softmax_backward_data(dalpha_B1S, alpha_B1S, -1, alpha_B1S.dtype)
        dh_BSD.baddbmm_(alpha_B1S.transpose(1, 2), dc_B1D)
        q_BA = q_B1A[:, 0].contiguous()
        dq_BA = kernels.scores_gradient(de_B1S[:, 0], q_BA, keys_BSA, v_A, dkeys_BSA, dv_BA, ctx.rectified)
        return None, None, None, dq_BA[:, None], None, None, None
