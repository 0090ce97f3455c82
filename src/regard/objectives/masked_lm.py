"""What BERT learns: the tokens that were masked, and whether one sentence follows another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import MaskedBatch
from regard.models.bert import BERT
from regard.objectives.cross_entropy import VocabularyLoss

ROWS_AT_ONCE = 1024
"""Positions whose logits stand in memory together where accuracy is measured."""


class MaskedTokens(VocabularyLoss):
    """BERT under its objectives: batch -> [2], the loss to descend and the plain one of the masked tokens, summed.

    Devlin et al. 2019, arXiv:1810.04805, section A.2: the sum of the mean masked LM likelihood and the mean next
    sentence prediction likelihood. A batch's loss is divided by its P masked tokens, so of its B pairs
        loss = sum_P masked + (P / B) sum_B next        and        loss / P = mean_P masked + mean_B next
    Where batches are accumulated, each one's mean over its pairs weighs by its masked tokens. The plain loss leaves the
    next sentence out, so that its mean's exponential is a perplexity.
    """

    model: BERT

    def forward(self, batch: MaskedBatch) -> Tensor:
        hidden_BLD = self.model(batch).hidden_BTD
        loss_2 = self.total(masked_states(hidden_BLD, batch), batch.labels_P)
        if batch.follows_B is None or self.model.next_sentence is None:
            return loss_2
        next_loss = F.cross_entropy(self.model.next_sentence(hidden_BLD), 1 - batch.follows_B.long())
        return loss_2 + torch.stack([len(batch.labels_P) * next_loss, torch.zeros_like(next_loss)])


def masked_states(hidden_BLD: Tensor, batch: MaskedBatch) -> Tensor:
    """The hidden states at the positions to be predicted, [P, D]."""
    return hidden_BLD.flatten(0, 1).index_select(0, batch.places_P)


@dataclass(frozen=True)
class MaskedTallies:
    """Sums over a batch: what means are made of."""

    loss: float
    """Cross-entropy of the masked tokens."""
    found: int
    """Masked tokens that the model would have put back."""
    masked: int
    next_loss: float
    """Cross-entropy of the next sentence."""
    told: int
    """Pairs that the model judges rightly."""
    pairs: int


@torch.inference_mode()
def masked_tallies(model: BERT, batch: MaskedBatch) -> MaskedTallies:
    """How well the model does on a batch."""
    hidden_BLD = model(batch).hidden_BTD
    losses, found, masked_PD = 0.0, 0, masked_states(hidden_BLD, batch)
    parts = zip(torch.split(masked_PD, ROWS_AT_ONCE), torch.split(batch.labels_P, ROWS_AT_ONCE), strict=True)
    for hidden_PD, labels_P in parts:
        logits_PV = model.readout(hidden_PD)
        losses += float(F.cross_entropy(logits_PV, labels_P, reduction="sum"))
        found += int((logits_PV.argmax(-1) == labels_P).sum())
    if batch.follows_B is None or model.next_sentence is None:
        return MaskedTallies(losses, found, len(batch.labels_P), 0.0, 0, 0)
    logits_BY, classes_B = model.next_sentence(hidden_BLD), 1 - batch.follows_B.long()
    next_loss = float(F.cross_entropy(logits_BY, classes_B, reduction="sum"))
    told = int((logits_BY.argmax(-1) == classes_B).sum())
    return MaskedTallies(losses, found, len(batch.labels_P), next_loss, told, len(classes_B))
