"""How good the model is right now, on examples it does not learn from."""

from __future__ import annotations

import math
from typing import Any

from regard.data.prepare import Prepared
from regard.models import Generator
from regard.recipes.recipe import AnyRecipe
from regard.tasks import TASKS


def validate(model: Generator, recipe: AnyRecipe, data: Prepared) -> dict[str, Any]:
    """Loss and perplexity on all validation examples; the task's metrics on the first of them, decoded greedily."""
    task = TASKS[recipe.task]
    training = model.training
    model.eval()
    try:
        found: dict[str, Any] = dict(task.loss(model, data.validation))
        count = min(recipe.training.decode, len(data.validation))
        if count and math.isfinite(found["loss"]):
            texts = {name: list(column[:count]) for name, column in data.validation.texts.items()}
            greedy = recipe.search.model_copy(update={"beam": 1, "nbest": 1, "sample": False})
            encoded = [data.validation.columns["source"][row].tolist() for row in range(count)]
            outputs = task.decode_texts(model, data.tokenizers, encoded, greedy)
            metrics = task.metrics(outputs, texts["target"], recipe.evaluation)
            found |= {name: value for name, value in metrics.items() if not name.endswith("_signature")}
            shown = zip(texts["source"], outputs, texts["target"], strict=True)
            found["samples"] = [
                {"source": source, "output": output, "target": target}
                for _, (source, output, target) in zip(range(recipe.training.samples), shown, strict=False)
            ]
    finally:
        model.train(training)
    return found
