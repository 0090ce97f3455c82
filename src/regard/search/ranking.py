"""How hypotheses are ranked: length normalisation, coverage penalty, repetition penalty."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch

import torch
from torch import Tensor

from regard.errors import DecodeError
from regard.layers.attention import Recording
from regard.models.base import Generator
from regard.search.config import Normalisation, SearchConfig

MIN_COVERAGE = 1e-6
"""The smallest attention that the coverage of a source token counts with: local attention can leave it at 0."""


@dataclass(frozen=True)
class Ranking:
    """The value that ranks finished hypotheses: log P, normalised for length, plus a coverage penalty.

        none      log P
        mean      log P / |Y|^alpha
        wu        log P / lp(Y),  lp(Y) = ((5 + |Y|) / 6)^alpha
        reward    log P + alpha |Y|

    `wu` and the coverage penalty cp(X; Y) are Wu et al. 2016, arXiv:1609.08144, equation 14; the reward per word is
    that of Murray and Chiang 2018, arXiv:1808.10006. |Y| includes `</s>`.
    """

    normalisation: Normalisation = "mean"
    alpha: float = 1.0
    beta: float = 0.0

    @staticmethod
    def of(config: SearchConfig) -> Ranking:
        return Ranking(config.normalisation, config.length_penalty, config.coverage_penalty)

    def __call__(self, log_p: Tensor, length: int | Tensor, covered: Tensor | None = None) -> Tensor:
        """For hypotheses with this log P and length; `covered` is the result of `coverage`."""
        if isinstance(length, Tensor):  # otherwise integers would be divided in float32
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
        return value if covered is None else value + self.beta * covered

    def upper_bound(self, log_p: Tensor, longest: Tensor) -> Tensor:
        """The best value that a hypothesis with this log P can still get, if it may grow to the longest length.

        log P only falls from here, no normalisation falls with the length while log P <= 0 and alpha >= 0, and a
        coverage penalty is at most 0.
        """
        return self(log_p, longest)


def coverage(attended_BWS: Tensor, lengths_B: Tensor) -> Tensor:
    """How much of each source was attended to, at most 0.

    Wu et al. 2016, arXiv:1609.08144, equation 14, without its beta:
        cp(X; Y) = sum_i log(min(sum_j p_ij, 1))
    p_ij is the attention of target token j to source token i, here the mean over layers and heads.
    """
    real_BS = torch.arange(attended_BWS.shape[-1], device=lengths_B.device) < lengths_B[:, None]
    return attended_BWS.clamp(MIN_COVERAGE, 1.0).log().masked_fill(~real_BS[:, None], 0.0).sum(-1)


def require_source_attention(model: Generator) -> None:
    """The coverage penalty needs a model with attention over the source."""
    if not model.alignment:
        what = f"the model {type(model).__name__} has no attention over the source, so coverage is not defined"
        hint = "leave it at 0, or use a model with attention"
        raise DecodeError(what, where="search.coverage_penalty", hint=hint)


def source_attention(model: Generator, recorded: Recording) -> Tensor:
    """The recorded attention over the source [B, Q, S], mean over layers and heads."""
    weights = [weights for name, weights in recorded.by_name(model).items() if fnmatch(name, model.alignment)]
    return torch.cat(weights, dim=1).mean(1)


def penalise_repetition(log_p_BWV: Tensor, history_BWT: Tensor, theta: float) -> Tensor:
    """The value that ranks candidates, in place: log P of a token that is already in the output, times theta.

    Keskar et al. 2019, arXiv:1909.05858, section 4.1, divides the logit of such a token by theta. Here log P, which is
    never above 0, is multiplied and not normalised again: so theta >= 1 never favours a repetition, and log P of the
    other tokens does not change.
    """
    if theta == 1.0 or history_BWT.shape[-1] == 0:
        return log_p_BWV
    return log_p_BWV.scatter_(-1, history_BWT, log_p_BWV.gather(-1, history_BWT) * theta)
