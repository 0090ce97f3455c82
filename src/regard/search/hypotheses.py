"""Hypotheses: as the search returns them, and as tensors while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Protocol

import torch
from torch import Tensor

from regard.data.batches import Batch, TextBatch, Tokens
from regard.errors import DecodeError
from regard.layers.attention import Recording, recording
from regard.models.base import Generator, LanguageModel
from regard.search.config import Normalisation, SearchConfig

NEVER = -math.inf
"""log P of a token that is ruled out, and of an empty slot. Other tokens keep the model's log P: nothing is
renormalised."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output."""

    tokens: tuple[int, ...]
    """The output, with the final `</s>`."""
    score: float
    """log P of exactly these tokens under the model."""
    objective: float
    """The value that ranks it: the score normalised for length, with the penalties of the config."""


@dataclass(frozen=True)
class Live:
    """Unfinished hypotheses, W slots for each sentence that is still in the batch."""

    sentences_B: Tensor
    """The index of each group's sentence in the batch that the search was given."""
    history_BWT: Tensor
    """The tokens so far."""
    total_BW: Tensor
    """What hypotheses are ranked by: log P so far, with the repetition penalty; NEVER in an empty slot."""
    own_BW: Tensor | None = None
    """The model's log P so far; None if it equals `total_BW`."""
    attended_BWS: Tensor | None = None
    """The attention to each source token, summed over the steps so far and this one; None without coverage penalty."""

    @property
    def score_BW(self) -> Tensor:
        """The model's log P so far."""
        return self.total_BW if self.own_BW is None else self.own_BW

    def objective_BW(self, ranking: Ranking, source_lengths_B: Tensor) -> Tensor:
        """The ranking value of hypotheses that end here, given the lengths of all sources."""
        covered_BW = None
        if self.attended_BWS is not None:
            covered_BW = coverage(self.attended_BWS, source_lengths_B[self.sentences_B])
        return ranking(self.total_BW, self.history_BWT.shape[-1], covered_BW)

    def pick(self, groups_B1: Tensor, slots_BW: Tensor) -> Live:
        """These slots of these groups."""
        parts = (self.history_BWT, self.total_BW, self.own_BW, self.attended_BWS)
        history_BWT, total_BW, own_BW, attended_BWS = (
            None if part is None else part[groups_B1, slots_BW] for part in parts
        )
        assert history_BWT is not None
        assert total_BW is not None
        return Live(self.sentences_B[groups_B1[:, 0]], history_BWT, total_BW, own_BW, attended_BWS)

    def add_attention(self, weights_BWS: Tensor | None) -> Live:
        """The same with the attention of one more step."""
        if weights_BWS is None or self.attended_BWS is None:
            return self
        return replace(self, attended_BWS=self.attended_BWS + weights_BWS)

    def without(self, removed: Tensor) -> Live:
        """The same with these slots [B, W] (or all slots of these sentences, [B, 1]) empty."""
        return replace(self, total_BW=self.total_BW.masked_fill(removed, NEVER))


@dataclass(frozen=True)
class Choice:
    """The continuations that a strategy takes in one step, W for each sentence."""

    parents_BW: Tensor
    """The slot of the hypothesis that is continued."""
    tokens_BW: Tensor
    total_BW: Tensor
    """`Live.total_BW` with the new token; NEVER if nothing was taken."""

    def continued(self, live: Live, log_p_BWV: Tensor | None) -> Live:
        """The chosen hypotheses with their new token; `log_p_BWV` is needed if the ranking differs from log P."""
        written = live.history_BWT.shape[-1]
        before_BWT = live.history_BWT.gather(1, self.parents_BW[..., None].expand(-1, -1, written))
        history_BWT = torch.cat([before_BWT, self.tokens_BW[..., None]], dim=-1)
        own_BW, attended_BWS = None, None
        if live.own_BW is not None:
            assert log_p_BWV is not None
            index_BW = self.parents_BW * log_p_BWV.shape[-1] + self.tokens_BW
            own_BW = live.own_BW.gather(1, self.parents_BW) + log_p_BWV.flatten(1).gather(1, index_BW)
        if live.attended_BWS is not None:
            positions = live.attended_BWS.shape[-1]
            attended_BWS = live.attended_BWS.gather(1, self.parents_BW[..., None].expand(-1, -1, positions))
        return Live(live.sentences_B, history_BWT, self.total_BW, own_BW, attended_BWS)


class Observer(Protocol):
    """Called after every search step. Without an observer the search computes nothing for it."""

    def step(self, log_p_BWV: Tensor, allowed_BWV: Tensor, live: Live, choice: Choice) -> None:
        """One step, before finished hypotheses are removed.

        `log_p_BWV` is the model's log P of each next token, whatever the rules; `allowed_BWV` is True for tokens that
        the rules allow. `live.sentences_B` are indices in the batch that the search was given.
        """
        ...


class Finished:
    """Finished hypotheses, one slot each, in the order in which they ended; the last slot takes what has not ended.

    Everything stays on the device until the search is over, so that no step waits for the GPU.
    """

    def __init__(self, slots: int, longest: int, ranking: Ranking, source_lengths_B: Tensor, *, like: Tensor) -> None:
        sentences, device = len(source_lengths_B), like.device
        self._slots = slots
        self._ranking = ranking
        self._source_lengths_B = source_lengths_B
        self._tokens_BWT = torch.zeros(sentences, slots + 1, longest, dtype=torch.long, device=device)
        self._lengths_BW = torch.zeros(sentences, slots + 1, dtype=torch.long, device=device)
        self._score_BW = like.new_full((sentences, slots + 1), NEVER)
        self._objective_BW = like.new_full((sentences, slots + 1), NEVER)
        self._count_B = torch.zeros(sentences, dtype=torch.long, device=device)

    def add(self, ends: Live, ended_BW: Tensor) -> None:
        """Store the hypotheses that have ended, in the order of their slots."""
        if ended_BW.device.type == "cpu" and not ended_BW.any():  # on a GPU this test would cost more than the rest
            return
        sentences_B, length = ends.sentences_B, ends.history_BWT.shape[-1]
        number_BW = self._count_B[sentences_B][:, None] + ended_BW.cumsum(-1) - 1
        slot_BW = torch.where(ended_BW, number_BW, self._slots)
        index = (sentences_B[:, None], slot_BW)
        self._tokens_BWT[..., :length][index] = ends.history_BWT
        self._lengths_BW[index] = length
        self._score_BW[index] = ends.score_BW
        self._objective_BW[index] = ends.objective_BW(self._ranking, self._source_lengths_B)
        self._count_B[sentences_B] += ended_BW.sum(-1)

    def count(self, sentences_B: Tensor) -> Tensor:
        """How many hypotheses of each sentence have ended."""
        return self._count_B[sentences_B]

    def objective_to_beat(self, sentences_B: Tensor, nbest: int) -> Tensor:
        """The ranking value of the `nbest`-th best hypothesis of each sentence; NEVER if there are fewer."""
        return self._objective_BW[sentences_B, : self._slots].topk(nbest).values[:, -1]

    def best(self, nbest: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence; of equal ones the first that ended."""
        tokens_BWT, lengths = self._tokens_BWT.cpu(), self._lengths_BW.tolist()
        scores, objectives = self._score_BW.tolist(), self._objective_BW.tolist()

        def best_of(b: int, count: int) -> list[Hypothesis]:
            ranked = sorted(range(count), key=lambda w: -objectives[b][w])[:nbest]
            outputs = (tokens_BWT[b, w, : lengths[b][w]].tolist() for w in ranked)
            return [
                Hypothesis(tuple(ids), scores[b][w], objectives[b][w]) for w, ids in zip(ranked, outputs, strict=True)
            ]

        return [best_of(b, count) for b, count in enumerate(self._count_B.tolist())]


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


ROWS_AT_ONCE = 1024
"""Target tokens that the readout computes together: logits need far more memory than hidden states."""


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the vocabulary, in float32 or higher whatever the precision of the model."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@torch.inference_mode()
def score(model: Generator, batch: Batch) -> list[list[float]]:
    """log P of each target token after `<s>`, given the source and the target before it; one list per sentence.

    The sum of a list is the score that the search reports for a hypothesis of the same tokens.
    """
    assert not model.training, "the model is in training mode, with dropout"
    return _token_scores(model, model(batch).hidden_BTD, batch.target)


@torch.inference_mode()
def score_texts(model: LanguageModel, text: Tokens) -> list[list[float]]:
    """log P of each token of a text but its first, given the tokens before it."""
    assert not model.training, "the model is in training mode, with dropout"
    return _token_scores(model, model(TextBatch(text)).hidden_BTD, text)


def _token_scores(model: Generator, hidden_BTD: Tensor, target: Tokens) -> list[list[float]]:
    lengths_B, targets_BT = target.lengths_B - 1, target.ids_BL[:, 1:]
    real_BT = torch.arange(targets_BT.shape[1], device=lengths_B.device) < lengths_B[:, None]
    hidden_PD, targets_P = hidden_BTD[real_BT], targets_BT[real_BT]
    chunks = zip(torch.split(hidden_PD, ROWS_AT_ONCE), torch.split(targets_P, ROWS_AT_ONCE), strict=True)
    log_p_P = torch.cat([_log_p_of(targets, model.readout(hidden)) for hidden, targets in chunks]).cpu()
    return [tokens.tolist() for tokens in torch.split(log_p_P, (target.host_lengths_B - 1).tolist())]


def _log_p_of(tokens_P: Tensor, logits_PV: Tensor) -> Tensor:
    return log_probabilities(logits_PV).gather(-1, tokens_P[:, None])[:, 0]


@torch.inference_mode()
def as_hypotheses(model: Generator, batch: Batch, config: SearchConfig) -> list[Hypothesis]:
    """The given targets as hypotheses, with the score and ranking value that a search would give them."""
    covers = config.coverage_penalty > 0
    if covers:
        require_source_attention(model)
    with recording() if covers else nullcontext() as recorded:
        scores = score(model, batch)
    targets = [ids[1 : 1 + len(log_p)] for ids, log_p in zip(batch.target.ids_BL.tolist(), scores, strict=True)]
    theta = config.repetition_penalty
    totals = [_penalised_total(ids, log_p, theta) for ids, log_p in zip(targets, scores, strict=True)]
    lengths_B = batch.target.host_lengths_B - 1
    covered_B = None if recorded is None else _coverage(model, batch, recorded)
    objectives = Ranking.of(config)(torch.tensor(totals, dtype=torch.float64), lengths_B, covered_B).tolist()
    return [
        Hypothesis(tuple(ids), sum(log_p), objective)
        for ids, log_p, objective in zip(targets, scores, objectives, strict=True)
    ]


def _penalised_total(ids: Sequence[int], log_p: Sequence[float], theta: float) -> float:
    """log P of the tokens; that of a repeated token counts theta times."""
    repeated = (token in ids[:place] for place, token in enumerate(ids))
    return sum(theta * value if again else value for again, value in zip(repeated, log_p, strict=True))


def _coverage(model: Generator, batch: Batch, recorded: Recording) -> Tensor:
    """The coverage of each source by the attention of the real target positions, [B]."""
    weights_BTS = source_attention(model, recorded)
    lengths_B = batch.target.lengths_B - 1
    real_BT1 = (torch.arange(weights_BTS.shape[1], device=lengths_B.device) < lengths_B[:, None])[..., None]
    attended_B1S = torch.where(real_BT1, weights_BTS, 0.0).sum(1, keepdim=True)
    return coverage(attended_B1S, batch.source.lengths_B)[:, 0].cpu()
