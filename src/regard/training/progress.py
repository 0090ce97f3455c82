"""Where a training stands, and what else a checkpoint must hold for it to go on exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import START, Position


@dataclass(frozen=True)
class Ranked:
    """A checkpoint among the best."""

    value: float
    """Of the metric that decides."""
    step: int
    loss: float = -math.inf
    """Of the validation: the lower one wins a tie. Where an older version did not keep it, the earlier one stays."""


@dataclass
class Progress:
    """Where a training stands, apart from weights and optimiser."""

    step: int = 0
    position: Position = START
    best: list[Ranked] = field(default_factory=list)
    """The best checkpoints, best first."""
    recent: list[int] = field(default_factory=list)
    """Steps of the last checkpoints that were due, to average at the end; what Ctrl-C saves is not among them."""
    waited: int = 0
    """Validations since the last better one."""
    stopped: bool = False
    seconds: float = 0.0
    loss_sum: float = 0.0
    plain_sum: float = 0.0
    tokens: int = 0
    """Sums since the last line of the log."""
    logged_step: int = 0
    log_length: int = 0
    """Bytes of metrics.jsonl."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Progress:
        """What `asdict` made of it."""
        progress = cls(**stored)
        progress.position = Position(**stored["position"])
        progress.best = [Ranked(**entry) if isinstance(entry, dict) else Ranked(*entry) for entry in stored["best"]]
        return progress


def total_steps(steps: int | None, epochs: int | None, epoch_batches: int, group: int) -> int:
    """How many updates: what comes first of `steps` and `epochs`."""
    by_epochs = math.inf if epochs is None else math.ceil(epochs * epoch_batches / group)
    return int(min(math.inf if steps is None else steps, by_epochs))


def random_state() -> dict[str, Tensor]:
    """The generators that dropout and sampling draw from."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor], rank: int) -> None:
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
    if rank:  # only the first process's generators were saved; the others need draws of their own
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)
