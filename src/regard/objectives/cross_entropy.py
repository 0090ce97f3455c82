"""Cross-entropy over the vocabulary: the loss of every model that writes text, and its fast implementation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.layers.attention import Packing
from regard.models.base import Generator, real_BL

LOGITS = {True: 2**24, False: 2**28}
"""The most logits computed at once on a CPU, and on an accelerator, where many small parts would be slow."""


def perplexity(loss: float) -> float:
    """e to the mean cross-entropy, as far as a float can tell."""
    return math.exp(min(loss, 700.0))


class Objective(nn.Module):
    """A model with its training loss: batch -> [2], the loss to minimise and the plain loss to report, both summed."""

    carries: ClassVar[bool] = False
    """Whether a recurrent state is passed on from batch to batch: batch and state -> ([2], state)."""
    is_cross_entropy: ClassVar[bool] = True
    """Whether the exponential of the mean plain loss is a perplexity."""


class VocabularyLoss(Objective):
    """Hidden states and the tokens that they predict -> [2], the smoothed and the plain loss, summed.

    Szegedy et al. 2016, arXiv:1512.00567, section 7, with smoothing epsilon and u uniform over the vocabulary:
        loss = -sum_t sum_k ((1 - epsilon) [k = y_t] + epsilon u_k) log p_k
    """

    model: Any  # a model with a `readout`, and the module `output` that it runs

    def __init__(self, model: nn.Module, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def total(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """Both sums over all positions, computed in parts if there are too many logits for one."""
        vocabulary = max(parameter.shape[0] for parameter in self.model.output.parameters())
        rows = max(1, LOGITS[hidden_PD.device.type == "cpu"] // vocabulary)
        if rows >= len(hidden_PD) or torch.compiler.is_compiling():
            return self.loss(hidden_PD, labels_P)
        if not torch.is_grad_enabled():
            parts = zip(torch.split(hidden_PD, rows), torch.split(labels_P, rows), strict=True)
            return torch.stack([self.loss(hidden, labels) for hidden, labels in parts]).sum(0)
        parameters = [parameter for parameter in self.model.output.parameters() if parameter.requires_grad]
        return LossInParts.apply(self.loss, rows, labels_P, hidden_PD, *parameters)  # type: ignore[no-untyped-call]

    def loss(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """Both sums over some positions."""
        smoothing = self.smoothing if self.training else 0.0
        if hidden_PD.device.type == "cuda" and hidden_PD.dtype != torch.float64:
            x_PD, last = self.model.output.last_layer(hidden_PD)
            weights, learns = (last.weight, last.bias), torch.is_grad_enabled()
            return GPULoss.apply(x_PD, *weights, labels_P, smoothing, learns)  # type: ignore[no-untyped-call]
        logits_PV = self.model.readout(hidden_PD)
        if torch.compiler.is_compiling():
            wide_PV = logits_PV.to(torch.promote_types(logits_PV.dtype, torch.float32))
            return smoothed_loss(wide_PV.log_softmax(-1), labels_P, smoothing)
        return SmoothedLoss.apply(logits_PV, labels_P, smoothing)  # type: ignore[no-untyped-call]


class TokenCrossEntropy(VocabularyLoss):
    """The loss of an encoder-decoder: the target given the source.

    Optionally with Xu et al. 2015, arXiv:1502.03044, equation 14, which makes a captioner attend to every region:
        L = -log P(y | x) + lambda sum_i (1 - sum_t alpha_ti)^2           lambda is `doubly_stochastic`
    The penalty, summed over the images, is part of the loss to minimise, not of the plain loss.
    """

    model: Generator

    def __init__(
        self, model: Generator, smoothing: float = 0.0, teacher_forcing: float = 1.0, doubly_stochastic: float = 0.0
    ) -> None:
        super().__init__(model, smoothing)
        self.teacher_forcing, self.doubly_stochastic = teacher_forcing, doubly_stochastic

    def forward(self, batch: Batch) -> Tensor:
        read = batch
        if self.training and self.teacher_forcing < 1.0:
            read = scheduled_sample(self.model, batch, self.teacher_forcing)
        output, next_BT = self.model(read), batch.target.next_BT
        if batch.target.full:
            sums_2 = self.total(output.hidden_BTD.flatten(0, 1), next_BT.flatten())
        else:
            real = Packing.of(batch.target, without=1)
            sums_2 = self.total(real.pack(output.hidden_BTD)[0], real.pack(next_BT)[0])
        if not self.doubly_stochastic or output.attended_BS is None:
            return sums_2
        missing_BS = ((1 - output.attended_BS) ** 2).masked_fill(~real_BL(batch.source), 0)
        penalty = self.doubly_stochastic * missing_BS.sum()
        return sums_2 + torch.stack([penalty, torch.zeros_like(penalty)])


def scheduled_sample(model: Generator, batch: Batch, teacher_forcing: float) -> Batch:
    """Replace some of the decoder's input words by words that the model itself predicts.

    Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019, arXiv:1906.04331: one pass
    with teacher forcing gives the model's predictions for all positions at once, whatever the model.
    """
    ids_BT = batch.target.ids_BL
    with torch.no_grad():
        predicted_BT = model.readout(model(batch).hidden_BTD).argmax(-1)
    replaced_BT = torch.rand(predicted_BT.shape, device=ids_BT.device) >= teacher_forcing
    position_T = torch.arange(1, ids_BT.shape[1], device=ids_BT.device)
    replaced_BT &= position_T < batch.target.lengths_B[:, None] - 1
    mixed_BT = torch.cat([ids_BT[:, :1], torch.where(replaced_BT, predicted_BT, ids_BT[:, 1:])], dim=1)
    return replace(batch, target=replace(batch.target, ids_BL=mixed_BT))


def smoothed_loss(log_p_PV: Tensor, labels_P: Tensor, epsilon: float) -> Tensor:
    """The equation of `VocabularyLoss`, [2]. The filler of a packed row has no label and does not count."""
    real_P = labels_P >= 0
    plain = -(log_p_PV.gather(1, labels_P.clamp(min=0)[:, None])[:, 0] * real_P).sum()
    smoothed = (1 - epsilon) * plain - epsilon * (log_p_PV.mean(-1) * real_P).sum() if epsilon else plain
    return torch.stack([smoothed, plain])


class SmoothedLoss(torch.autograd.Function):
    """`smoothed_loss` of logits with its gradient in closed form: torch needs twice the passes, unless it is compiled.

    d loss / d logit_k = p_k - (1 - epsilon) [k = y] - epsilon u_k
    """

    @staticmethod
    def forward(ctx: Any, logits_PV: Tensor, labels_P: Tensor, epsilon: float) -> Tensor:
        with torch.autocast(logits_PV.device.type, enabled=False):  # which would first copy the logits as float32
            log_p_PV = logits_PV.log_softmax(-1, dtype=torch.promote_types(logits_PV.dtype, torch.float32))
        if ctx.needs_input_grad[0]:
            ctx.log_p_PV, ctx.labels_P, ctx.epsilon, ctx.dtype = log_p_PV, labels_P, epsilon, logits_PV.dtype
        return smoothed_loss(log_p_PV, labels_P, epsilon)

    @staticmethod
    def backward(ctx: Any, *gradients_2: Tensor) -> tuple[Tensor, None, None]:
        of_smoothed, of_plain = gradients_2[0]
        gradient_PV, ctx.log_p_PV = ctx.log_p_PV.exp_(), None  # in place: it is needed only once
        real_P1 = (ctx.labels_P >= 0)[:, None].to(gradient_PV.dtype)
        gradient_PV.mul_((of_smoothed + of_plain) * real_P1)
        if ctx.epsilon:
            gradient_PV.sub_(of_smoothed * (ctx.epsilon / gradient_PV.shape[-1]) * real_P1)
        at_label_P1 = -(of_smoothed * (1 - ctx.epsilon) + of_plain) * real_P1
        gradient_PV.scatter_add_(1, ctx.labels_P.clamp(min=0)[:, None], at_label_P1)
        return gradient_PV.to(ctx.dtype), None, None


class GPULoss(torch.autograd.Function):
    """The same on a GPU, from the input and the weights of the last layer on. One kernel computes both sums and turns
    the logits into the gradient of the first; the plain loss has none."""

    @staticmethod
    def forward(
        ctx: Any, x_PD: Tensor, W_VD: Tensor, b_V: Tensor | None, labels_P: Tensor, epsilon: float, learns: bool
    ) -> Tensor:
        from regard.layers import kernels

        logits_PV = F.linear(x_PD, W_VD, b_V)
        ctx.dtypes, ctx.biased, dtype = (x_PD.dtype, W_VD.dtype), b_V is not None, logits_PV.dtype
        sums_2 = kernels.loss(logits_PV, labels_P, epsilon, gradient=learns)
        ctx.save_for_backward(x_PD.to(dtype), W_VD.to(dtype), logits_PV)
        return sums_2

    @staticmethod
    def backward(ctx: Any, *gradients_2: Tensor) -> tuple[Tensor | None, ...]:
        (x_PD, W_VD, gradient_PV), factor = ctx.saved_tensors, gradients_2[0][0]
        of_x, of_W = (gradient_PV @ W_VD).to(ctx.dtypes[0]), (gradient_PV.t() @ x_PD).to(ctx.dtypes[1])
        of_b = gradient_PV.sum(0, dtype=torch.float32) * factor if ctx.biased else None
        return of_x * factor, of_W * factor, of_b, None, None, None


class LossInParts(torch.autograd.Function):
    """A loss over many positions, some at a time, so that not all logits are in memory together.

    The gradient of each part is computed in the forward pass; the backward pass only scales it. So nothing is computed
    twice, and a large vocabulary needs no more memory than a small one.
    """

    @staticmethod
    def forward(
        ctx: Any, loss: Callable[..., Tensor], rows: int, labels_P: Tensor, hidden_PD: Tensor, *weights: Tensor
    ) -> Tensor:
        totals, of_hidden, of_weights = [], [], [torch.zeros_like(weight) for weight in weights]
        for hidden, labels in zip(torch.split(hidden_PD.detach(), rows), torch.split(labels_P, rows), strict=True):
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
