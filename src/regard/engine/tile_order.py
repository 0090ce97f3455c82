"""The order in which sentences are packed into a row, chosen so that tiles begin and end with a sentence.

An attention kernel works on tiles of `TILE` tokens. A sentence that reaches over the border of two
tiles makes both compute scores for both, so one tile of queries reads three tiles of keys instead
of one. The order below finds groups of sentences whose lengths sum to a multiple of a tile. It is a
subset-sum problem with many solutions, so a greedy search with two lookahead steps is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.epochs import TILE

ROW_BASE = 2 * TILE
"""A key holds the tokens of both rows as `first * ROW_BASE + second`. Two numbers of tokens below a
tile sum to less than this, so the sum of two keys never carries from the second row into the first."""
LOOKAHEAD_KEYS = 24
"""How many of the largest keys are tried before a group takes the largest that fits. More of them
place hardly more sentences, and the search runs for each batch while the GPU waits for none."""


def in_tiles(first_B: Tensor, second_B: Tensor | None = None) -> Tensor:
    """An order of sentences with these lengths in which most tiles begin and end with a sentence.

    For pairs, `second_B` has the lengths in the second row, which is packed in the same order.
    First come groups of sentences that fill tiles of both rows exactly, then groups that fill tiles
    of the first row, then the rest.
    """
    left_B = torch.arange(len(first_B))
    ordered: list[Tensor] = []
    for fills_both in (False,) if second_B is None else (True, False):
        second = 0 if second_B is None or not fills_both else second_B % TILE
        keys_B = first_B % TILE * ROW_BASE + second
        goal = TILE * ROW_BASE + TILE * fills_both
        grouped = torch.tensor(Groups(keys_B[left_B].tolist(), goal).fill(), dtype=torch.long)
        ordered.append(left_B[grouped])
        is_left_B = torch.ones_like(left_B, dtype=torch.bool).index_fill(0, grouped, False)
        left_B = left_B[is_left_B]
    return torch.cat([*ordered, left_B])


class Groups:
    """Groups of keys with the sum `goal`. A key of 0 is a group by itself; some keys find no group.

    The largest key begins a group, and one or two others complete it. If none do, the largest key
    joins after which some would, among `LOOKAHEAD_KEYS`; else the largest that fits.

    Sets of keys are the bits of an integer, so that all pairs with a given sum are found by one
    shift and one AND.
    """

    def __init__(self, keys: Sequence[int], goal: int) -> None:
        self.goal = goal
        self.numbers: dict[int, list[int]] = {}
        """The numbers of the sentences that are left, by key."""
        for number, key in enumerate(keys):
            self.numbers.setdefault(key, []).append(number)
        self.whole = self.numbers.pop(0, [])
        """Sentences of whole tiles."""
        self.present = 0
        """Bit k is set if a key k is left."""
        self.mirrored = 0
        """Bit `goal - k` is set if a key k is left."""
        for key in self.numbers:
            self.present |= 1 << key
            self.mirrored |= 1 << goal - key

    def fill(self) -> list[int]:
        """The numbers of the grouped sentences, group after group."""
        ordered = list(self.whole)
        for largest in sorted(self.numbers, reverse=True):
            while largest in self.numbers:
                ordered += self.group_from(largest)
        return ordered

    def group_from(self, largest: int) -> list[int]:
        """Take a group that begins with this key; empty if the keys that were taken fill no tile."""
        group = [self.take(largest)]
        missing = self.goal - largest
        while missing:
            if last := self.completing(missing):
                return group + [self.take(key) for key in last]
            if not (key := self.next_key(missing)):
                return []
            group.append(self.take(key))
            missing -= key
        return group

    def take(self, key: int) -> int:
        """Remove one sentence with this key -> its number."""
        number = self.numbers[key].pop()
        if not self.numbers[key]:
            del self.numbers[key]
            self.present ^= 1 << key
            self.mirrored ^= 1 << self.goal - key
        return number

    def completing(self, missing: int) -> tuple[int, ...]:
        """One or two keys with the sum `missing`; empty if there are none."""
        if missing in self.numbers:
            return (missing,)
        # Bit k of the mirrored set, shifted by goal - missing, is set if missing - k is a key
        larger = (self.present & self.mirrored >> self.goal - missing).bit_length() - 1
        if larger <= 0 or (2 * larger == missing and len(self.numbers[larger]) == 1):
            return ()
        return larger, missing - larger

    def next_key(self, missing: int) -> int:
        """The largest key after which one or two others complete the group, else the largest that
        fits; 0 if none does."""
        smaller = self.present & (1 << missing) - 1
        largest_fitting = 0
        for _ in range(min(LOOKAHEAD_KEYS, smaller.bit_count())):
            key = smaller.bit_length() - 1
            smaller ^= 1 << key
            if (missing - key) % ROW_BASE > TILE:
                continue  # the second row would have too many tokens
            if self.completing(missing - key):
                return key
            largest_fitting = largest_fitting or key
        return largest_fitting
