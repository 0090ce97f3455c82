"""How the next tokens are chosen: beam search, of which a beam of 1 is greedy search, and sampling."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.search.hypotheses import NEVER, Choice, Finished, Live
from regard.search.ranking import Ranking

FEW = 8
"""Up to this number, repeated maxima are faster than a sort."""


class Strategy(Protocol):
    """Chooses the next tokens."""

    rows: int
    """Hypotheses per sentence."""
    reorders: bool
    """Whether a step may continue a hypothesis in another slot than its own."""

    def start(self, total_BW: Tensor) -> Tensor:
        """log P of the slots at the beginning, made from zeros."""
        ...

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        """The continuations to take. May overwrite `log_p_BWV`, in which NEVER marks tokens that are ruled out."""
        ...

    def is_done(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Whether a sentence needs no further step, given log P of its live hypotheses."""
        ...


class Beam:
    """Takes the most probable continuations; a hypothesis that ends keeps its slot.

    Candidates are ranked by log P, with the repetition penalty. A sentence with w open slots takes the best w of its
    live hypotheses x vocabulary; a `</s>` among them closes a slot, so that the live beam shrinks. Length normalisation
    and coverage rank only finished hypotheses.
    """

    reorders = True

    def __init__(self, beam: int, nbest: int, limits_B: Tensor, ranking: Ranking) -> None:
        self.rows = beam
        self._nbest = nbest
        self._limits_B = limits_B
        self._ranking = ranking

    def start(self, total_BW: Tensor) -> Tensor:
        """One empty hypothesis per sentence: W equal ones would stay equal."""
        total_BW[:, 1:] = NEVER
        return total_BW

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        total_BWM, tokens_BWM = self._best_of_each(log_p_BWV, live)
        total_BM, tokens_BM, each = total_BWM.flatten(1), tokens_BWM.flatten(1), total_BWM.shape[-1]
        total_BW, index_BW = best(total_BM, min(self.rows, total_BM.shape[1]))
        open_B = self.rows - finished.count(live.sentences_B)
        closed_BW = torch.arange(total_BW.shape[1], device=total_BW.device) >= open_B[:, None]
        return Choice(index_BW // each, tokens_BM.gather(1, index_BW), total_BW.masked_fill(closed_BW, NEVER))

    def _best_of_each(self, log_p_BWV: Tensor, live: Live) -> tuple[Tensor, Tensor]:
        """The totals and tokens of the best continuations of each hypothesis, as many as may be taken in all."""
        log_p_RV = log_p_BWV.flatten(0, 1)
        log_p_RM, tokens_RM = best(log_p_RV, min(self.rows, log_p_RV.shape[1]))
        shape = (*live.total_BW.shape, -1)
        return log_p_RM.view(shape) + live.total_BW[..., None], tokens_RM.view(shape)

    def is_done(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Whether no live hypothesis can still be among a sentence's n best."""
        bound_B = self._ranking.upper_bound(total_BW.amax(-1), self._limits_B[sentences_B])
        return bound_B <= finished.objective_to_beat(sentences_B, self._nbest)


def best(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and their indices, in descending order; of equal scores the first comes first.

    `topk` does not say which of several equal scores it takes, and in half precision scores are often equal. So the
    scores that equal the last one taken are found again by index; for a few, repeated maxima are faster. Overwrites
    the scores.
    """
    if count <= FEW:
        highest = []
        for _ in range(count):
            highest.append(scores_BM.max(dim=-1, keepdim=True))
            scores_BM.scatter_(1, highest[-1].indices, NEVER)
        return torch.cat([top.values for top in highest], 1), torch.cat([top.indices for top in highest], 1)
    size = scores_BM.shape[1]
    values_BW, index_BW = scores_BM.topk(count)
    last_B1 = values_BW[:, -1:]
    from_the_end_M = torch.arange(size, 0, -1, dtype=torch.int32, device=scores_BM.device)
    first_equal_BW = size - torch.where(scores_BM == last_B1, from_the_end_M, 0).topk(count).values.long()
    above_BW = values_BW > last_B1
    number_BW = (~above_BW).cumsum(-1).sub_(1).clamp_(min=0)
    index_BW = torch.where(above_BW, index_BW, first_equal_BW.gather(1, number_BW)).clamp_(max=size - 1)
    order_BW = index_BW.argsort(-1)
    order_BW = order_BW.gather(1, values_BW.gather(1, order_BW).argsort(dim=-1, descending=True, stable=True))
    return values_BW.gather(1, order_BW), index_BW.gather(1, order_BW)


class Sampling:
    """Continues each hypothesis by one sampled token; its score is the model's log P."""

    reorders = False

    def __init__(
        self, noise_BWT: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
    ) -> None:
        self.rows = noise_BWT.shape[1]
        self._noise_BWT = noise_BWT
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p

    def start(self, total_BW: Tensor) -> Tensor:
        """All W samples start from the empty hypothesis."""
        return total_BW

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        sorted_BWV, order_BWV = log_p_BWV.sort(dim=-1, descending=True, stable=True)
        p_BWV = truncated(sorted_BWV, self._temperature, self._top_k, self._top_p)
        noise_BW = self._noise_BWT[live.sentences_B, :, live.history_BWT.shape[-1]]
        rank_BW1 = draw(p_BWV, noise_BW)[..., None]
        total_BW = live.total_BW + sorted_BWV.gather(-1, rank_BW1)[..., 0]
        slots_BW = torch.arange(self.rows, device=total_BW.device).expand_as(total_BW)
        return Choice(slots_BW, order_BWV.gather(-1, rank_BW1)[..., 0], total_BW)

    def is_done(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Never: every sample is written to its end."""
        return torch.zeros_like(sentences_B, dtype=torch.bool)


def truncated(log_p_V: Tensor, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """The distribution to sample from, from log probabilities [..., V] in descending order; 0 for tokens cut off.

    Temperature first, then the k most probable tokens, then the smallest set of them with probability p (nucleus
    sampling, Holtzman et al. 2020, arXiv:1904.09751, section 3.1). The most probable token always stays.
    """
    logits_V = (log_p_V - log_p_V[..., :1]) / temperature
    if top_k is not None:
        logits_V[..., top_k:] = -torch.inf
    p_V = logits_V.softmax(-1)
    if top_p < 1:
        before_V = p_V.cumsum(-1) - p_V
        before_V[..., 0] = 0
        p_V = p_V.masked_fill(before_V >= top_p, 0)
    return p_V


def draw(p_V: Tensor, noise: Tensor) -> Tensor:
    """The index where the cumulative sum of the weights [..., V] exceeds the noise, uniform in [0, 1), times the total.

    The weights are in descending order, so the positive ones come first; the index is limited to them, because of
    rounding in the sums.
    """
    cumulative_V = p_V.cumsum(-1)
    exceeded = (cumulative_V <= noise[..., None] * cumulative_V[..., -1:]).sum(-1)
    positive = (p_V > 0).sum(-1)
    return torch.minimum(exceeded, positive - 1).clamp_(min=0)


def noise_of(source: Tokens, rows: int, limits: Sequence[int], seed: int) -> Tensor:
    """Uniform noise [B, W, T] in [0, 1) for each token of each sample.

    The noise of a sentence depends on the seed and its own tokens only, not on the rest of the batch.
    """
    noise_BWT = torch.zeros(len(source), rows, max(limits))
    ids_BL, lengths = source.ids_BL.cpu().long(), source.host_lengths_B.tolist()
    for b, limit in enumerate(limits):
        digest = hashlib.blake2b(
            ids_BL[b, : lengths[b]].numpy().tobytes(), digest_size=8, salt=seed.to_bytes(16, "big")
        )
        generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big") >> 1)
        noise_BWT[b, :, :limit] = torch.rand(rows, limit, generator=generator)
    return noise_BWT.to(source.ids_BL.device)
