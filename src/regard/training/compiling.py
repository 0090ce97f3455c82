"""torch.compile: whether it pays for a training, and with which options."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
from torch import nn

from regard.data.config import TrainingConfig
from regard.data.epochs import Examples

COMPILED_POSITIONS = 10**8
"""Tokens to train on, filler included, from which `training.compile: auto` compiles. Compiling
takes a minute; a Transformer base on an H200 then needs 0.9 s less per million tokens than captured
steps."""
COMPILED_MINUTES = 20
"""Minutes from which `training.compile: auto` compiles a training with a time limit."""
WIDEST_SPLIT_NORM = 512
"""Width of a norm up to which two kernels compute its gradients faster than one."""


def pays_to_compile(config: TrainingConfig, batch_tokens: int, train: Examples) -> bool:
    """Whether so much is to be computed on the GPU that compiled code wins back the time that
    compiling takes."""
    if shutil.which("cc") is None:
        return False
    if config.minutes is not None:
        return config.minutes >= COMPILED_MINUTES
    epoch_tokens = int(train.lengths.sum(dtype=np.int64))
    step_tokens = batch_tokens * config.accumulate
    by_epochs = math.inf if config.epochs is None else config.epochs * epoch_tokens
    by_steps = math.inf if config.steps is None else config.steps * step_tokens
    return min(by_epochs, by_steps) >= COMPILED_POSITIONS


def compile_options(module: nn.Module) -> dict[str, Any] | None:
    """Options for torch.compile.

    By default it computes the gradients of a norm's input and weights in one kernel, which has too
    few threads for narrow norms: 149 us on an H200, two kernels 83.
    """
    widths = [
        norm.normalized_shape[-1] for norm in module.modules() if isinstance(norm, nn.LayerNorm)
    ]
    is_narrow = max(widths, default=0) <= WIDEST_SPLIT_NORM
    return {"triton.mix_order_reduction": False} if is_narrow else None


def compile_objective(objective: nn.Module, *, dynamic: bool) -> None:
    """Compile an objective in place; `dynamic` if the shapes of its batches vary."""
    from torch._functorch import config  # takes a second to import

    # else torch reuses nothing of a model with an autograd function of ours, though its code is in
    # the key
    config.autograd_cache_allow_custom_autograd_functions = True
    objective.compile(dynamic=dynamic, options=compile_options(objective))
