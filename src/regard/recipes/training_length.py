"""How long a training is, if overrides say it in another way than the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.config import Tree, apply_overrides
from regard.recipes.reading import written_tree

LENGTH_FIELDS = ("steps", "epochs", "minutes")
"""Fields of the section `training` that say when to stop."""


def with_length_of_overrides(tree: Tree, overrides: Sequence[str]) -> Tree:
    """A tree, to which overrides were applied, without the lengths that only the recipe gives if
    the overrides give one."""
    replaced = _replaced_lengths(tree, overrides)
    if not replaced:
        return tree
    return {**tree, "training": {**tree["training"], **dict.fromkeys(replaced)}}


def replaced_length_notes(recipe: str | Path | Tree, overrides: Sequence[str]) -> list[str]:
    """A note on the recipe's own lengths, if overrides replace them."""
    tree = apply_overrides(written_tree(recipe)[0], overrides)
    replaced = _replaced_lengths(tree, overrides)
    if not replaced:
        return []
    given = ", ".join(f"training.{name}={value}" for name, value in _given(overrides).items())
    left_out = ", ".join(f"{name}: {value}" for name, value in replaced.items())
    return [f"{given}: left out of the recipe: {left_out}"]


def _replaced_lengths(tree: Tree, overrides: Sequence[str]) -> Tree:
    """The lengths that only the recipe gives, if the overrides give another."""
    training = tree.get("training")
    given = _given(overrides)
    if not given or not isinstance(training, dict):
        return {}
    return {
        name: training[name]
        for name in LENGTH_FIELDS
        if name not in given and training.get(name) is not None
    }


def _given(overrides: Sequence[str]) -> Tree:
    """The lengths that overrides give."""
    listed = [overrides] if isinstance(overrides, str) else overrides
    ours = [one for one in listed if one.partition("=")[0].split(".")[0] == "training"]
    training = apply_overrides({}, ours).get("training")
    if not isinstance(training, dict):
        return {}
    return {name: training[name] for name in LENGTH_FIELDS if training.get(name) is not None}
