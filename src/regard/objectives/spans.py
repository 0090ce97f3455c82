"""What a head that marks a stretch of text learns: where it begins and where it ends."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import LabelledBatch
from regard.models.contextual import real_BL
from regard.objectives.head_loss import HeadLoss


def span_logits(logits_BL2: Tensor, batch: LabelledBatch) -> Tensor:
    """Of being the first and the last token of the answer, [B, 2, L], without padding."""
    return logits_BL2.float().mT.masked_fill(~real_BL(batch.text)[:, None], -torch.inf)


class SpanCrossEntropy(HeadLoss):
    """
    P_i = exp(S . T_i) / sum_j exp(S . T_j)            token i begins the answer; E likewise for its end
    loss = -sum_b (log P_start + log P_end) / 2

    Devlin et al. 2019, arXiv:1810.04805, sections 4.2 and 4.3: a row b without the answer has it at its first token,
    or at its last, where a model reads from left to right. Batch -> [2], twice the same.
    """

    def losses(self, logits: Tensor, batch: LabelledBatch) -> Tensor:
        logits_B2L = span_logits(logits, batch)
        loss = F.cross_entropy(logits_B2L.flatten(0, 1), batch.labels.flatten(), reduction="sum") / 2
        return torch.stack([loss, loss])
