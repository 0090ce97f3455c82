"""The device that a run's model computes on."""

from __future__ import annotations

import torch

from regard.errors import DecodeError


def chosen_device(name: str | None) -> torch.device:
    """The device of this name; `auto`, or None, takes a GPU if there is one."""
    name = name or "auto"
    if name == "cpu":  # without asking for GPUs, which starts CUDA
        return torch.device(name)
    devices = [*(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if torch.cuda.is_available():
        devices = [
            "cuda",
            *(f"cuda:{number}" for number in range(torch.cuda.device_count())),
            *devices,
        ]
    if name not in ("auto", *devices):
        hint = f"allowed: auto, {', '.join(devices)}"
        raise DecodeError(f"there is no device {name!r} here", where="--device", hint=hint)
    return torch.device(devices[0] if name == "auto" else name)
