"""The time of a training: how many steps fit into `training.minutes`, and how often there is time for a
validation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from regard.data.config import TrainingConfig
from regard.training.pace import Pace
from regard.training.progress import TrainingProgress

UNPLANNED_SHARE = 0.03
"""Share of the time that is not planned with, for a machine that gets slower and for what is not
measured."""


PLANNED_VALIDATIONS = 20
"""Validations of a training with a time limit."""
FEWEST_VALIDATIONS = 4
"""Validations of a training even if they are slow."""


VALIDATION_SHARE = 0.1
"""Share of the time that validations may take."""
FEWEST_VALIDATIONS_SHARE = 0.5
"""Share of the time that the fewest validations may take."""


UNNOTICED_SECONDS = 30.0
"""Seconds that all validations of a training without a time limit may take, whatever their share."""


TOLERATED_DEVIATION = 0.1
"""Share by which the pace may differ from the plan before the rest is planned anew."""


@dataclass(frozen=True)
class TimePlan:
    """How many steps a training has, and after how many it validates."""

    steps: int
    validate_every: int


def plan_for(
    seconds: float, pace: Pace, validate_every: int | None = None, share: float = 1.0
) -> TimePlan:
    """The most steps that fit into some seconds together with their validations.

    `share` is that of the whole training: its last quarter has a quarter of the validations.
    """
    seconds = max(0.0, seconds * (1 - UNPLANNED_SHARE))
    validation = max(pace.validation, 1e-6)
    if validate_every is not None:
        steps = int((seconds - validation) / (pace.step + validation / validate_every))
        return TimePlan(max(1, steps), validate_every)
    count = min(round(PLANNED_VALIDATIONS * share), int(VALIDATION_SHARE * seconds / validation))
    count = max(
        1,
        count,
        min(
            round(FEWEST_VALIDATIONS * share), int(FEWEST_VALIDATIONS_SHARE * seconds / validation)
        ),
    )
    steps = max(1, int((seconds - count * validation) / pace.step))
    return TimePlan(steps, math.ceil(steps / count))


def affordable_interval(every: int, steps_left: int, pace: Pace) -> int:
    """The steps between two validations with which they take at most a tenth of the rest of a
    training: `every`, or two, four, ... times as many, as long as enough validations remain."""
    while (count := math.ceil(steps_left / every)) >= 2 * FEWEST_VALIDATIONS:
        validations = count * pace.validation
        share = VALIDATION_SHARE * (steps_left * pace.step + validations)
        if validations <= max(share, UNNOTICED_SECONDS):
            break
        every *= 2
    return every


class MeasuredPace:
    """The pace of a training while it runs."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._steps = 0
        self._seconds = 0.0

    def add_step(self, seconds: float) -> None:
        """The first step after a start is slower, and does not count."""
        if self._steps:
            self._seconds += seconds
            self.pace = replace(self.pace, step=self._seconds / self._steps)
        self._steps += 1

    def add_validation(self, seconds: float) -> None:
        self.pace = replace(self.pace, validation=seconds)


class TimeLimit:
    """The time left of `training.minutes`, and the pace so far.

    This command began at `started`, by the monotonic clock; `before` is the progress of earlier
    ones.
    """

    def __init__(
        self, config: TrainingConfig, pace: Pace, started: float, before: TrainingProgress
    ) -> None:
        assert config.minutes is not None
        self.seconds, self.given_every = 60 * config.minutes, config.validate_every
        self.measured = MeasuredPace(Pace(pace.step, pace.validation or before.validation_seconds))
        self._spent, self._started = before.spent, started
        self._at_the_end = 1 if config.average == 1 else 2
        """Validations after the last step: an average of checkpoints is validated too."""

    @property
    def spent(self) -> float:
        return self._spent + time.monotonic() - self._started

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    @property
    def pace(self) -> Pace:
        return self.measured.pace

    def is_up(self) -> bool:
        """Whether there is only time for a validation and a checkpoint left, but for no further
        step."""
        return self.left < self._at_the_end * self.pace.validation + self.pace.step

    def first_plan(self) -> TimePlan:
        return plan_for(self.left, self.pace, self.given_every)

    def replanned(self, steps_left: int, validate_every: int) -> TimePlan | None:
        """A plan for the steps that are left, if the pace is another than planned."""
        if self.pace.step == 0.0:  # no step was measured since the start
            return None
        expected = (
            steps_left * self.pace.step
            + math.ceil(steps_left / validate_every) * self.pace.validation
        )
        if abs(expected - self.left * (1 - UNPLANNED_SHARE)) <= TOLERATED_DEVIATION * max(
            self.left, 1e-6
        ):
            return None
        return plan_for(self.left, self.pace, self.given_every, self.left / self.seconds)
