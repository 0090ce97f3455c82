"""Rows of tokens made from spans of long arrays, all rows of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.text.templates import Slot

Integers = NDArray[np.integer[Any]]
Ids = NDArray[np.int64]


class Spans(NamedTuple):
    """One span of an array of tokens for each row of a batch."""

    values: Integers
    starts_B: Integers
    sizes_B: Integers


def framed_spans(
    template: Sequence[Slot], texts: Sequence[Spans], pad: int
) -> tuple[Ids, Ids, Ids]:
    """Ids [B, L] of texts among the special tokens of a template, padded on the right; the segment
    of each token [B, L]; and the lengths [B]."""
    special = sum(token is not None for token, _ in template)
    lengths_B: Ids = np.full(len(texts[0].sizes_B), special)
    for text in texts[: len(template) - special]:
        lengths_B = lengths_B + text.sizes_B
    ids_BL = np.full((len(lengths_B), int(lengths_B.max())), pad, dtype=np.int64)
    segments_BL = np.zeros_like(ids_BL)
    next_B = np.arange(len(ids_BL)) * ids_BL.shape[1]
    following = iter(texts)
    for token, segment in template:
        if token is None:
            values, starts_B, sizes_B = next(following)
            places_P = places_of(next_B, sizes_B)
            ids_BL.flat[places_P] = values[places_of(starts_B, sizes_B)]
        else:
            sizes_B = np.ones_like(next_B)
            places_P = next_B
            ids_BL.flat[places_P] = token
        if segment:
            segments_BL.flat[places_P] = segment
        next_B = next_B + sizes_B
    return ids_BL, segments_BL, lengths_B


def places_of(starts_B: Integers, sizes_B: Integers) -> Ids:
    """The places of all values of the spans, span by span."""
    ends_B = np.cumsum(sizes_B, dtype=np.int64)
    places_P: Ids = np.repeat(starts_B - (ends_B - sizes_B), sizes_B) + np.arange(sizes_B.sum())
    return places_P
