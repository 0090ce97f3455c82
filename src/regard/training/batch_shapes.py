"""The shapes of batches: as padded by the data pipeline, or changed into shapes that repeat."""

from __future__ import annotations

from dataclasses import dataclass

from accelerate import Accelerator

from regard.data.batches import AnyBatch
from regard.data.epochs import Examples, RowSizes, row_sizes
from regard.engine.shapes import pack, with_rounded_shapes
from regard.recipes.resolved import ResolvedRecipe
from regard.tasks import Task


@dataclass(frozen=True)
class BatchShapes:
    """Which shapes batches are brought into before a step is computed."""

    packed: RowSizes | None
    """Sentences are packed into rows of these sizes; None leaves them padded."""
    rounded: bool
    """Whether batches get a little more padding, so that there are few shapes."""
    longest: int | None = None
    """The most positions of a rounded batch."""

    @property
    def repeat(self) -> bool:
        """Whether few shapes occur, so that steps can be captured."""
        return self.rounded or self.packed is not None

    def of(self, batch: AnyBatch) -> AnyBatch:
        """A batch in its shape."""
        if self.packed is not None:
            return pack(batch, self.packed)
        return with_rounded_shapes(batch, self.longest) if self.rounded else batch


def batch_shapes(
    recipe: ResolvedRecipe, task: Task, train: Examples, accelerator: Accelerator, *, captures: bool
) -> BatchShapes:
    """The shapes for a training.

    Filled batches are packed on a GPU if the task's model computes on packed sentences, for which
    there are kernels in half precision and in compiled code. Batches for recurrent models and under
    heads are rounded if their steps are captured.
    """
    config = recipe.training
    has_kernel = config.compile or accelerator.mixed_precision != "no"
    on_gpu = accelerator.device.type == "cuda"
    packs = config.fill and task.packs(recipe) and on_gpu and has_kernel
    return BatchShapes(
        packed=row_sizes(train, config.batch_tokens) if packs else None,
        rounded=captures and not config.compile and task.network.rounds,
        longest=task.network.longest_row,
    )
