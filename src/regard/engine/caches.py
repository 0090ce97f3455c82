"""Caches of keys and values for the steps of a search, in which nothing moves when hypotheses do.

`KeyValueCache` in models/transformer.py is the plain form: it copies the keys and values of every
hypothesis that is continued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.engine import is_plain
from regard.engine.attention import CachedRowsVisible, SlotsVisible

FIRST_POSITIONS = 16
"""Positions that a cache on a CPU has space for at first; the space is doubled when they are
filled."""


def cache_for(source_N2BHSE: Tensor, rows: int, max_length: int) -> RowCache | SlotCache | None:
    """An empty cache for `rows` hypotheses per source; None if the engine is off.

    The keys and values of the sources give the number of layers, of sources and of heads, the width
    and the device.
    """
    if is_plain():
        return None
    layers, _, sources, heads, _, head_width = source_N2BHSE.shape
    if source_N2BHSE.device.type == "cuda":
        return RowCache.of(
            source_N2BHSE.new_zeros(max_length, layers, 2, sources * rows, heads, head_width)
        )
    own_N2BHMWE = source_N2BHSE.new_zeros(
        layers, 2, sources, heads, FIRST_POSITIONS, rows, head_width
    )
    return SlotCache(
        own_N2BHMWE, torch.zeros(0, sources, rows, dtype=torch.long, device=own_N2BHMWE.device)
    )


@dataclass(frozen=True)
class RowCache:
    """The keys and values of the target so far, on a GPU. Hypotheses move from row to row, what is
    stored stays."""

    own_MN2RHE: Tensor
    """Positions are the first axis, so the filled part is one block of memory."""
    rows_MR: Tensor
    """The row that has position m of row r."""

    queries_share_keys = False
    """Each row attends to its own keys: queries are [R, 1, D]."""

    @staticmethod
    def of(own_MN2RHE: Tensor) -> RowCache:
        rows_R = torch.arange(own_MN2RHE.shape[3], device=own_MN2RHE.device, dtype=torch.int32)
        return RowCache(own_MN2RHE, rows_R.repeat(len(own_MN2RHE), 1))

    def select(self, rows_BW: Tensor, kept_B: Tensor | None, written: int) -> RowCache:
        """The cache of these rows. While as many rows go on, only the numbers in `rows_MR` change,
        in place."""
        rows_MR = self.rows_MR[:written].index_select(1, rows_BW.flatten())
        if kept_B is None and rows_MR.shape[1] == self.rows_MR.shape[1]:
            self.rows_MR[:written] = rows_MR
            return self
        filled = self._rows_of(rows_MR)
        own_MN2RHE = filled.new_zeros(len(self.own_MN2RHE), *filled.shape[1:])
        own_MN2RHE[:written] = filled
        return RowCache.of(own_MN2RHE)

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

    def with_space(self, positions: int) -> RowCache:
        return self  # a captured step needs tensors that stay

    def visible(self, written_1: Tensor, capacity: int) -> CachedRowsVisible:
        return CachedRowsVisible(written_1 + 1, self.rows_MR[:capacity])

    def add(
        self, number: int, written_1: Tensor, capacity: int, k_RH1E: Tensor, v_RH1E: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of a token in block `number` -> all to attend to."""
        k_RHKE, v_RHKE = self.own_MN2RHE[:capacity, number].permute(1, 2, 3, 0, 4)
        k_RHKE.index_copy_(2, written_1, k_RH1E)
        v_RHKE.index_copy_(2, written_1, v_RH1E)
        if not is_plain():
            return k_RHKE, v_RHKE
        # The equation expects keys and values in rows of their own
        positions_M1 = torch.arange(capacity, device=k_RHKE.device)[:, None]
        own_MR2HE = self.own_MN2RHE[:capacity, number][
            positions_M1, :, self.rows_MR[:capacity].long()
        ]
        k_RHKE, v_RHKE = own_MR2HE.permute(2, 1, 3, 0, 4)
        return k_RHKE, v_RHKE


@dataclass(frozen=True)
class SlotCache:
    """The keys and values of the target so far, on a CPU.

    A source has a slot for each hypothesis. All its hypotheses attend to all slots, with weight 0
    for what others have written: so nothing moves here either.
    """

    own_N2BHMWE: Tensor
    """There may be more slots than hypotheses."""
    slots_KBW: Tensor
    """The slot that has position k of hypothesis w; later positions are in the hypotheses' own
    slots."""

    queries_share_keys = True
    """All hypotheses of a source attend to the same keys: queries are [B, W, D]."""

    def slots_of(self, positions: int) -> Tensor:
        """`slots_KBW` for the first positions."""
        known, sources, hypotheses = self.slots_KBW.shape
        own_W = torch.arange(hypotheses, device=self.slots_KBW.device)
        return torch.cat([self.slots_KBW, own_W.repeat(positions - known, sources, 1)])

    def select(self, rows_BW: Tensor, kept_B: Tensor | None, written: int) -> SlotCache:
        slots_KR = self.slots_of(written).flatten(1).index_select(1, rows_BW.flatten())
        own_N2BHMWE = (
            self.own_N2BHMWE if kept_B is None else self.own_N2BHMWE.index_select(2, kept_B)
        )
        if (more := rows_BW.shape[1] - own_N2BHMWE.shape[5]) > 0:
            own_N2BHMWE = F.pad(own_N2BHMWE, (0, 0, 0, more))
        return SlotCache(own_N2BHMWE, slots_KR.view(written, *rows_BW.shape))

    def with_space(self, positions: int) -> SlotCache:
        if positions <= (space := self.own_N2BHMWE.shape[4]):
            return self
        return replace(self, own_N2BHMWE=F.pad(self.own_N2BHMWE, (0, 0, 0, 0, 0, space)))

    def visible(self, written_1: Tensor, capacity: int) -> SlotsVisible:
        slots = self.own_N2BHMWE.shape[5]
        if slots == 1:
            return SlotsVisible(None)
        slots_BWK1 = self.slots_of(capacity).permute(1, 2, 0)[..., None]
        others_BWKW = slots_BWK1 != torch.arange(slots, device=slots_BWK1.device)
        bias_BWKW = self.own_N2BHMWE.new_zeros(others_BWKW.shape).masked_fill_(
            others_BWKW, -torch.inf
        )
        return SlotsVisible(bias_BWKW.flatten(2)[:, None])

    def add(
        self, number: int, written_1: Tensor, capacity: int, k_BHWE: Tensor, v_BHWE: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of a token of each hypothesis in block `number` -> all to
        attend to."""
        own_2BHKWE = self.own_N2BHMWE[number, ..., :capacity, :, :]
        own_2BHKWE[0, :, :, -1, : k_BHWE.shape[2]] = k_BHWE
        own_2BHKWE[1, :, :, -1, : k_BHWE.shape[2]] = v_BHWE
        return own_2BHKWE[0].flatten(2, 3), own_2BHKWE[1].flatten(2, 3)
