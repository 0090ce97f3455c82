"""Averages of weights: a moving average during the training, and the mean of the last checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from regard.runs.checkpoints import average_weights
from regard.runs.weights import put_weights
from regard.tasks import Task


class MovingAverage:
    """The exponential moving average of a model's weights, `training.ema`."""

    def __init__(self, model: nn.Module, decay: float, device: torch.device) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).to(device)
        self.decay = decay

    @torch.no_grad()
    def move(self, model: nn.Module, step: int) -> None:
        """average = d * average + (1 - d) * weights

        d rises from 2/11 to the decay, so that the start is soon forgotten.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_([*self.model.parameters()], [*model.parameters()], 1.0 - decay)


def model_of_mean_weights(
    task: Task, checkpoints: Sequence[Path], device: torch.device, where: Path
) -> nn.Module:
    """The task's model with the mean of the weights of checkpoints."""
    weights = average_weights(checkpoints)
    model: nn.Module = task.network.build().to(device)
    put_weights(model, weights, where)
    return model
