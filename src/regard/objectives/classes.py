"""What a head above a text learns: its class, its number, the right one of several choices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import LabelledBatch
from regard.models.headed import Headed
from regard.objectives.head_loss import HeadLoss


def by_example(logits_BY: Tensor, batch: LabelledBatch) -> Tensor:
    """The mean over the rows of each example: [B, Y] -> [X, Y].

    Rows are the windows of a long text, or both orders of two texts, whose vectors GPT adds up (Radford et al. 2018,
    section 3.3): the same but for a factor.
    """
    examples = len(batch.labels)
    if examples == len(logits_BY):
        return logits_BY
    sums_XY = logits_BY.new_zeros(examples, logits_BY.shape[1]).index_add(0, batch.owners_B, logits_BY)
    return sums_XY / batch.owners_B.bincount(minlength=examples)[:, None]


def by_choice(logits_B1: Tensor, batch: LabelledBatch) -> Tensor:
    """Each row is a choice: [B, 1] -> [X, Y], the choices of an example side by side."""
    return logits_B1.view(len(batch.labels), -1)


class ClassCrossEntropy(HeadLoss):
    """
    loss = -sum_x w_{y_x} ((1 - epsilon) log p_{y_x} + epsilon / Y sum_y log p_y)      p = softmax(logits)

    with the classes' weights w, 1 for all unless the recipe weighs them. The plain loss has neither w nor epsilon.
    """

    weights_Y: Tensor | None

    def __init__(
        self, model: Headed, weights_Y: Tensor | None = None, smoothing: float = 0.0, auxiliary: float = 0.0
    ) -> None:
        super().__init__(model, auxiliary)
        self.smoothing = smoothing
        self.register_buffer("weights_Y", weights_Y, persistent=False)

    def scores(self, logits_BY: Tensor, batch: LabelledBatch) -> Tensor:
        return by_example(logits_BY, batch)

    def losses(self, logits_BY: Tensor, batch: LabelledBatch) -> Tensor:
        scores_XY = self.scores(logits_BY, batch).float()
        plain_X = F.cross_entropy(scores_XY, batch.labels, reduction="none")
        smoothed_X = plain_X
        if self.training and self.smoothing:
            smoothed_X = F.cross_entropy(scores_XY, batch.labels, reduction="none", label_smoothing=self.smoothing)
        if self.weights_Y is not None:
            smoothed_X = smoothed_X * self.weights_Y[batch.labels]
        return torch.stack([smoothed_X.sum(), plain_X.sum()])


class ChoiceCrossEntropy(ClassCrossEntropy):
    """The same over the choices of an example, each scored by itself (Radford et al. 2018, section 3.3)."""

    def scores(self, logits_BY: Tensor, batch: LabelledBatch) -> Tensor:
        return by_choice(logits_BY, batch)


class SquaredError(HeadLoss):
    """loss = sum_x (score_x - y_x)^2"""

    def losses(self, logits_BY: Tensor, batch: LabelledBatch) -> Tensor:
        scores_X = by_example(logits_BY, batch)[:, 0].float()
        loss = F.mse_loss(scores_X, batch.labels, reduction="sum")
        return torch.stack([loss, loss])
