"""How large a batch the memory of a device holds: measured with two small ones, a line drawn through them."""

from __future__ import annotations

import copy
import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import clear_frames
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from regard.data.batch import AnyBatch
from regard.data.dataset import Examples
from regard.errors import ConfigError
from regard.models import Generator
from regard.models.base import count_parameters
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.recipes.training import TrainingConfig
from regard.tasks import TASKS
from regard.text.tokenizers import Tokenizers
from regard.training.optimiser import build_optimiser

SHARE = 0.9
"""The part of the free memory that may be planned with; the rest is for what is not measured, and for holes in it."""
BYTES_PER_PARAMETER = {"sgd": 12, "adam": 16, "adamw": 16}
"""Weights, gradients and the optimiser's memory, in single precision."""
GPU_TOKENS = 1024
"""Size of the smaller batch on a GPU, large enough to tell it from the libraries' own memory."""
ROUND = 256
"""Budgets are multiples of this where they are larger."""


@dataclass(frozen=True)
class Need:
    """The bytes that training takes up: some in any case, and more for each token of a batch."""

    fixed: float
    per_token: float

    @classmethod
    def through(cls, small: tuple[int, int], large: tuple[int, int]) -> Need:
        """The line through two points (tokens, bytes)."""
        slope = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
        return cls(small[1] - slope * small[0], slope)

    def bytes(self, tokens: int) -> float:
        return self.fixed + self.per_token * tokens


def largest_batch(need: Need, available: int, *, wish: int, longest: int) -> int:
    """The largest budget up to `wish` that leaves a tenth free; 0 where not even the longest example fits.

    An example that is longer than the budget is a batch of its own, so no budget below it would help.
    """
    room = SHARE * available
    if need.bytes(max(wish, longest)) <= room:
        return wish
    if need.bytes(longest) > room:
        return 0
    fitting = int((room - need.fixed) / need.per_token)
    return fitting // ROUND * ROUND or fitting


def largest_measured(
    measure: Callable[[int], int], *, rows: int, length: int, available: int, wish: int, longest: int
) -> int:
    """The same, where `measure` gives the bytes for so many examples of a length.

    The line through two small batches lies above what large ones need, since the loss computes those in parts. So
    where it falls short of the wish, a batch that fits by it is measured in turn, as long as that finds room for more.
    """
    small, large = ((count * length, measure(count)) for count in (rows, 2 * rows))
    fits = largest_batch(Need.through(small, large), available, wish=wish, longest=longest)
    while fits < wish and large[0] < fits // length * length:
        large = (fits // length * length, measure(fits // length))
        before, fits = fits, largest_batch(Need.through(small, large), available, wish=wish, longest=longest)
        if fits < 1.1 * before:
            break
    return fits


def fitting_batch_tokens(
    recipe: AnyRecipe, train: Examples, model: Generator, accelerator: Accelerator, available: int | None = None
) -> int:
    """`training.batch_tokens` as it is, or lower if the device holds less; 0 where it does not hold one example.

    Measured with the longest example, since shorter ones need no more for each token. Neither the model nor the random
    generators are changed. `available` bytes are taken for free, if not what the device itself says.
    """
    wish, on_cpu = recipe.training.batch_tokens, accelerator.device.type == "cpu"
    assert isinstance(wish, int)
    if available is None:
        available = available_memory(accelerator.device) // (accelerator.num_processes if on_cpu else 1)
    example = train.longest_example()
    length = int(train.lengths[example])

    def measure(rows: int) -> int:
        return step_bytes(recipe, train.batch(np.full(rows, example)), model, accelerator)

    rows = 1 if on_cpu else max(1, GPU_TOKENS // length)
    longest = int(train.lengths.max())
    return largest_measured(measure, rows=rows, length=length, available=available, wish=wish, longest=longest)


def budget_note(config: TrainingConfig, train: Examples) -> list[str]:
    """A sentence where examples are longer than a batch is to be, for `check` and for those who train at once."""
    assert isinstance(config.batch_tokens, int)
    longer = int(np.count_nonzero(train.lengths > config.batch_tokens))
    if not longer:
        return []
    return [
        f"{longer:,} of {len(train):,} training examples are longer than training.batch_tokens={config.batch_tokens} "
        f"(the longest: {int(train.lengths.max()):,} tokens): each of them is a batch of its own"
    ]


def longest_example(train: Examples) -> int:
    """The one that takes up the most memory."""
    return train.longest_example()


def step_bytes(recipe: AnyRecipe, batch: AnyBatch, model: Generator, accelerator: Accelerator) -> int:
    """The bytes that training with such batches takes up, from a copy of the model."""
    device = accelerator.device
    measured = _estimated_bytes if device.type == "cpu" else _measured_bytes
    with unchanged_generators(device):
        size = measured(recipe, batch.to(device), copy.deepcopy(model), accelerator)
    if device.type != "cpu":
        gc.collect()
        torch.get_device_module(device).empty_cache()
    # The average of the weights, and the buckets in which processes exchange gradients
    copies = int(recipe.training.ema is not None) + int(accelerator.num_processes > 1)
    return size + 4 * copies * count_parameters(model)


def _estimated_bytes(recipe: AnyRecipe, batch: AnyBatch, trial: Generator, accelerator: Accelerator) -> int:
    """On a CPU, which does not count: weights, gradients, optimiser, and what the backward pass will need."""
    objective = _objective(recipe, trial)
    with accelerator.autocast():
        _, saved = saved_by(trial, lambda: sums_of(objective(batch.unnamed())))
    return count_parameters(trial) * BYTES_PER_PARAMETER[recipe.training.optimizer] + saved


def _measured_bytes(recipe: AnyRecipe, batch: AnyBatch, trial: Generator, accelerator: Accelerator) -> int:
    """On a GPU: the most that an update holds. The first one makes the optimiser's memory."""
    before = _most_held(accelerator.device, lambda: None)
    update = _updates(recipe, trial.to(accelerator.device), accelerator)
    update(batch)
    return _most_held(accelerator.device, lambda: update(batch)) - before


def _most_held(device: torch.device, work: Callable[[], None]) -> int:
    """The most bytes while it works; on MPS those the driver holds after it, which it does not give back by itself."""
    if device.type == "mps":
        work()
        torch.mps.synchronize()
        return torch.mps.driver_allocated_memory()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def _objective(recipe: AnyRecipe, trial: Generator) -> nn.Module:
    return TASKS[recipe.task](recipe, Tokenizers({})).objective(trial).train()  # losses need no tokenizers


def sums_of(found: Any) -> Tensor:
    """The two sums of an objective, also of one that gives a state to carry on beside them."""
    sums_2: Tensor = found[0] if isinstance(found, tuple) else found
    return sums_2


def _updates(recipe: AnyRecipe, trial: Generator, accelerator: Accelerator) -> Callable[[AnyBatch], None]:
    """Updates as the loop makes them; where it accumulates, gradients stay while a batch is computed."""
    objective, optimiser = _objective(recipe, trial), build_optimiser(trial, recipe.training)

    def update(batch: AnyBatch) -> None:
        with accelerator.autocast():
            loss = sums_of(objective(batch.unnamed()))[0] / batch.tokens
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trial.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=recipe.training.accumulate == 1)

    return update


@contextmanager
def memory_named(recipe: AnyRecipe, fitting: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Out of memory, in the user's words; `fitting` measures which batches would fit, and may itself run out of it.

    Without an answer, half of the batch: activations grow with it, and twice the accumulation makes up for it.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        clear_frames(error.__traceback__)  # they hold what filled the memory
        config = recipe.training
        assert isinstance(config.batch_tokens, int)
        fits = _or_nothing(fitting)
        tokens = fits if 0 < fits < config.batch_tokens else max(1, config.batch_tokens // 2)
        accumulate = math.ceil(config.accumulate * config.batch_tokens / tokens)
        raise ConfigError(
            f"out of memory with batches of {config.batch_tokens:,} tokens",
            where="training.batch_tokens",
            hint=f"{tokens}{' fits, and' if tokens == fits else ''} with training.accumulate={accumulate} makes the "
            "same steps, or take a smaller model",
        ) from None


def _out_of_memory(error: Exception) -> bool:
    """Torch has a class of its own for a GPU's memory only; an illegal access to memory is another matter."""
    said = str(error).lower()
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "out of memory" in said or "not enough memory" in said or "can't allocate memory" in said


def _or_nothing(fitting: Callable[[], int]) -> int:
    try:
        return fitting()
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        return 0


def fitting_afterwards(recipe: AnyRecipe, train: Examples, model: Generator, accelerator: Accelerator) -> int:
    """The batch that would have fitted, once all that training held is given back."""
    model.zero_grad(set_to_none=True)
    model.to("cpu")
    accelerator.free_memory()
    return fitting_batch_tokens(recipe, train, model, accelerator)


def with_fitting_batches(recipe: AnyRecipe, train: Examples, model: Generator, accelerator: Accelerator) -> AnyRecipe:
    """`batch_tokens: auto`, lowered to what fits into the memory of every process's device."""
    with memory_named(recipe):
        fitting = fitting_batch_tokens(recipe, train, model, accelerator)
    tokens = int(accelerator.gather(torch.tensor([fitting], device=accelerator.device)).min())
    if tokens == 0:
        raise ConfigError(
            f"not even the longest example, of {int(train.lengths.max()):,} tokens, fits into the memory",
            where="training.batch_tokens",
            hint="take a smaller model, or lower data.max_length",
        )
    tree = recipe.model_dump()
    tree["training"]["batch_tokens"] = tokens
    return recipe_of(tree)


def saved_by(model: nn.Module, forward: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """What a forward pass gives, and the bytes that it keeps for the backward pass besides the weights."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return output, sum(size for pointer, size in kept.items() if pointer not in weights)


@contextmanager
def unchanged_generators(device: torch.device) -> Iterator[None]:
    """Dropout within draws nothing from what comes after."""
    module = None if device.type == "cpu" else torch.get_device_module(device)
    before, on_device = torch.get_rng_state(), module.get_rng_state() if module else None
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if module:
            module.set_rng_state(on_device)


def available_memory(device: torch.device) -> int:
    """The bytes that a training may still take up on the device."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
        index = torch.cuda.current_device() if device.index is None else device.index
        allowed = int(torch.cuda.get_per_process_memory_fraction(index) * total)
        return min(free + reserved, allowed) - allocated
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return available_main_memory()


def available_main_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What Linux says it could give to a program; elsewhere, all there is. Windows does not say: take what is asked."""
    with suppress(OSError, ValueError, IndexError):
        [line] = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize
