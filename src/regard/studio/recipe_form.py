"""Recipes that ship, and the form for their settings."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from fastapi import HTTPException
from pydantic import Field

from regard.config import Config, help_texts, parse_yaml
from regard.language import shown, shown_comments
from regard.recipes.recipe import recipe_of
from regard.recipes.shipped import shipped, shipped_recipes, shipped_text
from regard.studio.requests import Body

FORM_FIELDS = [
    "training.steps",
    "training.epochs",
    "training.batch_tokens",
    "training.learning_rate",
    "training.patience",
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


def list_recipes() -> dict[str, str]:
    """The recipes that ship."""
    return {name: shown(summary) for name, summary in shipped_recipes().items()}


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
            if name in schemas:
                schema = {**schemas[name], "description": shown(" ".join(texts[name].split()))}
                fields.append({"path": path, "value": getattr(config, name), "schema": schema})
    return fields
