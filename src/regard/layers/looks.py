"""Many looks at one memory with a score v . f(q + k), whose gradients are added up in place.

A decoder that loops over time looks at the same keys in every step. Left to autograd, each step makes a gradient of its
own for all of the memory and adds it to the others', in three times as many kernels as the equations have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Slopes:
    """d loss / d keys, h and v, as far as they are known. It holds nothing of the graph, whose nodes hold it."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def add(self, dkeys_BSA: Tensor, alpha_BQS: Tensor, dc_BQD: Tensor, f_BQSA: Tensor, de_BQS: Tensor) -> None:
        """What one look adds."""
        if not self.parts:
            h_BSD, v_A = alpha_BQS.transpose(1, 2) @ dc_BQD, f_BQSA.flatten(0, 2).t() @ de_BQS.flatten()
            self.parts = [dkeys_BSA.clone(), h_BSD, v_A]
            return
        keys_BSA, h_BSD, v_A = self.parts
        keys_BSA += dkeys_BSA
        h_BSD.baddbmm_(alpha_BQS.transpose(1, 2), dc_BQD)
        v_A.addmv_(f_BQSA.flatten(0, 2).t(), de_BQS.flatten())


class Looks:
    """alpha = softmax(v . f(q + keys)), c = alpha h for one q after another, f being tanh or the rectifier."""

    def __init__(self, keys_BSA: Tensor, h_BSD: Tensor, v_A: Tensor, visible_BS: Tensor, *, rectified: bool) -> None:
        self.rectified, self.slopes = rectified, Slopes()
        self.hidden_B1S = torch.zeros_like(visible_BS, dtype=keys_BSA.dtype).masked_fill_(~visible_BS, -torch.inf)[
            :, None
        ]
        given = keys_BSA, h_BSD.to(keys_BSA.dtype), v_A.to(keys_BSA.dtype)
        self.memory: tuple[Tensor, ...] = Given.apply(*given, self.slopes)  # type: ignore[no-untyped-call]

    def __call__(self, q_BQA: Tensor) -> Tensor:
        c_BQD: Tensor = Look.apply(q_BQA, *self.memory, self.hidden_B1S, self.rectified, self.slopes)  # type: ignore[no-untyped-call]
        return c_BQD


class Given(torch.autograd.Function):
    """The memory as it is; on the way back, what all looks have added up."""

    @staticmethod
    def forward(ctx: Any, keys_BSA: Tensor, h_BSD: Tensor, v_A: Tensor, slopes: Slopes) -> tuple[Tensor, ...]:
        ctx.slopes = slopes
        ctx.set_materialize_grads(False)
        return tuple(part.view_as(part) for part in (keys_BSA, h_BSD, v_A))

    @staticmethod
    def backward(ctx: Any, *nothing: None) -> tuple[Tensor | None, ...]:
        return *ctx.slopes.parts, None


class Look(torch.autograd.Function):
    """One look, and the chain rule through it by hand."""

    @staticmethod
    def forward(
        ctx: Any,
        q_BQA: Tensor,
        keys_BSA: Tensor,
        h_BSD: Tensor,
        v_A: Tensor,
        hidden_B1S: Tensor,
        rectified: bool,
        slopes: Slopes,
    ) -> Tensor:
        f_BQSA = q_BQA[:, :, None] + keys_BSA[:, None]
        f_BQSA = f_BQSA.relu_() if rectified else f_BQSA.tanh_()
        e_BQS = (f_BQSA @ v_A).add_(hidden_B1S)
        alpha_BQS = e_BQS.softmax(-1, dtype=torch.promote_types(e_BQS.dtype, torch.float32)).to(e_BQS.dtype)
        ctx.save_for_backward(alpha_BQS, f_BQSA, h_BSD, v_A)
        ctx.rectified, ctx.slopes = rectified, slopes
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
        ctx.slopes.add(dkeys_BSA, alpha_BQS, dc_BQD, f_BQSA, de_BQS)
        return sum_BQSA.sum(2), None, None, None, None, None, None
