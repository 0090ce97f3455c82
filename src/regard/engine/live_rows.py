"""Which rows of a search are still computed, and how the host learns it without waiting for a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine import is_plain


def slots_to_compute(needed: int, slots: int, device: torch.device) -> int:
    """How many slots per sentence the next step computes if it needs `needed` of them.

    On a GPU a step costs about the same for half as many rows, and a captured step has a fixed
    number of rows: there slots are dropped only once half of them are empty.
    """
    if device.type == "cuda" and not is_plain() and needed <= slots < 2 * needed:
        return slots
    return needed


def keeps_finished(live: int, sentences: int, device: torch.device, *, in_place: bool) -> bool:
    """Whether finished sentences stay in the batch for now, if `live` of its sentences are not done.

    Removing them copies the state. If no hypothesis moves anyway (`in_place`), this pays once a
    quarter of the sentences is finished; on a GPU once half of them is.
    """
    if is_plain():
        return live == sentences
    if device.type == "cuda":
        return live > 0.5 * sentences
    return in_place and live > 0.75 * sentences


def has_none(selected_BW: Tensor) -> bool:
    """Whether none is selected; False on a GPU, where the test would cost more than what it saves."""
    return selected_BW.device.type == "cpu" and not selected_BW.any()


class DelayedCounts:
    """Brings counts from the device to the host; on a GPU those of the call before, so that the
    host does not wait for the step."""

    def __init__(self, device: torch.device, *, wait: bool) -> None:
        self._delayed = device.type == "cuda" and not wait and not is_plain()
        self._before: tuple[Tensor, torch.cuda.Event] | None = None

    def __call__(self, counts_B: Tensor, *, last: bool) -> list[int] | None:
        """The counts, None if there are none yet; with `last`, these counts after all."""
        if self._delayed and not last:
            host_B = torch.empty_like(counts_B, device="cpu", pin_memory=True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            host_B.copy_(counts_B, non_blocking=True)
            copied.record()
            before = self._before
            self._before = (host_B, copied)
            if before is None:
                return None
            counts_B, copied = before
            copied.synchronize()
        return list(counts_B.tolist())
