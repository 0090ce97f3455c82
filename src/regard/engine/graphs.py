"""CUDA graphs for training: forward and backward pass as one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import AnyBatch

Captured = tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor, list[Tensor | None]]
"""A graph, the tensors that it reads, the two sums that it writes, and the gradients."""


class CapturedLoss:
    """Forward and backward pass as a CUDA graph, one for each shape of batch: a launch instead of
    hundreds.

    The first batch of a shape is computed without a graph, so that its kernels are loaded. So are
    batches in which the kernels depend on more than the shapes. A graph
    adds to the gradients that it finds when it is captured, and makes them where there are none. It
    has memory of its own, which it keeps: see `Gradients.in_memory` in training/gradients.py.
    """

    def __init__(
        self, loss: Callable[[AnyBatch, float | Tensor], Tensor], weights: Iterable[nn.Parameter]
    ) -> None:
        self.loss, self.weights, self.pool = loss, list(weights), torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[Any, ...], Captured | None] = {}
        self.full = False  # whether there is no memory for graphs

    def __call__(self, batch: AnyBatch, factor: float) -> Tensor:
        if self.full or not batch.keeps_shape:
            return self.loss(batch, factor)
        tensors, shape = batch.tensors(), batch.unnamed().signature()
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
            weight.grad = gradient
        return sums_2.clone()

    def capture(self, batch: AnyBatch, factor: float) -> Captured:
        batch, graph = batch.map(torch.clone), torch.cuda.CUDAGraph()
        inputs = batch.tensors()
        inputs.append(torch.tensor(factor, device=inputs[0].device))
        with torch.cuda.graph(graph, self.pool, capture_error_mode="thread_local"):
            sums_2 = self.loss(batch, inputs[-1])
        return graph, inputs, sums_2, [weight.grad for weight in self.weights]
