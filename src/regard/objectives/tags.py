"""What a head above every token learns: the tags of words."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import NO_TAG, LabelledBatch
from regard.models.headed import Headed
from regard.objectives.head_loss import HeadLoss


class TagCrossEntropy(HeadLoss):
    """
    loss = -sum_w log softmax(logits)_{y_w}        over the words w, each at the token that carries its tag

    Batch -> [2]: with label smoothing while training, and plain. Devlin et al. 2019, arXiv:1810.04805, section 5.3.
    """

    def __init__(self, model: Headed, smoothing: float = 0.0, auxiliary: float = 0.0) -> None:
        super().__init__(model, auxiliary)
        self.smoothing = smoothing

    def answers(self, batch: LabelledBatch) -> Tensor:
        return (batch.labels != NO_TAG).sum()

    def losses(self, logits: Tensor, batch: LabelledBatch) -> Tensor:
        logits_PY, labels_P = logits.flatten(0, 1).float(), batch.labels.flatten()
        # Not picked out by a mask: a GPU would have to tell the host how many there are, and wait for it.
        plain = F.cross_entropy(logits_PY, labels_P, ignore_index=NO_TAG, reduction="sum")
        smoothed = plain
        if self.training and self.smoothing:
            smoothed = F.cross_entropy(
                logits_PY, labels_P, ignore_index=NO_TAG, reduction="sum", label_smoothing=self.smoothing
            )
        return torch.stack([smoothed, plain])
