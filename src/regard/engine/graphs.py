"""CUDA graphs for training: forward and backward pass as one launch instead of hundreds, and the
update of the weights as another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from regard.data.batches import AnyBatch

Captured = tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor, list[Tensor | None]]
"""A graph, the tensors that it reads, the two sums that it writes, and the gradients."""


class CapturedLoss:
    """Forward and backward pass as one CUDA graph for each shape of batch.

    Two kinds of batches are computed without a graph: the first of each shape, which loads its
    kernels, and batches whose kernels depend on more than the shape. A graph adds to the gradients
    that exist when it is captured, and creates missing ones. It keeps memory of its own: see
    `Gradients.in_memory` in training/gradients.py.
    """

    def __init__(
        self, loss: Callable[[AnyBatch, float | Tensor], Tensor], weights: Iterable[nn.Parameter]
    ) -> None:
        self.loss = loss
        self.weights = list(weights)
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[Any, ...], Captured | None] = {}
        self.full = False  # whether no memory is left for graphs

    def __call__(self, batch: AnyBatch, factor: float) -> Tensor:
        if self.full or not batch.keeps_shape:
            return self.loss(batch, factor)
        tensors = batch.tensors()
        shape = batch.unnamed().signature()
        if shape not in self.graphs:
            self.graphs[shape] = None
            return self.loss(batch, factor)
        if (captured := self.graphs[shape]) is None:
            captured = self.graphs[shape] = self.capture(batch, factor)
        graph, inputs, sums_2, gradients = captured
        torch._foreach_copy_(inputs[:-1], tensors)
        inputs[-1].fill_(factor)  # a tensor made from a number would wait for the GPU
        graph.replay()
        for weight, gradient in zip(self.weights, gradients, strict=True):
            if weight.grad is not gradient:
                weight.grad = gradient
        return sums_2.clone()

    def capture(self, batch: AnyBatch, factor: float) -> Captured:
        graph = torch.cuda.CUDAGraph()
        batch = batch.map(torch.clone)
        inputs = batch.tensors()
        inputs.append(torch.tensor(factor, device=inputs[0].device))
        with torch.cuda.graph(graph, self.pool, capture_error_mode="thread_local"):
            sums_2 = self.loss(batch, inputs[-1])
        return graph, inputs, sums_2, [weight.grad for weight in self.weights]


class CapturedUpdate:
    """Clipping, the step of a fused Adam, and zeros for the next gradients as one CUDA graph.

        g <- g / max(1, |g| / limit)                Pascanu et al. 2013, arXiv:1211.5063

    The kernel of the optimiser divides (`grad_scale`). A graph refers to the memory of the gradients
    and of the optimiser's state, and reads the learning rates from the GPU; until gradients and state
    have stayed where they are for one update, and again after they have moved, updates are computed
    without it.
    """

    def __init__(
        self, weights: Iterable[nn.Parameter], optimiser: torch.optim.Adam, limit: float | None
    ) -> None:
        self.weights = list(weights)
        self.optimiser = optimiser
        self.limit = limit or math.inf
        self.places: list[int] = []
        """Where gradients and state were at the update before."""
        self.captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        self.rates: list[float] = []
        self.rates_on_gpu = [
            torch.zeros((), device=self.weights[0].device) for _ in optimiser.param_groups
        ]

    @staticmethod
    def applies(optimiser: torch.optim.Optimizer, model: nn.Module) -> TypeGuard[torch.optim.Adam]:
        """Whether the optimiser has a kernel that divides, and the model does not clip in its own
        way."""
        fused = isinstance(optimiser, torch.optim.Adam) and optimiser.defaults["fused"]
        return bool(fused) and not hasattr(model, "clip_gradients")

    def __call__(self) -> Tensor:
        """Update the weights and set the gradients to zero; the norm of the gradients before."""
        places = self.current_places()
        have_stayed = places == self.places
        self.places = places
        if not have_stayed or self.weights[0].device.type != "cuda":
            self.captured = None
            return self.update()
        if self.captured is None:
            self.captured = self.capture()
        graph, norm = self.captured
        self.put_rates()
        graph.replay()
        return norm.clone()

    def current_places(self) -> list[int]:
        """The addresses of the gradients, and of a part of the optimiser's state, which moves as a
        whole."""
        first_state: dict[str, Any] = next(iter(self.optimiser.state.values()), {})
        gradients = [weight.grad for weight in self.weights]
        return [
            0 if tensor is None else tensor.data_ptr()
            for tensor in (first_state.get("exp_avg"), *gradients)
        ]

    def put_rates(self) -> None:
        """Copy learning rates that have changed to the GPU."""
        rates = [group["lr"] for group in self.optimiser.param_groups]
        if rates != self.rates:
            for rate, on_gpu in zip(rates, self.rates_on_gpu, strict=True):
                on_gpu.fill_(rate)
            self.rates = rates

    def capture(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A graph of the update, which is not computed yet, and the norm that it writes."""
        groups = self.optimiser.param_groups
        rates = [group["lr"] for group in groups]
        graph = torch.cuda.CUDAGraph()
        try:
            for group, rate in zip(groups, self.rates_on_gpu, strict=True):
                group |= {"lr": rate, "capturable": True}
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                norm = self.update()
        finally:
            for group, number in zip(groups, rates, strict=True):
                group |= {"lr": number, "capturable": False}
        return graph, norm

    def update(self) -> Tensor:
        """The update without a graph, or as it is captured."""
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        adam: Any = self.optimiser
        if math.isfinite(self.limit):
            # with the small number of torch.nn.utils.clip_grad_norm_
            adam.grad_scale = ((norm + 1e-6) / self.limit).clamp(min=1.0).float()
        try:
            adam.step()
        finally:
            adam.grad_scale = None
        torch._foreach_zero_(gradients)
        return norm
