"""Hypotheses: as the search returns them, and as tensors while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from regard.search.ranking import Ranking, coverage

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
