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
    """A step that was captured: it reads its tokens from one place, works on the tensors that it was captured with, and
    leaves its logits in another place."""

    graph: torch.cuda.CUDAGraph
    tokens_R: Tensor
    logits_RV: Tensor
    room: int
    """How many tokens a row may hold."""

    @staticmethod
    def of(tokens_R: Tensor, room: int, step: Callable[[Tensor, int], Tensor]) -> StepGraph:
        """Capture `step(tokens, room)` without running it. A step must have run before, so that kernels are loaded."""
        tokens_R, graph = tokens_R.clone(), torch.cuda.CUDAGraph()
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            # Other threads may go on, such as the one that prepares batches.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                logits_RV = step(tokens_R, room)
            finally:
                graph.capture_end()
        here.wait_stream(aside)
        return StepGraph(graph, tokens_R, logits_RV, room)

    def run(self, tokens_R: Tensor) -> Tensor:
        """One step; its logits are the caller's to keep."""
        self.tokens_R.copy_(tokens_R)
        self.graph.replay()
        return self.logits_RV.clone()


def room_for(written: int, most: int) -> int:
    """A power of two that holds the next token, so that long texts are captured anew only a few times."""
    return min(max(32, 1 << written.bit_length()), most)


def captures(tokens_R: Tensor) -> bool:
    """Whether steps are captured here: on a GPU, while nothing needs a gradient or wants to see the attention."""
    return tokens_R.device.type == "cuda" and torch.is_inference_mode_enabled() and not is_recording()
