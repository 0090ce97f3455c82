"""The objectives of pre-training: the next token, both directions, reconstruction and masked
tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import NO_TAG, MaskedBatch, TextBatch
from regard.data.epochs import Rows
from regard.data.raw import Pieces
from regard.engine.shapes import PackedMaskedBatch
from regard.models.base import TOKENS_PER_READOUT, LanguageModel, MaskedModel, device_of
from regard.models.elmo import ELMo
from regard.models.lstm_lm import LayerCarries, LSTMLanguageModel
from regard.models.ngram_lm import NgramLanguageModel
from regard.objectives.cross_entropy import VocabularyLoss

Predicted = tuple[Tensor, Tensor]
"""The hidden states [P, D] of all positions that predict a token, text by text, and these tokens
[P]."""


class TextLoss(VocabularyLoss):
    """The loss of a model that predicts all tokens of a text: batch -> [2], summed over
    `batch.tokens` tokens."""

    def forward(self, batch: TextBatch) -> Tensor:
        directions, _ = self.predicted(batch)
        return torch.stack([self.total(*predicted) for predicted in directions]).mean(0)

    def predicted(
        self, batch: TextBatch, carry: LayerCarries | None = None
    ) -> tuple[tuple[Predicted, ...], LayerCarries | None]:
        """The predictions in each direction, and the recurrent state if it is carried."""
        raise NotImplementedError


class NextToken(TextLoss):
    """Radford et al. 2018, equation 1:    L = -sum_i log P(u_i | u_{i-k}, ..., u_{i-1})"""

    model: LanguageModel

    def predicted(
        self, batch: TextBatch, carry: LayerCarries | None = None
    ) -> tuple[tuple[Predicted, ...], None]:
        return (batch.text.predicted(self.model(batch).hidden_BTD),), None


class LeavingOneOut(NextToken):
    """The loss of an n-gram model: in training, each token is predicted from the counts of all others.

    L = -sum_i log p(u_i | u_{i-n+1}, ..., u_{i-1})
    """

    model: NgramLanguageModel

    def total(self, hidden_PD: Tensor, labels_P: Tensor) -> Tensor:
        """The sum over all positions, twice: nothing is smoothed besides the counts."""
        p_P = self.model.probabilities(hidden_PD, labels_P, leave_one_out=self.training)
        loss = -p_P.log().sum()
        return torch.stack([loss, loss.detach()])


class CarriedNextToken(TextLoss):
    """`NextToken` for a stream of text: a batch starts from the recurrent state of the batch before
    (truncated back-propagation).

    A batch that does not continue the one before starts from zeros, and no gradient flows into
    earlier batches.
    """

    model: LSTMLanguageModel
    carries = True

    def forward(  # type: ignore[override]
        self, batch: TextBatch, carry: LayerCarries | None = None
    ) -> tuple[Tensor, LayerCarries]:
        (predicted,), carry = self.predicted(batch, carry)
        return self.total(*predicted), carry

    def predicted(
        self, batch: TextBatch, carry: LayerCarries | None = None
    ) -> tuple[tuple[Predicted, ...], LayerCarries]:
        start = None
        rows = len(batch.text)
        if batch.carries and carry is not None:  # a batch may have fewer rows than the one before
            start = tuple((h_BD[:rows], c_BD[:rows]) for h_BD, c_BD in carry)
        output = self.model(batch, start)
        after = tuple((h_BD.detach(), c_BD.detach()) for h_BD, c_BD in output.carry)
        return (batch.text.predicted(output.hidden_BTD),), after


class SequenceAutoencoder(TextLoss):
    """Read a text, then reproduce it from the final state.

    Dai & Le 2015, arXiv:1511.01432, section 2: encoder and decoder are the same LSTM.
    """

    model: LSTMLanguageModel

    def predicted(
        self, batch: TextBatch, carry: LayerCarries | None = None
    ) -> tuple[tuple[Predicted, ...], None]:
        return (batch.text.predicted(self.model.reconstruct(batch).hidden_BTD),), None


class BothDirections(TextLoss):
    """ELMo's loss: the mean of the forward and the backward loss.

    Peters et al. 2018, arXiv:1802.05365, section 3.1, maximises the sum of both directions'
    log-likelihoods
        sum_k log p(t_k | t_1 ... t_{k-1}) + log p(t_k | t_{k+1} ... t_N)
    The published code minimises half of it, the mean: so the loss per token is that of one
    direction, and its exponential is the perplexity that the paper reports.
    """

    model: ELMo

    def predicted(
        self, batch: TextBatch, carry: LayerCarries | None = None
    ) -> tuple[tuple[Predicted, ...], None]:
        output = self.model(batch)
        inputs = batch.text.inputs
        forward = batch.text.predicted(output.hidden_BTD[:, :-1])
        backward = inputs.real(output.backward_BLD[:, 1:]), inputs.real(inputs.ids_BL)
        return (forward, backward), None


def predicted_by(
    objective: TextLoss, examples: Pieces, batch_tokens: int
) -> Iterator[tuple[Rows, tuple[Predicted, ...]]]:
    """The rows of each batch of the examples, with the predictions in each direction."""
    carry = None
    for rows in examples.measured(batch_tokens):
        predicted, carry = objective.predicted(
            examples.batch(rows).to(device_of(objective)).unnamed(), carry
        )
        yield rows, predicted


def carry_to(carry: LayerCarries | None, device: torch.device) -> LayerCarries | None:
    return (
        None if carry is None else tuple((h_BD.to(device), c_BD.to(device)) for h_BD, c_BD in carry)
    )


# BERT


class MaskedTokens(VocabularyLoss):
    """BERT's loss: masked tokens, and next-sentence prediction.

    Devlin et al. 2019, arXiv:1810.04805, section A.2: the sum of the mean masked-LM likelihood and
    the mean next-sentence likelihood. The loss of a batch is divided by its P masked tokens, so for
    its B pairs
        loss = sum_P masked + (P / B) sum_B next        and        loss / P = mean_P masked + mean_B next
    When batches are accumulated, the mean over a batch's pairs is weighted by its masked tokens.
    The plain loss is without the next sentence, so that the exponential of its mean is a
    perplexity.
    """

    model: MaskedModel
    # of masked tokens relative to next sentences; with 0 only the latter are learned
    weight = 1.0

    def forward(self, batch: MaskedBatch | PackedMaskedBatch) -> Tensor:
        hidden_BLD = self.model(batch).hidden_BTD
        loss_2 = self.total(masked_states(hidden_BLD, batch), batch.labels_P)
        loss_2 = torch.stack([self.weight * loss_2[0], loss_2[1]])
        if batch.follows_B is None or self.model.next_sentence is None:
            return loss_2
        follows_B = batch.follows_B.long()
        classes_B = torch.where(follows_B < 0, NO_TAG, 1 - follows_B)
        logits_BY = self.model.next_sentence(batch.first_tokens(hidden_BLD))
        next_loss = F.cross_entropy(logits_BY, classes_B, ignore_index=NO_TAG)
        masked = (batch.labels_P >= 0).sum()
        return loss_2 + torch.stack([masked * next_loss, torch.zeros_like(next_loss)])


def masked_states(hidden_BLD: Tensor, batch: MaskedBatch | PackedMaskedBatch) -> Tensor:
    """The hidden states of the positions to predict, [P, D]."""
    return hidden_BLD.flatten(0, 1).index_select(0, batch.places_P)


@torch.inference_mode()
def masked_sums(model: MaskedModel, batch: MaskedBatch) -> dict[str, float]:
    """Sums over a batch: cross-entropy and correct predictions of the `masked` tokens, and of
    next-sentence prediction for its `pairs`."""
    hidden_BLD = model(batch).hidden_BTD
    sums = dict.fromkeys(("loss", "correct", "next_loss", "next_correct", "pairs"), 0.0)
    sums["masked"] = len(batch.labels_P)
    parts = (
        torch.split(x, TOKENS_PER_READOUT)
        for x in (masked_states(hidden_BLD, batch), batch.labels_P)
    )
    for hidden_PD, labels_P in zip(*parts, strict=True):
        logits_PV = model.readout(hidden_PD)
        sums["loss"] += float(F.cross_entropy(logits_PV, labels_P, reduction="sum"))
        sums["correct"] += int((logits_PV.argmax(-1) == labels_P).sum())
    if batch.follows_B is not None and model.next_sentence is not None:
        logits_BY = model.next_sentence(hidden_BLD)
        classes_B = 1 - batch.follows_B.long()
        sums["next_loss"] = float(F.cross_entropy(logits_BY, classes_B, reduction="sum"))
        sums["next_correct"] = int((logits_BY.argmax(-1) == classes_B).sum())
        sums["pairs"] = len(classes_B)
    return sums
