"""The recipe that is trained: values that depend on the data, on the device or on the run to resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.data.config import TrainingConfig
from regard.data.epochs import auto_batch_tokens
from regard.data.prepare import Prepared
from regard.engine import environment_says_plain
from regard.errors import ConfigError
from regard.recipes.paths import with_absolute_paths
from regard.recipes.recipe import AnyRecipe
from regard.recipes.resolved import (
    ResolvedRecipe,
    ResolvedTraining,
    resolved_training,
    with_training,
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
) -> ResolvedRecipe:
    """The recipe with the values that depend on the data or on the run to resume, and with absolute
    paths."""
    absolute = with_absolute_paths(data.recipe, base)
    values = _kept_values(recipe.training, existing.recipe.training) if existing else {}
    if not existing:
        values = _chosen_values(recipe, data, device)
    if trains_plainly(recipe.training):
        values["compile"] = False
    return with_training(absolute, resolved_training(absolute.training, **values))


def trains_plainly(config: TrainingConfig) -> bool:
    """Whether every equation is computed as written; then nothing is compiled."""
    plain = config.engine == "plain" or environment_says_plain()
    if plain and config.compile is True:
        what = "nothing is compiled while the engine is off"
        raise ConfigError(what, where="training.compile", hint="leave it at auto")
    return plain


def _kept_values(config: TrainingConfig, before: ResolvedTraining) -> dict[str, Any]:
    """The values for `auto` in a training that is resumed: those that the run has.

    The warm-up is among them, so that a longer training is not warmed up for longer.
    """
    names = ("batch_tokens", "warmup", "fill", "compile")
    return {name: getattr(before, name) for name in names if getattr(config, name) == "auto"}


def _chosen_values(recipe: AnyRecipe, data: Prepared[Any], device: torch.device) -> dict[str, Any]:
    """The values for `auto` in a new training; that of the warm-up depends on its steps."""
    config = recipe.training
    batch_tokens = config.batch_tokens
    if batch_tokens == "auto":
        batch_tokens = auto_batch_tokens(data.train, on_cpu=device.type == "cpu")
    on_gpu = device.type == "cuda"
    packs = (
        on_gpu
        and TASKS[recipe.task].packs(recipe)
        and mixed_precision(config, on_gpu=True) != "fp32"
    )
    fill = packs and not trains_plainly(config) if config.fill == "auto" else config.fill
    if config.compile == "auto":
        compiles = packs and pays_to_compile(config, batch_tokens, data.train)
    else:
        compiles = config.compile
    return {"batch_tokens": batch_tokens, "fill": fill, "compile": compiles}
