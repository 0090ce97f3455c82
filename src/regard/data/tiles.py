"""Batches whose sentences fill whole tiles of a packed row, planned for an epoch at once.

An attention kernel works on tiles of `TILE` tokens. A sentence that reaches over the border of two
tiles makes both compute scores for both, so one tile of queries reads three tiles of keys instead
of one. The plan therefore joins sentences into groups whose lengths sum to a tile:

1. Sentences are cut into pieces of about half a tile, in random order.
2. Pieces whose lengths complement each other to a tile form a group. There are few different
   lengths and many pieces, so sorting finds nearly all of them.
3. The sentences that are left are shuffled and cut anew.

The groups are then shuffled and put into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

TILE = 128
"""The size of a packed row is a multiple of this: an attention kernel works on tiles of so many
tokens."""
SENTENCES_AT_ONCE = 2**17
"""Groups are formed among so many sentences, so that the memory for it does not grow with the
corpus."""
MAX_ROUNDS = 12
"""How often sentences that are left are cut anew."""
WORTH_A_ROUND = 0.1
"""If a round places a smaller share of the sentences, it is the last one."""
PERMUTED = 9
"""So many sentences of a group may come in another order, which gives 2^9 places for a border."""
GROUPS_AT_ONCE = 2**12
"""The orders of so many groups are compared at once."""

NUMBER_BITS = 32
"""Bits that the number of a sentence takes up when it is sorted together with a key."""

BOTH, ONE = range(2)
"""The rows in which a group fills whole tiles."""


@dataclass(frozen=True)
class Groups:
    """Groups of sentences that are packed side by side."""

    order: Integers
    """The numbers of the sentences, group after group."""
    bounds: Integers
    """Where each group begins in `order`, then the end."""
    fills: Integers
    """BOTH or ONE for each group."""

    def __len__(self) -> int:
        return len(self.fills)

    @staticmethod
    def of(order: Integers, sizes: Integers, fills: int) -> Groups:
        return Groups(order, bounds_of(sizes), np.full(len(sizes), fills))

    @staticmethod
    def joined(parts: Sequence[Groups]) -> Groups:
        return Groups(
            np.concatenate([part.order for part in parts]),
            bounds_of(np.concatenate([np.diff(part.bounds) for part in parts])),
            np.concatenate([part.fills for part in parts]),
        )

    def select(self, groups: Integers) -> Groups:
        """These groups, in this order."""
        bounds = bounds_of(np.diff(self.bounds)[groups])
        shift = np.repeat(self.bounds[groups] - bounds[:-1], np.diff(bounds))
        order = self.order[shift + np.arange(bounds[-1])]
        return Groups(order, bounds, self.fills[groups])

    def sums(self, lengths: Integers) -> Integers:
        """The tokens of each group."""
        return np.diff(bounds_of(lengths[self.order])[self.bounds])


def bounds_of(sizes: Integers) -> Integers:
    """Where each part of these sizes begins, then the end."""
    return np.concatenate([[0], np.cumsum(sizes)])


def shuffled(count: int, bits: np.random.PCG64) -> Integers:
    """The numbers up to `count` in random order: sorted by random high bits above the number."""
    drawn = bits.random_raw(count) >> np.uint64(1)
    return sorted_numbers(drawn.astype(np.int64) >> NUMBER_BITS, np.arange(count))


def sorted_numbers(keys: Integers, numbers: Integers) -> Integers:
    """The numbers in the order of their keys, and of themselves if keys are equal. Sorting values is
    several times as fast as a stable sort of their places."""
    values = (keys << NUMBER_BITS) + numbers
    values.sort()
    return values & ((1 << NUMBER_BITS) - 1)


# Batches of groups


def full_batches(
    columns: Sequence[Integers], sizes: Sequence[int], bits: np.random.PCG64
) -> list[Integers]:
    """Batches of sentences in random order, as many per batch as the rows hold, in the order in
    which they are packed.

    `columns` has the tokens of each sentence in one row, or in each of two, and `sizes` the tokens
    that a row holds. No sentence is longer than a row.
    """
    first, *others = sorted(columns, key=lambda column: -int(column.sum()))
    groups, singles = grouped([first, *others], bits)
    groups, too_long = split_at(groups, [groups.sums(column) for column in columns], sizes)
    singles = np.concatenate([singles, too_long])
    groups = groups.select(shuffled(len(groups), bits))
    singles = singles[shuffled(len(singles), bits)]
    limits = cut(
        [bounds_of(groups.sums(column)) for column in columns],
        [bounds_of(column[singles]) for column in columns],
        sizes,
    )
    group_limits, single_limits = np.array(limits).T
    # those that fill tiles of both rows keep the borders of both where they are
    batches = np.repeat(np.arange(len(limits) - 1), np.diff(group_limits))
    groups = groups.select(np.lexsort((groups.fills, batches)))
    bounds = groups.bounds[group_limits]
    order = groups.order
    for other in others:
        order = with_borders(groups, other, bounds)
    planned = [
        np.concatenate([order[start:stop], singles[single:last]])
        for (start, stop), (single, last) in zip(
            pairwise(bounds.tolist()), pairwise(single_limits.tolist()), strict=True
        )
    ]
    *full, last_one = planned
    return [*(full[number] for number in shuffled(len(full), bits)), last_one]


def split_at(
    groups: Groups, sums: Sequence[Integers], sizes: Sequence[int]
) -> tuple[Groups, Integers]:
    """The groups that fit into the rows, and the sentences of the others."""
    fits = np.all([own <= size for own, size in zip(sums, sizes, strict=True)], axis=0)
    return groups.select(np.flatnonzero(fits)), groups.select(np.flatnonzero(~fits)).order


def cut(
    groups: Sequence[Integers], singles: Sequence[Integers], sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """The first group and the first single sentence of each batch, then the ends.

    Both are given by the tokens before each of them, and in all, in each row. A batch has as many
    groups as fit beside whole tiles for its share of the single sentences, and then as many of
    these as fit.
    """
    totals = [int(own[-1] + other[-1]) for own, other in zip(groups, singles, strict=True)]
    count = max(-(-total // size) for total, size in zip(totals, sizes, strict=True))
    limits = [(0, 0)]
    while (start := limits[-1]) != (len(groups[0]) - 1, len(singles[0]) - 1):
        batches_left = max(1, count - len(limits) + 1)
        shares = [int(own[-1] - own[start[1]]) // batches_left // TILE * TILE for own in singles]
        room = [max(0, size - share) for size, share in zip(sizes, shares, strict=True)]
        group = fitting(groups, start[0], room)
        if group == start[0] < len(groups[0]) - 1:
            group += 1
        left = [
            size - int(own[group] - own[start[0]]) for size, own in zip(sizes, groups, strict=True)
        ]
        limits.append((group, fitting(singles, start[1], left)))
    return limits


def fitting(bounds: Sequence[Integers], start: int, sizes: Sequence[int]) -> int:
    """The end of the parts from `start` on that fit into the rows."""
    return min(
        int(np.searchsorted(own, own[start] + size, side="right")) - 1
        for own, size in zip(bounds, sizes, strict=True)
    )


# Groups that fill tiles


def grouped(columns: Sequence[Integers], bits: np.random.PCG64) -> tuple[Groups, Integers]:
    """Groups that fill tiles of all rows if possible, else of the first one; and the few sentences
    that are left over."""
    pool = shuffled(len(columns[0]), bits)
    parts = [
        grouped_part(pool[start : start + SENTENCES_AT_ONCE], columns, bits)
        for start in range(0, len(pool), SENTENCES_AT_ONCE)
    ]
    return Groups.joined([groups for groups, _ in parts]), np.concatenate(
        [singles for _, singles in parts]
    )


def grouped_part(
    pool: Integers, columns: Sequence[Integers], bits: np.random.PCG64
) -> tuple[Groups, Integers]:
    """The sentences of the pool in groups, and those that are left."""
    parts: list[Groups] = []
    for fills in (ONE,) if len(columns) == 1 else (BOTH, ONE):
        rows = columns if fills == BOTH else columns[:1]
        is_whole = np.all([column[pool] % TILE == 0 for column in rows], axis=0)
        parts.append(Groups.of(pool[is_whole], np.ones(is_whole.sum(), np.int64), fills))
        pool = pool[~is_whole]
        for _ in range(MAX_ROUNDS):
            groups, left = complementing(pool, [column[pool] % TILE for column in rows], fills)
            parts.append(groups)
            is_last = len(left) >= (1 - WORTH_A_ROUND) * len(pool)
            pool = left[shuffled(len(left), bits)]
            if is_last:
                break
    return Groups.joined(parts), pool


def complementing(pool: Integers, keys: Sequence[Integers], fills: int) -> tuple[Groups, Integers]:
    """Groups of two pieces of the pool that complement each other, and the sentences that are left.

    `keys` are the tokens of each sentence beyond whole tiles, in each row.
    """
    middles = np.cumsum(keys[0]) - keys[0] // 2
    starts = np.flatnonzero(np.diff(middles // (TILE // 2), prepend=-1))
    sizes = np.diff(starts, append=len(pool))
    pieces = Groups.of(pool, sizes, fills)
    partners = complements([np.add.reduceat(own, starts) for own in keys])
    is_used = np.zeros(len(pieces), dtype=bool)
    is_used[partners] = True
    found = pieces.select(partners.ravel())
    groups = Groups.of(found.order, sizes[partners].sum(1), fills)
    return groups, pool[~np.repeat(is_used, sizes)]


def complements(sums: Sequence[Integers]) -> Integers:
    """Pairs [P, 2] of pieces whose sums complement each other to a tile in each row; each piece is in
    one pair at most.

    Pieces with the same sums stand side by side after sorting. The first of them belongs to the first
    of the pieces with the complement, and so on.
    """
    codes = np.zeros_like(sums[0])
    goal = 0
    for own in sums:
        # a code never carries: two sums below a tile are together less than two tiles
        codes = codes * 2 * TILE + own
        goal = goal * 2 * TILE + TILE
    fitting = np.flatnonzero(np.all([own < TILE for own in sums], axis=0))
    order = sorted_numbers(codes[fitting], fitting)
    codes = codes[order]
    numbers = np.arange(len(codes))
    ranks = numbers - np.searchsorted(codes, codes)
    # pieces of half a tile complement each other
    ranks = np.where(2 * codes == goal, ranks ^ 1, ranks)
    partners = np.searchsorted(codes, goal - codes) + ranks
    exists = partners < np.searchsorted(codes, goal - codes, side="right")
    first = np.flatnonzero(exists & (numbers < partners))
    return np.stack([order[first], order[partners[first]]], axis=1)


# Borders in the other row


def with_borders(groups: Groups, lengths: Integers, starts: Integers) -> Integers:
    """The sentences of the groups, in an order in which a sentence ends where a tile of the other
    row ends. `lengths` are the tokens in that row, and `starts` is where each batch begins.

    The first sentences of a group have a subset with the length that is missing to the border, or
    one with the length that is left after it. The subset comes first, or last.
    """
    order = groups.order
    ends = bounds_of(lengths[order])
    before = ends[groups.bounds[:-1]]
    totals = ends[groups.bounds[1:]] - before
    of_batch = ends[starts[np.searchsorted(starts, groups.bounds[:-1], side="right") - 1]]
    missing = (of_batch - before) % TILE
    comes_last = np.repeat(2 * missing < totals, np.diff(groups.bounds))
    crossed = np.flatnonzero((missing > 0) & (missing < totals))
    for start in range(0, len(crossed), GROUPS_AT_ONCE):
        some = crossed[start : start + GROUPS_AT_ONCE]
        places = groups.bounds[some, None] + np.arange(PERMUTED)
        is_member = places < groups.bounds[some + 1, None]
        places = np.minimum(places, len(order) - 1)
        own = np.where(is_member, lengths[order[places]], 0)
        wanted = np.minimum(missing[some], totals[some] - missing[some])
        chosen = places[is_member & subset_of_sum(own, wanted)]
        comes_last[chosen] = ~comes_last[chosen]
    owners = np.repeat(np.arange(len(groups)), np.diff(groups.bounds))
    return order[np.argsort(2 * owners + comes_last, kind="stable")]


SUBSETS = (np.arange(2**PERMUTED) >> np.arange(PERMUTED)[:, None] & 1).astype(np.float32)


def subset_of_sum(lengths: Integers, sums: Integers) -> NDArray[np.bool_]:
    """For each row a subset of its lengths that has this sum; an empty one if there is none."""
    fits = lengths.astype(np.float32) @ SUBSETS == sums[:, None]
    chosen: NDArray[np.bool_] = SUBSETS.T[fits.argmax(1)].astype(bool)
    return chosen
