"""CUDA graphs for the steps of a search: one launch per step instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine import is_plain

MIN_POSITIONS = 64
"""A captured step attends to at least this many positions of the cache, so that short texts need one
capture."""

StepFunction = Callable[[Tensor, int], Tensor]
"""Tokens [R] and the number of cache positions to attend to -> logits [R, V]."""


class StepRunner:
    """Runs steps that write into one cache; on a GPU it captures a step once and then replays it.

    A graph refers to the tensors it was captured with. A cache that moves to other tensors needs a
    new runner: `renewed`.
    """

    def __init__(self, *, has_run: bool = False) -> None:
        self.has_run = has_run
        """Whether a step has run, which loads its kernels: the next one may be captured."""
        self.graph: StepGraph | None = None

    def renewed(self) -> StepRunner:
        """A runner for the same steps on other tensors."""
        return StepRunner(has_run=self.has_run)

    def run(self, step: StepFunction, tokens_R: Tensor, filled: int, limit: int) -> Tensor:
        """The logits of one step, with `filled` of the cache's `limit` positions filled before it.

        As written, the step attends to the filled positions and its own. A captured step attends to
        a power of two of them, so that a long text needs only a few captures.
        """
        if not (self.has_run and can_capture(tokens_R)):
            self.has_run = True
            return step(tokens_R, filled + 1)
        if self.graph is None or self.graph.positions <= filled:
            positions = min(max(MIN_POSITIONS, 1 << filled.bit_length()), limit)
            self.graph = StepGraph.capture(tokens_R, positions, step)
        return self.graph.run(tokens_R)


def can_capture(tokens_R: Tensor) -> bool:
    """Whether a step is on a GPU and needs no gradients."""
    return tokens_R.device.type == "cuda" and torch.is_inference_mode_enabled() and not is_plain()


@dataclass(frozen=True)
class StepGraph:
    """A captured step. It reads `tokens_R`, updates the tensors it was captured with, and writes
    `logits_RV`."""

    graph: torch.cuda.CUDAGraph
    tokens_R: Tensor
    logits_RV: Tensor
    positions: int
    """The number of cache positions that the step attends to."""

    @staticmethod
    def capture(tokens_R: Tensor, positions: int, step: StepFunction) -> StepGraph:
        """Capture `step(tokens, positions)` without running it."""
        tokens_R = tokens_R.clone()
        graph = torch.cuda.CUDAGraph()
        main = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            # thread_local: other threads, such as the one that prepares batches, may use the GPU
            # meanwhile
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                logits_RV = step(tokens_R, positions)
            finally:
                graph.capture_end()
        main.wait_stream(side)
        return StepGraph(graph, tokens_R, logits_RV, positions)

    def run(self, tokens_R: Tensor) -> Tensor:
        """One step. The next one overwrites its logits."""
        self.tokens_R.copy_(tokens_R)
        self.graph.replay()
        return self.logits_RV
