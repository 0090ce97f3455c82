"""How many steps a training makes, and after which of them it logs, validates and saves."""

from __future__ import annotations

import math
from dataclasses import replace

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from regard.data.config import TrainingConfig
from regard.training.display import Display
from regard.training.log import Event, Write
from regard.training.optimiser import warmup_steps
from regard.training.processes import sum_over_processes
from regard.training.progress import TrainingProgress
from regard.training.time_limit import TimeLimit, TimePlan

LOG_EVERY = 50
"""Steps between two lines of the log, unless the recipe says so."""
LOG_LINES = 50
"""Fewest lines of the log of a shorter training."""


def total_steps(
    steps: int | None, epochs: int | None, epoch_batches: int, batches_per_step: int
) -> int:
    """The steps of a training that `steps` or `epochs` ends, whichever is earlier."""
    by_epochs = math.inf if epochs is None else math.ceil(epochs * epoch_batches / batches_per_step)
    return int(min(math.inf if steps is None else steps, by_epochs))


class Timetable:
    """The steps of a training, and which of them are logged, validated and saved.

    With `training.minutes` the steps are planned from the pace, and planned again when the pace
    turns out to be different. All processes follow the plan of the first one: their clocks differ.
    """

    def __init__(
        self,
        config: TrainingConfig,
        epoch_batches: int,
        batches_per_step: int,
        accelerator: Accelerator,
        display: Display,
    ) -> None:
        self.config = config
        """With the length of the warm-up, as soon as the number of steps is known."""
        self.epoch_batches = epoch_batches
        self.accelerator = accelerator
        self.display = display
        self.limit: TimeLimit | None = None
        self._plans: list[Event] = []
        """Plans for the time limit that are not in the log yet."""
        self.plan(batches_per_step, TrainingProgress())

    def plan(self, batches_per_step: int, progress: TrainingProgress) -> None:
        """Make steps of this many batches, over all processes; validate and save accordingly."""
        config = self.config
        self.batches_per_step = batches_per_step
        every_epoch = max(1, self.epoch_batches // batches_per_step)
        if config.minutes is None:
            self.steps = total_steps(
                config.steps, config.epochs, self.epoch_batches, batches_per_step
            )
            self.validate_every = config.validate_every or every_epoch
        else:
            self.steps = progress.planned_steps
            self.validate_every = config.validate_every or progress.planned_every or every_epoch
        self.checkpoint_every = config.checkpoint_every or self.validate_every
        # with a time limit, the first plan says how many steps
        if config.warmup == "auto" and self.steps:
            warmup = warmup_steps(config, self.steps)
            self.config = config.model_copy(update={"warmup": warmup})

    @property
    def log_every(self) -> int:
        """Steps between two lines of the log."""
        return self.config.log_every or max(1, min(LOG_EVERY, self.steps // LOG_LINES))

    def is_logged(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.steps

    def is_validated(self, step: int) -> bool:
        return step % self.validate_every == 0 or step == self.steps

    def is_saved(self, step: int) -> bool:
        return step % self.checkpoint_every == 0 or self.is_validated(step)

    # With a time limit

    def keep_time(self, limit: TimeLimit, progress: TrainingProgress) -> None:
        """Train within a time limit: by the plan that the run has already, or by a new one."""
        self.limit = limit
        if not progress.planned_steps:
            is_over = progress.step > 0 and limit.is_up()
            plan = TimePlan(0, self.validate_every) if is_over else limit.first_plan()
            self._follow(broadcast_object_list([plan])[0], progress)

    def _follow(self, plan: TimePlan, progress: TrainingProgress) -> None:
        """Make the steps of a plan, beginning now."""
        progress.planned_steps = progress.step + plan.steps
        progress.planned_every = plan.validate_every
        self.plan(self.batches_per_step, progress)
        event = {
            "event": "plan",
            "step": progress.step,
            "steps": self.steps,
            "validate_every": self.validate_every,
        }
        self._plans.append(event)
        self.display.say(
            f"training.minutes={self.config.minutes:g}: {self.steps:,} steps, a validation every "
            f"{self.validate_every:,}"
        )

    def end_if_time_is_up(self, progress: TrainingProgress) -> None:
        """Make this the last step if the time is up, in all processes."""
        if self.limit is None:
            return
        is_up = sum_over_processes(self.accelerator, self.limit.is_up()) > 0
        if not is_up or progress.step == self.steps:
            return
        self.display.say(
            f"training.minutes={self.config.minutes:g} is up at step {progress.step:,} of "
            f"{self.steps:,}"
        )
        self.steps = progress.planned_steps = progress.step

    def replan(self, progress: TrainingProgress) -> None:
        """Plan the remaining steps again, after a validation, if the pace is not the planned
        one."""
        if self.limit is None or progress.step >= self.steps:
            return
        plans = [self.limit.replanned(self.steps - progress.step, self.validate_every)]
        plan = broadcast_object_list(plans)[0]
        if plan is not None:
            self._follow(plan, progress)

    def log_plans(self, write: Write) -> None:
        for event in self._plans:
            write(event)
        self._plans.clear()

    def add_step(self, seconds: float) -> None:
        """Take the time of a step into account."""
        if self.limit is not None:
            self.limit.add_step(seconds)

    def add_validation(self, seconds: float, progress: TrainingProgress) -> None:
        """Take the time of a validation with its checkpoint into account."""
        if self.limit is not None:
            progress.validation_seconds = seconds
            self.limit.pace = replace(self.limit.pace, validation=seconds)

    @property
    def spent(self) -> float:
        """Seconds of `training.minutes` used so far."""
        return 0.0 if self.limit is None else self.limit.spent
