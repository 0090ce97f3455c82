"""Token cross-entropy: what every model that writes is trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.layers.packing import Packing
from regard.models.base import Generator

LOGITS = {True: 2**24, False: 2**28}
"""Logits computed at once on a CPU, and on an accelerator, where many small parts would cost time."""


class VocabularyLoss(nn.Module):
    """Hidden states and the tokens they are to predict -> [2], the smoothed loss to descend and the plain one, summed.

    Szegedy et al. 2016, arXiv:1512.00567, section 7, with smoothing epsilon and u uniform over the vocabulary:
        loss = -sum_t sum_k ((1 - epsilon) [k = y_t] + epsilon u_k) log p_k
    """

    model: Any
    """A model with a `readout`, and the module `output` that it runs."""

    def __init__(self, model: nn.Module, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def total(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """The two sums over all positions, so many of them at a time as fit."""
        rows = rows_at_once(hidden_PD, self.model.output)
        if rows >= len(hidden_PD):
            return self.loss(hidden_PD, labels_P)
        if not torch.is_grad_enabled():
            parts = zip(torch.split(hidden_PD, rows), torch.split(labels_P, rows), strict=True)
            return torch.stack([self.loss(hidden, labels) for hidden, labels in parts]).sum(0)
        parameters = [parameter for parameter in self.model.output.parameters() if parameter.requires_grad]
        total: Tensor = InParts.apply(self.loss, rows, labels_P, hidden_PD, *parameters)  # type: ignore[no-untyped-call]
        return total

    def loss(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """The two sums for some positions."""
        logits_PV, smoothing = self.model.readout(hidden_PD), self.smoothing if self.training else 0.0
        sums_2: Tensor = SmoothedLoss.apply(logits_PV, labels_P, smoothing)  # type: ignore[no-untyped-call]
        return sums_2


class TokenCrossEntropy(VocabularyLoss):
    """The model under its objective: batch -> [2], the smoothed loss to descend and the plain one to report, summed."""

    model: Generator

    def __init__(self, model: Generator, smoothing: float = 0.0, teacher_forcing: float = 1.0) -> None:
        super().__init__(model, smoothing)
        self.teacher_forcing = teacher_forcing

    def forward(self, batch: Batch) -> Tensor:
        read = batch
        if self.training and self.teacher_forcing < 1.0:
            read = scheduled_sample(self.model, batch, self.teacher_forcing)
        real = Packing.of(batch.target, without=1)
        return self.total(real.pack(self.model(read).hidden_BTD)[0], real.pack(batch.target.ids_BL[:, 1:])[0])


class SmoothedLoss(torch.autograd.Function):
    """The equation above over logits, and its gradient in closed form: torch's own takes twice the passes over them.

    d loss / d logit_k = p_k - (1 - epsilon) [k = y] - epsilon u_k
    """

    @staticmethod
    def forward(ctx: Any, logits_PV: Tensor, labels_P: Tensor, epsilon: float) -> Tensor:
        with torch.autocast(logits_PV.device.type, enabled=False):  # which would copy the logits as float32 first
            log_p_PV = logits_PV.log_softmax(-1, dtype=torch.promote_types(logits_PV.dtype, torch.float32))
        plain = -log_p_PV.gather(1, labels_P[:, None]).sum()
        smoothed = (1 - epsilon) * plain - epsilon * log_p_PV.mean(-1).sum() if epsilon else plain
        if ctx.needs_input_grad[0]:
            ctx.log_p_PV, ctx.labels_P, ctx.epsilon, ctx.dtype = log_p_PV, labels_P, epsilon, logits_PV.dtype
        return torch.stack([smoothed, plain])

    @staticmethod
    def backward(ctx: Any, *grads_2: Tensor) -> tuple[Tensor, None, None]:
        of_smoothed, of_plain = grads_2[0]
        slope_PV, ctx.log_p_PV = ctx.log_p_PV.exp_(), None  # in place: it is needed only once
        slope_PV.mul_(of_smoothed + of_plain)
        if ctx.epsilon:
            slope_PV.sub_(of_smoothed * (ctx.epsilon / slope_PV.shape[-1]))
        at_label = -(of_smoothed * (1 - ctx.epsilon) + of_plain)
        slope_PV.scatter_add_(1, ctx.labels_P[:, None], at_label.expand(len(slope_PV), 1))
        return slope_PV.to(ctx.dtype), None, None


def rows_at_once(hidden_PD: Tensor, output: nn.Module) -> int:
    """How many positions go through the readout together: at most as many as make LOGITS logits."""
    vocabulary = max(parameter.shape[0] for parameter in output.parameters())
    return max(1, LOGITS[hidden_PD.device.type == "cpu"] // vocabulary)


class InParts(torch.autograd.Function):
    """A loss over many positions, some of them at a time, so that not all logits stand in memory at once.

    Each part's gradient is taken right away, in the forward pass; the backward pass only scales it. So nothing is
    computed twice, and a large vocabulary costs no more memory than a small one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        loss: Callable[[Tensor, Tensor], Tensor],
        rows: int,
        labels_P: Tensor,
        hidden_PD: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        totals, slopes, sums = [], [], [torch.zeros_like(weight) for weight in weights]
        for hidden, labels in zip(torch.split(hidden_PD.detach(), rows), torch.split(labels_P, rows), strict=True):
            with torch.enable_grad():
                hidden.requires_grad_()
                part_2 = loss(hidden, labels)
                slope, *of_weights = torch.autograd.grad(part_2[0], [hidden, *weights])
            totals.append(part_2.detach())
            slopes.append(slope)
            for total, one in zip(sums, of_weights, strict=True):
                total += one
        ctx.save_for_backward(torch.cat(slopes), *sums)
        return torch.stack(totals).sum(0)

    @staticmethod
    def backward(ctx: Any, *grads_2: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *(grads_2[0][0] * slope for slope in ctx.saved_tensors)


def scheduled_sample(model: Generator, batch: Batch, teacher_forcing: float) -> Batch:
    """Replace some of the words the decoder reads by words it would itself have written.

    Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019, arXiv:1906.04331: one pass
    under teacher forcing gives the model's own words for all positions at once, so it serves every kind of model.
    """
    ids_BT = batch.target.ids_BL
    with torch.no_grad():
        written_BT = model.readout(model(batch).hidden_BTD).argmax(-1)
    own_BT = torch.rand(written_BT.shape, device=ids_BT.device) >= teacher_forcing
    position_T = torch.arange(1, ids_BT.shape[1], device=ids_BT.device)
    own_BT &= position_T < batch.target.lengths_B[:, None] - 1
    mixed_BT = torch.cat([ids_BT[:, :1], torch.where(own_BT, written_BT, ids_BT[:, 1:])], dim=1)
    return replace(batch, target=replace(batch.target, ids_BL=mixed_BT))
