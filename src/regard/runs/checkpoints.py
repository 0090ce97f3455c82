"""Checkpoints: what a run folder stores of its training, to be used, resumed and averaged.

checkpoints/step-00000500/
    model.safetensors      the weights to use (their moving average, with training.ema)
    training.safetensors   the weights to continue training from, only where they differ
    training.pt            optimiser, random generators, counters: tensors and plain values, no code
    checkpoint.json        step, metrics, fingerprint of the tokenizer
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import CheckpointError
from regard.text.files import write_folder

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, as it is written and read."""

    weights: Mapping[str, Tensor]
    facts: Mapping[str, Any]
    """Step, metrics and fingerprints, as JSON."""
    training_weights: Mapping[str, Tensor] | None = None
    training: Mapping[str, Any] | None = None
    """What resuming needs besides the weights; None in a checkpoint that cannot be resumed."""


def step_name(step: int) -> str:
    return f"step-{step:08d}"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; a full disk leaves the earlier ones as they were."""

    def fill(partial: Path) -> None:
        save_weights(partial / "model.safetensors", checkpoint.weights)
        if checkpoint.training_weights is not None:
            save_weights(partial / "training.safetensors", checkpoint.training_weights)
        if checkpoint.training is not None:
            with _system_errors(path := partial / "training.pt"):
                torch.save(dict(checkpoint.training), path)
        (partial / "checkpoint.json").write_text(json.dumps(checkpoint.facts, indent=1), encoding="utf-8")

    write_folder(folder, fill)


def save_weights(path: Path, weights: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file, with the permissions of its folder; the library would let only the owner read it."""
    with _system_errors(path):
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, path, metadata)
    path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    """Turn what safetensors and torch raise for a full disk into an OSError with the reason of the system.

    Where the library does not give its number, appending to the file makes the system raise it.
    """
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        with path.open("ab") as file:
            file.write(bytes(1 << 20))
        raise OSError(str(error).splitlines()[0]) from None


def load_weights(folder: Path, name: str = "model.safetensors") -> Weights:
    """The weights of a checkpoint."""
    path = folder / name
    try:
        return load_file(path)
    except FileNotFoundError:
        what = "there is no such file: the checkpoint is incomplete"
        raise CheckpointError(what, where=str(path), hint=_hint(folder)) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"the file is damaged: {error}", where=str(path), hint=_hint(folder)) from None


def load_facts(folder: Path) -> dict[str, Any]:
    """Step, metrics and fingerprints of a checkpoint."""
    path = folder / "checkpoint.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "tokenizer" not in facts:
            raise ValueError("it has no fingerprint of the tokenizer")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"the file is missing or damaged: {error}", where=str(path), hint=_hint(folder)) from None
    return facts


def load_training(folder: Path) -> tuple[Weights, dict[str, Any]]:
    """The weights to continue from, and everything else that resuming needs."""
    own = (folder / "training.safetensors").exists()
    weights = load_weights(folder, "training.safetensors" if own else "model.safetensors")
    path = folder / "training.pt"
    try:
        training: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        what = "training cannot be resumed from this checkpoint: there is no such file"
        raise CheckpointError(what, where=str(path), hint=_hint(folder)) from None
    except Exception:  # torch raises a dozen kinds for damaged files, with messages about its own parts
        what = "the file is damaged: it cannot be read as the state of a training"
        raise CheckpointError(what, where=str(path), hint=_hint(folder)) from None
    return weights, training


def data_fingerprint(folder: Path) -> int | str | None:
    """The fingerprint of the training data of a checkpoint; None where it has none or training.pt is missing."""
    try:  # memory-mapped: the state of the optimiser, most of the file, is not read
        training: dict[str, Any] = torch.load(folder / "training.pt", map_location="cpu", weights_only=True, mmap=True)
        return training.get("data")
    except Exception:  # as in load_training, which reports it when a training is resumed
        return None


def average_weights(folders: Sequence[Path]) -> Weights:
    """The mean of the weights of several checkpoints, summed in double precision."""
    total: Weights = {}
    for folder in folders:
        for name, tensor in load_weights(folder).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    kinds = {name: tensor.dtype for name, tensor in load_weights(folders[-1]).items()}
    return {name: (tensor / len(folders)).to(kinds[name]) for name, tensor in total.items()}


def remove_checkpoint(folder: Path) -> None:
    """Rename it first, so that an interrupted removal leaves nothing that looks like a checkpoint."""
    removed = folder.with_name(f".{folder.name}.removed")
    folder.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _hint(folder: Path) -> str:
    """What to do about a damaged checkpoint."""
    others = sorted(path.name for path in folder.parent.glob("step-*") if path != folder)
    if not others:
        return "copy the checkpoint back from elsewhere, or train anew with another --out"
    return (
        f"other checkpoints here: {', '.join(others[-3:])}; --checkpoint uses one, and its name in the run's file "
        "`last` lets --resume go on from there"
    )
