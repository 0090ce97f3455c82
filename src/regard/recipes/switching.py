"""Another kind of model than the recipe's, as overrides ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from regard.config import Tree, apply_overrides
from regard.errors import ConfigError
from regard.models import MODELS, config_of
from regard.recipes.initial_run import with_init
from regard.recipes.reading import written_tree
from regard.recipes.recipe import AnyRecipe, recipe_of

KEPT_FIELDS = ("preset", "dropout", "tie")
"""Fields that a new kind of model takes over even if the whole section is replaced: they say how
large the model is and how it is regularised, and not what it is."""


@dataclass(frozen=True)
class Switch:
    """Another kind of model than that of the recipe as it is written, as overrides ask for."""

    kind: str
    other: AnyRecipe
    """The recipe with its own model and all overrides outside the section `model`."""
    dropped: tuple[str, ...]
    """Fields of that model which the new kind does not have, or not with this value."""


def switch_model(
    before: Tree, after: Tree, overrides: Sequence[str]
) -> tuple[Tree, tuple[str, ...]]:
    """`after`, the tree with overrides, with a section `model` that suits its kind, and the fields
    left out.

    With `model.kind=X` all fields are kept that X has too; with `model={kind: X}` only KEPT_FIELDS.
    """
    theirs, ours = before.get("model"), after.get("model")
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return after, ()
    kind, config = ours.get("kind"), config_of(ours.get("kind"))
    if kind not in MODELS or theirs.get("kind") not in MODELS or kind == theirs["kind"]:
        return after, ()
    given = apply_overrides(
        {}, [one for one in _listed(overrides) if one.partition("=")[0].split(".")[0] == "model"]
    )
    replaced = any(one.partition("=")[0] == "model" for one in _listed(overrides))
    named = given["model"]
    others = {
        name: value for name, value in theirs.items() if name not in named and value is not None
    }
    kept = {
        name: value
        for name, value in others.items()
        if name in config.model_fields and (name in KEPT_FIELDS or not replaced)
    }
    unlike = {name for name in others if name not in config.model_fields}
    try:
        config.model_validate({**named, **kept})
    except ValidationError as error:
        unlike |= {str(one["loc"][0]) for one in error.errors() if one["loc"]} & kept.keys()
    model = {**{name: value for name, value in kept.items() if name not in unlike}, **named}
    return {**after, "model": model}, tuple(
        f"{name}: {others[name]}" for name in others if name in unlike
    )


def switched_model(recipe: str | Path | Tree, overrides: Sequence[str]) -> Switch | None:
    """The switch that overrides ask for, if there is one and the recipe is valid with its own
    model."""
    before, base, _ = written_tree(recipe)
    after = apply_overrides(before, overrides)
    theirs, ours = before.get("model"), after.get("model")
    if (
        not isinstance(theirs, dict)
        or not isinstance(ours, dict)
        or theirs.get("kind") == ours.get("kind")
    ):
        return None
    dropped = switch_model(before, after, overrides)[1]
    own = {
        name: section for name, section in {**after, "model": theirs}.items() if section is not None
    }
    try:
        return Switch(str(ours.get("kind")), recipe_of(with_init(own, base)), dropped)
    except ConfigError:
        return None


def _listed(overrides: Sequence[str]) -> Sequence[str]:
    return [overrides] if isinstance(overrides, str) else overrides
