"""Checkpoints of a run: a folder with weights, facts, and the state of the training."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from regard.errors import CheckpointError, RegardError
from regard.runs.weights import Weights, as_os_error, save_weights
from regard.text.checksums import checksums, has_checksum, key_of
from regard.text.files import why_unreadable
from regard.text.writing import write_folder

STEP_FOLDER = re.compile(r"step-\d{8,}")
ABANDONED_STEP = re.compile(r"\.step-\d{8,}\.(partial|old|removed)")
"""What a killed process may leave of a checkpoint."""


def step_name(step: int) -> str:
    return f"step-{step:08d}"


def save_checkpoint(
    folder: Path,
    weights: Weights,
    facts: dict[str, Any],
    *,
    training_weights: Weights | None = None,
    training: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint; a full disk leaves the earlier ones as they were.

    `facts` are its step, metrics and fingerprints, as JSON. `training` is what resuming needs
    besides the weights; None in a checkpoint that cannot be resumed.
    """

    def fill(partial: Path) -> None:
        save_weights(partial / "model.safetensors", weights)
        if training_weights is not None:
            save_weights(partial / "training.safetensors", training_weights)
        if training is not None:
            with as_os_error(), (partial / "training.pt").open("wb") as file:
                torch.save(training, file)
        known = {**facts, "files": checksums(partial)}
        known["checksum"] = key_of(known)
        (partial / "checkpoint.json").write_text(json.dumps(known, indent=1), encoding="utf-8")

    write_folder(folder, fill, replace=True)


def load_weights(folder: Path, name: str = "model.safetensors") -> Weights:
    path = folder / name
    if reason := why_unreadable(path):
        raise damaged_file(path, reason)
    try:
        verify(path)
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise damaged_file(path, f"the file is damaged: {error}") from None


def average_weights(folders: Sequence[Path]) -> Weights:
    """The mean of the weights of several checkpoints, summed in double precision."""
    total: Weights = {}
    for folder in folders:
        weights = load_weights(folder)
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(folders)).to(weights[name].dtype) for name, tensor in total.items()}


def load_facts(folder: Path) -> dict[str, Any]:
    """Step, metrics and fingerprints of a checkpoint."""
    path = folder / "checkpoint.json"
    try:
        return read_facts(path)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise damaged_file(path, f"the file is missing or damaged: {error}") from None


def read_facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(path.read_bytes())
    stored = facts.pop("checksum", None)  # old checkpoints have none
    step = facts.get("step", 0)
    types = isinstance(step, int) and isinstance(facts.get("files", {}), dict)
    if "tokenizer" not in facts or not types or stored not in (None, key_of(facts)):
        raise ValueError("it is not as it was written")
    if STEP_FOLDER.fullmatch(path.parent.name) and path.parent.name != step_name(step):
        raise ValueError(f"it is of another checkpoint, {step_name(step)}")
    return facts


def verify(path: Path) -> None:
    """Refuse a file of a checkpoint that is not as it was written; old checkpoints have no
    checksums."""
    files = load_facts(path.parent).get("files", {})
    if path.name in files and not has_checksum(path, files[path.name]):
        others = [path.with_name(name) for name in files if name != path.name]
        if others and not any(
            other.exists() and has_checksum(other, files[other.name]) for other in others
        ):
            what = "it is of another checkpoint: no file beside it has the checksum that it gives"
            raise damaged_file(path.with_name("checkpoint.json"), what)
        raise damaged_file(path, "the file is damaged: it is not as it was written")


def load_training(folder: Path) -> tuple[Weights, dict[str, Any]]:
    """The weights to continue from, and everything else that resuming needs; a thread verifies what
    is read."""
    own = "training.safetensors"
    has_own = (folder / own).exists() or own in load_facts(folder).get("files", {})
    with ThreadPoolExecutor(1) as pool, reading_state(folder) as path:
        weights = pool.submit(load_weights, folder, own if has_own else "model.safetensors")
        verified = pool.submit(verify, path)
        try:
            training: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        finally:
            verified.result()
        return weights.result(), training


@contextmanager
def reading_state(folder: Path) -> Iterator[Path]:
    """Turn what is raised while the state of a training is read or taken over into a message about
    its file."""
    path = folder / "training.pt"
    if reason := why_unreadable(path):
        raise damaged_file(path, f"training cannot be resumed from this checkpoint: {reason}")
    try:
        yield path
    except (RegardError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception:
        # torch raises a dozen kinds for damaged files, with messages about its own parts
        raise damaged_file(
            path, "the file is damaged: it cannot be read as the state of a training"
        ) from None


def data_fingerprints(folder: Path) -> dict[str, int]:
    """The fingerprints of the data of a checkpoint; none in old runs, and where training.pt is
    missing."""
    try:  # memory-mapped: the state of the optimiser, most of the file, is not read
        training: dict[str, dict[str, int]] = torch.load(
            folder / "training.pt", "cpu", weights_only=True, mmap=True
        )
        return training.get("fingerprints", {})
    except Exception:  # as in load_training, which reports it when a training is resumed
        return {}


def is_whole(folder: Path) -> bool:
    try:
        files = read_facts(folder / "checkpoint.json").get("files", {})
        return all(has_checksum(folder / name, value) for name, value in files.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def damaged_file(path: Path, what: str) -> CheckpointError:
    """The error for a file of a checkpoint, with what to do about it."""
    others = [*filter(is_whole, sorted(path.parent.parent.glob("step-*")))]
    names = [other.name for other in others if other != path.parent]
    hint = "copy the checkpoint back from elsewhere, or train anew with another --out"
    if names:
        hint = (
            f"other checkpoints here: {', '.join(names[-3:])}; --checkpoint uses one; to --resume "
            "from it, write "
            "its name into the run's file `last`"
        )
    return CheckpointError(what, where=str(path), hint=hint)


def expect_checksums(checkpoint: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a checkpoint without checksums in a run whose checkpoints all have them."""
    if "files" not in facts:
        raise damaged_file(
            checkpoint / "checkpoint.json",
            "it has no checksums, which every checkpoint of this run has: it is of another run",
        )


def remove_steps_but(names: set[str], checkpoints: Path) -> None:
    """Remove the checkpoints of steps, except some, and what a killed process left of others.

    A checkpoint is renamed first, so that an interrupted removal leaves nothing that looks like
    one.
    """
    for path in checkpoints.iterdir():
        if STEP_FOLDER.fullmatch(path.name) and path.name not in names:
            path = path.rename(path.with_name(f".{path.name}.removed"))
        if ABANDONED_STEP.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
