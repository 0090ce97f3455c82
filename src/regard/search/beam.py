"""Beam search: follow the W most probable hypotheses side by side. A beam of 1 is greedy search."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.search.hypotheses import NEVER, Choice, Finished, Live
from regard.search.objective import Objective

FEW = 8
"""As many are taken one after another."""


class Beam:
    """Takes the most probable continuations; a hypothesis that ends keeps its slot for good.

    Candidates rank by log P, with the repetition penalty if there is one. A sentence with w open slots takes the best w
    of its live hypotheses x vocabulary; a `</s>` among them closes a slot, so that the live beam shrinks. The objective
    ranks only what has ended.
    """

    reorders = True

    def __init__(self, beam: int, nbest: int, limits_B: Tensor, objective: Objective) -> None:
        self.rows = beam
        self._nbest = nbest
        self._limits_B = limits_B
        self._objective = objective

    def start(self, total_BW: Tensor) -> Tensor:
        """One hypothesis a sentence, the empty one: W equal ones would stay equal."""
        total_BW[:, 1:] = NEVER
        return total_BW

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        total_BWM, tokens_BWM = self._best_of_each(log_p_BWV, live)
        total_BM, tokens_BM, each = total_BWM.flatten(1), tokens_BWM.flatten(1), total_BWM.shape[-1]
        total_BW, index_BW = best(total_BM, min(self.rows, total_BM.shape[1]))
        open_B = self.rows - finished.count(live.sentences_B)
        beyond_BW = torch.arange(total_BW.shape[1], device=total_BW.device) >= open_B[:, None]
        return Choice(index_BW // each, tokens_BM.gather(1, index_BW), total_BW.masked_fill(beyond_BW, NEVER))

    def _best_of_each(self, log_p_BWV: Tensor, live: Live) -> tuple[Tensor, Tensor]:
        """The best continuations of each hypothesis, as many as may be taken in all: their totals and tokens."""
        log_p_RV = log_p_BWV.flatten(0, 1)
        log_p_RM, tokens_RM = best(log_p_RV, min(self.rows, log_p_RV.shape[1]))
        shape = (*live.total_BW.shape, -1)
        return log_p_RM.view(shape) + live.total_BW[..., None], tokens_RM.view(shape)

    def settled(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Whether no live hypothesis can still enter a sentence's n best."""
        reach_B = self._objective.reach(total_BW.amax(-1), self._limits_B[sentences_B])
        return reach_B <= finished.objective_to_beat(sentences_B, self._nbest)


def best(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and where they stand, in falling order; among equals the first comes first.

    `topk` alone leaves open which of several equals it takes, and in half precision logits are often equal. So those
    that equal the last score taken are looked up again by place; or, for a few, the highest is taken again and again,
    which is faster. Overwrites the scores.
    """
    if count <= FEW:
        highest = []
        for _ in range(count):
            highest.append(scores_BM.max(dim=-1, keepdim=True))
            scores_BM.scatter_(1, highest[-1].indices, NEVER)
        return torch.cat([one.values for one in highest], 1), torch.cat([one.indices for one in highest], 1)
    places = scores_BM.shape[1]
    values_BW, index_BW = scores_BM.topk(count)
    last_B1 = values_BW[:, -1:]
    from_the_end_M = torch.arange(places, 0, -1, dtype=torch.int32, device=scores_BM.device)
    first_equal_BW = places - torch.where(scores_BM == last_B1, from_the_end_M, 0).topk(count).values.long()
    above_BW = values_BW > last_B1
    number_BW = (~above_BW).cumsum(-1).sub_(1).clamp_(min=0)
    index_BW = torch.where(above_BW, index_BW, first_equal_BW.gather(1, number_BW)).clamp_(max=places - 1)
    order_BW = index_BW.argsort(-1)
    order_BW = order_BW.gather(1, values_BW.gather(1, order_BW).argsort(dim=-1, descending=True, stable=True))
    return values_BW.gather(1, order_BW), index_BW.gather(1, order_BW)
