"""What all heads learn by: their own loss, and beside it that of the language model that they stand on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import LabelledBatch, TextBatch
from regard.models.headed import Headed
from regard.objectives.cross_entropy import VocabularyLoss
from regard.objectives.language_model import next_tokens


class HeadLoss(nn.Module):
    """A headed model under its objective: batch -> [2], the loss to descend and the plain one, summed over answers.

    Radford et al. 2018, equation 5, with L_2 the head's loss and L_1 that of the language model, if `auxiliary`:
        L_3 = L_2 + lambda L_1
    where L_1 is the mean over the tokens of the batch, for each of its answers. It is no part of the plain loss.
    """

    def __init__(self, model: Headed, auxiliary: float = 0.0) -> None:
        super().__init__()
        self.model, self.auxiliary = model, auxiliary

    def losses(self, logits: Tensor, batch: LabelledBatch) -> Tensor:
        """[2]: the head's own."""
        raise NotImplementedError

    def answers(self, batch: LabelledBatch) -> int | Tensor:
        """How many answers the head's loss is the sum over."""
        return len(batch.labels)

    def forward(self, batch: LabelledBatch) -> Tensor:
        states_BLD = self.model.states(batch)
        loss_2 = self.losses(self.model.head(states_BLD, batch), batch)
        if not (self.auxiliary and self.training):
            return loss_2
        sums_2, tokens = language_model_loss(self.model.base, states_BLD, batch)
        added = self.auxiliary * self.answers(batch) * sums_2[0] / tokens
        return loss_2 + torch.stack([added, torch.zeros_like(added)])


def language_model_loss(base: Any, states_BLD: Tensor, batch: LabelledBatch) -> tuple[Tensor, int]:
    """The loss of the next tokens, summed, as [2]; and of how many tokens."""
    hidden_PD, labels_P = next_tokens(states_BLD[:, :-1], TextBatch(batch.text))
    return VocabularyLoss(base).total(hidden_PD, labels_P), len(labels_P)
