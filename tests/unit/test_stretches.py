"""Loops over time that leave finished sentences behind."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers.stretches import stretches

CPU = torch.device("cpu")


def test_stretches_by_hand() -> None:
    found = list(stretches(torch.tensor([2, 5, 2, 5]), 6, CPU))
    assert [(one.steps.start, one.steps.stop) for one in found] == [(0, 2), (2, 5)]
    assert [one.rows_R.tolist() for one in found] == [[0, 1, 2, 3], [1, 3]]
    assert found[1].kept_R.tolist() == [1, 3]
    assert found[1].places_P.tolist() == [6 + 2, 6 + 3, 6 + 4, 18 + 2, 18 + 3, 18 + 4]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(0, 3))
def test_every_step_of_every_sentence_is_made_once_and_in_order(lengths: list[int], extra: int) -> None:
    width = max(lengths) + extra
    places: list[int] = []
    rows, after = list(range(len(lengths))), 0
    for one in stretches(torch.tensor(lengths), width, CPU):
        assert one.steps.start == after < one.steps.stop
        rows = [rows[kept] for kept in one.kept_R.tolist()]
        assert one.rows_R.tolist() == rows
        assert all(lengths[row] > after for row in rows), "a row that has ended is still there"
        places += one.places_P.tolist()
        after = one.steps.stop
    real = {row * width + t for row, length in enumerate(lengths) for t in range(length)}
    assert len(places) == len(set(places))
    assert real <= set(places)
    assert len(places) <= 2 * len(real) + width, "rows leave before they cost more than they are worth"
