"""The number of threads of a training on a CPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import psutil
import torch
from accelerate import Accelerator
from torch import nn

from regard.data.prepare import Prepared
from regard.recipes.resolved import ResolvedRecipe
from regard.runs import Run
from regard.tasks import Task
from regard.training.pace import timed, trial_step

SLOW_STEP_SECONDS = 2.0
"""Seconds of a step from which the number of threads is left as it is, since measuring would take
too long."""


CLEARLY_FASTER = 0.9
"""Fewer threads are used if a step then takes less than this share of the time."""


def choose_threads(
    existing: Run | None,
    recipe: ResolvedRecipe,
    task: Task,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
) -> int | None:
    """The number of threads for a training on a CPU: for a new run the fastest, later the one that
    it began with.

    None leaves it as it is: on other devices, with several processes, and where the user has set
    it.
    """
    if accelerator.device.type != "cpu" or accelerator.num_processes > 1 or threads_are_chosen():
        return None
    if existing is not None:
        chosen = existing.environment.get("chosen_threads")
        return chosen if isinstance(chosen, int) and chosen > 0 else None
    return fastest_threads(recipe, task, data, model, accelerator)


@contextmanager
def computing_with(threads: int | None) -> Iterator[None]:
    """Let torch compute with so many threads; None leaves their number as it is. Numbers below 1e-38
    become 0 meanwhile: gradients that vanish reach them, and a CPU is many times slower with them."""
    before = torch.get_num_threads()
    flushed_before = flushes_denormals()
    try:
        torch.set_num_threads(threads or before)
        torch.set_flush_denormal(True)
        yield
    finally:
        torch.set_flush_denormal(flushed_before)
        torch.set_num_threads(before)


def flushes_denormals() -> bool:
    """Whether torch takes numbers that are too small for float32's full precision as 0."""
    return not bool(torch.tensor(1e-40) * 1)


def threads_are_chosen() -> bool:
    """Whether the user has set the number of threads: in the environment, or with
    torch.set_num_threads."""
    if any(os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")):
        return True
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    defaults = {usable, os.cpu_count(), psutil.cpu_count(logical=False)}
    return torch.get_num_threads() == 1 or torch.get_num_threads() not in defaults


def fastest_threads(
    recipe: ResolvedRecipe,
    task: Task,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
) -> int:
    """The number of threads with which a step is fastest: all, half of them, or one.

    If other programs use the cores, threads wait for each other, and one may be faster than two.
    """
    default = torch.get_num_threads()
    with torch.random.fork_rng([]):
        step = trial_step(recipe, task, data, copy.deepcopy(model), accelerator)
        first = timed(step)
        if first > SLOW_STEP_SECONDS:
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
    return best if medians[best] < CLEARLY_FASTER * medians[default] else default
