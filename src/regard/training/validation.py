"""How good the model is right now, on examples it does not learn from."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.data.dataset import Examples
from regard.tasks import Task


def validate(task: Task, model: nn.Module, examples: Examples) -> dict[str, Any]:
    """The task's metrics on the validation examples."""
    training = model.training
    model.eval()
    try:
        return task.validate(model, examples)
    finally:
        model.train(training)
