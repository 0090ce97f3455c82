"""The recipe of a run: what was asked, with the values that depend on data and device filled in."""

from __future__ import annotations

from typing import Any, cast

from pydantic import Field

from regard.config import Tree
from regard.data.config import TrainingConfig
from regard.recipes.recipe import AnyRecipe, Recipe, recipe_of
from regard.recipes.stored import as_stored


class ResolvedTraining(TrainingConfig):
    """The recipe's section `training`, where `auto` has become a value.

    Two fields may still be `auto`: `device` and `precision`, since a run may be resumed on another
    machine, and `warmup` until the number of steps is known.
    """

    batch_tokens: int = Field(ge=1)
    """Largest batch: rows times the longest side, in tokens."""
    compile: bool
    """Whether the model is compiled with torch.compile."""
    fill: bool
    """Whether batches are filled with sentences of any length."""


ResolvedRecipe = Recipe[Any, Any, Any, ResolvedTraining]

UNTRAINED: Tree = {"batch_tokens": 1024, "compile": False, "fill": False}
"""Values for `auto` in a run without a training of ours: an imported one. Runs of the first versions
lack `compile` and `fill`, and did neither."""


def with_training(recipe: AnyRecipe, training: ResolvedTraining) -> ResolvedRecipe:
    """A recipe with another section `training`."""
    return cast("ResolvedRecipe", recipe.model_copy(update={"training": training}))


def resolved_training(config: TrainingConfig, **values: Any) -> ResolvedTraining:
    """A section `training` with values for what is `auto` in it."""
    return ResolvedTraining.model_validate({**dict(config), **values})


def recipe_of_run(tree: Tree) -> ResolvedRecipe:
    """The recipe of a run folder or a checkpoint, from the tree that is stored there."""
    recipe = recipe_of(as_stored(tree))
    config = dict(recipe.training)
    missing = {name: value for name, value in UNTRAINED.items() if config[name] == "auto"}
    return with_training(recipe, resolved_training(recipe.training, **missing))
