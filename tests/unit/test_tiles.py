"""Batches that fill tiles: every sentence once, no row too long, and as full as a loop makes them."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data.epochs import SizedExamples, plan, rounded_up
from regard.data.tiles import SENTENCES_AT_ONCE, TILE, complements, full_batches

Columns = Sequence[NDArray[np.int64]]

random = np.random.default_rng(1)


def log_normal(mean: float, count: int, longest: int) -> NDArray[np.int64]:
    return np.clip(np.exp(random.normal(mean, 0.6, count)), 3, longest).astype(np.int64)


FIRST = log_normal(3.0, 6000, 300)
PAIRS = [FIRST, np.clip(FIRST * random.normal(1.1, 0.15, 6000), 3, 300).astype(np.int64)]
SHORT = [log_normal(2.5, 6000, 100)]

CASES: dict[str, Columns] = {
    "pairs": PAIRS,
    "pairs, the first row longer": PAIRS[::-1],
    "texts": SHORT,
    "all equal": [np.full(2000, 10)],
    "all a tile": [np.full(2000, TILE), np.full(2000, TILE)],
    "all one token": [np.ones(3000, dtype=np.int64)],
    "one sentence": [np.array([7]), np.array([9])],
    "one longer than a tile": [np.append(SHORT[0], 300)],
    "one of two longer than a tile": [np.append(own, 290) for own in (SHORT[0], SHORT[0][::-1])],
}


def row_sizes(columns: Columns, budget: int = 4096) -> list[int]:
    most = max(int(column.sum()) for column in columns)
    sizes = [max(budget * int(column.sum()) // most, int(column.max())) for column in columns]
    return [rounded_up(size, TILE) for size in sizes]


def batches_of(columns: Columns, seed: int = 1) -> list[NDArray[np.int64]]:
    return full_batches(columns, row_sizes(columns), np.random.PCG64(seed))


def looped(columns: Columns, sizes: Sequence[int]) -> list[list[int]]:
    """Sentences put into batches one after another, in order, as long as they fit."""
    batches: list[list[int]] = [[]]
    used = [0] * len(columns)
    for number in range(len(columns[0])):
        used = [tokens + int(own[number]) for tokens, own in zip(used, columns, strict=True)]
        if any(tokens > size for tokens, size in zip(used, sizes, strict=True)):
            batches.append([])
            used = [int(own[number]) for own in columns]
        batches[-1].append(number)
    return batches


def whole_tiles(lengths: NDArray[np.int64]) -> float:
    """The share of the tiles of a packed row that begin with a sentence."""
    starts = np.cumsum(lengths) - lengths
    return float(np.isin(np.arange(0, lengths.sum(), TILE), starts).mean())


@pytest.mark.parametrize("columns", CASES.values(), ids=CASES)
def test_every_sentence_once_in_rows_that_are_as_full_as_in_a_loop(columns: Columns) -> None:
    sizes = row_sizes(columns)
    batches = batches_of(columns)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(columns[0])))
    for own, size in zip(columns, sizes, strict=True):
        assert max(int(own[batch].sum()) for batch in batches) <= size
    plain = looped(columns, sizes)

    def fill(found: Sequence[Sequence[int]] | list[NDArray[np.int64]]) -> float:
        inner = found[:-1] or found  # the last batch has what is left
        used = [
            [own[batch].sum() / size for own, size in zip(columns, sizes, strict=True)]
            for batch in inner
        ]
        return float(np.mean(np.max(used, axis=1)))

    assert fill(batches) >= fill(plain) - 0.01
    assert len(batches) <= len(plain) * 1.01 + 1


def test_nearly_all_tiles_begin_with_a_sentence() -> None:
    """For pairs those of the longer row, and most of the other; a sentence of more than a tile begins
    only one of its tiles."""

    def shares(columns: Columns) -> list[float]:
        return [
            float(np.mean([whole_tiles(own[batch]) for batch in batches_of(columns)[:-1]]))
            for own in columns
        ]

    assert min(shares(SHORT)) > 0.97
    first, second = shares(PAIRS)
    assert first > 0.6
    assert second > 0.85
    unordered = np.arange(6000)
    assert whole_tiles(SHORT[0][unordered]) < 0.2


def test_the_seed_decides_the_batches() -> None:
    def listed(seed: int) -> list[list[int]]:
        return [batch.tolist() for batch in batches_of(PAIRS, seed)]

    assert listed(1) == listed(1)
    assert {frozenset(batch) for batch in listed(1)}.isdisjoint(map(frozenset, listed(2)))


def test_batches_have_sentences_of_all_lengths() -> None:
    """Also those that fill no tile, which come last in each batch."""
    means = [float(PAIRS[1][batch].mean()) for batch in batches_of(PAIRS)[:-1]]
    assert np.ptp(means) < 0.35 * np.mean(means)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=60))
def test_every_sentence_once_whatever_the_lengths(lengths: list[tuple[int, int]]) -> None:
    first, second = np.array(lengths).T
    for columns in ([first], [first, second]):
        found = np.concatenate(batches_of(columns)).tolist()
        assert sorted(found) == list(range(len(lengths)))


def test_groups_are_formed_among_a_part_of_many_sentences() -> None:
    lengths = log_normal(2.5, SENTENCES_AT_ONCE + 1000, 100)
    batches = batches_of([lengths])
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))


def test_complements_by_hand() -> None:
    """28 and 100 twice, 64 twice, and two pairs of rows that fit in one row only."""
    one = complements([np.array([28, 64, 100, 28, 100, 28, 5, 64, 130])])
    assert sorted(map(sorted, one.tolist())) == [[0, 2], [1, 7], [3, 4]]
    two = complements([np.array([28, 100, 28, 100]), np.array([60, 68, 61, 68])])
    assert two.tolist() == [[0, 1]]


def test_an_epoch_of_single_texts_is_planned() -> None:
    """Each text `once` or more often, by the weight of its corpus."""

    class Texts(SizedExamples):
        lengths = SHORT[0].astype(np.int32)
        corpora = (np.arange(6000) // 3000).astype(np.int16)
        weights = (1.0, 2.0)

    batches = plan(Texts(), 4096, 1, 0, fill=True)
    shown = np.bincount(np.concatenate(batches), minlength=6000)
    assert shown.tolist() == [1] * 3000 + [2] * 3000
    assert max(int(SHORT[0][batch].sum()) for batch in batches) <= 4096
