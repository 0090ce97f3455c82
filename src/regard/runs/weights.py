"""The weights of a model, as safetensors files and in a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import CheckpointError
from regard.layers.sized_by_text import SizedByText

Weights = dict[str, Tensor]


def save_weights(
    path: Path, weights: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file, with the permissions of its folder; the library would let only the
    owner read it."""
    with as_os_error():
        save_file(
            {name: tensor.detach().contiguous() for name, tensor in weights.items()}, path, metadata
        )
    path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def as_os_error() -> Iterator[None]:
    """safetensors and torch raise errors of their own for a full disk; torch's follows that of
    Python's file."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        known = re.search(r"I/O error: (.*) \(os error \d+\)", str(error))
        raise OSError(known[1] if known else str(error).splitlines()[0]) from None


def put_weights(model: torch.nn.Module, weights: Weights, where: Path) -> None:
    check_weights(model, weights, where)
    model.load_state_dict(weights, strict=False)


def check_weights(model: torch.nn.Module, weights: Weights, where: Path) -> None:
    """Name a weight that does not fit the recipe. Tied weights are stored once. Tables of counts have
    as many rows as the training text made."""
    for name, module in model.named_modules():
        if isinstance(module, SizedByText):
            module.resize(
                {
                    key.removeprefix(f"{name}."): tensor.shape
                    for key, tensor in weights.items()
                    if key.startswith(f"{name}.")
                }
            )
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wrong = {name for name in weights if name in shapes and shapes[name] != weights[name].shape}
    if wrong := wrong | (set(stored_weights(model)) ^ set(weights)):
        raise CheckpointError(
            f"its weights do not fit the run's recipe, {min(wrong)} for one", where=str(where)
        )


def stored_weights(model: torch.nn.Module) -> Weights:
    """The state of a model with each shared tensor once, under its first name."""
    kept: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {
        name: tensor for name, tensor in state.items() if kept.setdefault(id(tensor), name) == name
    }
