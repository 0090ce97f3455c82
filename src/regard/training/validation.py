"""How good the model is right now, on examples it does not learn from."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.data.prepare import Prepared
from regard.recipes.recipe import AnyRecipe
from regard.tasks import TASKS


def validate(model: nn.Module, recipe: AnyRecipe, data: Prepared[Any]) -> dict[str, Any]:
    """The task's metrics on the validation examples."""
    training = model.training
    model.eval()
    try:
        return TASKS[recipe.task].validate(model, recipe, data)
    finally:
        model.train(training)
