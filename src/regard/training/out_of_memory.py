"""Batches that do not fit into memory: smaller ones, chosen before the training or named in an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import clear_frames

import torch
from accelerate import Accelerator
from torch import nn

from regard.data.epochs import Examples
from regard.errors import ConfigError
from regard.recipes.resolved import ResolvedRecipe, with_training
from regard.tasks import Task
from regard.training.memory import fitting_batch_tokens


def with_fitting_batches(
    recipe: ResolvedRecipe,
    task: Task,
    train: Examples,
    model: nn.Module,
    accelerator: Accelerator,
) -> ResolvedRecipe:
    """The recipe with `batch_tokens` lowered to what fits into the memory of every process."""
    with explained_out_of_memory(recipe):
        fitting = fitting_batch_tokens(recipe, task, train, model, accelerator)
    tokens = int(accelerator.gather(torch.tensor([fitting], device=accelerator.device)).min())
    if tokens == 0:
        what = (
            f"not even the longest example, of {int(train.lengths.max()):,} tokens, fits "
            "into memory"
        )
        hint = "use a smaller model, or lower data.max_length"
        raise ConfigError(what, where="training.batch_tokens", hint=hint)
    training = recipe.training.model_copy(update={"batch_tokens": tokens})
    return with_training(recipe, training)


@contextmanager
def explained_out_of_memory(
    recipe: ResolvedRecipe, fitting: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Turn an out-of-memory error into a ConfigError with a `batch_tokens` that fits, from
    `fitting` if it succeeds.

    Otherwise half the batch is suggested, with twice the accumulation.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        clear_frames(error.__traceback__)  # they still refer to large tensors
        config = recipe.training
        try:
            fits = fitting()
        except (RuntimeError, MemoryError) as again:
            if not _out_of_memory(again):
                raise
            fits = 0
        tokens = fits if 0 < fits < config.batch_tokens else max(1, config.batch_tokens // 2)
        accumulate = math.ceil(config.accumulate * config.batch_tokens / tokens)
        what = f"out of memory with batches of {config.batch_tokens:,} tokens"
        hint = (
            f"{tokens}{' fits, and' if tokens == fits else ''} with "
            f"training.accumulate={accumulate} makes the same "
            "steps, or use a smaller model"
        )
        raise ConfigError(what, where="training.batch_tokens", hint=hint) from None


def _out_of_memory(error: Exception) -> bool:
    """torch has an error class for GPU memory only. An illegal memory access is not meant."""
    text = str(error).lower()
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(
        phrase in text for phrase in ("out of memory", "not enough memory", "can't allocate memory")
    )


def fitting_after_failure(
    recipe: ResolvedRecipe,
    task: Task,
    train: Examples,
    model: nn.Module,
    accelerator: Accelerator,
) -> int:
    """The `batch_tokens` that would have fitted, measured after the training's memory is
    released."""
    model.zero_grad(set_to_none=True)
    model.to("cpu")
    accelerator.free_memory()
    return fitting_batch_tokens(recipe, task, train, model, accelerator)
