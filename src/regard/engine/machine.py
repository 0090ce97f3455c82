"""Facts about processor and GPU, and how this process keeps its memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

CPU_FACTS = Path("/proc/cpuinfo")
# <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4

MEMORY_PER_BUDGET = 32 * 2**30
"""Bytes of GPU memory for each token budget of a prediction."""
MOST_BUDGETS = 4
"""Beyond so many, a GPU is busy and larger batches only have more padding."""


@cache
def made_by_intel() -> bool:
    """Whether this is an Intel processor, for which torch's MKL is already the fastest library."""
    return CPU_FACTS.is_file() and "GenuineIntel" in CPU_FACTS.read_text()


@cache
def token_budgets(device: torch.device) -> int:
    """How many token budgets one batch of a prediction takes, which needs no gradients: more on a
    GPU with more memory, whose kernels then have more to compute for each launch."""
    if device.type != "cuda":
        return 1
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(MOST_BUDGETS, memory // MEMORY_PER_BUDGET))


@contextmanager
def collecting_new_objects() -> Iterator[None]:
    """Inside this context Python's garbage collector does not look through the objects that exist
    already, such as all that torch has imported: an eighth of the time of a prediction."""
    was_empty = gc.get_freeze_count() == 0
    gc.freeze()
    try:
        yield
    finally:
        if was_empty:
            gc.unfreeze()


def keep_memory() -> None:
    """Let glibc keep freed memory for this process; other C libraries have no `mallopt`.

    By default glibc returns large tensors to the system, and each step waits for new pages. This
    costs about 14 % of the time of a search in two processes, and 5 % of a training step, for the
    gradient of the embeddings.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
