"""Dropout with several random numbers from each call of the generator, for `Dropout` in
layers/linear.py.

torch calls its generator once for each element. On a GPU that takes longer than everything else
around a norm, on a CPU it is about 5 % of a step. Here p is rounded to 16 bits, and one call gives
several numbers of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.engine import machine

MIN_ELEMENTS = 1 << 17
"""With at least this many elements, a CPU draws four random numbers per call of the generator."""


def dropout_limit(p: float) -> int:
    """A number of 16 bits below this limit drops its element."""
    return round(p * 2**16)


def has_partial_rate(p: float) -> bool:
    return dropout_limit(p) not in (0, 2**16)


def is_compiled_on_gpu(x: Tensor, p: float) -> bool:
    return torch.compiler.is_compiling() and x.device.type == "cuda" and has_partial_rate(p)


def dropout_on_gpu(x: Tensor, p: float) -> Tensor:
    from regard.engine import triton_kernels

    limit = dropout_limit(p)
    kept = triton_kernels.kept(x, limit)
    return torch.where(kept != 0, x * (2**16 / (2**16 - limit)), 0.0)


def is_large_on_cpu(x: Tensor, p: float) -> bool:
    if torch.compiler.is_compiling() or x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    return x.numel() >= MIN_ELEMENTS and has_partial_rate(p) and not machine.made_by_intel()


def dropout_on_cpu(x: Tensor, p: float) -> Tensor:
    limit = dropout_limit(p)
    drawn = (
        torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    )
    kept = drawn[: x.numel()].view(x.shape) >= limit - 2**15
    return x * kept.float().mul_(2**16 / (2**16 - limit))


DROPOUT: list[tuple[Callable[[Tensor, float], bool], Callable[[Tensor, float], Tensor]]] = [
    (is_compiled_on_gpu, dropout_on_gpu),
    (is_large_on_cpu, dropout_on_cpu),
]
