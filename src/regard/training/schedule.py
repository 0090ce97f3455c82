"""Learning rates over time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from regard.recipes.training import TrainingConfig


def schedule_factor(config: TrainingConfig, step: int, steps: int) -> float:
    """The share of the highest learning rate that step 1, 2, ... `steps` is made with; `plateau` scales it besides.

    Linear warm-up, then: inverse square root as in Vaswani et al. 2017, arXiv:1706.03762, equation 3; linear to zero;
    half a cosine to zero (Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts); or constant.
    """
    if step < config.warmup:
        return step / config.warmup
    done = min(1.0, (step - config.warmup) / max(1, steps + 1 - config.warmup))
    match config.schedule:
        case "inverse_sqrt":
            return math.sqrt(max(1, config.warmup) / max(1, step))
        case "linear":
            return 1.0 - done
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * done))
        case "constant" | "plateau":
            return 1.0


def length_notes(config: TrainingConfig, steps: int) -> Iterator[str]:
    """What to say of a training that ends earlier than it was asked to, or is hardly longer than its warm-up."""
    if config.steps is not None and steps < config.steps:
        yield f"training.epochs={config.epochs} ends at step {steps:,}, before training.steps={config.steps}"
    if 2 * config.warmup > steps:
        yield (
            f"training.warmup={config.warmup} is more than half of the {steps:,} steps: the model will hardly learn; "
            f"{max(1, steps // 10)} would be a tenth"
        )


def resume_notes(before: TrainingConfig, now: TrainingConfig, done: int, steps: int) -> Iterator[str]:
    """What to say of a schedule that went down to zero and is laid over another number of steps now."""
    if now.schedule in ("linear", "cosine") and (before.steps, before.epochs) != (now.steps, now.epochs):
        rate = now.learning_rate * schedule_factor(now, done + 1, steps)
        yield f"the {now.schedule} schedule is laid over {steps:,} steps now: the learning rate goes on at {rate:.2g}"


class Plateau:
    """Lower the learning rate when the validation has stopped improving."""

    def __init__(self, config: TrainingConfig) -> None:
        self.factor, self.patience = config.plateau_factor, config.plateau_patience
        self.active = config.schedule == "plateau"
        self.scale = 1.0
        self.waited = 0

    def heard(self, improved: bool) -> None:
        """One more validation."""
        self.waited = 0 if improved else self.waited + 1
        if self.active and self.waited > self.patience:
            self.scale *= self.factor
            self.waited = 0

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "waited": self.waited}

    def restore(self, state: dict[str, float]) -> None:
        self.scale, self.waited = state["scale"], int(state["waited"])
