"""Faster ways to compute what `layers`, `models`, `objectives` and `search` define.

Nothing here changes a result beyond rounding. Each operation has one literal table of (applies,
kernel) pairs; the first kernel that applies is used, and if none applies, the equation runs as it
is written:

    operation                      table                              the equation
    attention                      attention.py ATTENTION             layers/attention.py `attend`
    linear layers on a CPU         products.py PRODUCTS, FUSED        layers/linear.py `linear`
    dropout                        dropout.py DROPOUT                 layers/linear.py `Dropout`
    additive scores over time      additive.py STEPS                  layers/scores.py `SummedAttention`
    cross-entropy                  losses.py LOSSES                   objectives/cross_entropy.py `smoothed_loss`
    recurrent encoders and loops   recurrence.py ENCODERS, LOOPS      layers/recurrence.py
    caches of keys and values      caches.py EMPTY_CACHES             layers/caches.py `KeyValueCache`
    the best of many scores        top_scores.py BEST                 search/hypotheses.py `best`

The other files hold what is not one operation: packed sentences (packing.py), batches in shapes
that repeat (shapes.py), rows of a search that are finished (live_rows.py), CUDA graphs (graphs.py,
step_graphs.py), half-precision weights (half_weights.py) and kernels for a GPU (triton_kernels.py).

REGARD_ENGINE=plain, or `training.engine: plain`, switches all of it off: every equation runs as
written, only slower. It is the first thing to try if a result looks wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

ENVIRONMENT_VARIABLE = "REGARD_ENGINE"

_plain: ContextVar[bool | None] = ContextVar("plain", default=None)
"""Whether the engine is off in this context; None: the environment variable decides."""


def is_plain() -> bool:
    """Whether every equation is to be computed as written."""
    # compiled code cannot read context variables; a plain run is never compiled
    if torch.compiler.is_compiling():
        return False
    chosen = _plain.get()
    return os.environ.get(ENVIRONMENT_VARIABLE) == "plain" if chosen is None else chosen


@contextmanager
def plain(is_off: bool = True) -> Iterator[None]:
    """Inside this context the engine is off, or on if `is_off` is False, whatever the environment
    says."""
    token = _plain.set(is_off)
    try:
        yield
    finally:
        _plain.reset(token)


def first_that_applies(
    table: Sequence[tuple[Callable[..., bool], Kernel]], *arguments: Any
) -> Kernel | None:
    """The first kernel of a table whose condition holds for these arguments; None if the engine is
    off."""
    if is_plain():
        return None
    for applies, kernel in table:
        if applies(*arguments):
            return kernel
    return None
