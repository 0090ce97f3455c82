"""Changes of a recipe as a program gives them: a list, a dict, or keywords -> `key=value`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from regard.config import Config, Tree, configs_in, kinds_in
from regard.data.config import Recipe as BaseRecipe
from regard.errors import ConfigError, did_you_mean
from regard.recipes.recipe import recipe_for
from regard.tasks import TASKS

Overrides = Sequence[str] | Mapping[str, Any]
"""`["training.steps=300"]`, or `{"training.steps": 300}`."""


def as_override(path: str, value: Any) -> str:
    """A setting as `key=value`, the value as JSON, which is YAML too."""
    return f"{path}={json.dumps(value, ensure_ascii=False, default=_plain)}"


def _plain(value: Any) -> Any:
    """A number or an array of numpy as Python has it, and a path as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def as_list(overrides: Overrides) -> list[str]:
    if isinstance(overrides, Mapping):
        return [as_override(path, value) for path, value in overrides.items()]
    return [overrides] if isinstance(overrides, str) else list(overrides)


def named_settings(tree: Tree, settings: Mapping[str, Any]) -> list[str]:
    """Keywords as overrides of a recipe: `steps` is `training.steps` if no other section has a
    field of that name."""
    return [as_override(path_of(name, tree), value) for name, value in settings.items()]


def path_of(name: str, tree: Tree) -> str:
    """The path of a field in the recipe, by its name alone; or a ConfigError if several sections
    have it, or none."""
    task = TASKS.get(str(tree.get("task")))
    if "." in name or name in BaseRecipe.model_fields or name == "head" or task is None:
        return name
    paths: dict[str, list[str]] = {}
    for section, field in recipe_for(task).model_fields.items():
        kind = tree[section].get("kind") if isinstance(tree.get(section), dict) else None
        for config in configs_in(field.annotation):
            if issubclass(config, Config) and (section != "model" or _is_of_kind(config, kind)):
                for own in config.model_fields:
                    if f"{section}.{own}" not in paths.setdefault(own, []):
                        paths[own].append(f"{section}.{own}")
    if name not in paths:
        raise ConfigError(
            f"there is no setting {name!r}", where=name, hint=did_you_mean(name, paths)
        )
    if len(paths[name]) > 1:
        first = f"give the whole name: {{'{paths[name][0]}': ...}}"
        raise ConfigError(
            f"several sections have it: {', '.join(paths[name])}", where=name, hint=first
        )
    return paths[name][0]


def _is_of_kind(config: type[Config], kind: object) -> bool:
    """Whether a config is that of the recipe's model; all are where the recipe does not say."""
    return (
        not isinstance(kind, str) or "kind" not in config.model_fields or kind in kinds_in(config)
    )
