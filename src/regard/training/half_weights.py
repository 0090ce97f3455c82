"""The weights of linear layers in half precision, cast all together.

Autocast casts each weight by a kernel of its own, and each gradient back by another. On a fast GPU these launches, not
the products, are what a step of a small model waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn


class CastTogether(torch.autograd.Function):
    """Tensors in another precision, and their gradients back in their own, by a few kernels for all of them."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.dtypes = [weight.dtype for weight in weights]
        ctx.set_materialize_grads(False)
        return tuple(_cast(weights, [dtype] * len(weights)))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        known = [(slope, dtype) for slope, dtype in zip(slopes, ctx.dtypes, strict=True) if slope is not None]
        cast = iter(_cast(*zip(*known, strict=True)) if known else [])
        return None, *(None if slope is None else next(cast) for slope in slopes)


def _cast(tensors: Any, dtypes: Any) -> list[Tensor]:
    cast = [torch.empty_like(tensor, dtype=dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)]
    torch._foreach_copy_(cast, list(tensors))
    return cast


class HalfWeights:
    """Of a module that is called under autocast: what it computes stays the same, bit for bit."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        parts = list(module.modules())
        owners = Counter(id(weight) for part in parts for weight in part._parameters.values())
        # The gradients of a readout are added up part by part (objectives/cross_entropy.py), which wants full
        # precision, as does a weight that another module shares.
        output = getattr(getattr(module, "model", None), "output", None)
        kept = {id(weight) for weight in output.parameters()} if isinstance(output, nn.Module) else set()
        self.places = [
            (part._parameters, name)
            for part in parts
            if isinstance(part, nn.Linear)
            for name, weight in part._parameters.items()
            if weight is not None and weight.requires_grad and owners[id(weight)] == 1 and id(weight) not in kept
        ]

    @classmethod
    def where_they_pay(cls, module: nn.Module, accelerator: Accelerator) -> HalfWeights | None:
        """On one GPU in half precision; several processes exchange gradients while others are still computed."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(accelerator.mixed_precision)
        if dtype is None or accelerator.device.type != "cuda" or accelerator.num_processes > 1:
            return None
        return cls(module, dtype)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The linear layers have their weights in half precision; gradients reach the real ones."""
        weights = [kept[name] for kept, name in self.places]
        halves = CastTogether.apply(self.dtype, *weights)  # type: ignore[no-untyped-call]
        try:
            self._put(halves)
            yield
        finally:
            self._put(weights)

    def _put(self, weights: Any) -> None:
        for (kept, name), weight in zip(self.places, weights, strict=True):
            kept[name] = weight  # as attributes modules take parameters only
