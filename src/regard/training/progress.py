"""The progress of a training, which a checkpoint stores for an exact resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from regard.data.epochs import START, Position
from regard.training.ranking import RankedCheckpoint


@dataclass
class TrainingProgress:
    """How far a training is, without its weights and its optimiser."""

    step: int = 0
    """Updates made so far."""
    position: Position = START
    best: list[RankedCheckpoint] = field(default_factory=list)
    """The best checkpoints, best first."""
    recent: list[int] = field(default_factory=list)
    """Steps of the last regular checkpoints, to average at the end; not those that Ctrl-C saved."""
    waited: int = 0
    """Validations since the last improvement."""
    stopped: bool = False
    """Whether `training.patience` has ended the training."""
    seconds: float = 0.0
    """Time of the steps since the last line of the log; the next three are sums over them, too."""
    loss_sum: float = 0.0
    plain_sum: float = 0.0
    tokens: int = 0
    logged_step: int = 0
    """The step of the last line of the log."""
    log_length: int = 0
    """Size of metrics.jsonl in bytes."""
    planned_steps: int = 0
    """Steps of a training with `training.minutes`, as planned; 0 without it."""
    planned_every: int = 0
    """Steps between two validations, if a plan says so instead of the recipe; else 0."""
    spent: float = 0.0
    """Seconds of `training.minutes` used so far."""
    validation_seconds: float = 0.0
    """Time of the last validation, with its checkpoint."""

    @property
    def best_checkpoint(self) -> RankedCheckpoint | None:
        return self.best[0] if self.best else None

    def begin_line(self) -> None:
        """Begin the sums for the next line of the log."""
        self.logged_step = self.step
        self.seconds = 0.0
        self.loss_sum = 0.0
        self.plain_sum = 0.0
        self.tokens = 0

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TrainingProgress:
        """The inverse of `asdict`."""
        best = [
            checkpoint if isinstance(checkpoint, dict) else RankedCheckpoint(*checkpoint)
            for checkpoint in stored["best"]
        ]
        return TypeAdapter(cls).validate_python({**stored, "best": best})
