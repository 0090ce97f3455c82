"""The optimiser, clipping, and the learning rate over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor, nn

from regard.data.config import TrainingConfig
from regard.engine.optimisers import without_compiler
from regard.training.processes import whole


def build_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980), AdamW (arXiv:1711.05101) or SGD over all
    parameters."""
    groups = parameter_groups(model, config)
    fused = all(
        weight.device.type in ("cpu", "cuda") for group in groups for weight in group["params"]
    )
    if config.optimizer == "sgd":
        sgd = without_compiler(torch.optim.SGD)
        return sgd(groups, config.learning_rate, config.momentum, fused=fused)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    adam = without_compiler(kind)
    betas = (config.betas[0], config.betas[1])
    return adam(groups, config.learning_rate, betas, eps=1e-9, fused=fused)


def parameter_groups(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """The trainable weights, grouped by the model's factor of the learning rate (`rate_of`) and by
    their weight decay.

    Layer-wise rates: Howard & Ruder 2018, arXiv:1801.06146, section 3.2, "discriminative
    fine-tuning". Weight decay is for matrices and embeddings. A bias, the gain of a norm and a
    weight of a mix of layers have one axis or none.
    """
    rate_of = getattr(model, "rate_of", lambda name: 1.0)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if config.decay_biases or parameter.ndim > 1 else 0.0
            groups.setdefault((rate_of(name), decay), []).append(parameter)
    return [
        {"params": weights, "lr": config.learning_rate * rate, "rate": rate, "weight_decay": decay}
        for (rate, decay), weights in groups.items()
    ]


def updates_directly(accelerator: Accelerator) -> bool:
    """Whether torch's own functions clip and update: one process, and no scaler of fp16.

    Accelerate's calls of them look for other libraries on the disk at each step, which small models
    wait for.
    """
    return accelerator.distributed_type == DistributedType.NO and accelerator.scaler is None


def clip_gradients(
    weights: Sequence[nn.Parameter], model: nn.Module, limit: float | None, accelerator: Accelerator
) -> Tensor:
    """Clip the norm of the gradients of some weights; a model may have its own way to do so.

    The result is the norm before, over all processes.
    """
    limit = limit or math.inf
    own_clip = getattr(model, "clip_gradients", None)
    shared_limit = limit if own_clip is None else math.inf
    direct = updates_directly(accelerator)
    clip = torch.nn.utils.clip_grad_norm_ if direct else accelerator.clip_grad_norm_
    norm: Tensor = clip(weights, shared_limit)
    if own_clip is not None:
        own_clip(limit)
    return whole(norm) if accelerator.is_fsdp2 else norm


# The learning rate over time


def schedule_factor(config: TrainingConfig, step: int, steps: int) -> float:
    """The factor of the highest learning rate at step 1, 2, ... `steps`; `plateau` scales it too.

    Linear warm-up, then: constant, and linear to zero over the last fifth (warmup-stable-decay, Hu
    et al. 2024, arXiv:2404.06395; the fifth is from Hägele et al. 2024, arXiv:2405.18392); linear
    to zero; half a cosine to zero (Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts);
    inverse square root as in Vaswani et al. 2017, arXiv:1706.03762, equation 3; or constant.
    """
    warmup = warmup_steps(config, steps)
    if step < warmup:
        return step / warmup
    done = min(1.0, (step - warmup) / max(1, steps + 1 - warmup))
    match config.schedule:
        case "wsd":
            return min(1.0, (steps + 1 - step) / (steps // 5 + 1))
        case "inverse_sqrt":
            return math.sqrt(max(1, warmup) / max(1, step))
        case "linear":
            return 1.0 - done
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * done))
        case "constant" | "plateau":
            return 1.0


LONGEST_AUTO_WARMUP = 4000
"""Steps that `training.warmup: auto` takes at most: as many as Vaswani et al. 2017, section 5.3."""


def warmup_steps(config: TrainingConfig, steps: int) -> int:
    """The steps of the warm-up; `auto` is a tenth of all steps."""
    if config.warmup == "auto":
        return min(LONGEST_AUTO_WARMUP, steps // 10)
    return round(config.warmup * steps) if config.warmup < 1 else int(config.warmup)


class Plateau:
    """Lowers the learning rate when the validation has stopped improving."""

    def __init__(self, config: TrainingConfig) -> None:
        self.factor, self.patience = config.plateau_factor, config.plateau_patience
        self.active = config.schedule == "plateau"
        self.scale = 1.0
        self.waited = 0

    def add_validation(self, improved: bool) -> None:
        self.waited = 0 if improved else self.waited + 1
        if self.active and self.waited > self.patience:
            self.scale *= self.factor
            self.waited = 0

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "waited": self.waited}

    def restore(self, state: dict[str, float]) -> None:
        self.scale, self.waited = state["scale"], int(state["waited"])
