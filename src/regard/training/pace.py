"""How fast a training runs on this machine: the steps that a time limit holds, and the number of
threads that is fastest."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import psutil
import torch
from accelerate import Accelerator
from torch import nn

from regard.data.batches import Stream
from regard.data.config import TrainingConfig
from regard.data.prepare import Prepared
from regard.recipes.recipe import AnyRecipe
from regard.tasks import TASKS
from regard.training.memory import sums_of
from regard.training.optimiser import build_optimiser
from regard.training.progress import Progress

MARGIN = 0.03
"""Share of the time that is not planned with, for a machine that gets slower and for what is not
measured."""
VALIDATIONS, FEWEST = 20, 4
"""Validations of a training with a time limit; and how many of them even if they are slow."""
VALIDATING, AT_MOST = 0.1, 0.5
"""Share of the time that validations may take; and how much the fewest of them."""
OFF = 0.1
"""Share by which the pace may differ from the plan before the rest is planned anew."""
MEASURED = 0.02
"""Share of the time limit that measuring the pace may take, besides one validation."""
LONGEST_MEASURING = 10.0
"""Seconds after which the pace is no longer measured."""
SLOW_STEP = 2.0
"""Seconds of a step from which the number of threads is left as it is, since measuring would take
too long."""
GAIN = 0.9
"""Fewer threads are used if a step then takes less than this share of the time."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, and of a validation with the checkpoint after it."""

    step: float
    validation: float


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
    seconds, validation = max(0.0, seconds * (1 - MARGIN)), max(pace.validation, 1e-6)
    if validate_every is not None:
        steps = int((seconds - validation) / (pace.step + validation / validate_every))
        return TimePlan(max(1, steps), validate_every)
    count = min(round(VALIDATIONS * share), int(VALIDATING * seconds / validation))
    count = max(1, count, min(round(FEWEST * share), int(AT_MOST * seconds / validation)))
    steps = max(1, int((seconds - count * validation) / pace.step))
    return TimePlan(steps, math.ceil(steps / count))


class TimeLimit:
    """What is left of `training.minutes`, and the pace so far.

    This command began at `started`, by the monotonic clock; `before` is the progress of earlier
    ones.
    """

    def __init__(
        self, config: TrainingConfig, pace: Pace, started: float, before: Progress
    ) -> None:
        assert config.minutes is not None
        self.seconds, self.given_every = 60 * config.minutes, config.validate_every
        self.pace = Pace(pace.step, pace.validation or before.validation_seconds)
        self._spent, self._started = before.spent, started
        self._steps, self._in_steps = 0, 0.0
        self._at_the_end = 1 if config.average == 1 else 2
        """Validations after the last step: an average of checkpoints is validated too."""

    @property
    def spent(self) -> float:
        return self._spent + time.monotonic() - self._started

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def add_step(self, seconds: float) -> None:
        """The first step after a start is slower, and does not count."""
        if self._steps:
            self._in_steps += seconds
            self.pace = replace(self.pace, step=self._in_steps / self._steps)
        self._steps += 1

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
        if abs(expected - self.left * (1 - MARGIN)) <= OFF * max(self.left, 1e-6):
            return None
        return plan_for(self.left, self.pace, self.given_every, self.left / self.seconds)


def measure_pace(
    recipe: AnyRecipe,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
    seconds: float,
) -> Pace:
    """The pace with a copy of the model: of a few steps, and of a validation. The slowest process
    counts.

    `seconds` is the time limit. Neither the model nor the random generators are changed.
    """
    most = min(LONGEST_MEASURING, MEASURED * seconds)
    with torch.random.fork_rng(
        [torch.cuda.current_device()] if accelerator.device.type == "cuda" else []
    ):
        trial = copy.deepcopy(model)
        step = trial_step(recipe, data, trial, accelerator)
        timed(step)
        times = [timed(step)]
        while sum(times) < most and len(times) < 20:
            times.append(timed(step))
        validation = 0.0
        if accelerator.is_main_process:
            task = TASKS[recipe.task](recipe, data.tokenizers)
            trial.eval()
            validation = timed(lambda: task.validate(trial, data.validation))
    own = torch.tensor([sum(times) / len(times), validation], device=accelerator.device)
    slowest = accelerator.gather(own).view(-1, 2).amax(0).tolist()
    return Pace(slowest[0] * recipe.training.accumulate, slowest[1])


def trial_step(
    recipe: AnyRecipe, data: Prepared[Any], trial: nn.Module, accelerator: Accelerator
) -> Callable[[], None]:
    """A function that trains a model on the next batch of the data, one batch with each call."""
    config, device = recipe.training, accelerator.device
    assert isinstance(config.batch_tokens, int)
    batches = iter(Stream(data.train, config.batch_tokens, config.seed))
    objective = TASKS[recipe.task](recipe, data.tokenizers).objective(trial.to(device)).train()
    optimiser = build_optimiser(trial, config)

    def step() -> None:
        batch = next(batches)[0].to(device)
        with accelerator.autocast():
            loss = sums_of(objective(batch.unnamed()))[0] / max(1, batch.tokens)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trial.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        loss.item()  # waits for the device

    return step


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# Threads


def threads_are_chosen() -> bool:
    """Whether the user has set the number of threads: in the environment, or with
    torch.set_num_threads."""
    if any(os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")):
        return True
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    defaults = {usable, os.cpu_count(), psutil.cpu_count(logical=False)}
    return torch.get_num_threads() == 1 or torch.get_num_threads() not in defaults


def fastest_threads(
    recipe: AnyRecipe, data: Prepared[Any], model: nn.Module, accelerator: Accelerator
) -> int:
    """The number of threads with which a step is fastest: all, half of them, or one.

    If other programs use the cores, threads wait for each other, and one may be faster than two.
    """
    default = torch.get_num_threads()
    with torch.random.fork_rng([]):
        step = trial_step(recipe, data, copy.deepcopy(model), accelerator)
        first = timed(step)
        if first > SLOW_STEP:
            return default
        candidates = sorted({default, max(1, default // 2), 1}, reverse=True)
        times: dict[int, list[float]] = {threads: [] for threads in candidates}
        try:
            for _ in range(3 if first < 0.3 else 1):
                for threads in candidates:
                    torch.set_num_threads(threads)
                    times[threads].append(timed(step))
        finally:
            torch.set_num_threads(default)
    return fastest_of(times, default)


def fastest_of(times: Mapping[int, Sequence[float]], default: int) -> int:
    """The number of threads with the lowest median; the default unless it is clearly slower."""
    medians = {threads: median(own) for threads, own in times.items()}
    best = min(medians, key=lambda threads: (medians[threads], threads))
    return best if medians[best] < GAIN * medians[default] else default
