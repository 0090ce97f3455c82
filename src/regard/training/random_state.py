"""The state of the random generators, for an exact resume."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def random_state() -> dict[str, Tensor]:
    on_gpu = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {"cpu": torch.get_rng_state(), **on_gpu}


def restore_random_state(
    stored: Sequence[dict[str, Tensor]] | dict[str, Tensor], rank: int
) -> None:
    """Continue with the generators that the process of this rank had; a process more gets new
    ones."""
    states = (
        [stored] if isinstance(stored, dict) else stored
    )  # old runs have those of the first process only
    state = states[rank if rank < len(states) else 0]
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
    if rank >= len(states):
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)
