"""Hypotheses: as the search hands them out, and as tensors while it is under way."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

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
    """What the ranking goes by: the score normalised for length."""


def objective(log_p: Tensor, length: int | Tensor, alpha: float) -> Tensor:
    """What finished hypotheses are ranked by: log P / length^alpha."""
    return log_p / length**alpha


@dataclass(frozen=True)
class Live:
    """Hypotheses that go on, W slots for each sentence that is still in the batch."""

    sentences_B: Tensor
    """The number of each group's sentence in the batch that the search was given."""
    history_BWT: Tensor
    """The tokens written so far."""
    total_BW: Tensor
    """log P so far; NEVER in a slot that holds nothing."""


@dataclass(frozen=True)
class Choice:
    """The continuations that a strategy takes in one step, W for each sentence."""

    parents_BW: Tensor
    """The slot of the hypothesis that is continued."""
    tokens_BW: Tensor
    total_BW: Tensor
    """log P with the new token; NEVER where nothing was taken."""

    def histories(self, live: Live) -> Tensor:
        """The tokens of each continuation, the new one included."""
        written = live.history_BWT.shape[-1]
        before_BWT = live.history_BWT.gather(1, self.parents_BW[..., None].expand(-1, -1, written))
        return torch.cat([before_BWT, self.tokens_BW[..., None]], dim=-1)


class Finished:
    """Hypotheses that have ended: one slot each, in the order in which they ended, and a last slot for what has not.

    All of it stays on the device until the search is over, so that collecting a hypothesis waits for nothing.
    """

    def __init__(self, sentences: int, slots: int, longest: int, *, alpha: float, like: Tensor) -> None:
        self._slots = slots
        self._alpha = alpha
        self._tokens_BWT = torch.zeros(sentences, slots + 1, longest, dtype=torch.long, device=like.device)
        self._lengths_BW = torch.zeros(sentences, slots + 1, dtype=torch.long, device=like.device)
        self._score_BW = like.new_full((sentences, slots + 1), NEVER)
        self._objective_BW = like.new_full((sentences, slots + 1), NEVER)
        self._count_B = torch.zeros(sentences, dtype=torch.long, device=like.device)

    def add(self, sentences_B: Tensor, histories_BWT: Tensor, total_BW: Tensor, ended_BW: Tensor) -> None:
        """Keep the hypotheses that have ended, in the order of their slots."""
        length = histories_BWT.shape[-1]
        number_BW = self._count_B[sentences_B][:, None] + ended_BW.cumsum(-1) - 1
        slot_BW = torch.where(ended_BW, number_BW, self._slots)
        place = (sentences_B[:, None], slot_BW)
        self._tokens_BWT[..., :length][place] = histories_BWT
        self._lengths_BW[place] = length
        self._score_BW[place] = total_BW
        self._objective_BW[place] = objective(total_BW, length, self._alpha)
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
