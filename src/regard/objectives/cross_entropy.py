"""Cross-entropy over the vocabulary: the loss of every model that writes text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.batches import Batch, real_positions
from regard.engine import first_that_applies, losses
from regard.engine.shapes import PackedBatch
from regard.models.base import Generator


def perplexity(loss: float) -> float:
    """exp(mean cross-entropy), limited to the range of a float."""
    return math.exp(min(loss, 700.0))


class Objective(nn.Module):
    """A model with its training loss: batch -> [2], the loss to minimise and the plain loss to
    report, both summed."""

    carries: ClassVar[bool] = False
    """Whether a recurrent state is passed on from batch to batch: batch and state -> ([2],
    state)."""
    is_cross_entropy: ClassVar[bool] = True
    """Whether the exponential of the mean plain loss is a perplexity."""


class VocabularyLoss(Objective):
    """Hidden states and the tokens that they predict -> [2], the smoothed and the plain loss,
    summed.

    Szegedy et al. 2016, arXiv:1512.00567, section 7, with smoothing epsilon and u uniform over the
    vocabulary:
        loss = -sum_t sum_k ((1 - epsilon) [k = y_t] + epsilon u_k) log p_k
    """

    model: Any  # a model with a `readout`, and the module `output` that it runs

    def __init__(self, model: nn.Module, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def total(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """Both sums over all positions, computed in parts if there are too many logits to hold at
        once."""
        weights = list(self.model.output.parameters())
        vocabulary = max(weight.shape[0] for weight in weights)
        if rows := losses.rows_per_part(hidden_PD, vocabulary):
            return losses.loss_in_parts(self.loss, rows, hidden_PD, labels_P, weights)
        return self.loss(hidden_PD, labels_P)

    def loss(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """Both sums over some positions."""
        smoothing = self.smoothing if self.training else 0.0
        if loss_of_last_layer := first_that_applies(losses.LAST_LAYER_LOSSES, hidden_PD):
            x_PD, last = self.model.output.last_layer(hidden_PD)
            return loss_of_last_layer(x_PD, last, labels_P, smoothing)
        logits_PV = self.model.readout(hidden_PD)
        if loss_of_logits := first_that_applies(losses.LOGIT_LOSSES, logits_PV):
            return loss_of_logits(logits_PV, labels_P, smoothing, smoothed_loss)
        exact_PV = logits_PV.to(torch.promote_types(logits_PV.dtype, torch.float32))
        return smoothed_loss(exact_PV.log_softmax(-1), labels_P, smoothing)


class TokenCrossEntropy(VocabularyLoss):
    """The loss of an encoder-decoder: the target given the source.

    Optionally with Xu et al. 2015, arXiv:1502.03044, equation 14, which makes a captioner attend to
    every region:
        L = -log P(y | x) + lambda sum_i (1 - sum_t alpha_ti)^2           lambda is `doubly_stochastic`
    The penalty, summed over the images, is part of the loss to minimise, not of the plain loss.
    """

    model: Generator

    def __init__(
        self,
        model: Generator,
        smoothing: float = 0.0,
        teacher_forcing: float = 1.0,
        doubly_stochastic: float = 0.0,
    ) -> None:
        super().__init__(model, smoothing)
        self.teacher_forcing = teacher_forcing
        self.doubly_stochastic = doubly_stochastic

    def forward(self, batch: Batch[Any] | PackedBatch) -> Tensor:
        read = batch
        if self.training and self.teacher_forcing < 1.0:
            assert isinstance(batch, Batch), "what is packed has its labels already"
            read = scheduled_sample(self.model, batch, self.teacher_forcing)
        output = self.model(read)
        sums_2 = self.total(*batch.target.predicted(output.hidden_BTD))
        if not self.doubly_stochastic or output.attended_BS is None:
            return sums_2
        assert isinstance(batch, Batch)
        missing_BS = (1 - output.attended_BS) ** 2
        real_BS = real_positions(batch.source.lengths_B, missing_BS.shape[1])
        penalty = self.doubly_stochastic * missing_BS.masked_fill(~real_BS, 0).sum()
        return sums_2 + torch.stack([penalty, torch.zeros_like(penalty)])


def scheduled_sample(model: Generator, batch: Batch[Any], teacher_forcing: float) -> Batch[Any]:
    """Replace some of the decoder's input words by words that the model itself predicts.

    Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019,
    arXiv:1906.04331: one pass with teacher forcing gives the predictions for all positions, for any
    model.
    """
    ids_BT = batch.target.ids_BL
    with torch.no_grad():
        predicted_BT = model.readout(model(batch).hidden_BTD).argmax(-1)
    replaced_BT = torch.rand(predicted_BT.shape, device=ids_BT.device) >= teacher_forcing
    position_T = torch.arange(1, ids_BT.shape[1], device=ids_BT.device)
    replaced_BT &= position_T < batch.target.lengths_B[:, None] - 1
    mixed_BT = torch.cat(
        [ids_BT[:, :1], torch.where(replaced_BT, predicted_BT, ids_BT[:, 1:])], dim=1
    )
    return replace(batch, target=replace(batch.target, ids_BL=mixed_BT))


def smoothed_loss(log_p_PV: Tensor, labels_P: Tensor, epsilon: float) -> Tensor:
    """The equation of `VocabularyLoss`, [2]. The filler of a packed row has no label and does not
    count."""
    real_P = labels_P >= 0
    plain = -(log_p_PV.gather(1, labels_P.clamp(min=0)[:, None])[:, 0] * real_P).sum()
    smoothed = (
        (1 - epsilon) * plain - epsilon * (log_p_PV.mean(-1) * real_P).sum() if epsilon else plain
    )
    return torch.stack([smoothed, plain])
