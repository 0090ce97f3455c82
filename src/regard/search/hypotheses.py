"""Hypotheses: what ranks them, and how they are stored while a search runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fnmatch import fnmatch

import torch
from torch import Tensor

from regard.data.batches import real_positions
from regard.engine import first_that_applies
from regard.engine.live_rows import has_none
from regard.engine.top_scores import BEST_SCORES
from regard.errors import DecodeError
from regard.layers.attention import Recording
from regard.models.base import Generator
from regard.search.config import SearchConfig

NEVER = -math.inf
"""log P of a token that is ruled out, and of an empty slot. Other tokens keep the model's log P:
nothing is renormalised."""
MIN_COVERAGE = 1e-6
"""The smallest attention that the coverage of a source token counts with: local attention can leave
it at 0."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output."""

    tokens: tuple[int, ...]  # the output, with the final `</s>`
    score: float  # log P of exactly these tokens under the model
    # the value that ranks it: the score normalised for length, with the penalties of the config
    objective: float


# Ranking


def objective_of(
    config: SearchConfig, log_p: Tensor, length: int | Tensor, covered: Tensor | None = None
) -> Tensor:
    """The value that ranks finished hypotheses: log P, normalised for length, plus a coverage
    penalty.

        none      log P
        mean      log P / |Y|^alpha
        wu        log P / lp(Y),  lp(Y) = ((5 + |Y|) / 6)^alpha
        reward    log P + alpha |Y|

    `wu` and the coverage penalty cp(X; Y) are Wu et al. 2016, arXiv:1609.08144, equation 14; the
    reward per word is that of Murray and Chiang 2018, arXiv:1808.10006. |Y| includes `</s>`;
    `covered` is the result of `coverage`.

    For the longest length that a live hypothesis may grow to, this is an upper bound of its value:
    log P only falls, no normalisation falls with the length while log P <= 0 and alpha >= 0, and a
    coverage penalty is at most 0.
    """
    alpha = config.length_penalty
    if isinstance(length, Tensor):  # otherwise integers would be divided in float32
        length = length.to(log_p.dtype)
    match config.normalisation:
        case "none":
            value = log_p
        case "mean":
            value = log_p / length**alpha
        case "wu":
            value = log_p / ((5 + length) / 6) ** alpha
        case "reward":
            value = log_p + alpha * length
    return value if covered is None else value + config.coverage_penalty * covered


def coverage(attended_BWS: Tensor, lengths_B: Tensor) -> Tensor:
    """How much of each source was attended to, at most 0.

    Wu et al. 2016, arXiv:1609.08144, equation 14, without its beta:
        cp(X; Y) = sum_i log(min(sum_j p_ij, 1))
    p_ij is the attention of target token j to source token i, here the mean over layers and heads.
    """
    real_BS = real_positions(lengths_B, attended_BWS.shape[-1])
    return attended_BWS.clamp(MIN_COVERAGE, 1.0).log().masked_fill(~real_BS[:, None], 0.0).sum(-1)


def source_attention(model: Generator, recorded: Recording) -> Tensor:
    """The recorded attention over the source [B, Q, S], mean over layers and heads."""
    if not model.alignment:
        what = (
            f"the model {type(model).__name__} has no attention over the source, so "
            "coverage is not defined"
        )
        hint = "leave it at 0, or use a model with attention"
        raise DecodeError(what, where="search.coverage_penalty", hint=hint)
    weights = [
        weights
        for name, weights in recorded.by_name(model).items()
        if fnmatch(name, model.alignment)
    ]
    return torch.cat(weights, dim=1).mean(1)


def penalise_repetition(log_p_BWV: Tensor, history_BWT: Tensor, theta: float) -> Tensor:
    """The value that ranks candidates, in place: log P of a token that is already in the output,
    times theta.

    Keskar et al. 2019, arXiv:1909.05858, section 4.1, divides the logit of such a token by theta.
    Here log P, which is never above 0, is multiplied and not normalised again: so theta >= 1 never
    favours a repetition, and log P of the other tokens does not change.
    """
    if theta == 1.0 or history_BWT.shape[-1] == 0:
        return log_p_BWV
    return log_p_BWV.scatter_(-1, history_BWT, log_p_BWV.gather(-1, history_BWT) * theta)


def best(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and their indices, in descending order; of equal scores the
    first comes first. May overwrite the scores."""
    if faster := first_that_applies(BEST_SCORES, scores_BM, count):
        return faster(scores_BM, count)
    values_BM, index_BM = scores_BM.sort(descending=True, stable=True)
    return values_BM[:, :count], index_BM[:, :count]


# While a search runs


@dataclass(frozen=True)
class Live:
    """Unfinished hypotheses, W slots for each sentence that is still in the batch."""

    sentences_B: Tensor  # the index of each group's sentence in the batch that the search was given
    history_BWT: Tensor  # the tokens so far
    # what hypotheses are ranked by: log P so far, with the repetition penalty; NEVER in an empty
    # slot
    total_BW: Tensor
    own_BW: Tensor | None = None  # the model's log P so far; None if it equals `total_BW`
    attended_BWS: Tensor | None = None
    """The attention to each source token, summed over the steps so far and this one; None without
    coverage penalty."""

    @property
    def score_BW(self) -> Tensor:
        return self.total_BW if self.own_BW is None else self.own_BW

    def objective_BW(self, config: SearchConfig, source_lengths_B: Tensor) -> Tensor:
        """The ranking value of hypotheses that end here, given the lengths of all sources."""
        covered_BW = None
        if self.attended_BWS is not None:
            covered_BW = coverage(self.attended_BWS, source_lengths_B[self.sentences_B])
        return objective_of(config, self.total_BW, self.history_BWT.shape[-1], covered_BW)

    def pick(self, groups_B1: Tensor, slots_BW: Tensor) -> Live:
        """These slots of these groups."""
        return Live(
            self.sentences_B[groups_B1[:, 0]],
            self.history_BWT[groups_B1, slots_BW],
            self.total_BW[groups_B1, slots_BW],
            None if self.own_BW is None else self.own_BW[groups_B1, slots_BW],
            None if self.attended_BWS is None else self.attended_BWS[groups_B1, slots_BW],
        )

    def without(self, removed: Tensor) -> Live:
        """A copy in which these slots [B, W] (or all slots of these sentences, [B, 1]) are
        empty."""
        return replace(self, total_BW=self.total_BW.masked_fill(removed, NEVER))


@dataclass(frozen=True)
class Choice:
    """The continuations that a strategy takes in one step, W for each sentence."""

    parents_BW: Tensor  # the slot of the hypothesis that is continued
    tokens_BW: Tensor
    total_BW: Tensor  # `Live.total_BW` with the new token; NEVER if nothing was taken

    def continued(self, live: Live, log_p_BWV: Tensor | None) -> Live:
        """The chosen hypotheses with their new token; `log_p_BWV` is needed if the ranking differs
        from log P."""
        parents = live
        own_BW = live.own_BW
        if (
            own_BW is not None
            or self.parents_BW.shape[1] > 1
            or live.total_BW.shape != self.parents_BW.shape
        ):
            groups_B1 = torch.arange(len(live.sentences_B), device=self.parents_BW.device)[:, None]
            parents = live.pick(groups_B1, self.parents_BW)
            if parents.own_BW is not None:
                assert log_p_BWV is not None
                own_BW = parents.own_BW + log_p_BWV[groups_B1, self.parents_BW, self.tokens_BW]
        history_BWT = torch.cat([parents.history_BWT, self.tokens_BW[..., None]], dim=-1)
        return replace(parents, history_BWT=history_BWT, total_BW=self.total_BW, own_BW=own_BW)


class Finished:
    """Finished hypotheses, one slot each, in the order in which they ended; the last slot takes
    what has not ended.

    Everything stays on the device until the search is over, so that no step waits for the GPU.
    """

    def __init__(
        self,
        slots: int,
        longest: int,
        config: SearchConfig,
        source_lengths_B: Tensor,
        *,
        like: Tensor,
    ) -> None:
        sentences = len(source_lengths_B)
        device = like.device
        self._slots = slots
        self._config = config
        self._source_lengths_B = source_lengths_B
        self._tokens_BWT = torch.zeros(
            sentences, slots + 1, longest, dtype=torch.long, device=device
        )
        self._lengths_BW = torch.zeros(sentences, slots + 1, dtype=torch.long, device=device)
        self._score_BW = like.new_full((sentences, slots + 1), NEVER)
        self._objective_BW = like.new_full((sentences, slots + 1), NEVER)
        self.count_B = torch.zeros(sentences, dtype=torch.long, device=device)
        self.some = False
        """Whether any may have been stored."""

    def add(self, ends: Live, ended_BW: Tensor) -> None:
        """Store the hypotheses that have ended, in the order of their slots."""
        if has_none(ended_BW):
            return
        self.some = True
        sentences_B = ends.sentences_B
        length = ends.history_BWT.shape[-1]
        number_BW = self.count_B[sentences_B][:, None] + ended_BW.cumsum(-1) - 1
        index = (sentences_B[:, None], torch.where(ended_BW, number_BW, self._slots))
        self._tokens_BWT[..., :length][index] = ends.history_BWT
        self._lengths_BW[index] = length
        self._score_BW[index] = ends.score_BW
        self._objective_BW[index] = ends.objective_BW(self._config, self._source_lengths_B)
        self.count_B[sentences_B] += ended_BW.sum(-1)

    def objective_to_beat(self, sentences_B: Tensor, nbest: int) -> Tensor:
        """The ranking value of the `nbest`-th best hypothesis of each sentence; NEVER if there are
        fewer."""
        return self._objective_BW[sentences_B, : self._slots].topk(nbest).values[:, -1]

    def best(self, nbest: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence; of equal ones the first that ended."""
        tokens_BWT = self._tokens_BWT.cpu()
        lengths = self._lengths_BW.tolist()
        scores = self._score_BW.tolist()
        objectives = self._objective_BW.tolist()
        best = []
        for b, count in enumerate(self.count_B.tolist()):
            ranked = sorted(range(count), key=lambda w: -objectives[b][w])[:nbest]
            outputs = {w: tuple(tokens_BWT[b, w, : lengths[b][w]].tolist()) for w in ranked}
            best.append([Hypothesis(outputs[w], scores[b][w], objectives[b][w]) for w in ranked])
        return best
