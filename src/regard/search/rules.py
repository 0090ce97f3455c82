"""What may be written where: tokens that are never written, and the shortest and longest output of each sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Live


def length_limits(source_lengths: Iterable[int], config: SearchConfig) -> list[int]:
    """Most tokens that may be written for each sentence, `</s>` included; a sentence's neighbours have no say in it."""
    ceiling = math.inf if config.max_length is None else config.max_length
    floor = max(1, config.min_length)
    limits = (int(config.max_length_ratio * length + config.max_length_offset) for length in source_lengths)
    return [max(floor, int(min(ceiling, limit))) for limit in limits]


class Rules:
    """Rules out candidates before anything is chosen.

    `</s>` may not come before `min_length`, and at its limit a sentence may only end: so every hypothesis that the
    search gives is a finished sequence with a true log P.
    """

    def __init__(
        self, limits: Sequence[int], *, min_length: int, end_id: int, banned: set[int], device: torch.device
    ) -> None:
        self.end_id = end_id
        self.longest = max(limits)
        self._min_length = min_length
        self._limits = frozenset(limits)
        self.limits_B = torch.tensor(limits, device=device)
        self._banned = torch.tensor(sorted(banned - {end_id}), dtype=torch.long, device=device)

    def rule_out(self, log_p_BWV: Tensor, live: Live) -> Tensor:
        """Set to NEVER, in place, what may not come next."""
        length = live.history_BWT.shape[-1] + 1
        log_p_BWV.index_fill_(-1, self._banned, NEVER)
        if length < self._min_length:
            log_p_BWV[..., self.end_id] = NEVER
        if length in self._limits:  # a pass over the whole vocabulary, so only where some sentence needs it
            at_limit_B = self.limits_B[live.sentences_B] == length
            goes_on_V = torch.arange(log_p_BWV.shape[-1], device=log_p_BWV.device) != self.end_id
            log_p_BWV.masked_fill_(at_limit_B[:, None, None] & goes_on_V, NEVER)
        return log_p_BWV
