"""The recipe to resume a run with: what it may change, and which defaults it keeps."""

from __future__ import annotations

from regard.config import Tree
from regard.recipes.recipe import AnyRecipe, leaves
from regard.recipes.stored import FORMER_DEFAULTS

CHANGEABLE_ON_RESUME = (
    "steps",
    "epochs",
    "minutes",
    "device",
    "compile",
    "engine",
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_best",
    "patience",
    "decode",
    "samples",
    "watch",
    "average",
    "checkpoint_activations",
    "data.workers",
    "data.bad_lines",
)
"""Fields, of `training` unless named, that a resumed training may change; any other would make it
another training. The fingerprint of the data tells whether another data.bad_lines leaves other
examples."""


def with_defaults_of_run(recipe: AnyRecipe, given: Tree, before: AnyRecipe) -> AnyRecipe:
    """The recipe to resume a run with: a field that it does not give keeps the value of the run if
    that is a former default."""
    if recipe.model.kind != before.model.kind:
        return recipe
    named = leaves(given)
    for path, former in FORMER_DEFAULTS.items():
        name, _, field = path.partition(".")
        theirs = getattr(getattr(before, name), field, None)
        if path not in named and theirs == former:
            section = getattr(recipe, name).model_copy(update={field: theirs})
            recipe = recipe.model_copy(update={name: section})
    return recipe
