"""Skip-gram: a word predicts its neighbours."""

from __future__ import annotations

from torch import Tensor

from regard.objectives.word_windows import WindowLoss, WordPredictions


class SkipGram(WindowLoss):
    """Mikolov et al. 2013, arXiv:1310.4546, equation 1, for the words w_1 ... w_T:

        L = -sum_t sum_{-c <= j <= c, j != 0} log p(w_{t+j} | v_t)

    Negative sampling or hierarchical softmax takes the place of log p. `neighbours_BLK` says which c
    each word has.
    """

    def predictions(self, ids_BL: Tensor, v_BLD: Tensor, near_BLK: Tensor) -> WordPredictions:
        text_P, center_P, neighbour_P = near_BLK.nonzero(as_tuple=True)
        rows_P = text_P * ids_BL.shape[1] + center_P
        return WordPredictions(v_BLD.flatten(0, 1), rows_P, ids_BL[text_P, neighbour_P])
