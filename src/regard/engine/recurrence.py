"""Recurrent layers without padding, and loops over time that drop the sentences which have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from regard.data.batches import Tokens
from regard.engine import is_plain
from regard.engine.packing import Packing


def pack_by_time(x_BSD: Tensor, source: Tokens) -> tuple[PackedSequence, Tensor]:
    """All first tokens, all second tokens, ..., longest sentences first, as torch's recurrent layers expect them.

    Also the index of each packed token in the flattened [B, S], for `unpack_rows`. This is one gather; torch's own
    packing copies time step by time step.
    """
    packing, host_B = Packing.of(source), source.host_lengths_B
    sorted_B = source.lengths_B.argsort(descending=True, stable=True)
    rank_B = sorted_B.argsort()
    by_time_P = (packing.places_P * len(source) + rank_B[packing.sentences_P]).argsort()
    rows_P = packing.rows_P[by_time_P]
    batch_sizes = (host_B > torch.arange(packing.longest)[:, None]).sum(-1)
    data_PD = x_BSD.flatten(0, 1).index_select(0, rows_P)
    return PackedSequence(data_PD, batch_sizes, sorted_B, rank_B), rows_P


def contiguous_weights(weights: list[Tensor]) -> list[Tensor]:
    """The same weights in one block of memory, matrices first, as cuDNN needs them: else it warns and copies them."""
    order = sorted(range(len(weights)), key=lambda number: -weights[number].dim())
    flat = torch.cat([weights[number].flatten() for number in order])
    parts = dict(zip(order, torch.split(flat, [weights[number].numel() for number in order]), strict=True))
    return [parts[number].view_as(weight) for number, weight in enumerate(weights)]


@dataclass(frozen=True)
class TimeSegment:
    """Some steps of a loop over time, and the rows that have not ended before them."""

    steps: slice
    rows_R: Tensor  # the rows' indices in the batch
    kept_R: Tensor  # their indices among the rows of the segment before
    places_P: Tensor  # the indices of the outputs in the flattened [B, T], row by row


def time_segments(lengths_B: Tensor, width: int, device: torch.device) -> Iterator[TimeSegment]:
    """The loop over sentences of these lengths, padded to `width`, without computing much padding.

    A new segment begins whenever a quarter of the rows has ended; those rows are dropped. The lengths are on the host,
    to avoid a GPU sync. With the engine off there is one segment with all rows.
    """
    if is_plain():
        lengths_B = lengths_B.max().expand(len(lengths_B))
    longest, first = int(lengths_B.max()), 0
    if int(lengths_B.min()) == longest == width:
        all_R = torch.arange(len(lengths_B), device=device)
        yield TimeSegment(slice(0, longest), all_R, all_R, torch.arange(len(lengths_B) * width, device=device))
        return
    rows_R = kept_R = torch.arange(len(lengths_B))
    while first < longest:
        ends_R = lengths_B[rows_R]
        last = int(ends_R.sort(descending=True).values[3 * len(rows_R) // 4])
        places_P = (rows_R[:, None] * width + torch.arange(first, last)).flatten()
        indices = rows_R, kept_R, places_P
        if device.type == "cuda":
            indices = rows_R.pin_memory(), kept_R.pin_memory(), places_P.pin_memory()
        yield TimeSegment(slice(first, last), *(index.to(device, non_blocking=True) for index in indices))
        kept_R = (ends_R > last).nonzero()[:, 0]
        rows_R, first = rows_R[kept_R], last
