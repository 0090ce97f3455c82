"""Additive scores in a decoder that loops over time, for `SummedAttention` in layers/scores.py.

A decoder attends to the same keys in every step. With plain autograd each step creates its own
gradient of the whole memory and adds it to the others, in three times as many kernels as the
equations need. Here the chain rule of a step is written out, and all steps add to one gradient in
place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor


class MemoryGradients:
    """d loss / d keys, h and v, summed over the steps so far. The graph refers to it, not the other
    way round."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def add(
        self, dkeys_BSA: Tensor, alpha_BQS: Tensor, dc_BQD: Tensor, f_BQSA: Tensor, de_BQS: Tensor
    ) -> None:
        alpha_BSQ = alpha_BQS.transpose(1, 2)
        f_AP = f_BQSA.flatten(0, 2).t()
        de_P = de_BQS.flatten()
        if not self.parts:
            self.parts = [dkeys_BSA.clone(), alpha_BSQ @ dc_BQD, f_AP @ de_P]
            return
        keys_BSA, h_BSD, v_A = self.parts
        keys_BSA += dkeys_BSA
        h_BSD.baddbmm_(alpha_BSQ, dc_BQD)
        v_A.addmv_(f_AP, de_P)


class SharedMemory(torch.autograd.Function):
    """Returns keys, h and v unchanged; its backward pass returns the gradients that all steps have
    added up."""

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
    """alpha = softmax(v . f(q + keys)), c = alpha h for one query, with its chain rule written
    out."""

    @staticmethod
    def forward(
        ctx: Any,
        gradients: MemoryGradients,
        rectified: bool,
        bias_B1S: Tensor,
        q_BQA: Tensor,
        *memory: Tensor,
    ) -> Tensor:
        keys_BSA, h_BSD, v_A = memory
        sum_BQSA = q_BQA[:, :, None] + keys_BSA[:, None]
        f_BQSA = sum_BQSA.relu_() if rectified else sum_BQSA.tanh_()
        e_BQS = (f_BQSA @ v_A).add_(bias_B1S)
        alpha_BQS = e_BQS.softmax(-1, dtype=torch.promote_types(e_BQS.dtype, torch.float32)).to(
            e_BQS.dtype
        )
        ctx.save_for_backward(alpha_BQS, f_BQSA, h_BSD, v_A)
        ctx.rectified = rectified
        ctx.gradients = gradients
        return alpha_BQS @ h_BSD

    @staticmethod
    def backward(ctx: Any, dc_BQD: Tensor) -> tuple[Tensor | None, ...]:
        alpha_BQS, f_BQSA, h_BSD, v_A = ctx.saved_tensors
        aten = torch.ops.aten
        dalpha_BQS = dc_BQD @ h_BSD.transpose(1, 2)
        de_BQS = aten._softmax_backward_data(dalpha_BQS, alpha_BQS, -1, alpha_BQS.dtype)
        through = (
            partial(aten.threshold_backward, threshold=0) if ctx.rectified else aten.tanh_backward
        )
        dsum_BQSA = through(de_BQS[..., None] * v_A, f_BQSA)
        dkeys_BSA = dsum_BQSA[:, 0] if dsum_BQSA.shape[1] == 1 else dsum_BQSA.sum(1)
        ctx.gradients.add(dkeys_BSA, alpha_BQS, dc_BQD, f_BQSA, de_BQS)
        return None, None, None, dsum_BQSA.sum(2), None, None, None


class GPUAttentionStep(torch.autograd.Function):
    """`AttentionStep` on a GPU, for one query per source: f(q + keys) is never stored."""

    @staticmethod
    def forward(
        ctx: Any,
        gradients: MemoryGradients,
        rectified: bool,
        bias_B1S: Tensor,
        q_B1A: Tensor,
        *memory: Tensor,
    ) -> Tensor:
        from regard.engine import triton_kernels

        keys_BSA, h_BSD, v_A = memory
        e_B1S = triton_kernels.scores(q_B1A[:, 0].contiguous(), keys_BSA, v_A, rectified)[:, None]
        alpha_B1S = e_B1S.add_(bias_B1S).softmax(-1).to(h_BSD.dtype)
        ctx.save_for_backward(alpha_B1S, q_B1A, *memory)
        ctx.rectified = rectified
        ctx.gradients = gradients
        return alpha_B1S @ h_BSD

    @staticmethod
    def backward(ctx: Any, dc_B1D: Tensor) -> tuple[Tensor | None, ...]:
        from regard.engine import triton_kernels

        alpha_B1S, q_B1A, keys_BSA, h_BSD, v_A = ctx.saved_tensors
        gradients = ctx.gradients
        if not gradients.parts:
            gradients.parts = [torch.zeros_like(x) for x in (keys_BSA, h_BSD)]
            gradients.parts.append(torch.zeros_like(keys_BSA[:, 0], dtype=torch.float32))
        dkeys_BSA, dh_BSD, dv_BA = gradients.parts
        dalpha_B1S = dc_B1D @ h_BSD.transpose(1, 2)
        de_B1S = torch.ops.aten._softmax_backward_data(dalpha_B1S, alpha_B1S, -1, alpha_B1S.dtype)
        dh_BSD.baddbmm_(alpha_B1S.transpose(1, 2), dc_B1D)
        q_BA = q_B1A[:, 0].contiguous()
        dq_BA = triton_kernels.scores_gradient(
            de_B1S[:, 0], q_BA, keys_BSA, v_A, dkeys_BSA, dv_BA, ctx.rectified
        )
        return None, None, None, dq_BA[:, None], None, None, None


Attend = Callable[[Tensor], Tensor]
"""The part of the sum that comes from a decoder state, [B, 1, A] -> its context, [B, 1, D]."""


def is_training(keys_BSA: Tensor) -> bool:
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def steps_with_one_gradient(
    keys_BSA: Tensor, h_BSD: Tensor, v_A: Tensor, visible_BS: Tensor, rectified: bool
) -> Attend:
    """The attention of one decoder step after another to the same memory."""
    gradients = MemoryGradients()
    inputs = keys_BSA, h_BSD.to(keys_BSA.dtype), v_A.to(keys_BSA.dtype)
    bias_BS = torch.zeros_like(visible_BS, dtype=keys_BSA.dtype).masked_fill_(
        ~visible_BS, -torch.inf
    )
    memory: tuple[Tensor, ...] = SharedMemory.apply(gradients, *inputs)  # type: ignore[no-untyped-call]
    on_gpu = keys_BSA.device.type == "cuda" and keys_BSA.dtype != torch.float64
    step = GPUAttentionStep if on_gpu else AttentionStep
    bias_B1S = bias_BS[:, None]
    return lambda q_B1A: step.apply(gradients, rectified, bias_B1S, q_B1A, *memory)  # type: ignore[no-untyped-call]


ADDITIVE_STEPS: list[tuple[Callable[[Tensor], bool], Callable[..., Attend]]] = [
    (is_training, steps_with_one_gradient),
]
