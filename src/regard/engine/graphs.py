"""CUDA graphs: a whole step of a search, or of a training, as one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import AnyBatch
from regard.engine import is_plain

Step = Callable[[Tensor, int], Tensor]
"""Tokens [R], and the number of cached tokens per row to attend to -> logits [R, V]."""


# Steps of a search


@dataclass(frozen=True)
class StepGraph:
    """A captured step. It reads `tokens_R`, updates the tensors it was captured with, and writes
    `logits_RV`."""

    graph: torch.cuda.CUDAGraph
    tokens_R: Tensor
    logits_RV: Tensor
    capacity: int
    """The number of cached tokens per row that the step attends to."""

    @staticmethod
    def capture(tokens_R: Tensor, capacity: int, step: Step) -> StepGraph:
        """Capture `step(tokens, capacity)` without running it. A step must have run before, so
        kernels are loaded."""
        tokens_R = tokens_R.clone()
        graph = torch.cuda.CUDAGraph()
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            # thread_local: other threads, such as the one that prepares batches, may use the GPU
            # meanwhile
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                logits_RV = step(tokens_R, capacity)
            finally:
                graph.capture_end()
        main.wait_stream(side)
        return StepGraph(graph, tokens_R, logits_RV, capacity)

    def run(self, tokens_R: Tensor) -> Tensor:
        """One step. The next one overwrites its logits."""
        self.tokens_R.copy_(tokens_R)
        self.graph.replay()
        return self.logits_RV


def step_with_cache(
    step: Step, tokens_R: Tensor, cached: int, limit: int, graph: StepGraph | None, *, warm: bool
) -> tuple[Tensor, StepGraph | None]:
    """The logits of `step(tokens, capacity)` with `cached` tokens in a cache of size `limit`, and
    the graph to reuse.

    A step is captured on a GPU, without gradients, and if it is `warm`: one has run before. Its
    capacity is a power of two, so that a long text needs only a few captures.
    """
    if not (
        warm
        and tokens_R.device.type == "cuda"
        and torch.is_inference_mode_enabled()
        and not is_plain()
    ):
        return step(tokens_R, cached + 1), graph
    if graph is None or graph.capacity <= cached:
        graph = StepGraph.capture(tokens_R, min(max(64, 1 << cached.bit_length()), limit), step)
    return graph.run(tokens_R), graph


# Steps of a training

Captured = tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor, list[Tensor | None]]
"""A graph, the tensors that it reads, the two sums that it writes, and the gradients."""


class CapturedLoss:
    """Forward and backward pass as a CUDA graph, one for each shape of batch: a launch instead of
    hundreds.

    The first batch of a shape is computed without a graph, so that its kernels are loaded. A graph
    adds to the gradients that it finds when it is captured, and makes them where there are none. It
    has memory of its own, which it keeps: see `Trainer.in_memory` in training/loop.py.
    """

    def __init__(
        self, loss: Callable[[AnyBatch, float | Tensor], Tensor], weights: Iterable[nn.Parameter]
    ) -> None:
        self.loss, self.weights, self.pool = loss, list(weights), torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[Any, ...], Captured | None] = {}
        self.full = False  # whether there is no memory for graphs

    def __call__(self, batch: AnyBatch, factor: float) -> Tensor:
        tensors, shape = batch.tensors(), batch.unnamed().signature()
        if self.full or shape not in self.graphs:
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
