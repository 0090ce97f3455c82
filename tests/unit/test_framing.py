"""Texts -> rows of tokens: special tokens, segments, and what is left of what is too long."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.framing import Framing, Long, arranged, labelled_batch, windows
from regard.text.tokenizers import Tokenizer, TokenizerConfig

TOKENIZER = Tokenizer.train(TokenizerConfig(kind="character"), ["abc"])
BEGIN, END = TOKENIZER.begin, TOKENIZER.end
LONG: tuple[Long, ...] = ("head", "tail", "head_tail", "windows")


def framing(
    longest: int = 10, long: Long = "head", stride: int | None = None, segments: bool = True
) -> Framing:
    return Framing(TOKENIZER, segments, longest, long, stride)


def test_rows_by_hand() -> None:
    bert, causal = framing(), framing(segments=False)
    assert bert.frame([7, 8]) == ([BEGIN, 7, 8, END], [0, 0, 0, 0])
    assert bert.frame([7, 8], [9]) == ([BEGIN, 7, 8, END, 9, END], [0, 0, 0, 0, 1, 1])
    assert causal.frame([7, 8]) == ([END, 7, 8, END], [0] * 4)
    assert causal.frame([7, 8], [9]) == ([END, 7, 8, BEGIN, 9, END], [0, 0, 0, 1, 1, 1])
    for first in ([], [5], [5, 6]):
        source = Framing(TOKENIZER, segments=True, longest=10, source=first)
        assert source.frame([7, 8]) == ([*first, 7, 8, END], [0] * (len(first) + 3))
        assert (source.before(1), source.room) == (len(first), 9 - len(first))


@pytest.mark.parametrize(
    ("long", "kept"),
    [
        ("head", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("tail", [[12, 13, 14, 15, 16, 17, 18, 19]]),
        ("head_tail", [[0, 1, 14, 15, 16, 17, 18, 19]]),
        ("windows", [list(range(start, start + 8)) for start in (0, 4, 8, 12)]),
    ],
)
def test_a_long_text_by_hand(long: Long, kept: list[list[int]]) -> None:
    """Twenty tokens, room for eight between the special ones."""
    assert [row.ids[1:-1] for row in framing(long=long).rows(range(20))] == kept
    assert [row.ids[1:-1] for row in framing(long=long).rows(range(8))] == [list(range(8))]


def test_of_two_texts_the_longer_is_cut() -> None:
    """Room for seven."""
    rows = framing().rows(range(3), range(10, 30))
    assert rows == [framing().frame(range(3), range(10, 14))]
    assert framing().rows(range(20), range(40, 42)) == [framing().frame(range(5), [40, 41])]
    assert framing().rows(range(20), range(40, 60)) == [framing().frame(range(3), range(40, 44))]
    assert framing(long="windows", stride=3).rows([1, 2], range(10, 19)) == [
        framing().frame([1, 2], range(start, min(start + 5, 19))) for start in (10, 13, 16)
    ]


@given(length=st.integers(1, 60), room=st.integers(1, 20), stride=st.none() | st.integers(1, 30))
def test_windows_leave_no_token_out(length: int, room: int, stride: int | None) -> None:
    spans = windows(length, room, stride)
    assert set().union(*(range(*span) for span in spans)) == set(range(length))
    assert all(0 < stop - start <= room for start, stop in spans)
    assert spans[-1][1] == length
    assert len(spans) == len(set(spans))
    assert all(stop < length for _, stop in spans[:-1])


@given(
    first=st.lists(st.integers(5, 7), min_size=1, max_size=40),
    second=st.none() | st.lists(st.integers(5, 7), min_size=1, max_size=40),
    longest=st.integers(8, 30),
    long=st.sampled_from(LONG),
    segments=st.booleans(),
)
def test_no_row_too_long(
    first: list[int], second: list[int] | None, longest: int, long: Long, segments: bool
) -> None:
    one = framing(longest, long, segments=segments)
    rows = one.rows(first, second)
    whole = one.frame(first, second)
    assert all(len(row.ids) <= longest and len(row.ids) == len(row.segments) for row in rows)
    assert (rows == [whole]) == (len(whole.ids) <= longest)
    if second is None and long == "windows":
        assert one.positions(len(first), 2) == sum(len(row.ids) for row in rows)
    if second is not None:  # each row shows something of both
        assert all(sum(token not in (BEGIN, END) for token in row.ids) >= 2 for row in rows)


def test_what_makes_the_rows_of_an_example() -> None:
    one = framing()
    assert arranged([[7]], one, "single") == [one.frame([7])]
    assert arranged([[7], [8]], one, "pair") == [one.frame([7], [8])]
    assert arranged([[7], [8]], one, "both_orders") == [one.frame([7], [8]), one.frame([8], [7])]
    assert arranged([[7], [8], [9]], one, "choices") == [one.frame([7], [8]), one.frame([7], [9])]


def test_rows_are_padded_on_the_right() -> None:
    rows = [[framing().frame([7], [8])], [framing().frame([9])]]
    batch = labelled_batch(rows, torch.zeros(2), pad=0)
    assert batch.text.ids_BL.tolist() == [[BEGIN, 7, END, 8, END], [BEGIN, 9, END, 0, 0]]
    assert batch.segments_BL.tolist() == [[0, 0, 0, 1, 1], [0] * 5]
    assert batch.text.lengths_B.tolist() == [5, 3]
