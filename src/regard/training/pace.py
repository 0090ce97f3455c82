"""How fast a training runs on this machine: the steps that a time limit holds, and the number of
threads that is fastest."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from regard.data.epochs import Stream
from regard.data.prepare import Prepared
from regard.recipes.resolved import ResolvedRecipe
from regard.tasks import Task
from regard.training.memory import sums_of
from regard.training.optimiser import build_optimiser

MEASURING_SHARE = 0.02
"""Share of the time limit that measuring the pace may take, besides one validation."""
SECONDS_OF_MEASURING = 10.0
"""Seconds after which the pace is no longer measured."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, and of a validation with the checkpoint after it; 0 if not measured yet."""

    step: float = 0.0
    validation: float = 0.0


def measure_pace(
    recipe: ResolvedRecipe,
    task: Task,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
    seconds: float,
) -> Pace:
    """The pace with a copy of the model: of a few steps, and of a validation. The slowest process
    counts.

    `seconds` is the time limit. Neither the model nor the random generators are changed.
    """
    most = min(SECONDS_OF_MEASURING, MEASURING_SHARE * seconds)
    with torch.random.fork_rng(
        [torch.cuda.current_device()] if accelerator.device.type == "cuda" else []
    ):
        trial = copy.deepcopy(model)
        step = trial_step(recipe, task, data, trial, accelerator)
        timed(step)
        times = [timed(step)]
        while sum(times) < most and len(times) < 20:
            times.append(timed(step))
        validation = 0.0
        if accelerator.is_main_process:
            trial.eval()
            validation = timed(lambda: task.metrics.validate(trial, data.validation))
    own = torch.tensor([sum(times) / len(times), validation], device=accelerator.device)
    slowest = accelerator.gather(own).view(-1, 2).amax(0).tolist()
    return Pace(slowest[0] * recipe.training.accumulate, slowest[1])


def trial_step(
    recipe: ResolvedRecipe,
    task: Task,
    data: Prepared[Any],
    trial: nn.Module,
    accelerator: Accelerator,
) -> Callable[[], None]:
    """A function that trains a model on the next batch of the data, one batch with each call."""
    config, device = recipe.training, accelerator.device
    batches = iter(Stream(data.train, config.batch_tokens, config.seed))
    objective = task.objective(trial.to(device)).train()
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
