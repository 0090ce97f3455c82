"""Recipes of runs that earlier versions of regard have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.config import Tree, read_yaml
from regard.models import config_of
from regard.search.config import LARGEST_VALUES
from regard.tasks import TASKS

FORMER_DEFAULTS: Tree = {
    "training.schedule": "inverse_sqrt",
    "training.warmup": 0,
    "training.learning_rate": 1e-3,
    "model.norm": "post",
}
"""Defaults of earlier versions, for runs whose recipe does not have the field."""


REMOVED = (
    "data.reading",
    "model.images.max_pixels",
    "model.longest_story",
)  # fields of earlier versions


def read_stored(path: Path) -> Tree:
    """The recipe of a run folder, without the fields that no longer exist, within the limits of
    today, and with the former defaults where it lacks a field."""
    return as_stored(read_yaml(path))


def as_stored(tree: Tree) -> Tree:
    """A recipe that an earlier version may have written, without the fields that no longer exist,
    within the limits of today, and with the former defaults where it lacks a field."""
    for changed, former in FORMER_DEFAULTS.items():
        _fill_in(tree, changed, former)
    for removed in REMOVED:
        section: Any = tree
        *names, name = removed.split(".")
        for key in names:
            section = section.get(key) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.pop(name, None)
    if isinstance(search := tree.get("search"), dict):
        limited = {
            name: most
            for name, most in LARGEST_VALUES.items()
            if isinstance(search.get(name), int | float)
        }
        search |= {name: min(search[name], most) for name, most in limited.items()}
    return tree


def _fill_in(tree: Tree, path: str, value: Any) -> None:
    """Give a field of a recipe this value, if the recipe has the section and lacks the field."""
    name, _, field = path.partition(".")
    section, task = tree.get(name), TASKS.get(str(tree.get("task")))
    if not isinstance(section, dict):
        return
    if name == "model" and field not in config_of(section.get("kind")).model_fields:
        return
    if path == "training.schedule" and task is not None and task.head is not None:
        value = "linear"
    section.setdefault(field, value)
