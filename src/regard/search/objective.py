"""What the search looks for: the objective that ranks finished hypotheses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.search.config import Normalisation, SearchConfig

FAINTEST = 1e-6
"""Least attention that the coverage of a source token counts with: local attention leaves tokens out altogether."""


@dataclass(frozen=True)
class Objective:
    """log P, made comparable between lengths, plus a penalty for what of the source was not looked at.

        none      log P
        mean      log P / |Y|^alpha
        wu        log P / lp(Y),  lp(Y) = ((5 + |Y|) / 6)^alpha
        reward    log P + alpha |Y|

    `wu` and the coverage penalty cp(X; Y) are Wu et al. 2016, arXiv:1609.08144, equation 14; the reward for each word
    is that of Murray and Chiang 2018, arXiv:1808.10006. |Y| counts `</s>`.
    """

    normalisation: Normalisation = "mean"
    alpha: float = 1.0
    beta: float = 0.0

    @staticmethod
    def of(config: SearchConfig) -> Objective:
        return Objective(config.normalisation, config.length_penalty, config.coverage_penalty)

    def __call__(self, log_p: Tensor, length: int | Tensor, cover: Tensor | None = None) -> Tensor:
        """Of hypotheses with this log P and length; `cover` is what `coverage` gives."""
        if isinstance(length, Tensor):  # else whole numbers would be divided in float32
            length = length.to(log_p.dtype)
        match self.normalisation:
            case "none":
                value = log_p
            case "mean":
                value = log_p / length**self.alpha
            case "wu":
                value = log_p / ((5 + length) / 6) ** self.alpha
            case "reward":
                value = log_p + self.alpha * length
        return value if cover is None else value + self.beta * cover

    def reach(self, log_p: Tensor, longest: Tensor) -> Tensor:
        """The most that a hypothesis with this log P can come to if it may grow to the longest length.

        log P only falls from here, no normalisation falls with the length while log P <= 0 and alpha >= 0, and a
        coverage penalty is at most 0.
        """
        return self(log_p, longest)


def coverage(attended_BWS: Tensor, lengths_B: Tensor) -> Tensor:
    """How much of each source was looked at, at most 0.

    Wu et al. 2016, arXiv:1609.08144, equation 14, without its beta:
        cp(X; Y) = sum_i log(min(sum_j p_ij, 1))
    where p_ij is the attention of the target token j to the source token i, here a mean over layers and heads.
    """
    real_BS = torch.arange(attended_BWS.shape[-1], device=lengths_B.device) < lengths_B[:, None]
    return attended_BWS.clamp(FAINTEST, 1.0).log().masked_fill(~real_BS[:, None], 0.0).sum(-1)
