"""The best checkpoints of a training, by the metric `training.best`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RankedCheckpoint:
    """A checkpoint with the metrics that rank it."""

    value: float
    """The metric `training.best`."""
    step: int
    loss: float = -math.inf
    """The validation loss: the lower one wins a tie. Old runs did not store it; then the earlier
    checkpoint wins."""


@dataclass(frozen=True)
class Ranking:
    """How checkpoints are ordered: by the metric, then by the loss; among equals the earlier one
    comes first."""

    metric: str
    higher_is_better: bool
    size: int
    """How many of the best checkpoints are kept."""

    def key(self, checkpoint: RankedCheckpoint) -> tuple[float, float]:
        """The sort key, best first."""
        value = -checkpoint.value if self.higher_is_better else checkpoint.value
        return value, checkpoint.loss

    def improves(self, checkpoint: RankedCheckpoint, before: RankedCheckpoint | None) -> bool:
        """Whether a checkpoint is better than the best one before, the loss deciding a tie."""
        return before is None or self.key(checkpoint) < self.key(before)

    def improves_metric(
        self, checkpoint: RankedCheckpoint, before: RankedCheckpoint | None
    ) -> bool:
        """Whether a checkpoint is better in the metric itself."""
        return before is None or self.key(checkpoint)[0] < self.key(before)[0]

    def with_checkpoint(
        self, best: Sequence[RankedCheckpoint], checkpoint: RankedCheckpoint
    ) -> list[RankedCheckpoint]:
        """The best checkpoints, best first, after one more was validated."""
        return sorted([*best, checkpoint], key=self.key)[: self.size]

    def comment(self, checkpoint: RankedCheckpoint, before: RankedCheckpoint | None) -> str:
        """What the log says of a checkpoint that is better than the best one before; else empty."""
        if not self.improves(checkpoint, before):
            return ""
        if before is not None and checkpoint.value == before.value:
            return f"as good in {self.metric}, lower loss: best so far"
        return "best so far"
