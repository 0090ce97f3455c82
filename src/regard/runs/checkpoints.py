"""Checkpoints: what a run folder keeps of its training, so that it can be used, resumed and averaged.

checkpoints/step-00000500/
    model.safetensors      the weights to use (their exponential average, where the recipe asks for one)
    training.safetensors   the weights to go on training from, only where they differ from those to use
    training.pt            optimiser, random generators, counters: tensors and plain values, no code
    checkpoint.json        step, metrics, fingerprint of the tokenizer: for people and for checks
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
    """Step, metrics and fingerprints: what JSON can hold."""
    training_weights: Mapping[str, Tensor] | None = None
    training: Mapping[str, Any] | None = None
    """What resuming needs besides the weights; None in a checkpoint that is only to be used."""


def step_name(step: int) -> str:
    return f"step-{step:08d}"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint aside and put it in place; a full disk leaves the earlier ones as they were."""
    write_folder(folder, lambda aside: _fill(aside, checkpoint))


def _fill(aside: Path, checkpoint: Checkpoint) -> None:
    for name, weights in {"model": checkpoint.weights, "training": checkpoint.training_weights}.items():
        if weights is not None:
            with system_errors(path := aside / f"{name}.safetensors"):
                save_file(_contiguous(weights), path)
    if checkpoint.training is not None:
        with system_errors(path := aside / "training.pt"):
            torch.save(dict(checkpoint.training), path)
    facts = aside / "checkpoint.json"
    facts.write_text(json.dumps(checkpoint.facts, indent=1), encoding="utf-8")
    for path in aside.glob("*.safetensors"):  # the library makes them readable for their owner alone
        shutil.copymode(facts, path)


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
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
        what = "there is no such file: the checkpoint is not whole"
        raise CheckpointError(what, where=str(path), hint=_way_out(folder)) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"the file is damaged: {error}", where=str(path), hint=_way_out(folder)) from None


def load_facts(folder: Path) -> dict[str, Any]:
    """Step, metrics and fingerprints of a checkpoint."""
    path = folder / "checkpoint.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "tokenizer" not in facts:
            raise ValueError("it does not say which tokenizer it belongs to")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"the file is missing or damaged: {error}", where=str(path), hint=_way_out(folder)
        ) from None
    return facts


def load_training(folder: Path) -> tuple[Weights, dict[str, Any]]:
    """The weights to go on from, and everything else that resuming needs."""
    own = (folder / "training.safetensors").exists()
    weights = load_weights(folder, "training.safetensors" if own else "model.safetensors")
    path = folder / "training.pt"
    try:
        training: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        what = "training cannot go on from this checkpoint: there is no such file"
        raise CheckpointError(what, where=str(path), hint=_way_out(folder)) from None
    except Exception:  # a damaged file makes the reader stumble in a dozen ways, and speak of its own parts
        what = "the file is damaged: it cannot be read as the state of a training"
        raise CheckpointError(what, where=str(path), hint=_way_out(folder)) from None
    return weights, training


def data_fingerprint(folder: Path) -> int | str | None:
    """Of the training data of a checkpoint; None where it does not say, or what resuming needs is gone."""
    try:  # mapped: the state of the optimiser, most of the file, stays on the disk
        training: dict[str, Any] = torch.load(folder / "training.pt", map_location="cpu", weights_only=True, mmap=True)
        return training.get("data")
    except Exception:  # as in load_training; only a training that goes on has to know
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
    """Rename first, so that what is left of a removal that was cut short is not taken for a checkpoint."""
    aside = folder.with_name(f".{folder.name}.removed")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _contiguous(weights: Mapping[str, Tensor]) -> Weights:
    return {name: tensor.detach().contiguous() for name, tensor in weights.items()}


def _way_out(folder: Path) -> str:
    """What to do about a checkpoint that is damaged: take another, where there is one."""
    others = sorted(path.name for path in folder.parent.glob("step-*") if path != folder)
    if not others:
        return "copy the checkpoint back from elsewhere, or train anew with another --out"
    return (
        f"other checkpoints here: {', '.join(others[-3:])}; --checkpoint uses one, and its name in the run's file "
        "`last` lets --resume go on from there"
    )
