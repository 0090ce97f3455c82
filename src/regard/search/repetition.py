"""A penalty on writing a token once more."""

from __future__ import annotations

from torch import Tensor


def penalised(log_p_BWV: Tensor, history_BWT: Tensor, theta: float) -> Tensor:
    """What candidates rank by, in place: the log P of a token that stands in the history already counts theta times.

    Keskar et al. 2019, arXiv:1909.05858, section 4.1, divides the score of such a token by theta before the softmax.
    Here log P, which is never above 0, is multiplied after it and nothing is normalised anew, so that theta >= 1 never
    helps a repetition, and the model's own log P stays what it is.
    """
    if theta == 1.0 or history_BWT.shape[-1] == 0:
        return log_p_BWV
    return log_p_BWV.scatter_(-1, history_BWT, log_p_BWV.gather(-1, history_BWT) * theta)
