"""Hypotheses: as the search hands them out, and as tensors while it is under way."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.search.objective import Objective, coverage

NEVER = -math.inf
"""log P of what may not be chosen and of a slot that holds nothing. The rest keeps the model's own: nothing is
renormalised."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output."""

    tokens: tuple[int, ...]
    """What was written, the final `</s>` included."""
    score: float
    """log P of exactly these tokens under the model."""
    objective: float
    """What the ranking goes by: the score normalised for length, less the penalties that were asked for."""


@dataclass(frozen=True)
class Live:
    """Hypotheses that go on, W slots for each sentence that is still in the batch."""

    sentences_B: Tensor
    """The number of each group's sentence in the batch that the search was given."""
    history_BWT: Tensor
    """The tokens written so far."""
    total_BW: Tensor
    """What hypotheses rank by: log P so far, with the repetition penalty if there is one; NEVER in an empty slot."""
    own_BW: Tensor | None = None
    """The model's own log P so far; None where it is `total_BW`."""
    attended_BWS: Tensor | None = None
    """The attention to each source token, summed over the steps so far and this one; None where nobody asks."""

    @property
    def score_BW(self) -> Tensor:
        """The model's own log P so far."""
        return self.total_BW if self.own_BW is None else self.own_BW

    def objective_BW(self, objective: Objective, source_lengths_B: Tensor) -> Tensor:
        """What hypotheses that end here are ranked by, given the lengths of all sources."""
        cover_BW = None
        if self.attended_BWS is not None:
            cover_BW = coverage(self.attended_BWS, source_lengths_B[self.sentences_B])
        return objective(self.total_BW, self.history_BWT.shape[-1], cover_BW)

    def pick(self, groups_B1: Tensor, slots_BW: Tensor) -> Live:
        """These slots of these groups."""
        parts = (self.history_BWT, self.total_BW, self.own_BW, self.attended_BWS)
        history_BWT, total_BW, own_BW, attended_BWS = (
            None if part is None else part[groups_B1, slots_BW] for part in parts
        )
        assert history_BWT is not None
        assert total_BW is not None
        return Live(self.sentences_B[groups_B1[:, 0]], history_BWT, total_BW, own_BW, attended_BWS)

    def having_looked(self, looked_BWS: Tensor | None) -> Live:
        """The same after one more look at the source."""
        if looked_BWS is None or self.attended_BWS is None:
            return self
        return replace(self, attended_BWS=self.attended_BWS + looked_BWS)

    def without(self, gone: Tensor) -> Live:
        """The same with these slots [B, W] (or all of these sentences, [B, 1]) empty."""
        return replace(self, total_BW=self.total_BW.masked_fill(gone, NEVER))


@dataclass(frozen=True)
class Choice:
    """The continuations that a strategy takes in one step, W for each sentence."""

    parents_BW: Tensor
    """The slot of the hypothesis that is continued."""
    tokens_BW: Tensor
    total_BW: Tensor
    """`Live.total_BW` with the new token; NEVER where nothing was taken."""

    def continued(self, live: Live, log_p_BWV: Tensor | None) -> Live:
        """The hypotheses that were chosen, the new token included; with the model's own log P where ranks differ."""
        written = live.history_BWT.shape[-1]
        before_BWT = live.history_BWT.gather(1, self.parents_BW[..., None].expand(-1, -1, written))
        history_BWT = torch.cat([before_BWT, self.tokens_BW[..., None]], dim=-1)
        own_BW, attended_BWS = None, None
        if live.own_BW is not None:
            assert log_p_BWV is not None
            place_BW = self.parents_BW * log_p_BWV.shape[-1] + self.tokens_BW
            own_BW = live.own_BW.gather(1, self.parents_BW) + log_p_BWV.flatten(1).gather(1, place_BW)
        if live.attended_BWS is not None:
            positions = live.attended_BWS.shape[-1]
            attended_BWS = live.attended_BWS.gather(1, self.parents_BW[..., None].expand(-1, -1, positions))
        return Live(live.sentences_B, history_BWT, self.total_BW, own_BW, attended_BWS)


class Finished:
    """Hypotheses that have ended: one slot each, in the order in which they ended, and a last slot for what has not.

    All of it stays on the device until the search is over, so that collecting a hypothesis waits for nothing.
    """

    def __init__(
        self, slots: int, longest: int, objective: Objective, source_lengths_B: Tensor, *, like: Tensor
    ) -> None:
        sentences, device = len(source_lengths_B), like.device
        self._slots = slots
        self._objective = objective
        self._source_lengths_B = source_lengths_B
        self._tokens_BWT = torch.zeros(sentences, slots + 1, longest, dtype=torch.long, device=device)
        self._lengths_BW = torch.zeros(sentences, slots + 1, dtype=torch.long, device=device)
        self._score_BW = like.new_full((sentences, slots + 1), NEVER)
        self._objective_BW = like.new_full((sentences, slots + 1), NEVER)
        self._count_B = torch.zeros(sentences, dtype=torch.long, device=device)

    def add(self, ends: Live, ended_BW: Tensor) -> None:
        """Keep the hypotheses that have ended, in the order of their slots."""
        if ended_BW.device.type == "cpu" and not ended_BW.any():  # on a GPU, asking would take longer than doing it
            return
        sentences_B, length = ends.sentences_B, ends.history_BWT.shape[-1]
        number_BW = self._count_B[sentences_B][:, None] + ended_BW.cumsum(-1) - 1
        slot_BW = torch.where(ended_BW, number_BW, self._slots)
        place = (sentences_B[:, None], slot_BW)
        self._tokens_BWT[..., :length][place] = ends.history_BWT
        self._lengths_BW[place] = length
        self._score_BW[place] = ends.score_BW
        self._objective_BW[place] = ends.objective_BW(self._objective, self._source_lengths_B)
        self._count_B[sentences_B] += ended_BW.sum(-1)

    def count(self, sentences_B: Tensor) -> Tensor:
        """How many hypotheses of each sentence have ended."""
        return self._count_B[sentences_B]

    def objective_to_beat(self, sentences_B: Tensor, nbest: int) -> Tensor:
        """The objective of each sentence's number `nbest`; NEVER where there are fewer."""
        return self._objective_BW[sentences_B, : self._slots].topk(nbest).values[:, -1]

    def best(self, nbest: int) -> list[list[Hypothesis]]:
        """The best of each sentence by the objective; among equals, the one that ended first."""
        tokens_BWT, lengths = self._tokens_BWT.cpu(), self._lengths_BW.tolist()
        scores, objectives = self._score_BW.tolist(), self._objective_BW.tolist()

        def best_of(b: int, count: int) -> list[Hypothesis]:
            ranked = sorted(range(count), key=lambda w: -objectives[b][w])[:nbest]
            written = (tokens_BWT[b, w, : lengths[b][w]].tolist() for w in ranked)
            return [
                Hypothesis(tuple(ids), scores[b][w], objectives[b][w]) for w, ids in zip(ranked, written, strict=True)
            ]

        return [best_of(b, count) for b, count in enumerate(self._count_B.tolist())]
