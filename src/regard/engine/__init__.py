"""Faster ways to compute what `layers`, `models`, `objectives` and `search` define.

Nothing here changes a result beyond rounding. Each operation has one literal table of (applies,
kernel) pairs, which the code of its equation asks; the first kernel that applies is used, and if
none applies, the equation runs as it is written:

    operation                        table                               the equation
    attention                        attention.py ATTENTION              layers/attention.py `attend`
    attention with added scores      attention.py BIASED_ATTENTION       layers/attention.py `attend`
    queries, keys and values         attention.py SELF_PROJECTIONS       layers/attention.py `MultiHeadAttention`
    linear layers on a CPU           products.py PRODUCTS                layers/linear.py `linear`
    the same, with an activation     products.py ACTIVATED_PRODUCTS      layers/linear.py `Linear`
    dropout                          dropout.py DROPOUT                  layers/linear.py `Dropout`
    additive scores, step by step    additive.py ADDITIVE_STEPS          layers/scores.py `SummedAttention`
    recurrent encoders               recurrence.py RECURRENT_ENCODERS    layers/recurrence.py `RecurrentEncoder`
    decoders with attention          recurrence.py DECODER_LOOPS         layers/recurrence.py `unroll`
    one step of an LSTM              recurrence.py LSTM_CELLS            layers/recurrence.py `cell_step`
    an LSTM layer with extras        recurrence.py LSTM_LAYERS           layers/recurrence.py `LSTMLayer`
    caches of keys and values        caches.py EMPTY_CACHES              layers/caches.py `empty_cache`
    the logits and their loss        losses.py LAST_LAYER_LOSSES         objectives/cross_entropy.py `VocabularyLoss`
    the loss of given logits         losses.py LOGIT_LOSSES              objectives/cross_entropy.py `VocabularyLoss`
    the best of many scores          top_scores.py BEST_SCORES           search/hypotheses.py `best`

The other files hold what is not one operation: packed sentences (packing.py), batches in shapes
that repeat (shapes.py), rows of a search that are finished (live_rows.py), CUDA graphs (graphs.py,
step_graphs.py), half-precision weights (half_weights.py), kernels for a GPU (triton_kernels.py) and
optimisers and operators that do not import torch's compiler (optimisers.py, operators.py).

REGARD_ENGINE=plain, or the context `plain()`, switches all of it off: every equation runs as
written, only slower. It is the first thing to try if a result looks wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from regard.errors import ConfigError, did_you_mean

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
    return environment_says_plain() if chosen is None else chosen


def check_environment() -> None:
    """Refuse a wrong REGARD_ENGINE before any work is done."""
    environment_says_plain()


def environment_says_plain() -> bool:
    """Whether REGARD_ENGINE switches the engine off. A value that is neither `plain` nor empty is
    an error, so that nobody mistakes a fast run for a plain one."""
    value = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if value not in ("", "plain"):
        what = f"{value!r} is not allowed"
        hint = did_you_mean(value, ["plain"])
        raise ConfigError(what, where=ENVIRONMENT_VARIABLE, hint=hint)
    return value == "plain"


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
