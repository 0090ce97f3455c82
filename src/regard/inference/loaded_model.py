"""A model in memory: how it was loaded, and where its copies are in processes that share work."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from regard.data.parallel import processors
from regard.engine.machine import keep_memory
from regard.errors import DecodeError, did_you_mean
from regard.exchange.ctranslate2 import int8_model
from regard.models.base import device_of
from regard.runs.devices import chosen_device
from regard.runs.run import Run
from regard.search.external import AnyModel, ExternalModel

Precision = Literal["fp32", "bf16", "fp16", "int8"]
TORCH_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The types that torch computes in. int8 is computed by CTranslate2."""


@dataclass
class LoadedModel:
    """The model of a run, with the checkpoint, device and precision that it was loaded with."""

    model: AnyModel
    checkpoint: str
    device: str
    precision: Precision

    @property
    def on_cpu(self) -> bool:
        return isinstance(self.model, ExternalModel) or device_of(self.model).type == "cpu"

    def check(self, checkpoint: str | None, device: str | None) -> None:
        """Refuse another checkpoint or device than what the model was loaded with."""
        for option, value in {"checkpoint": checkpoint, "device": device}.items():
            loaded_with = getattr(self, option)
            if value not in (None, loaded_with):
                raise DecodeError(
                    f"the model is loaded with {loaded_with!r}",
                    where=option,
                    hint=f"regard.load(RUN, {option}={value!r})",
                )

    def copy(self) -> LoadedModel:
        """A copy with weights of its own, for another thread."""
        return replace(self, model=copy.deepcopy(self.model))


def load_model(run: Run, checkpoint: str, device: str, precision: Precision) -> LoadedModel:
    """Read the weights of a checkpoint from the run's folder."""
    if precision not in ("int8", *TORCH_TYPES):
        hint = did_you_mean(precision, ("int8", *TORCH_TYPES))
        raise DecodeError(f"there is no precision {precision!r}", where="precision", hint=hint)
    if precision != "int8":
        model = Run.load_model(run, checkpoint, device).to(TORCH_TYPES[precision])
        return LoadedModel(model, checkpoint, device, precision)
    if chosen_device(device).type != "cpu":
        what = "int8 is for the CPU"
        raise DecodeError(what, where="precision", hint="give device='cpu', or bf16")
    return LoadedModel(int8_model(run, checkpoint), checkpoint, device, precision)


@dataclass(frozen=True)
class PlacedModel:
    """A model in each of the processes that share work: on a core, or on a GPU of its own."""

    run: Run
    loaded: LoadedModel
    device: str

    def start(self, number: int, workers: int) -> None:
        """Called in each process before its first piece of work."""
        if workers > 1:
            torch.set_num_threads(max(1, processors() // workers))
            keep_memory()
        gpus = usable_gpus(self.device, self.loaded.precision)
        model = self.loaded.model
        if gpus and self.loaded.on_cpu and isinstance(model, nn.Module):
            self.loaded.model = model.to(f"cuda:{number % gpus}")


def usable_gpus(device: str, precision: Precision) -> int:
    """How many GPUs of this machine may be used."""
    if device not in ("auto", "cuda") or precision == "int8":
        return 0
    return torch.cuda.device_count()
