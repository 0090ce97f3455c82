"""A recipe, checked and with its types, from what a user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.config import Tree, apply_overrides
from regard.errors import ConfigError
from regard.recipes.initial_run import with_init
from regard.recipes.reading import written_tree
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.recipes.switching import switch_model
from regard.recipes.training_length import with_length_of_overrides


def load_recipe(recipe: str | Path | Tree, overrides: Sequence[str] = ()) -> tuple[AnyRecipe, Path]:
    """A recipe from a file, a mapping, or the name of one that ships; and the folder its paths are
    relative to."""
    tree, base = load_tree(recipe, overrides)
    typed = recipe_of(tree)
    expect_training_data(typed)
    return typed, base


def load_tree(recipe: str | Path | Tree, overrides: Sequence[str] = ()) -> tuple[Tree, Path]:
    """A recipe's tree before its values are checked; a section that is null is left out.

    Where overrides ask for another kind of model than the recipe's, what both kinds have is kept
    (`switch_model`). A length of the training that they give replaces the recipe's own
    (`with_length_of_overrides`).
    """
    tree, base, ships = written_tree(recipe, overrides)
    given = apply_overrides({}, overrides) if ships else None
    tree, _ = switch_model(tree, apply_overrides(tree, overrides), overrides)
    tree = with_length_of_overrides(tree, overrides)
    sections = {name: section for name, section in tree.items() if section is not None}
    return with_init(sections, base, given), base


def expect_training_data(recipe: AnyRecipe) -> None:
    """Refuse a recipe that is not to be trained, as that of an imported run is."""
    if not recipe.data.train:
        raise ConfigError(
            "there is nothing to train on", where="data.train", hint="name at least one corpus"
        )
