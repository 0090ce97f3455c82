"""Negative sampling: a word that is to be told from words drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.neighbours import Neighbours


def negative_sampling_loss(
    output: Neighbours,
    h_QD: Tensor,
    rows_P: Tensor,
    words_P: Tensor,
    negatives: int,
    *,
    drawn: bool,
) -> Tensor:
    """The sum of the loss over P words, each predicted from a row of h.

    Mikolov et al. 2013, arXiv:1310.4546, equation 4, for a word w and the vector h that predicts it,
    with k negatives:
        L = -log sigmoid(u_w . h) - sum_{i=1}^k E_{n ~ P_n} log sigmoid(-u_n . h)
    The negatives are `drawn`, or the expectation is computed: so a validation gives the same number
    each time.
    """
    h_PD = h_QD.index_select(0, rows_P)
    u_PD = F.embedding(words_P, output.weight)
    loss = -F.logsigmoid((h_PD * u_PD).sum(1)).sum()
    if not len(words_P):  # every word was skipped, or each text has one word
        return loss
    if drawn:
        words = torch.multinomial(output.noise_V, len(words_P) * negatives, replacement=True)
        u_PKD = F.embedding(words.view(len(words_P), negatives), output.weight)
        return loss - F.logsigmoid(-torch.einsum("pd,pkd->pk", h_PD, u_PKD)).sum()
    expected_Q = F.logsigmoid(-output(h_QD)) @ output.noise_V
    return loss - negatives * expected_Q[rows_P].sum()
