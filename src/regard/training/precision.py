"""The floating-point precision of a training: which one, and how the forward pass gets it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from accelerate import Accelerator
from torch import nn

from regard.data.config import TrainingConfig
from regard.engine.half_weights import HalfWeights

ForwardContext = Callable[[], AbstractContextManager[None]]
"""Makes the context that a forward pass is computed in."""


def mixed_precision(config: TrainingConfig, *, on_gpu: bool) -> str:
    """`training.precision` with `auto` replaced."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"


def forward_context(
    objective: nn.Module, accelerator: Accelerator, *, compiled: bool
) -> ForwardContext:
    """The context that gives an objective the precision of the training.

    accelerate applies autocast to what it prepares, except with FSDP2. Compiled code casts weights
    inside its own kernels.
    """
    if accelerator.is_fsdp2:
        autocast: ForwardContext = accelerator.autocast
        return autocast
    if compiled or not HalfWeights.applies(accelerator):
        return nullcontext
    return HalfWeights.of(objective, accelerator).in_place
