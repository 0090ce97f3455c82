"""What language models learn: the next token, the token before it too, or the text that they have just read."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.data.batch import TextBatch
from regard.data.dataset import Rows
from regard.data.raw import Pieces
from regard.layers.packing import Packing
from regard.models.base import device_of
from regard.models.contextual import LanguageModel
from regard.models.elmo import ELMo
from regard.models.lstm_lm import Carry, LSTMLanguageModel
from regard.objectives.cross_entropy import VocabularyLoss

Predicted = tuple[Tensor, Tensor]
"""The hidden states [P, D] at all positions that predict, text by text, and the tokens [P] that they are to predict."""


def next_tokens(hidden_BTD: Tensor, batch: TextBatch) -> Predicted:
    """The hidden states at all positions that predict, and the tokens that they are to predict."""
    real = Packing.of(batch.text, without=1)
    return real.pack(hidden_BTD)[0], real.pack(batch.text.ids_BL[:, 1:])[0]


class NextToken(VocabularyLoss):
    """A language model under its objective: batch -> [2], smoothed and plain loss, summed over `batch.tokens` tokens.

    Radford et al. 2018, equation 1:    L = -sum_i log P(u_i | u_{i-k}, ..., u_{i-1})
    """

    model: LanguageModel

    def forward(self, batch: TextBatch) -> Tensor:
        return self.total(*self.predicted(batch))

    def predicted(self, batch: TextBatch) -> Predicted:
        return next_tokens(self.model(batch).hidden_BTD, batch)


class CarriedNextToken(VocabularyLoss):
    """The same where a batch goes on from what is remembered of the one before: truncated back-propagation.

    Batch and what is remembered -> [2], and what is remembered now. A batch that does not carry on begins from nothing,
    and no gradient goes back into the batch before.
    """

    model: LSTMLanguageModel

    def forward(self, batch: TextBatch, carry: Carry | None = None) -> tuple[Tensor, Carry]:
        predicted, remembered = self.predicted(batch, carry)
        return self.total(*predicted), remembered

    def predicted(self, batch: TextBatch, carry: Carry | None) -> tuple[Predicted, Carry]:
        output = self.model(batch, carry if batch.carries else None)
        remembered = tuple((h_BD.detach(), c_BD.detach()) for h_BD, c_BD in output.carry)
        return next_tokens(output.hidden_BTD, batch), remembered


class SequenceAutoencoder(VocabularyLoss):
    """Read a text, then write it from memory: batch -> [2], summed over `batch.tokens` tokens.

    Dai & Le 2015, arXiv:1511.01432, section 2: the encoder and the decoder are the same LSTM.
    """

    model: LSTMLanguageModel

    def forward(self, batch: TextBatch) -> Tensor:
        return self.total(*self.predicted(batch))

    def predicted(self, batch: TextBatch) -> Predicted:
        return next_tokens(self.model.rewrite(batch).hidden_BTD, batch)


class BothDirections(VocabularyLoss):
    """ELMo under its objective: batch -> [2], the mean of the forward and the backward loss, summed over tokens.

    Peters et al. 2018, arXiv:1802.05365, section 3.1, maximises the sum of the two directions' log-likelihoods
        sum_k log p(t_k | t_1 ... t_{k-1}) + log p(t_k | t_{k+1} ... t_N)
    Half of it is what the published code descends; so the mean over `batch.tokens` tokens is that of one direction, and
    its exponential the perplexity that the paper reports.
    """

    model: ELMo

    def forward(self, batch: TextBatch) -> Tensor:
        return self.directions(batch).mean(0)

    def directions(self, batch: TextBatch) -> Tensor:
        """[2, 2]: the forward direction's smoothed and plain loss, then the backward direction's."""
        return torch.stack([self.total(*one) for one in self.predicted(batch)])

    def predicted(self, batch: TextBatch) -> tuple[Predicted, Predicted]:
        output, real = self.model(batch), Packing.of(batch.text, without=1)
        before_PD = real.pack(output.backward_BLD[:, 1:])[0]
        before_P = real.pack(batch.text.ids_BL[:, :-1])[0]
        return next_tokens(output.hidden_BTD[:, :-1], batch), (before_PD, before_P)


def predicted_by(
    objective: VocabularyLoss, examples: Pieces, batch_tokens: int
) -> Iterator[tuple[Rows, tuple[Predicted, ...]]]:
    """All examples batch by batch, and what is predicted in each direction that the model reads in; a state is carried
    from batch to batch where the objective has one."""
    carry = None
    for rows in examples.measured(batch_tokens):
        batch = examples.batch(rows).to(device_of(objective)).unnamed()
        if isinstance(objective, CarriedNextToken):
            before = first_rows(carry, len(rows)) if batch.carries and carry is not None else None
            predicted, carry = objective.predicted(batch, before)
            yield rows, (predicted,)
        elif isinstance(objective, BothDirections):
            yield rows, objective.predicted(batch)
        else:
            assert isinstance(objective, NextToken | SequenceAutoencoder)
            yield rows, (objective.predicted(batch),)


def first_rows(carry: Carry, rows: int) -> Carry:
    """What is remembered of the first rows: those of a batch that has fewer than the one before."""
    return tuple((h_BD[:rows], c_BD[:rows]) for h_BD, c_BD in carry)


def moved(carry: Carry | None, device: torch.device) -> Carry | None:
    """What is remembered, on another device."""
    return None if carry is None else tuple((h_BD.to(device), c_BD.to(device)) for h_BD, c_BD in carry)
