"""Caches of keys and values for the steps of a search, in which nothing moves when hypotheses do.

`KeyValueCache` in layers/caches.py is the plain form: it copies the keys and values of every
hypothesis that is continued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.engine import is_plain
from regard.engine.attention import CachedRowsVisible, SlotsVisible, Visibility
from regard.engine.step_graphs import StepRunner

FIRST_POSITIONS = 16
"""Positions that a cache on a CPU has space for at first; the space is doubled when they are
filled."""


class Cache(Protocol):
    """The keys and values of the tokens so far, in every block of a decoder.

    Steps write into its tensors, so a cache must not be used again after `step` or `select`, only
    what they return.
    """

    longest: int
    """Tokens so far, of the longest row."""
    places: Tensor
    """The place of the next token: of each row, [R], or of all rows, [1]."""

    @property
    def queries_share_keys(self) -> bool:
        """Whether all W hypotheses of a source attend to the same keys: queries are [B, W, D], else
        [R, 1, D]."""

    @property
    def visible(self) -> Visibility:
        """Which keys the next token may look at."""

    def add(self, block: int, k_RH1E: Tensor, v_RH1E: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of the next token of each row -> all to attend to."""

    def step(
        self, tokens_R: Tensor, advance: Callable[[Tensor, Self], Tensor]
    ) -> tuple[Tensor, Self]:
        """The logits of `advance(tokens, cache)` for one more token per row, and the cache after
        it."""

    def select(self, rows_BW: Tensor, sources_B: Tensor | None) -> Self:
        """The cache of these rows; `sources_B` are the sources that remain, None if all do."""


@dataclass
class RowCache:
    """The cache on a GPU. Hypotheses move from row to row, what is stored stays."""

    own_MN2RHE: Tensor
    """Positions are the first axis, so the filled part is one block of memory."""
    rows_MR: Tensor
    """The row that has position m of row r."""
    longest: int
    places: Tensor
    runner: StepRunner = field(default_factory=StepRunner)

    queries_share_keys = False

    @staticmethod
    def empty(source_N2BHSE: Tensor, rows: int, max_length: int) -> RowCache:
        layers, _, sources, heads, _, head_width = source_N2BHSE.shape
        own_MN2RHE = source_N2BHSE.new_zeros(
            max_length, layers, 2, sources * rows, heads, head_width
        )
        places_1 = torch.zeros(1, dtype=torch.long, device=own_MN2RHE.device)
        return RowCache(own_MN2RHE, rows_in_place(own_MN2RHE), 0, places_1)

    @property
    def visible(self) -> CachedRowsVisible:
        return CachedRowsVisible(self.places + 1, self.rows_MR)

    def add(self, block: int, k_RH1E: Tensor, v_RH1E: Tensor) -> tuple[Tensor, Tensor]:
        own_M2RHE = self.own_MN2RHE[:, block]
        k_RHKE, v_RHKE = own_M2RHE.permute(1, 2, 3, 0, 4)
        k_RHKE.index_copy_(2, self.places, k_RH1E)
        v_RHKE.index_copy_(2, self.places, v_RH1E)
        if not is_plain():
            return k_RHKE, v_RHKE
        # The engine was switched off after `empty`: the equation expects each row's keys and values
        # in that row
        positions_M1 = torch.arange(len(own_M2RHE), device=k_RHKE.device)[:, None]
        own_MR2HE = own_M2RHE[positions_M1, :, self.rows_MR.long()]
        k_RHKE, v_RHKE = own_MR2HE.permute(2, 1, 3, 0, 4)
        return k_RHKE, v_RHKE

    def first(self, positions: int) -> RowCache:
        """The part of the cache that a step attends to; what it writes is written here too."""
        return replace(
            self, own_MN2RHE=self.own_MN2RHE[:positions], rows_MR=self.rows_MR[:positions]
        )

    def step(
        self, tokens_R: Tensor, advance: Callable[[Tensor, RowCache], Tensor]
    ) -> tuple[Tensor, RowCache]:
        def compute(tokens_R: Tensor, positions: int) -> Tensor:
            logits_RV = advance(tokens_R, self.first(positions))
            self.places.add_(1)
            return logits_RV

        logits_RV = self.runner.run(compute, tokens_R, self.longest, len(self.own_MN2RHE))
        return logits_RV, replace(self, longest=self.longest + 1)

    def select(self, rows_BW: Tensor, sources_B: Tensor | None) -> RowCache:
        """While as many rows go on, only the numbers in `rows_MR` change, in place, since a captured
        step needs tensors that stay."""
        rows_MR = self.rows_MR[: self.longest].index_select(1, rows_BW.flatten())
        if sources_B is None and rows_MR.shape[1] == self.rows_MR.shape[1]:
            self.rows_MR[: self.longest] = rows_MR
            return self
        filled = self._rows_of(rows_MR)
        own_MN2RHE = filled.new_zeros(len(self.own_MN2RHE), *filled.shape[1:])
        own_MN2RHE[: self.longest] = filled
        return replace(
            self,
            own_MN2RHE=own_MN2RHE,
            rows_MR=rows_in_place(own_MN2RHE),
            runner=self.runner.renewed(),
        )

    def _rows_of(self, rows_MR: Tensor) -> Tensor:
        """The filled part of the cache with row rows_MR[m, r] in place of r."""
        filled = self.own_MN2RHE[: len(rows_MR)]
        layers = 2 * filled.shape[1]
        rows = filled.shape[3]
        # Rows of memory by their numbers: index_select along the fourth axis is three times as slow
        first_MN1 = torch.arange(0, len(filled) * layers * rows, rows, device=filled.device).view(
            -1, layers, 1
        )
        numbers_R = (first_MN1 + rows_MR[:, None]).flatten()
        chosen_RD = filled.flatten(0, 3).flatten(1).index_select(0, numbers_R)
        return chosen_RD.view(*filled.shape[:3], rows_MR.shape[1], *filled.shape[4:])


def rows_in_place(own_MN2RHE: Tensor) -> Tensor:
    """rows_MR of a cache in which each row has all of its positions itself."""
    rows_R = torch.arange(own_MN2RHE.shape[3], device=own_MN2RHE.device, dtype=torch.int32)
    return rows_R.repeat(len(own_MN2RHE), 1)


@dataclass
class SlotCache:
    """The cache on a CPU.

    A source has a slot for each hypothesis. All its hypotheses attend to all slots, with weight 0
    for what others have written: so nothing moves here either.
    """

    own_N2BHMWE: Tensor
    """There may be more slots than hypotheses."""
    slots_KBW: Tensor
    """The slot that has position k of hypothesis w; later positions are in the hypotheses' own
    slots."""
    longest: int
    places: Tensor

    queries_share_keys = True

    @staticmethod
    def empty(source_N2BHSE: Tensor, rows: int, max_length: int) -> SlotCache:
        layers, _, sources, heads, _, head_width = source_N2BHSE.shape
        own_N2BHMWE = source_N2BHSE.new_zeros(
            layers, 2, sources, heads, FIRST_POSITIONS, rows, head_width
        )
        slots_KBW = torch.zeros(0, sources, rows, dtype=torch.long, device=own_N2BHMWE.device)
        places_1 = torch.zeros(1, dtype=torch.long, device=own_N2BHMWE.device)
        return SlotCache(own_N2BHMWE, slots_KBW, 0, places_1)

    def slots_of(self, positions: int) -> Tensor:
        """`slots_KBW` for the first positions."""
        known, sources, hypotheses = self.slots_KBW.shape
        own_W = torch.arange(hypotheses, device=self.slots_KBW.device)
        return torch.cat([self.slots_KBW, own_W.repeat(positions - known, sources, 1)])

    @property
    def visible(self) -> SlotsVisible:
        slots = self.own_N2BHMWE.shape[5]
        if slots == 1:
            return SlotsVisible(None)
        slots_BWK1 = self.slots_of(self.longest + 1).permute(1, 2, 0)[..., None]
        others_BWKW = slots_BWK1 != torch.arange(slots, device=slots_BWK1.device)
        bias_BWKW = self.own_N2BHMWE.new_zeros(others_BWKW.shape).masked_fill_(
            others_BWKW, -torch.inf
        )
        return SlotsVisible(bias_BWKW.flatten(2)[:, None])

    def add(self, block: int, k_BHWE: Tensor, v_BHWE: Tensor) -> tuple[Tensor, Tensor]:
        own_2BHKWE = self.own_N2BHMWE[block, ..., : self.longest + 1, :, :]
        own_2BHKWE[0, :, :, -1, : k_BHWE.shape[2]] = k_BHWE
        own_2BHKWE[1, :, :, -1, : k_BHWE.shape[2]] = v_BHWE
        return own_2BHKWE[0].flatten(2, 3), own_2BHKWE[1].flatten(2, 3)

    def step(
        self, tokens_R: Tensor, advance: Callable[[Tensor, SlotCache], Tensor]
    ) -> tuple[Tensor, SlotCache]:
        cache = self
        if self.longest == (space := self.own_N2BHMWE.shape[4]):
            cache = replace(self, own_N2BHMWE=F.pad(self.own_N2BHMWE, (0, 0, 0, 0, 0, space)))
        logits_RV = advance(tokens_R, cache)
        return logits_RV, replace(cache, longest=self.longest + 1, places=self.places + 1)

    def select(self, rows_BW: Tensor, sources_B: Tensor | None) -> SlotCache:
        slots_KR = self.slots_of(self.longest).flatten(1).index_select(1, rows_BW.flatten())
        own_N2BHMWE = self.own_N2BHMWE
        if sources_B is not None:
            own_N2BHMWE = own_N2BHMWE.index_select(2, sources_B)
        if (more := rows_BW.shape[1] - own_N2BHMWE.shape[5]) > 0:
            own_N2BHMWE = F.pad(own_N2BHMWE, (0, 0, 0, more))
        return replace(
            self, own_N2BHMWE=own_N2BHMWE, slots_KBW=slots_KR.view(self.longest, *rows_BW.shape)
        )


EMPTY_CACHES: list[tuple[Callable[[Tensor], bool], Callable[[Tensor, int, int], Cache]]] = [
    (lambda source_N2BHSE: source_N2BHSE.device.type == "cuda", RowCache.empty),
    (lambda source_N2BHSE: True, SlotCache.empty),
]
"""The keys and values of the sources, which give the sizes and the device; the number of hypotheses
per source; the most tokens of a hypothesis -> an empty cache."""
