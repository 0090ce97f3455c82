"""How gradients become updates, and the moving average of the weights that may come of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.recipes.training import TrainingConfig


def build_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980), AdamW (arXiv:1711.05101) or SGD over all parameters."""
    parameters = parameter_groups(model, config.learning_rate)
    fused = all(one.device.type in ("cpu", "cuda") for group in parameters for one in group["params"])
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, config.learning_rate, config.momentum, weight_decay=config.weight_decay, fused=fused
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    betas = (config.betas[0], config.betas[1])
    return kind(parameters, config.learning_rate, betas, eps=1e-9, weight_decay=config.weight_decay, fused=fused)


def parameter_groups(model: nn.Module, learning_rate: float) -> list[dict[str, Any]]:
    """The weights that learn, by the share of the learning rate that the model has for each (`rate_of`).

    Layer-wise decay: Howard & Ruder 2018, arXiv:1801.06146, section 3.2, "discriminative fine-tuning".
    """
    rate_of = getattr(model, "rate_of", lambda name: 1.0)
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(rate_of(name), []).append(parameter)
    return [{"params": weights, "lr": learning_rate * rate, "rate": rate} for rate, weights in groups.items()]


@torch.no_grad()
def move_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """average = d * average + (1 - d) * weights, d rising from 2/11 to `decay` to forget the start soon."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(_tensors(average), _tensors(model), 1.0 - decay)


def _tensors(model: nn.Module) -> list[Tensor]:
    return [parameter.data for parameter in model.parameters()]
