"""Token cross-entropy: what every model that writes is trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batch import Batch
from regard.models.base import Generator

IGNORED = -100
"""The label of padding, which `cross_entropy` leaves out."""
LOGITS = {True: 2**24, False: 2**28}
"""Logits computed at once on a CPU, and on an accelerator, where many small parts would cost time."""


def labels_of(batch: Batch) -> Tensor:
    """What is to be predicted: every target token but `<s>`, padding ignored."""
    labels_BT = batch.target.ids_BL[:, 1:]
    position_T = torch.arange(labels_BT.shape[1], device=labels_BT.device)
    return labels_BT.masked_fill(position_T >= batch.target.lengths_B[:, None] - 1, IGNORED)


class TokenCrossEntropy(nn.Module):
    """The model under its objective: batch -> [2], the smoothed loss to descend and the plain one to report, summed.

    Szegedy et al. 2016, arXiv:1512.00567, section 7, with smoothing epsilon and u uniform over the vocabulary:
        loss = -sum_t sum_k ((1 - epsilon) [k = y_t] + epsilon u_k) log p_k
    """

    def __init__(self, model: Generator, smoothing: float = 0.0, teacher_forcing: float = 1.0) -> None:
        super().__init__()
        self.model, self.smoothing, self.teacher_forcing = model, smoothing, teacher_forcing

    def forward(self, batch: Batch) -> Tensor:
        read = batch
        if self.training and self.teacher_forcing < 1.0:
            read = scheduled_sample(self.model, batch, self.teacher_forcing)
        hidden_PD, labels_P = self.model(read).hidden_BTD.flatten(0, 1), labels_of(batch).flatten()
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
        logits_PV = self.model.readout(hidden_PD)
        log_p_PV = logits_PV.log_softmax(-1, dtype=torch.promote_types(logits_PV.dtype, torch.float32))
        plain = F.nll_loss(log_p_PV, labels_P, ignore_index=IGNORED, reduction="sum")
        if not (self.training and self.smoothing):
            return torch.stack([plain, plain])
        uniform = -(log_p_PV.mean(-1) * (labels_P != IGNORED)).sum()
        return torch.stack([(1 - self.smoothing) * plain + self.smoothing * uniform, plain])


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
