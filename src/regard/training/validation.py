"""The validation of a model while it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import nn

from regard.data.epochs import Examples
from regard.runs.weights import put_weights, stored_weights
from regard.tasks import Task
from regard.training.processes import whole


def validate(model: nn.Module, task: Task, examples: Examples) -> dict[str, Any]:
    """The task's metrics on validation examples, with the model in evaluation mode."""
    training = model.training
    model.eval()
    try:
        metrics: dict[str, Any] = task.metrics.validate(model, examples)
        return metrics
    finally:
        model.train(training)


def whole_model(model: nn.Module, task: Task, accelerator: Accelerator, where: Path) -> nn.Module:
    """The model with whole weights, in the first process: FSDP leaves only a part of them with
    each. All processes must call it."""
    if not accelerator.is_fsdp2:
        return model
    weights = whole(stored_weights(model))
    if not accelerator.is_main_process:
        return model
    complete: nn.Module = task.network.build().to(accelerator.device)
    put_weights(complete, weights, where)
    return complete
