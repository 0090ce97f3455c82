"""One decoding step as a CUDA graph: hundreds of small kernels, launched as one.

A step of a Transformer is so little work for a GPU that launching its kernels one by one takes most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.layers.attention import is_recording


@dataclass(frozen=True)
class StepGraph:
    """A captured step. It reads `tokens_R`, updates the tensors it was captured with, and writes `logits_RV`."""

    graph: torch.cuda.CUDAGraph
    tokens_R: Tensor
    logits_RV: Tensor
    capacity: int
    """The number of cached tokens per row that the step attends to."""

    @staticmethod
    def capture(tokens_R: Tensor, capacity: int, step: Callable[[Tensor, int], Tensor]) -> StepGraph:
        """Capture `step(tokens, capacity)` without running it. A step must have run before, so kernels are loaded."""
        tokens_R, graph = tokens_R.clone(), torch.cuda.CUDAGraph()
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            # thread_local: other threads, such as the one that prepares batches, may use the GPU meanwhile
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                logits_RV = step(tokens_R, capacity)
            finally:
                graph.capture_end()
        main.wait_stream(side)
        return StepGraph(graph, tokens_R, logits_RV, capacity)

    def run(self, tokens_R: Tensor) -> Tensor:
        """One step. The logits are a copy, which later steps do not overwrite."""
        self.tokens_R.copy_(tokens_R)
        self.graph.replay()
        return self.logits_RV.clone()


def graph_capacity(cached: int, limit: int) -> int:
    """A power of two that holds one more than the `cached` tokens, so that a long text needs only a few captures."""
    return min(max(32, 1 << cached.bit_length()), limit)


def can_capture(tokens_R: Tensor) -> bool:
    """Whether steps are captured: on a GPU, without gradients, and while no attention is recorded."""
    return tokens_R.device.type == "cuda" and torch.is_inference_mode_enabled() and not is_recording()
