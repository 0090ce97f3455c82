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
