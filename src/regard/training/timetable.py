"""How many steps a training makes, and after which of them it logs, validates and saves."""

from __future__ import annotations

import math

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from regard.data.config import TrainingConfig
from regard.training.display import Display
from regard.training.log import Event, Write
from regard.training.optimiser import warmup_steps
from regard.training.pace import Pace
from regard.training.processes import sum_over_processes
from regard.training.progress import TrainingProgress
from regard.training.time_limit import (
    MeasuredPace,
    TimeLimit,
    TimePlan,
    affordable_interval,
)

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
    turns out to be different. Without it, and if the recipe does not say how often to validate,
    slow validations become rarer. All processes follow the plan of the first one: their clocks
    differ.
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
        self.measured = MeasuredPace(Pace())
        self._plans: list[Event] = []
        """Plans that are not in the log yet."""
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
        else:
            self.steps = progress.planned_steps
        self.validate_every = config.validate_every or progress.planned_every or every_epoch
        self.checkpoint_every = config.checkpoint_every or self.validate_every
        if config.minutes is None and config.validate_every is None:
            # an average of checkpoints does not depend on how long a validation takes
            self.checkpoint_every = config.checkpoint_every or every_epoch
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
        self.measured = limit.measured
        if not progress.planned_steps:
            is_over = progress.step > 0 and limit.is_up()
            plan = TimePlan(0, self.validate_every) if is_over else limit.first_plan()
            self._follow(broadcast_object_list([plan])[0], progress)

    def _follow(self, plan: TimePlan, progress: TrainingProgress) -> None:
        """Make the steps of a plan, beginning now."""
        progress.planned_steps = progress.step + plan.steps
        self._validate_every(plan.validate_every, progress)
        self.display.say(
            f"training.minutes={self.config.minutes:g}: {self.steps:,} steps, a validation every "
            f"{self.validate_every:,}"
        )

    def _validate_every(self, steps: int, progress: TrainingProgress) -> None:
        """Validate so often from now on, also after a resume, and note it in the log."""
        progress.planned_every = steps
        self.plan(self.batches_per_step, progress)
        event = {
            "event": "plan",
            "step": progress.step,
            "steps": self.steps,
            "validate_every": self.validate_every,
        }
        self._plans.append(event)

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

    def replan(self, progress: TrainingProgress, validation_seconds: float) -> None:
        """Plan the remaining steps or validations again, after a validation that took so long, if
        the pace is not the planned one."""
        if progress.step >= self.steps:
            return
        if self.limit is None:
            self._afford_validations(progress, validation_seconds)
            return
        plans = [self.limit.replanned(self.steps - progress.step, self.validate_every)]
        plan = broadcast_object_list(plans)[0]
        if plan is not None:
            self._follow(plan, progress)

    def _afford_validations(self, progress: TrainingProgress, seconds: float) -> None:
        """Validate less often if validations take more than a tenth of the training.

        Not if the recipe says how often, nor if the training depends on how many validations there
        are: it would not be the same on a faster machine.
        """
        config = self.config
        counts = config.patience is not None or config.schedule == "plateau"
        step = self.measured.pace.step
        if config.validate_every is not None or counts or not step:
            return
        pace = Pace(step, seconds)
        interval = affordable_interval(self.validate_every, self.steps - progress.step, pace)
        every = broadcast_object_list([interval])[0]
        if every != self.validate_every:
            self._validate_every(every, progress)
            self.display.say(
                f"a validation takes {seconds:.0f} s: from now on there is one every "
                f"{every:,} steps (training.validate_every says how often)"
            )

    def log_plans(self, write: Write) -> None:
        for event in self._plans:
            write(event)
        self._plans.clear()

    def add_step(self, seconds: float) -> None:
        """Take the time of a step into account."""
        self.measured.add_step(seconds)

    def add_validation(self, seconds: float, progress: TrainingProgress) -> None:
        """Take the time of a validation, with its checkpoint, into account."""
        progress.validation_seconds = seconds
        self.measured.add_validation(seconds)

    def validation_seconds_left(self, step: int) -> float | None:
        """The time of the validations after a step, its own included; None as long as none was
        measured."""
        seconds = self.measured.pace.validation
        if not seconds:
            return None
        regular = self.steps // self.validate_every - (step - 1) // self.validate_every
        last = self.steps % self.validate_every > 0  # the last step is validated, too
        average = self.config.average > 1
        return seconds * (regular + last + average)

    @property
    def spent(self) -> float:
        """Seconds of `training.minutes` used so far."""
        return 0.0 if self.limit is None else self.limit.spent
