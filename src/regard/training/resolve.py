"""The recipe that is trained: values that depend on the data, on the device or on the run to resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.data.epochs import auto_batch_tokens
from regard.data.prepare import Prepared
from regard.errors import ConfigError, did_you_mean
from regard.recipes.recipe import (
    AnyRecipe,
    recipe_of,
    with_absolute_paths,
)
from regard.runs import Run
from regard.tasks import TASKS
from regard.training.compiling import pays_to_compile
from regard.training.precision import mixed_precision


def resolve(
    recipe: AnyRecipe,
    base: Path,
    data: Prepared[Any],
    device: torch.device,
    existing: Run | None = None,
) -> AnyRecipe:
    """The recipe with the values that depend on the data or on the run to resume, and with absolute
    paths."""
    (task := TASKS[recipe.task](recipe, data.tokenizers)).check(data)
    tree = with_absolute_paths(data.recipe, base).model_dump()
    if recipe.training.batch_tokens == "auto":
        default = auto_batch_tokens(data.train, on_cpu=device.type == "cpu")
        tree["training"]["batch_tokens"] = (
            existing.recipe.training.batch_tokens if existing else default
        )
    # a resumed training is not warmed up for longer
    if recipe.training.warmup == "auto" and existing:
        tree["training"]["warmup"] = existing.recipe.training.warmup
    training, on_gpu = tree["training"], device.type == "cuda"
    packs = (
        on_gpu and task.network.packs and mixed_precision(recipe.training, on_gpu=True) != "fp32"
    )
    for name, automatic in (
        ("fill", packs),
        ("compile", packs and pays_to_compile(training, data.train)),
    ):
        if training[name] == "auto":  # old runs have neither
            training[name] = (
                getattr(existing.recipe.training, name) is True if existing else automatic
            )
    return recipe_of(tree)


def check_metric(recipe: AnyRecipe) -> None:
    """`training.best` must be a metric that the task's validation computes."""
    task, name = TASKS[recipe.task], recipe.training.best
    metrics = (*task.lower_is_better, *task.higher_is_better)
    if name not in metrics:
        raise ConfigError(
            f"unknown metric {name!r}", where="training.best", hint=did_you_mean(name, metrics)
        )
    task.check_evaluation(recipe.evaluation)
    needs_decoding = task.writes == "target" and name in task.higher_is_better
    if recipe.training.decode == 0 and needs_decoding:
        raise ConfigError(
            f"{name} needs decoded examples", where="training.decode", hint="set it above 0"
        )
    if recipe.training.teacher_forcing < 1 and task.writes != "target":
        what = f"a model for {recipe.task} never reads its own words"
        raise ConfigError(what, where="training.teacher_forcing", hint="leave it at 1")
