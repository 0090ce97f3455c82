"""The largest batch that fits into the memory of a device: measured with two small batches and
extrapolated."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from regard.data.batches import AnyBatch
from regard.data.epochs import Examples
from regard.models.base import count_parameters
from regard.recipes.resolved import ResolvedRecipe
from regard.tasks import Task
from regard.training.optimiser import build_optimiser

PLANNED_SHARE = 0.9
"""Share of the free memory to plan with; the rest is for what is not measured, and for
fragmentation."""
BYTES_PER_PARAMETER = {"sgd": 12, "adam": 16, "adamw": 16}
"""Weights, gradients and optimiser state, in single precision."""
TOKENS_OF_SMALL_BATCH = 1024
"""Tokens of the smaller batch on a GPU: enough to be told from the libraries' own memory."""
TOKEN_MULTIPLE = 256
"""Larger results are rounded down to a multiple of this."""
Point = tuple[int, int]
"""Tokens of a batch, and the bytes that training with it needs."""


def largest_batch(small: Point, large: Point, available: int, *, limit: int, longest: int) -> int:
    """The largest `batch_tokens` up to `limit` that leaves a tenth free, by the line through two
    points; 0 if not even the longest example fits.

    An example longer than `batch_tokens` is a batch of its own, so a value below its length would
    not help.
    """
    per_token = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
    usable = PLANNED_SHARE * available - (small[1] - per_token * small[0])
    if per_token * max(limit, longest) <= usable:
        return limit
    if per_token * longest > usable:
        return 0
    fitting = int(usable / per_token)
    return fitting // TOKEN_MULTIPLE * TOKEN_MULTIPLE or fitting


def largest_measured(
    measure: Callable[[int], int],
    *,
    rows: int,
    length: int,
    available: int,
    limit: int,
    longest: int,
) -> int:
    """The largest `batch_tokens` from measurements: `measure` returns the bytes for a number of examples of one
    length.

    The line through two small batches overestimates large ones, whose loss is computed in parts. So
    if the result is below the limit, a batch of that size is measured too, and the line drawn
    again, as long as the result grows.
    """
    small, large = ((count * length, measure(count)) for count in (rows, 2 * rows))
    fits = largest_batch(small, large, available, limit=limit, longest=longest)
    while fits < limit and large[0] < fits // length * length:
        large = (fits // length * length, measure(fits // length))
        before, fits = fits, largest_batch(small, large, available, limit=limit, longest=longest)
        if fits < 1.1 * before:
            break
    return fits


def fitting_batch_tokens(
    recipe: ResolvedRecipe,
    task: Task,
    train: Examples,
    model: nn.Module,
    accelerator: Accelerator,
    available: int | None = None,
) -> int:
    """`training.batch_tokens`, or less if the device has too little memory; 0 if not even one
    example fits.

    Measured with the longest example, since shorter ones need no more per token. Neither the model
    nor the random generators are changed. `available` is the free memory in bytes; default: what
    the device reports.
    """
    limit = recipe.training.batch_tokens
    on_cpu = accelerator.device.type == "cpu"
    if available is None:
        available = available_memory(accelerator.device) // (
            accelerator.num_processes if on_cpu else 1
        )
    example = train.longest_example()
    length = int(train.lengths[example])

    def measure(rows: int) -> int:
        return step_bytes(recipe, task, train.batch(np.full(rows, example)), model, accelerator)

    rows = 1 if on_cpu else max(1, TOKENS_OF_SMALL_BATCH // length)
    longest = int(train.lengths.max())
    return largest_measured(
        measure, rows=rows, length=length, available=available, limit=limit, longest=longest
    )


def step_bytes(
    recipe: ResolvedRecipe,
    task: Task,
    batch: AnyBatch,
    model: nn.Module,
    accelerator: Accelerator,
) -> int:
    """The bytes that training with such batches needs, measured with a copy of the model."""
    device = accelerator.device
    with torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []):
        size = _trial_bytes(recipe, task, batch.to(device), copy.deepcopy(model), accelerator)
    if device.type != "cpu":
        gc.collect()
        torch.get_device_module(device).empty_cache()
    # The moving average of the weights; the buckets for the exchange of gradients between
    # processes; weights and gradients in half precision
    half = accelerator.mixed_precision != "no"
    copies: int = sum((recipe.training.ema is not None, accelerator.num_processes > 1, half))
    return size + 4 * copies * count_parameters(model)


def _trial_bytes(
    recipe: ResolvedRecipe,
    task: Task,
    batch: AnyBatch,
    trial: nn.Module,
    accelerator: Accelerator,
) -> int:
    """On a CPU, where allocations are not counted: weights, gradients, optimiser, and saved
    activations. On a GPU: the peak of the second update, since the first one allocates the
    optimiser state."""
    config, device = recipe.training, accelerator.device
    before = 0 if device.type == "cpu" else _peak_bytes(device, lambda: None)
    objective = task.objective(trial.to(device)).train()

    def loss() -> Tensor:
        with accelerator.autocast():
            return sums_of(objective(batch.unnamed()))[0] / batch.tokens

    if device.type == "cpu":
        return (
            count_parameters(trial) * BYTES_PER_PARAMETER[config.optimizer]
            + saved_by(trial, loss)[1]
        )
    optimiser = build_optimiser(trial, config)

    def update() -> None:
        torch.autograd.backward(loss())
        torch.nn.utils.clip_grad_norm_(trial.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)  # they stay allocated, as in captured steps

    update()
    return _peak_bytes(device, update) - before


def _peak_bytes(device: torch.device, work: Callable[[], None]) -> int:
    """The peak memory during `work`; on MPS what the driver holds after it, which it does not
    release by itself."""
    if device.type == "mps":
        work()
        torch.mps.synchronize()
        return torch.mps.driver_allocated_memory()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def sums_of(result: Tensor | tuple[Tensor, Any]) -> Tensor:
    """The two sums of an objective, also if it returns a recurrent state too."""
    return result[0] if isinstance(result, tuple) else result


def saved_by(model: nn.Module, forward: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """The result of a forward pass, and the bytes that it saves for the backward pass, without the
    weights."""
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return output, sum(size for pointer, size in saved.items() if pointer not in weights)


def available_memory(device: torch.device) -> int:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reserved, allocated = (
            torch.cuda.memory_reserved(device),
            torch.cuda.memory_allocated(device),
        )
        index = torch.cuda.current_device() if device.index is None else device.index
        allowed = int(torch.cuda.get_per_process_memory_fraction(index) * total)
        return min(free + reserved, allowed) - allocated
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return int(psutil.virtual_memory().available)
