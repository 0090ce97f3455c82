"""Cross-entropy with the penalty that asks a captioner to look at every region."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.layers.packing import Packing
from regard.layers.visibility import Visibility
from regard.models.captioner import Captioner
from regard.objectives.cross_entropy import TokenCrossEntropy, scheduled_sample


class DoublyStochastic(TokenCrossEntropy):
    """
    Xu et al. 2015, arXiv:1502.03044, equation 14, summed over the images:
        L = -log P(y | x) + lambda sum_i (1 - sum_t alpha_ti)^2

    The penalty is part of what is descended, not of what is reported.
    """

    model: Captioner

    def __init__(self, model: Captioner, smoothing: float, teacher_forcing: float, weight: float) -> None:
        super().__init__(model, smoothing, teacher_forcing)
        self.weight = weight

    def forward(self, batch: Batch) -> Tensor:
        read = batch
        if self.training and self.teacher_forcing < 1.0:
            read = scheduled_sample(self.model, batch, self.teacher_forcing)
        caption, real = self.model(read), Packing.of(batch.target, without=1)
        sums_2 = self.total(real.pack(caption.hidden_BTD)[0], real.pack(batch.target.ids_BL[:, 1:])[0])
        if caption.attended_BS is None:
            return sums_2
        penalty = self.weight * unattended(caption.attended_BS, batch.source.lengths_B)
        return sums_2 + torch.stack([penalty, torch.zeros_like(penalty)])


def unattended(attended_BS: Tensor, lengths_B: Tensor) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2 over the real regions of all images."""
    visible_BS = Visibility(lengths_B).keys_BK(attended_BS.shape[1])
    assert visible_BS is not None
    return ((1 - attended_BS) ** 2).masked_fill(~visible_BS, 0).sum()
