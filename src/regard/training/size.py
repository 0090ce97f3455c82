"""The size of a model before it is built: its parameters, and whether the device has the memory to
train it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import ConfigError
from regard.models import MODELS
from regard.models.base import ModelConfig, count_parameters
from regard.recipes.recipe import AnyRecipe
from regard.tasks import TASKS
from regard.training.memory import BYTES_PER_PARAMETER

DEPTH_FIELDS = ("layers", "encoder_layers", "decoder_layers")
WIDTH_FIELDS = ("width", "hidden", "embedding", "attention", "feed_forward")
"""Fields of models: how many layers, and how wide they are."""
BUILT_LAYERS = 3
"""Layers that are built to count the parameters of more: all after the second are alike."""
NEGLIGIBLE_BYTES = 1 << 30
"""Bytes of a model that is not looked at more closely."""
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""The limit of a container's memory."""


class _WithoutInitialisation(TorchFunctionMode):
    """Leave out what fills weights, and compute fixed positions, which are no parameters, for two
    tokens only. On the device `meta` torch imports a compiler for both, which takes seconds."""

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        name = getattr(function, "__name__", "")
        fills = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        if fills and given and isinstance(given[0], Tensor) and given[0].is_meta:
            return given[0]
        if function is torch.arange:
            return function(2, dtype=(kwargs or {}).get("dtype"), device="cpu")
        return function(*args, **(kwargs or {}))


def parameters_of(config: ModelConfig, vocabularies: Sequence[int]) -> int:
    """The trainable parameters of a model, counted without allocating any: of many layers, by those
    of a few."""
    layers = [name for name in DEPTH_FIELDS if getattr(config, name, 0) > BUILT_LAYERS]
    few = config.model_copy(update=dict.fromkeys(layers, BUILT_LAYERS))
    count = _count(few, vocabularies)
    total = count
    for name in layers:
        of_one = count - _count(few.model_copy(update={name: BUILT_LAYERS - 1}), vocabularies)
        total += (getattr(config, name) - BUILT_LAYERS) * of_one
    return total


def _count(config: ModelConfig, vocabularies: Sequence[int]) -> int:
    options: dict[str, Any] = {}
    if config.letters is not None:  # the spelling of the vocabulary
        options["characters_VC"] = torch.zeros((vocabularies[0], 3), dtype=torch.long)
    with torch.device("meta"), _WithoutInitialisation():
        return count_parameters(MODELS[config.kind].build(config, *vocabularies, **options))


def memory_of(device: torch.device) -> int:
    """All memory of a device, in bytes; on a CPU no more than a container may use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    memory = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):  # no such limit, or "max"
        memory = min(memory, int(CONTAINER_LIMIT.read_text(encoding="ascii")))
    return memory


def refuse_too_large(
    recipe: AnyRecipe,
    device: torch.device,
    vocabularies: Sequence[int] = (),
    memory: int | None = None,
    shares: int = 1,
) -> None:
    """Refuse a model whose weights, gradients and optimiser state alone are more than the memory of
    the device.

    Before the data is read, the vocabularies are not known and taken to be empty. `shares` is the
    number of processes that share the weights.
    """
    config, training = recipe.model, recipe.training
    sizes = list(vocabularies) or [1] * len(TASKS[recipe.task].vocabularies)
    each = BYTES_PER_PARAMETER[training.optimizer] + (4 if training.ema is not None else 0)
    if _at_most(config, sizes) * each < NEGLIGIBLE_BYTES:
        return
    memory = shares * (memory_of(device) if memory is None else memory)
    parameters = parameters_of(config, sizes)
    if parameters * each <= memory:
        return
    what = (
        f"a model of {_short(parameters)} parameters does not fit: weights, gradients and the "
        "state of "
        f"{training.optimizer} take {_gib(parameters * each)}, and the memory ({device}) is "
        f"{_gib(memory)}"
    )
    smaller = islice(_smaller(config, sizes, memory // each), 2)
    fitting = [f"{name} ({_short(count)} parameters)" for name, count in smaller]
    raise ConfigError(
        what, where="model", hint=f"what would fit: {'; '.join(fitting)}" if fitting else ""
    )


def _at_most(config: ModelConfig, vocabularies: Sequence[int]) -> int:
    """More parameters than the model can have."""
    layers = sum(getattr(config, name, 0) for name in DEPTH_FIELDS) or 1
    widest = max(_widths(config).values(), default=1)
    return 32 * layers * widest**2 + 8 * widest * sum(vocabularies)


def _widths(config: ModelConfig) -> dict[str, int]:
    return {
        name: value
        for name in WIDTH_FIELDS
        if isinstance(value := getattr(config, name, None), int)
    }


def _smaller(
    config: ModelConfig, vocabularies: Sequence[int], most: int
) -> Iterator[tuple[str, int]]:
    """Changes that make the model small enough: fewer layers, narrower layers, and the largest
    preset."""
    layers = {
        name: value
        for name in DEPTH_FIELDS
        if isinstance(value := getattr(config, name, None), int)
    }
    for values in (layers, _widths(config)):
        for power in range(1, 20):
            limit = max(1, max(values.values(), default=0) >> power)
            lowered = {name: limit for name, value in values.items() if value > limit}
            count = _count_if_valid(config, lowered, vocabularies)
            if count is not None and count <= most:
                yield " ".join(f"model.{name}={value}" for name, value in lowered.items()), count
                break
    for preset in [*config.PRESETS][::-1]:
        sizes = config.PRESETS[preset]
        count = _count_if_valid(config, {**sizes, "preset": preset}, vocabularies)
        if count is not None and count <= most:
            yield f"model.preset={preset} alone", count
            break


def _count_if_valid(
    config: ModelConfig, changes: Mapping[str, Any], vocabularies: Sequence[int]
) -> int | None:
    with suppress(ValidationError):
        return parameters_of(
            type(config).model_validate({**config.model_dump(), **changes}), vocabularies
        )
    return None


def _short(count: int) -> str:
    return f"{count / 1e9:,.1f} billion" if count >= 1e9 else f"{count / 1e6:,.0f} million"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
