"""Continuous bag of words: the neighbours predict the word between them."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.objectives.word_windows import WindowLoss, WordPredictions


class ContinuousBagOfWords(WindowLoss):
    """Mikolov et al. 2013, arXiv:1301.3781, section 3.1, for the words w_1 ... w_T, with N_t the
    neighbours of w_t, up to c words away:

        h_t = 1 / |N_t| sum_{j in N_t} v_j
        L   = -sum_t log p(w_t | h_t)

    The order of the neighbours is lost, hence the name. Negative sampling or hierarchical softmax
    takes the place of log p. `neighbours_BLK` says which c each word has.
    """

    def predictions(self, ids_BL: Tensor, v_BLD: Tensor, near_BLK: Tensor) -> WordPredictions:
        count_BL1 = near_BLK.sum(-1, keepdim=True)
        h_BLD = near_BLK.to(v_BLD) @ v_BLD / count_BL1.clamp(min=1)
        has_neighbours_BL = count_BL1[..., 0] > 0
        words_P = ids_BL[has_neighbours_BL]
        return WordPredictions(
            h_BLD[has_neighbours_BL], torch.arange(len(words_P), device=words_P.device), words_P
        )
