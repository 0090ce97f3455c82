"""The highest scores of each row, for `best` in search/hypotheses.py.

All of them give the equal scores in the order of their indices, as a stable sort does. `topk` alone
does not say which of several equal scores it takes, and in half precision scores are often equal.
They overwrite the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

MAX_MAXIMA = 8
"""Up to this number, repeated maxima are faster than a sort."""
SCORES_PER_BLOCK = 64
"""Scores of which a CPU first takes the maximum."""


def is_long_on_cpu(scores_BM: Tensor, count: int) -> bool:
    """Whether blocks leave less than half of the scores, since the best of these are searched for
    again."""
    return scores_BM.device.type == "cpu" and scores_BM.shape[1] >= SCORES_PER_BLOCK * max(
        2 * count, SCORES_PER_BLOCK
    )


def best_by_blocks(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """One pass over the scores: the highest are in the blocks with the highest maxima, or in the
    rest."""
    whole = scores_BM.shape[1] // SCORES_PER_BLOCK * SCORES_PER_BLOCK
    maxima_BN = scores_BM[:, :whole].view(len(scores_BM), -1, SCORES_PER_BLOCK).amax(-1)
    first_BW = best_of_few(maxima_BN, count)[1].sort().values * SCORES_PER_BLOCK
    index_BK = (first_BW[..., None] + torch.arange(SCORES_PER_BLOCK)).flatten(1)
    rest_BK = torch.arange(whole, scores_BM.shape[1]).expand(len(scores_BM), -1)
    index_BK = torch.cat([index_BK, rest_BK], 1)
    values_BW, found_BW = best_of_few(scores_BM.gather(1, index_BK), count)
    return values_BW, index_BK.gather(1, found_BW)


def best_of_few(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The faster of the other two, or blocks again if there are still many scores."""
    if is_long_on_cpu(scores_BM, count):
        return best_by_blocks(scores_BM, count)
    return (
        best_by_maxima(scores_BM, count) if count <= MAX_MAXIMA else best_by_topk(scores_BM, count)
    )


def best_by_maxima(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """One maximum after another, each removed before the next."""
    highest = [scores_BM.max(dim=-1, keepdim=True)]
    if count == 1:
        return highest[0].values, highest[0].indices
    for _ in range(count - 1):
        scores_BM.scatter_(1, highest[-1].indices, -math.inf)
        highest.append(scores_BM.max(dim=-1, keepdim=True))
    values_BW = torch.cat([top.values for top in highest], 1)
    return values_BW, torch.cat([top.indices for top in highest], 1)


def best_by_topk(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`topk`, after which the scores that equal the last one taken are found again by index."""
    size = scores_BM.shape[1]
    values_BW, index_BW = scores_BM.topk(count)
    last_B1 = values_BW[:, -1:]
    from_the_end_M = torch.arange(size, 0, -1, dtype=torch.int32, device=scores_BM.device)
    is_last_BM = scores_BM == last_B1
    first_equal_BW = size - torch.where(is_last_BM, from_the_end_M, 0).topk(count).values.long()
    above_BW = values_BW > last_B1
    number_BW = (~above_BW).cumsum(-1).sub_(1).clamp_(min=0)
    index_BW = torch.where(above_BW, index_BW, first_equal_BW.gather(1, number_BW))
    index_BW = index_BW.clamp_(max=size - 1)
    order_BW = index_BW.argsort(-1)
    ordered_BW = values_BW.gather(1, order_BW)
    order_BW = order_BW.gather(1, ordered_BW.argsort(dim=-1, descending=True, stable=True))
    return values_BW.gather(1, order_BW), index_BW.gather(1, order_BW)


BEST_SCORES: list[
    tuple[Callable[[Tensor, int], bool], Callable[[Tensor, int], tuple[Tensor, Tensor]]]
] = [
    (is_long_on_cpu, best_by_blocks),
    (lambda scores_BM, count: count <= MAX_MAXIMA, best_by_maxima),
    (lambda scores_BM, count: True, best_by_topk),
]
