"""Half-precision copies of the weights of linear layers, made by a few kernels instead of one cast
per layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from regard.engine import is_plain

HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class CastTogether(torch.autograd.Function):
    """Cast many tensors to another precision, and their gradients back, with a few kernels for all
    of them."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.dtypes = [weight.dtype for weight in weights]
        ctx.set_materialize_grads(False)
        return tuple(_cast(weights, [dtype] * len(weights)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = [pair for pair in zip(gradients, ctx.dtypes, strict=True) if pair[0] is not None]
        cast = iter(_cast(*zip(*pairs, strict=True)) if pairs else [])
        return None, *(None if gradient is None else next(cast) for gradient in gradients)


def _cast(tensors: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    cast = [
        torch.empty_like(tensor, dtype=dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)
    ]
    if cast:  # an LSTM has no linear layers
        torch._foreach_copy_(cast, list(tensors))
    return cast


class HalfWeights:
    """Half-precision weights for a module that is called under autocast. Its results do not change
    by a single bit."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        parts = list(module.modules())
        owners = Counter(id(weight) for part in parts for weight in part._parameters.values())
        # The gradients of a readout are summed part by part (`LossInParts`), which needs full
        # precision, as does a weight that two modules share.
        output = getattr(getattr(module, "model", None), "output", None)
        excluded = (
            {id(weight) for weight in output.parameters()}
            if isinstance(output, nn.Module)
            else set()
        )
        self.places = [
            (part._parameters, name)
            for part in parts
            if isinstance(part, nn.Linear)
            for name, weight in part._parameters.items()
            if weight is not None
            and weight.requires_grad
            and owners[id(weight)] == 1
            and id(weight) not in excluded
        ]

    @staticmethod
    def applies(accelerator: Accelerator) -> bool:
        """Half-precision weights if the module trains on one GPU in half precision, else None.
        Several processes exchange gradients while others are still computed, which this would
        prevent."""
        alone = accelerator.num_processes == 1 and not accelerator.is_fsdp2
        on_gpu = accelerator.device.type == "cuda"
        return accelerator.mixed_precision in HALF_DTYPES and on_gpu and alone and not is_plain()

    @classmethod
    def of(cls, module: nn.Module, accelerator: Accelerator) -> HalfWeights:
        """Weights in the precision of a training."""
        return cls(module, HALF_DTYPES[accelerator.mixed_precision])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside this context the linear layers have half-precision weights; gradients go to the
        original weights."""
        weights = [parameters[name] for parameters, name in self.places]
        halves = CastTogether.apply(self.dtype, *weights)  # type: ignore[no-untyped-call]
        try:
            self._put(halves)
            yield
        finally:
            self._put(weights)

    def _put(self, weights: Sequence[Any]) -> None:
        for (parameters, name), weight in zip(self.places, weights, strict=True):
            parameters[name] = weight  # an attribute of a module must be a Parameter
