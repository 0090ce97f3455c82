"""How gradients become updates, and the moving average of the weights that may come of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.recipes.training import TrainingConfig


def build_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980), AdamW (arXiv:1711.05101) or SGD over all parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused = all(parameter.device.type == "cuda" for parameter in parameters)
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, config.learning_rate, config.momentum, weight_decay=config.weight_decay, fused=fused
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    betas = (config.betas[0], config.betas[1])
    return kind(parameters, config.learning_rate, betas, eps=1e-9, weight_decay=config.weight_decay, fused=fused)


@torch.no_grad()
def move_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """average = d * average + (1 - d) * weights, d rising from 2/11 to `decay` to forget the start soon."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(_tensors(average), _tensors(model), 1.0 - decay)


def _tensors(model: nn.Module) -> list[Tensor]:
    return [parameter.data for parameter in model.parameters()]
