"""`training.compile: auto` on one GPU: whether compiling makes a training faster, measured with steps
each way."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import nn

from regard.data.batches import AnyBatch
from regard.data.config import TrainingConfig
from regard.recipes.resolved import ResolvedTraining
from regard.training.gradients import captures_steps

if TYPE_CHECKING:
    from regard.training.loop import Trainer

MIN_SECONDS = 120.0
"""A training that takes less time is not compiled. Compiling takes up to a minute, and makes a step a
third faster or more."""
WARM_UP_STEPS = 3
"""Steps that are not timed: in them code is compiled, kernels are loaded and the step is captured."""
TIMED_STEPS = 10
TIMED_SECONDS = 0.5
"""Steps are timed in tens until they took so long."""
CLEARLY = 4
"""If a training were too short even with steps that take so many times as long, ten are enough."""


def tries_compile(
    given: TrainingConfig, resolved: ResolvedTraining, accelerator: Accelerator
) -> bool:
    """Whether a new training finds out if it should be compiled: `auto`, packed batches, one GPU,
    and a C compiler."""
    return (
        given.compile == "auto"
        and resolved.fill
        and captures_steps(accelerator)
        and shutil.which("cc") is not None
    )


def settle_compile(trainer: Trainer) -> Iterator[str]:
    """Compile the model if its steps are then faster and the training is long enough; say what was
    decided, and why.

    The steps of the trial leave no trace in weights, optimiser and random generators.
    """
    with untouched(trainer), closing(trainer.batches()) as batches:
        plain = seconds_per_step(trainer, batches)
        seconds = training_seconds(trainer, plain)
        if seconds < MIN_SECONDS:
            yield (
                f"the model is not compiled: the training takes about {seconds:.0f} s, and "
                "compiling up to a minute (training.compile=true compiles it)"
            )
            return
        yield "compiling the model to see if its steps get faster, which may take a minute"
        trainer.use_compiled(compiled=True)
        compiled = seconds_per_step(trainer, batches)
        if compiled < plain:
            yield (
                f"the model is compiled: a step takes {1000 * compiled:.1f} ms instead of "
                f"{1000 * plain:.1f}"
            )
        else:
            trainer.use_compiled(compiled=False)
            yield (
                f"the model is not compiled: a step would take {1000 * compiled:.1f} ms instead of "
                f"{1000 * plain:.1f} (training.compile=false leaves out the trial)"
            )


def seconds_per_step(
    trainer: Trainer, batches: Generator[tuple[AnyBatch, Any], None, None]
) -> float:
    """The fastest pace over some steps."""

    def step() -> None:
        trainer.step([next(batches)[0] for _ in range(trainer.accumulate)])

    for _ in range(WARM_UP_STEPS):
        step()
    times: list[float] = []
    while sum(times) < TIMED_SECONDS and not is_clearly_short(trainer, times):
        wait_for_device()
        started = time.perf_counter()
        for _ in range(TIMED_STEPS):
            step()
        wait_for_device()
        times.append(time.perf_counter() - started)
    return min(times) / TIMED_STEPS


def training_seconds(trainer: Trainer, step: float) -> float:
    """How long a training takes with steps of so many seconds."""
    minutes = trainer.resolved.training.minutes
    return trainer.timetable.steps * step if minutes is None else 60 * minutes


def is_clearly_short(trainer: Trainer, times: Sequence[float]) -> bool:
    """Whether these times of steps show already that compiling does not pay."""
    if not times:
        return False
    slow = CLEARLY * min(times) / TIMED_STEPS
    return training_seconds(trainer, slow) < MIN_SECONDS


def wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def untouched(trainer: Trainer) -> Iterator[None]:
    """Whatever is trained inside, everything is afterwards as before the first step."""
    model: nn.Module = trainer.model
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(gpus):
        yield
    model.load_state_dict(weights)
    trainer.optimiser.state.clear()
    trainer.gradients.clear(keep_memory=False)
