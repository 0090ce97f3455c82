"""Sentences about a training: what its settings lead to, and what became of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch

from regard.data.config import TrainingConfig
from regard.data.epochs import Examples
from regard.errors import ConfigError
from regard.models.base import count_parameters
from regard.recipes.recipe import AnyRecipe, HeadedRecipe
from regard.recipes.resolved import ResolvedRecipe, ResolvedTraining
from regard.recipes.switching import Switch
from regard.tasks import TASKS, Task
from regard.training.compiling import COMPILED_POSITIONS
from regard.training.optimiser import warmup_steps


def compile_notes(
    given: TrainingConfig, resolved: ResolvedTraining, device: torch.device
) -> Iterator[str]:
    """Whether the model is compiled on a GPU, and why."""
    if resolved.compile:
        yield (
            "compiling the model: the first step may take a minute (training.compile=false "
            "starts at once)"
        )
    elif given.compile == "auto" and resolved.fill and device.type == "cuda":
        too_short = f"a training of under {COMPILED_POSITIONS:,} tokens ends sooner without"
        why = too_short if shutil.which("cc") else "that needs a C compiler, cc"
        yield f"the model is not compiled: {why} (training.compile=true compiles it)"


def switch_notes(switch: Switch, task: Task) -> Iterator[str]:
    """The sizes of both models where overrides ask for another kind than the recipe's, and what it
    does not have."""
    kind, other, sizes = switch.kind, switch.other.model.kind, []
    with suppress(ConfigError):  # the other model may not fit these vocabularies
        for one in (
            task,
            TASKS[switch.other.task](_with_labels(switch.other, task), task.tokenizers),
        ):
            with torch.device("meta"):  # no memory, and no numbers from the random generator
                sizes.append(count_parameters(one.network.build()))
        yield f"model.kind={kind}: {sizes[0]:,} parameters; the recipe's {other} has {sizes[1]:,}"
    if switch.dropped:
        yield (
            f"model.kind={kind}: left out, since {kind} does not have them: "
            f"{', '.join(switch.dropped)}"
        )


def _with_labels(recipe: AnyRecipe, task: Task) -> AnyRecipe:
    """The recipe with the task's labels, which are known from the data: the head has a row of
    weights for each."""
    labels = (
        getattr(task.recipe.head, "labels", None) if isinstance(task.recipe, HeadedRecipe) else None
    )
    if labels is None or not isinstance(recipe, HeadedRecipe):
        return recipe
    head = recipe.head.model_copy(update={"labels": labels})
    return recipe.model_copy(update={"head": head})


def budget_note(config: ResolvedTraining, train: Examples) -> Iterator[str]:
    """A note if examples are longer than `training.batch_tokens`."""
    if longer := int(np.count_nonzero(train.lengths > config.batch_tokens)):
        yield (
            f"{longer:,} of {len(train):,} training examples are longer than training.batch_tokens="
            f"{config.batch_tokens} (the longest: {int(train.lengths.max()):,} tokens): each of "
            "them is a batch of its "
            "own"
        )


def fitting_note(asked: ResolvedRecipe, fitting: ResolvedRecipe) -> Iterator[str]:
    """A note if a recipe's batches were too large for the memory."""
    if fitting != asked:
        yield f"batch_tokens: {fitting.training.batch_tokens:,}, the most that fits into memory"


def length_notes(config: TrainingConfig, steps: int) -> Iterator[str]:
    """Notes on a training that ends before `training.steps`, or is hardly longer than its
    warm-up."""
    if config.steps is not None and steps < config.steps:
        yield (
            f"training.epochs={config.epochs} ends at step {steps:,}, before "
            f"training.steps={config.steps}"
        )
    if 2 * warmup_steps(config, steps) > steps:
        yield (
            f"training.warmup={config.warmup} is more than half of the {steps:,} steps: the model "
            "will hardly learn; "
            f"{max(1, steps // 10)} would be a tenth"
        )


def resume_notes(
    before: TrainingConfig, now: TrainingConfig, steps: int, factor: float
) -> Iterator[str]:
    """A note if a schedule that falls now covers another number of steps; the rate continues at
    `factor` times the highest."""
    if now.schedule != "constant" and (before.steps, before.epochs) != (now.steps, now.epochs):
        rate = now.learning_rate * factor
        yield (
            f"the {now.schedule} schedule now covers {steps:,} steps: the learning rate "
            f"continues at {rate:.2g}"
        )


LOWEST_TO_RESUME = 0.1
"""The factor of the highest learning rate below which a training that continues hardly learns."""


def longer_training_note(config: TrainingConfig, steps: int, factor: float) -> str:
    """Advice on a validation loss that was still falling after the last of `steps`; a
    training of twice as many would continue with `factor` times the highest learning rate."""
    name = (
        "minutes" if config.minutes is not None else "steps" if config.steps == steps else "epochs"
    )
    twice = f"training.{name}={2 * (getattr(config, name) or 1)}"
    if factor < LOWEST_TO_RESUME:
        rate = f"{config.learning_rate * factor:.2g}"
        return (
            "the validation loss was still falling, but --resume would continue at a learning "
            f"rate of {rate}: "
            f"a new run with {twice} learns more"
        )
    return f"the validation loss was still falling: --resume with {twice} trains twice as long"
