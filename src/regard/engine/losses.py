"""Cross-entropy over a vocabulary, for `VocabularyLoss` in objectives/cross_entropy.py, which has
the equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.engine import is_plain

Equation = Callable[[Tensor, Tensor, float], Tensor]
"""log p [P, V], labels [P] and the smoothing -> the smoothed and the plain loss, summed, [2]."""


class SmoothedLoss(torch.autograd.Function):
    """The smoothed loss of logits with its gradient in closed form: autograd needs twice the
    passes.

    d loss / d logit_k = p_k - (1 - epsilon) [k = y] - epsilon u_k
    """

    @staticmethod
    def forward(
        ctx: Any, logits_PV: Tensor, labels_P: Tensor, epsilon: float, equation: Equation
    ) -> Tensor:
        # which would first copy the logits as float32
        with torch.autocast(logits_PV.device.type, enabled=False):
            log_p_PV = logits_PV.log_softmax(
                -1, dtype=torch.promote_types(logits_PV.dtype, torch.float32)
            )
        if ctx.needs_input_grad[0]:
            ctx.log_p_PV = log_p_PV
            ctx.labels_P = labels_P
            ctx.epsilon = epsilon
            ctx.dtype = logits_PV.dtype
        return equation(log_p_PV, labels_P, epsilon)

    @staticmethod
    def backward(ctx: Any, *gradients_2: Tensor) -> tuple[Tensor, None, None, None]:
        of_smoothed, of_plain = gradients_2[0]
        gradient_PV = ctx.log_p_PV.exp_()  # in place: it is needed only once
        ctx.log_p_PV = None
        real_P1 = (ctx.labels_P >= 0)[:, None].to(gradient_PV.dtype)
        gradient_PV.mul_((of_smoothed + of_plain) * real_P1)
        if ctx.epsilon:
            gradient_PV.sub_(of_smoothed * (ctx.epsilon / gradient_PV.shape[-1]) * real_P1)
        at_label_P1 = -(of_smoothed * (1 - ctx.epsilon) + of_plain) * real_P1
        gradient_PV.scatter_add_(1, ctx.labels_P.clamp(min=0)[:, None], at_label_P1)
        return gradient_PV.to(ctx.dtype), None, None, None


class GPULoss(torch.autograd.Function):
    """The loss on a GPU, from the input and the weights of the last layer on.

    One kernel computes both sums and turns the logits into the gradient of the smoothed loss; the
    plain loss, which is only reported, has none.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_PD: Tensor,
        W_VD: Tensor,
        b_V: Tensor | None,
        labels_P: Tensor,
        epsilon: float,
        learns: bool,
    ) -> Tensor:
        from regard.engine import triton_kernels

        logits_PV = F.linear(x_PD, W_VD, b_V)
        dtype = logits_PV.dtype
        ctx.dtypes = x_PD.dtype, W_VD.dtype
        ctx.biased = b_V is not None
        sums_2 = triton_kernels.loss(logits_PV, labels_P, epsilon, gradient=learns)
        ctx.save_for_backward(x_PD.to(dtype), W_VD.to(dtype), logits_PV)
        return sums_2

    @staticmethod
    def backward(ctx: Any, *gradients_2: Tensor) -> tuple[Tensor | None, ...]:
        x_PD, W_VD, gradient_PV = ctx.saved_tensors
        factor = gradients_2[0][0]
        of_x = (gradient_PV @ W_VD).to(ctx.dtypes[0])
        of_W = (gradient_PV.t() @ x_PD).to(ctx.dtypes[1])
        of_b = gradient_PV.sum(0, dtype=torch.float32) * factor if ctx.biased else None
        return of_x * factor, of_W * factor, of_b, None, None, None


def is_on_gpu(hidden_PD: Tensor) -> bool:
    return hidden_PD.device.type == "cuda" and hidden_PD.dtype != torch.float64


def loss_of_last_layer(x_PD: Tensor, last: nn.Linear, labels_P: Tensor, smoothing: float) -> Tensor:
    learns = torch.is_grad_enabled()
    loss_2: Tensor = GPULoss.apply(x_PD, last.weight, last.bias, labels_P, smoothing, learns)  # type: ignore[no-untyped-call]
    return loss_2


LAST_LAYER_LOSSES: list[
    tuple[Callable[[Tensor], bool], Callable[[Tensor, nn.Linear, Tensor, float], Tensor]]
] = [
    (is_on_gpu, loss_of_last_layer),
]
"""The loss from the input of the last layer on."""


def is_eager(logits_PV: Tensor) -> bool:
    return not torch.compiler.is_compiling()


def loss_with_closed_gradient(
    logits_PV: Tensor, labels_P: Tensor, smoothing: float, equation: Equation
) -> Tensor:
    loss_2: Tensor = SmoothedLoss.apply(logits_PV, labels_P, smoothing, equation)  # type: ignore[no-untyped-call]
    return loss_2


LOGIT_LOSSES: list[
    tuple[Callable[[Tensor], bool], Callable[[Tensor, Tensor, float, Equation], Tensor]]
] = [
    (is_eager, loss_with_closed_gradient),
]
"""The loss from the logits on."""


# Many positions, some at a time

MAX_LOGITS_ON_CPU = 2**24
MAX_LOGITS_ON_GPU = 2**28
"""Logits computed together at most; on a GPU many small parts would be slow."""


def rows_per_part(hidden_PD: Tensor, vocabulary: int) -> int | None:
    """How many positions to compute together; None if all of them fit."""
    if torch.compiler.is_compiling() or is_plain():
        return None
    most = MAX_LOGITS_ON_CPU if hidden_PD.device.type == "cpu" else MAX_LOGITS_ON_GPU
    rows = max(1, most // vocabulary)
    return rows if rows < len(hidden_PD) else None


def loss_in_parts(
    loss: Callable[[Tensor, Tensor], Tensor],
    rows: int,
    hidden_PD: Tensor,
    labels_P: Tensor,
    weights: Sequence[Tensor],
) -> Tensor:
    """A loss over many positions, `rows` at a time; `weights` are those that it uses."""
    if not torch.is_grad_enabled():
        parts = zip(torch.split(hidden_PD, rows), torch.split(labels_P, rows), strict=True)
        return torch.stack([loss(hidden, labels) for hidden, labels in parts]).sum(0)
    trained = [weight for weight in weights if weight.requires_grad]
    loss_2: Tensor = LossInParts.apply(loss, rows, labels_P, hidden_PD, *trained)  # type: ignore[no-untyped-call]
    return loss_2


class LossInParts(torch.autograd.Function):
    """A loss over many positions, computed in parts so that the logits are never all in memory.

    The gradient of each part is computed in the forward pass; the backward pass only scales it. So
    nothing is computed twice, and a large vocabulary needs no more memory than a small one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        loss: Callable[..., Tensor],
        rows: int,
        labels_P: Tensor,
        hidden_PD: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        totals = []
        of_hidden = []
        of_weights = [torch.zeros_like(weight) for weight in weights]
        for hidden, labels in zip(
            torch.split(hidden_PD.detach(), rows), torch.split(labels_P, rows), strict=True
        ):
            with torch.enable_grad():
                hidden.requires_grad_()
                part_2 = loss(hidden, labels)
                gradient, *gradients = torch.autograd.grad(part_2[0], [hidden, *weights])
            totals.append(part_2.detach())
            of_hidden.append(gradient)
            for total, part in zip(of_weights, gradients, strict=True):
                total += part
        ctx.save_for_backward(torch.cat(of_hidden), *of_weights)
        return torch.stack(totals).sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients_2: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *(gradients_2[0][0] * gradient for gradient in ctx.saved_tensors)
