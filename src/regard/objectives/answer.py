"""What a model that answers questions in one word learns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batch import StoryBatch
from regard.models.memory_network import Answered, MemoryNetwork


def losses(answered: Answered, answers_B: Tensor, smoothing: float = 0.0) -> Tensor:
    """-log P of each right answer, for each restart: [B, I]."""
    logits_BVI = answered.logits_BIV.transpose(1, 2)
    answers_BI = answers_B[:, None].expand(-1, logits_BVI.shape[2])
    return F.cross_entropy(logits_BVI, answers_BI, reduction="none", label_smoothing=smoothing)


class AnswerCrossEntropy(nn.Module):
    """A model of several restarts under its objective: batch -> [2], smoothed and plain loss, summed over questions.

    The value is the mean over restarts, the gradient that of their sum: so each restart learns as if it were alone.
    """

    def __init__(self, model: MemoryNetwork, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: StoryBatch) -> Tensor:
        answered = self.model(batch)
        plain_BI = losses(answered, batch.answers_B)
        smoothed_BI = losses(answered, batch.answers_B, self.smoothing) if self.smoothing else plain_BI
        return torch.stack([_as_if_alone(smoothed_BI), _as_if_alone(plain_BI)])


def _as_if_alone(losses_BI: Tensor) -> Tensor:
    mean_B, sum_B = losses_BI.mean(1), losses_BI.sum(1)
    return (mean_B.detach() + sum_B - sum_B.detach()).sum()
