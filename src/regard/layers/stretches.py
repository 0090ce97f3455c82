"""A loop over time that leaves behind the sentences that have come to their end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.layers.attention import is_recording


@dataclass(frozen=True)
class Stretch:
    """Some steps of a loop over time, and the rows that are still at it then."""

    steps: slice
    rows_R: Tensor
    """Their numbers in the batch."""
    kept_R: Tensor
    """Their numbers among the rows of the stretch before."""
    places_P: Tensor
    """Where the outputs belong among the padded ones, [B, T] read row by row: a row's steps, then the next row's."""


def stretches(lengths_B: Tensor, width: int, device: torch.device) -> Iterator[Stretch]:
    """The loop over sentences of these lengths, padded to `width`: whenever a quarter of the rows has ended, they go.

    The lengths stand on the host, so that nothing waits for the device. While attention is recorded all rows stay,
    since the weights of all steps are joined.
    """
    if is_recording():
        lengths_B = lengths_B.max().expand(len(lengths_B))
    longest, first = int(lengths_B.max()), 0
    rows_R = kept_R = torch.arange(len(lengths_B))
    while first < longest:
        ends_R = lengths_B[rows_R]
        last = int(ends_R.sort(descending=True).values[3 * len(rows_R) // 4])
        places_P = (rows_R[:, None] * width + torch.arange(first, last)).flatten()
        sent = (_sent(numbers, device) for numbers in (rows_R, kept_R, places_P))
        yield Stretch(slice(first, last), *sent)
        kept_R = (ends_R > last).nonzero()[:, 0]
        rows_R, first = rows_R[kept_R], last


def _sent(numbers: Tensor, device: torch.device) -> Tensor:
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)
