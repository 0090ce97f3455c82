"""Recipes that ship, and the form for their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import Any

from fastapi import HTTPException
from pydantic import Field

from regard.config import Config, help_texts, parse_yaml
from regard.errors import ConfigError
from regard.language import shown, shown_comments
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.recipes.shipped import shipped, shipped_recipes, shipped_text
from regard.studio.requests import Body

FORM_FIELDS = [
    "training.steps",
    "training.epochs",
    "training.batch_tokens",
    "training.learning_rate",
    "training.patience",
    "training.watch",
    "training.seed",
    "training.precision",
    "model.preset",
    "model.dropout",
    "tokenizer.vocabulary",
    "data.max_length",
    "search.beam",
]
"""The settings that the form offers, as far as the recipe has them."""


class RecipeBody(Body):
    recipe: str = Field(max_length=100_000)


def list_recipes() -> dict[str, dict[str, Any]]:
    """The recipes that ship: what each is for, its task and model, and whether it needs files."""
    return {
        name: {"about": shown(summary), **_facts_of(name)}
        for name, summary in shipped_recipes().items()
    }


@cache
def _facts_of(name: str) -> dict[str, Any]:
    recipe = parse_yaml(shipped_text(name), where=name)
    train = recipe["data"]["train"]
    corpora = train if isinstance(train, list) else [train]
    return {
        "task": recipe["task"],
        "model": recipe.get("model", {}).get("kind"),
        "needs_files": not all("corpus" in corpus for corpus in corpora),
    }


def setting_overrides(settings: Mapping[str, str | int | float | None]) -> list[str]:
    """The settings of the form as overrides of the recipe."""
    if unknown := settings.keys() - set(FORM_FIELDS):
        hint = f"allowed: {', '.join(FORM_FIELDS)}"
        raise ConfigError(f"{min(unknown)!r} is not in the form", where="settings", hint=hint)
    return [f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in settings.items()]


def show_recipe(name: str) -> dict[str, str]:
    """The text of a recipe that ships."""
    if name not in shipped():
        raise HTTPException(404, "no recipe of this name ships: GET /recipes lists all")
    return {"name": name, "recipe": shown_comments(shipped_text(name))}


def show_form(body: RecipeBody) -> list[dict[str, Any]]:
    """The settings of a recipe that the form offers."""
    complete = recipe_of(parse_yaml(body.recipe, where="recipe"))
    fields = list[dict[str, Any]]()
    for section, paths in groupby(FORM_FIELDS, key=lambda path: path.partition(".")[0]):
        config: Config = getattr(complete, section)
        schemas = type(config).model_json_schema()["properties"]
        texts = help_texts(type(config))
        for path in paths:
            name = path.partition(".")[2]
            if name in schemas and _applies(complete, path):
                schema = {**schemas[name], "description": shown(" ".join(texts[name].split()))}
                fields.append({"path": path, "value": getattr(config, name), "schema": schema})
    return fields


def _applies(recipe: AnyRecipe, path: str) -> bool:
    """Whether a setting changes anything in a training of this recipe."""
    training = recipe.training
    match path:
        case "training.steps":
            return training.steps is not None
        case "training.epochs":
            return training.epochs is not None
        case "tokenizer.vocabulary":
            return recipe.tokenizer.kind != "character" and recipe.tokenizer.file is None
    return True
