"""Whether a checkpoint was trained with the recipe and the tokenizer that its run has now."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import Tree
from regard.errors import CheckpointError, ConfigError
from regard.recipes.recipe import leaves
from regard.recipes.resolved import ResolvedRecipe, recipe_of_run
from regard.recipes.resuming import CHANGEABLE_ON_RESUME
from regard.runs.folder import own_files
from regard.text.tokenizers import Tokenizers

FIXED_SECTIONS = ("task", "model", "head")
"""The sections of a recipe that say what the weights mean."""
MAX_NAMED_FIELDS = 4
"""Fields that a message names."""

Differences = Mapping[str, tuple[Any, Any]]
"""Fields of a recipe by their paths, each with the value now and the one of the checkpoint."""


def differing_fields(recipe: ResolvedRecipe, trained: Tree) -> Differences:
    """The fields of a run's recipe that differ from the recipe that a checkpoint was trained with.

    What a resumed training may change is left out, and so are paths: the data of a run may move.
    """
    here = leaves(recipe.model_dump(mode="json"))
    there = leaves(trained)
    if not there or here == there:  # old checkpoints have none
        return {}
    try:
        there = leaves(recipe_of_run(copy.deepcopy(trained)).model_dump(mode="json"))
    except ConfigError:  # of a version with other fields
        here = {name: here[name] for name in here.keys() & there.keys()}
        there = {name: there[name] for name in here}
    return {
        name: (here.get(name), there.get(name))
        for name in dict.fromkeys([*here, *there])
        if here.get(name, ...) != there.get(name, ...)
        and name.removeprefix("training.") not in CHANGEABLE_ON_RESUME
        and not _is_moved(name, here.get(name), there.get(name))
    }


def _is_moved(name: str, here: object, there: object) -> bool:
    """Whether a field of a recipe is the path of a file, which may be elsewhere now. A run stores
    absolute ones."""
    names_files = name.startswith(("data.", "tokenizer.file", "model.vectors.", "training.init"))
    return names_files and isinstance(here, str) and isinstance(there, str) and os.path.isabs(there)


def refuse_other_model(differences: Differences, checkpoint: Path, recipe_file: Path) -> None:
    """Refuse differences in the sections that say what the weights mean."""
    for name, (here, there) in differences.items():
        if name.partition(".")[0] in FIXED_SECTIONS:
            raise CheckpointError(
                f"{name} is {here!r}, but {checkpoint.name} was trained with {there!r}",
                where=str(recipe_file),
                hint="put it back",
            )


def refuse_other_settings(differences: Differences, checkpoint: Path, recipe_file: Path) -> None:
    """Refuse any difference, naming the first fields."""
    if not differences:
        return
    fields = [f"{name} is {here!r}, not {there!r}" for name, (here, there) in differences.items()]
    named = fields[:MAX_NAMED_FIELDS]
    if len(fields) > MAX_NAMED_FIELDS:
        named.append(f"and {len(fields) - MAX_NAMED_FIELDS:,} more")
    raise CheckpointError(
        f"{checkpoint.name} was trained with another recipe: {'; '.join(named)}",
        where=str(recipe_file),
        hint="put it back; or --accept-recipe uses it as it is now, in Python accept_recipe=True",
    )


def other_tokenizer(tokenizers: Tokenizers, folder: Path) -> CheckpointError:
    """The error for a tokenizer that the run was not trained with, with the files that changed."""
    unchanged = [path.name for path in own_files(folder) or ()]
    files = [name for name in tokenizers.files if name not in unchanged] or [*tokenizers.files]
    return CheckpointError(
        "the tokenizer is not the one this run was trained with",
        where=", ".join(str(folder / name) for name in files),
        hint="put the run's own tokenizer back; another one gives every token another meaning",
    )
