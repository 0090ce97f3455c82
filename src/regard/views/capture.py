"""What a model does with a batch, watched from outside: attention weights, what may be seen, the calls of any module.

Nothing here asks for a model's class: weights come from `recording`, the rest from hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.layers.attention import Recording, recording
from regard.layers.scores import Focus, Memory
from regard.layers.visibility import Visibility
from regard.models.base import Generator


@dataclass(frozen=True)
class Call:
    """One call of a module."""

    inputs: tuple[Any, ...]
    output: Any


@dataclass(frozen=True)
class Observed:
    """What one forward pass computed for the first sentence of its batch."""

    hidden_TD: Tensor
    weights_HQK: dict[str, Tensor]
    """By the name of the attention inside the model."""
    visible_QK: dict[str, Tensor]
    """Where each of them might look: padding, look-ahead and windows, as it was told. True means "may look"."""


def observe(model: Generator, batch: Batch) -> Observed:
    """Run the written-out equations of every attention and keep what they computed."""
    return watch(model, lambda: model(batch).hidden_BTD)


@torch.inference_mode()
def watch(model: nn.Module, read: Callable[[], Tensor]) -> Observed:
    """The same for whatever way to read a batch; `read` gives the hidden states."""
    with recording() as recorded, watching(model, _is_told_what_it_may_see) as calls:
        hidden_BTD = read()
    weights = {name: weights_BHQK[0] for name, weights_BHQK in recorded.by_name(model).items()}
    visible = {name: _visible_QK(model.get_submodule(name), calls[name], recorded) for name in weights}
    return Observed(hidden_BTD[0], weights, visible)


@contextmanager
def watching(model: nn.Module, wanted: Callable[[str, tuple[Any, ...]], bool]) -> Iterator[dict[str, list[Call]]]:
    """The calls of the modules inside `model`, by name and in order; `wanted(name, inputs)` says which to keep."""
    calls: dict[str, list[Call]] = {}

    def hook_of(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def keep(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if wanted(name, inputs):
                calls.setdefault(name, []).append(Call(inputs, output))

        return keep

    hooks = [module.register_forward_hook(hook_of(name)) for name, module in model.named_modules()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _is_told_what_it_may_see(name: str, inputs: tuple[Any, ...]) -> bool:
    return any(isinstance(value, Visibility | Memory) for value in inputs)


def _visible_QK(module: nn.Module, calls: list[Call], recorded: Recording) -> Tensor:
    """The matrices of a module's calls, one below the other."""
    shapes = [weights_BHQK.shape[2:] for owner, weights_BHQK in recorded.calls if owner is module]
    assert len(shapes) == len(calls), "an attention records its weights once a call"
    keys = max(shape[1] for shape in shapes)
    rows = [_visible_in(call, queries, keys) for call, (queries, _) in zip(calls, shapes, strict=True)]
    return torch.cat([visible_QK.expand(queries, keys) for visible_QK, (queries, _) in zip(rows, shapes, strict=True)])


def _visible_in(call: Call, queries: int, keys: int) -> Tensor:
    device = call.inputs[0].device
    visible_QK = torch.ones(1, keys, dtype=torch.bool, device=device)
    for value in call.inputs:
        if isinstance(value, Visibility):
            visible_QK = visible_QK & value.matrix_BQK(queries, keys, device)[0]
        elif isinstance(value, Memory):
            visible_QK = visible_QK & value.visible_BS[0]
        elif isinstance(value, Focus):
            visible_QK = visible_QK & value.near_BQS[0]
    return visible_QK
