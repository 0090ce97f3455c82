"""The forward and backward passes of a step: losses and gradients of its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from regard.data.batches import AnyBatch
from regard.engine.graphs import CapturedLoss
from regard.engine.half_weights import HalfWeights
from regard.models.lstm_lm import LayerCarries
from regard.objectives.language_model import carry_to
from regard.training.precision import ForwardContext

Result = TypeVar("Result")


def captures_steps(accelerator: Accelerator) -> bool:
    """Whether steps whose shapes repeat are captured as CUDA graphs: on one GPU in bf16. The scaler
    of fp16 decides on the CPU whether a step counts."""
    return HalfWeights.applies(accelerator) and not accelerator.scaler


class Gradients:
    """Computes the gradients of a step, batch by batch."""

    def __init__(
        self,
        objective: nn.Module,
        optimiser: torch.optim.Optimizer,
        accelerator: Accelerator,
        forward_context: ForwardContext,
        *,
        carries: bool,
    ) -> None:
        self.objective = objective
        self.optimiser = optimiser
        self.accelerator = accelerator
        self.forward_context = forward_context
        self.carries = carries
        """Whether a recurrent state is carried from batch to batch."""
        self.carry: LayerCarries | None = None
        self.captured: CapturedLoss | None = None

    def capture(self, weights: Iterable[nn.Parameter]) -> None:
        """From now on, replay the passes of a shape that has occurred before as a CUDA graph."""
        self.captured = CapturedLoss(self.loss, weights)

    def compute_with(
        self, forward_context: ForwardContext, weights: Iterable[nn.Parameter]
    ) -> None:
        """From now on, compute the passes in another context; captured ones are captured anew."""
        self.forward_context = forward_context
        self.clear(keep_memory=False)
        if self.captured is not None:
            self.captured = None
            torch.cuda.empty_cache()
            self.capture(weights)

    def add(self, batches: Sequence[AnyBatch], factor: float) -> Tensor:
        """The objective's two sums over all batches; the gradient of the first, times `factor`, is
        added to the gradients."""
        return self.in_memory(lambda: self._passes(batches, factor))

    def _passes(self, batches: Sequence[AnyBatch], factor: float) -> Tensor:
        sums = []
        for number, batch in enumerate(batches, 1):
            is_last = number == len(batches)
            # gradients are exchanged between processes once per step
            alone = nullcontext() if is_last else self.accelerator.no_sync(self.objective)
            with alone:
                sums.append((self.captured or self.loss)(batch, factor))
        return torch.stack(sums).sum(0)

    def loss(self, batch: AnyBatch, factor: float | Tensor) -> Tensor:
        """The objective's two sums for one batch; the gradient of the first, times `factor`, is
        added to the gradients."""
        with self.forward_context():
            sums_2 = self._forward(batch)
        self.accelerator.backward(sums_2[0] * factor)
        return sums_2.detach()

    def _forward(self, batch: AnyBatch) -> Tensor:
        if self.carries:
            sums_2, self.carry = self.objective(batch.unnamed(), self.carry)
        else:
            sums_2 = self.objective(batch.unnamed())
        result: Tensor = sums_2
        return result

    def clear(self, *, keep_memory: bool) -> None:
        """Forget the gradients after an update; a captured step may keep their memory and add to
        it."""
        self.optimiser.zero_grad(set_to_none=self.captured is None or not keep_memory)

    def in_memory(self, work: Callable[[], Result]) -> Result:
        """The result of `work`; if it does not fit into memory, it is computed again without
        captured steps.

        Their memory is given back, and gradients start from none, since a capture or half a
        backward pass has left wrong ones. After a capture that failed, torch does not give memory
        back by itself.
        """
        try:
            return work()
        except torch.OutOfMemoryError:
            if self.captured is None:
                raise
        # not in the clause above: its error still refers to the tensors of `work`
        self.captured.full = True
        self.captured.graphs.clear()
        self.optimiser.zero_grad()
        torch.cuda.empty_cache()
        return work()

    # The recurrent state

    def whole_carry(self) -> LayerCarries | None:
        """The state of all streams, whichever process has them. All processes must call it."""
        if self.carry is None or self.accelerator.num_processes == 1:
            return self.carry
        parts = gather_object([carry_to(self.carry, torch.device("cpu"))])
        return tuple(
            (torch.cat([h_BD for h_BD, _ in layer]), torch.cat([c_BD for _, c_BD in layer]))
            for layer in zip(*parts, strict=True)
        )

    def restore_carry(self, carry: LayerCarries | None, own_rows: slice | None) -> None:
        """Continue with a stored state, or with its rows that belong to this process."""
        self.carry = carry_to(carry, self.accelerator.device)
        if self.carry is not None and own_rows is not None:
            self.carry = tuple((h_BD[own_rows], c_BD[own_rows]) for h_BD, c_BD in self.carry)
