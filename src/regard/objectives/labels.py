"""The losses of tasks with labels: classes, numbers, choices, tags, spans, and one-word answers."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import NO_TAG, LabelledBatch, StoryBatch
from regard.models.base import real_BL
from regard.models.headed import Headed, TokenHead
from regard.models.memory_network import MemoryNetwork, MemoryOutput
from regard.objectives.cross_entropy import Objective, VocabularyLoss


class HeadLoss(Objective):
    """The loss of a head, summed over its answers, and optionally that of the language model below
    it.

    Radford et al. 2018, equation 5, with L_2 the head's loss and L_1 that of the language model, if
    `auxiliary`:
        L_3 = L_2 + lambda L_1
    L_1 is the mean over the tokens of the batch, added for each answer. It is not part of the plain
    loss.

    With `consistency` every batch is read twice, with different dropout. Liang et al. 2021, "R-Drop",
    arXiv:2106.14448, equations 1 to 3, halved so that the loss keeps its scale; alpha is the
    consistency, and p(1) and p(2) are the two outputs:
        L = (L_3(1) + L_3(2)) / 2 + alpha / 4 (KL(p(1) || p(2)) + KL(p(2) || p(1)))
    The divergence is not part of the plain loss either.
    """

    def __init__(
        self,
        model: Headed,
        *,
        smoothing: float = 0.0,
        auxiliary: float = 0.0,
        consistency: float = 0.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.auxiliary = auxiliary
        self.consistency = consistency

    def losses(self, logits: Tensor, batch: LabelledBatch) -> Tensor:
        """[2]: the head's loss."""
        raise NotImplementedError

    def cross_entropy(
        self, logits_PY: Tensor, labels_P: Tensor, *, reduction: str
    ) -> tuple[Tensor, Tensor]:
        """The smoothed and the plain cross-entropy, without positions labelled NO_TAG."""
        # ignore_index, not a mask: indexing with a mask would wait for the GPU to count its
        # elements
        loss = partial(
            F.cross_entropy, logits_PY, labels_P, ignore_index=NO_TAG, reduction=reduction
        )
        plain = loss()
        return loss(
            label_smoothing=self.smoothing
        ) if self.training and self.smoothing else plain, plain

    def answers(self, batch: LabelledBatch) -> int | Tensor:
        """The number of answers that the loss is summed over."""
        return len(batch.labels)

    def forward(self, batch: LabelledBatch) -> Tensor:
        loss_2, logits = self.read(batch)
        if not (self.consistency and self.training):
            return loss_2
        second_2, other = self.read(batch)
        added = self.consistency / 4 * divergence(logits, other, batch.labels)
        return (loss_2 + second_2) / 2 + torch.stack([added, torch.zeros_like(added)])

    def read(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """The loss of one forward pass, with the auxiliary loss, and the output of the head."""
        states_BLD = self.model.states(batch)
        logits: Tensor = self.model.head(states_BLD, batch)
        loss_2 = self.losses(logits, batch)
        if not (self.auxiliary and self.training):
            return loss_2, logits
        hidden_PD, labels_P = batch.text.predicted(states_BLD[:, :-1])
        sums_2 = VocabularyLoss(self.model.base).total(hidden_PD, labels_P)
        added = self.auxiliary * self.answers(batch) * sums_2[0] / len(labels_P)
        return loss_2 + torch.stack([added, torch.zeros_like(added)]), logits


def divergence(logits: Tensor, other: Tensor, labels: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of the distributions of two outputs [..., Y], summed over the answers:
    NO_TAG has none."""
    log_p = logits.float().log_softmax(-1)
    log_q = other.float().log_softmax(-1)
    both = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
    return both.masked_fill(labels == NO_TAG, 0.0).sum()


class ClassCrossEntropy(HeadLoss):
    """The cross-entropy of one class per example.

    loss = -sum_x w_{y_x} ((1 - epsilon) log p_{y_x} + epsilon / Y sum_y log p_y)      p = softmax(logits)

    with class weights w, all 1 unless the recipe sets them. The plain loss has neither w nor
    epsilon.
    """

    weights_Y: Tensor | None

    def __init__(
        self,
        model: Headed,
        weights_Y: Tensor | None = None,
        *,
        smoothing: float = 0.0,
        **options: float,
    ) -> None:
        super().__init__(model, smoothing=smoothing, **options)
        self.register_buffer("weights_Y", weights_Y, persistent=False)

    def losses(self, logits_XY: Tensor, batch: LabelledBatch) -> Tensor:
        smoothed_X, plain_X = self.cross_entropy(logits_XY.float(), batch.labels, reduction="none")
        if self.weights_Y is not None:
            # an example with NO_TAG has no loss, whatever its weight
            smoothed_X = smoothed_X * self.weights_Y[batch.labels.clamp(min=0)]
        return torch.stack([smoothed_X.sum(), plain_X.sum()])


class SquaredError(HeadLoss):
    """The squared error of one number per example: loss = sum_x (score_x - y_x)^2"""

    is_cross_entropy = False

    def losses(self, scores_X1: Tensor, batch: LabelledBatch) -> Tensor:
        loss = F.mse_loss(scores_X1[:, 0].float(), batch.labels, reduction="sum")
        return torch.stack([loss, loss])


class TagCrossEntropy(HeadLoss):
    """The cross-entropy of one tag per word.

    loss = -sum_w log softmax(logits)_{y_w}        over the words w, each at the token that has its tag

    Devlin et al. 2019, arXiv:1810.04805, section 5.3.
    """

    def answers(self, batch: LabelledBatch) -> Tensor:
        return (batch.labels != NO_TAG).sum()

    def losses(self, logits: Tensor, batch: LabelledBatch) -> Tensor:
        logits_PY = logits.flatten(0, 1).float()
        labels_P = batch.labels.flatten()
        return torch.stack(self.cross_entropy(logits_PY, labels_P, reduction="sum"))


class TagSequenceLoss(TagCrossEntropy):
    """The negative log-likelihood of all tags of a sentence together.

    loss = -sum_b log p(y_b | X_b)        over the sentences b, with the p of a CRF over the words of each

    Lample et al. 2016, arXiv:1603.01360, section 2.2.
    """

    def losses(self, logits_BLY: Tensor, batch: LabelledBatch) -> Tensor:
        is_word_BL = batch.labels != NO_TAG
        words_B = is_word_BL.sum(1)
        order_BL = (
            (~is_word_BL).long().argsort(dim=1, stable=True)[:, : int(words_B.max())]
        )  # words to the front
        P_BLY = logits_BLY.float().gather(
            1, order_BL[..., None].expand(-1, -1, logits_BLY.shape[-1])
        )
        read_B = words_B > 0  # a window may have no word of its own
        head = self.model.head
        assert isinstance(head, TokenHead)
        assert head.crf is not None
        labels_BL = batch.labels.gather(1, order_BL)
        log_p_B = head.crf.log_likelihood(P_BLY[read_B], labels_BL[read_B], words_B[read_B])
        loss = -log_p_B.sum()
        return torch.stack([loss, loss])


class SpanCrossEntropy(HeadLoss):
    """The cross-entropy of the first and the last token of an answer.

    P_i = exp(S . T_i) / sum_j exp(S . T_j)            token i begins the answer; the same with E for its end
    loss = -sum_b (log P_start + log P_end) / 2

    Devlin et al. 2019, arXiv:1810.04805, sections 4.2 and 4.3: in a row b without the answer, both
    are the first token, or the last token if the model reads from left to right.
    """

    def losses(self, logits: Tensor, batch: LabelledBatch) -> Tensor:
        logits_B2L = logits.float().mT.masked_fill(~real_BL(batch.text)[:, None], -torch.inf)
        loss = (
            F.cross_entropy(logits_B2L.flatten(0, 1), batch.labels.flatten(), reduction="sum") / 2
        )
        return torch.stack([loss, loss])


# The memory network


class AnswerCrossEntropy(Objective):
    """The loss of a memory network with several restarts, summed over questions.

    Its value is the mean over restarts, its gradient that of their sum: so each restart learns as
    if it were alone.
    """

    def __init__(self, model: MemoryNetwork, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: StoryBatch) -> Tensor:
        output = self.model(batch)
        plain_BI = answer_losses(output, batch.answers_B)
        smoothed_BI = (
            answer_losses(output, batch.answers_B, self.smoothing) if self.smoothing else plain_BI
        )
        return torch.stack(
            [_mean_with_gradient_of_sum(smoothed_BI), _mean_with_gradient_of_sum(plain_BI)]
        )


def answer_losses(output: MemoryOutput, answers_B: Tensor, smoothing: float = 0.0) -> Tensor:
    """-log P of each correct answer, for each restart: [B, I]."""
    logits_BVI = output.logits_BIV.transpose(1, 2)
    answers_BI = answers_B[:, None].expand(-1, logits_BVI.shape[2])
    return F.cross_entropy(logits_BVI, answers_BI, reduction="none", label_smoothing=smoothing)


def _mean_with_gradient_of_sum(losses_BI: Tensor) -> Tensor:
    mean_B, sum_B = losses_BI.mean(1), losses_BI.sum(1)
    return (mean_B.detach() + sum_B - sum_B.detach()).sum()
