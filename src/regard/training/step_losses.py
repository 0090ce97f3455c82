"""The losses of the steps: fetched from the device now and then, checked, and added up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor

from regard.data.batches import AnyBatch
from regard.data.epochs import Examples
from regard.errors import RegardError
from regard.runs import Run
from regard.training.progress import TrainingProgress

FETCHED_EVERY = 10
"""Steps after which losses are fetched from a GPU: to wait for each would slow it down."""
MAX_NAMED_EXAMPLES = 3


@dataclass(frozen=True)
class StepLoss:
    """The loss of one step, perhaps still being computed."""

    step: int
    tokens: int
    """Tokens of the step, over all processes."""
    sums_3: Tensor
    """Sum of the loss, sum of the plain loss, and the norm of the gradient, of this process."""
    batches: Sequence[AnyBatch]


class StepLosses:
    """Losses that are not yet part of the progress."""

    def __init__(self, accelerator: Accelerator, train: Examples, run: Run) -> None:
        self.accelerator = accelerator
        self.train = train
        self.run = run
        self._pending: list[StepLoss] = []

    def add(self, loss: StepLoss) -> None:
        self._pending.append(loss)

    def collect_if_due(self, progress: TrainingProgress, *, is_logged: bool) -> None:
        """Collect losses before they are logged, on a CPU always, and else now and then."""
        on_cpu = self.accelerator.device.type == "cpu"
        if is_logged or on_cpu or progress.step % FETCHED_EVERY == 0:
            self.collect(progress)

    def collect(self, progress: TrainingProgress) -> None:
        """Fetch losses from the device and add them up; stop at NaN or infinity, before it is
        saved.

        A gradient that is NaN breaks the weights, but only the next loss would show it, so it is
        checked too. With fp16 the scaler skips such a step.
        """
        if not self._pending:
            return
        sums = torch.stack([loss.sums_3 for loss in self._pending])
        total: list[list[float]] = self.accelerator.reduce(sums).tolist()
        for loss, (smoothed, plain, norm) in zip(self._pending, total, strict=True):
            if not math.isfinite(smoothed):
                raise self.divergence("loss", loss.step, loss.batches)
            if not (math.isfinite(norm) or self.accelerator.scaler):
                raise self.divergence("gradient", loss.step, loss.batches)
            progress.loss_sum += smoothed
            progress.plain_sum += plain
            progress.tokens += loss.tokens
        self._pending.clear()

    def divergence(self, what: str, step: int, batches: Sequence[AnyBatch] = ()) -> RegardError:
        """The error for a loss or gradient that is NaN or infinite, with the examples of its
        batches."""
        examples = [example for batch in batches for example in batch.examples]
        places = [self.train.where(example) for example in examples[:MAX_NAMED_EXAMPLES]]
        if len(examples) > MAX_NAMED_EXAMPLES:
            places.append("...")
        named = f", first in a batch of {len(examples)} examples: {', '.join(places)}"
        last = self.run.pointer("last")
        kept = f"; the last checkpoint, {last.name}, is intact" if last else ""
        return RegardError(
            f"the {what} became NaN or infinite{named if examples else ''}",
            where=f"step {step}",
            hint="lower training.learning_rate, raise training.warmup or use precision bf16 or "
            f"fp32{kept}",
        )
