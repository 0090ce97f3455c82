"""The folder of a run: which files it has, and who may write to it."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from regard import __version__
from regard.errors import CheckpointError
from regard.text.morphemes import CUT
from regard.text.writing import PARTIAL_NAME, remove_partial_files, write_file, writing

FORMAT = 3
"""Version of the folder's layout; older ones stay readable. Since 3 the checksums of a checkpoint
name their hash."""
LIBRARIES = ("torch", "tokenizers", "safetensors", "numpy", "accelerate", "sacrebleu")
"""Libraries whose versions environment.json has."""
LEFT_BEHIND = re.compile(rf"\.lock|{PARTIAL_NAME.pattern}")
"""What a killed process may leave in a folder."""


def can_start_in(folder: Path) -> bool:
    """Whether training may start in a folder: it is empty, or holds only what a run has before its
    first checkpoint."""
    if not folder.is_dir() or (folder / "last").exists():
        return False
    names = {path.name for path in folder.iterdir() if not LEFT_BEHIND.fullmatch(path.name)}
    if not names or (own := own_files(folder)) is None:
        return not names
    checkpoints = folder / "checkpoints"
    if checkpoints.is_dir() and not all(
        path.name.startswith(".") for path in checkpoints.iterdir()
    ):
        return False
    return names <= {
        "environment.json",
        "metrics.jsonl",
        "watch.json",
        "tensorboard",
        "checkpoints",
        *(path.name for path in own),
    }


def own_files(folder: Path) -> list[Path] | None:
    """The files that `Run.create` wrote into a folder and nobody changed since, by the hashes in
    environment.json; None where that file is not of a run."""
    try:
        environment = json.loads((folder / "environment.json").read_bytes())
        _, hashes = environment["regard"], environment["files"]
        files = [path for path in folder.iterdir() if path.name in hashes]
        return [
            path
            for path in files
            if hashlib.sha256(path.read_bytes()).hexdigest() == hashes[path.name]
        ]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remove_partial_runs(target: Path) -> None:
    """Remove what a killed import left beside its target: folders that hold a run and that no
    process has locked."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 32}.partial"):
        if own_files(left) is not None:
            with suppress(CheckpointError), locked(left):
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, so that one process at a time trains it; the folder is made
    where it is missing, and removed again if it did not become a run. The system releases it when
    the process ends, however it ends. On a file system without locks nothing is held."""
    created = not folder.exists()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        try:
            lock.acquire()
        except Timeout:
            created = False
            what, hint = (
                "another process is training this run",
                "wait until it ends, or give another --out",
            )
            raise CheckpointError(what, where=str(folder), hint=hint) from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in (
                errno.ENOLCK,
                errno.ENOSYS,
                errno.EOPNOTSUPP,
            ):
                with writing(folder / ".lock"):
                    raise
        remove_partial_files(folder)
        yield
    finally:
        if created and not (folder / "recipe.yaml").exists():  # as on a full disk: it is no run yet
            own = own_files(folder)
            with suppress(OSError):
                for path in (
                    *([] if own is None else [*own, folder / "environment.json"]),
                    folder / ".lock",
                ):
                    path.unlink(missing_ok=True)
                folder.rmdir()
        lock.release()


def expect_run_folder(folder: Path) -> None:
    """Refuse a folder that is not a run folder."""
    if not folder.is_dir():
        what = "is a file, not a run folder" if folder.is_file() else "there is no such run folder"
        hint = "make one with 'regard train RECIPE --out RUN'"
        raise CheckpointError(what, where=str(folder), hint=hint)
    for name in ("recipe.yaml", "environment.json"):
        if not (folder / name).exists():
            hint = "a run folder is what 'regard train RECIPE --out RUN' makes"
            if (folder / "config.json").exists():
                imports = f"'regard import {folder} --out RUN' makes a run of it"
                hint = f"it looks like a model of transformers: {imports}"
            raise CheckpointError(
                f"not a run folder: it has no {name}", where=str(folder), hint=hint
            )


def environment_of(
    files: Mapping[str, str], origin: Mapping[str, Any] | None, chosen_threads: int | None
) -> dict[str, Any]:
    """The content of environment.json: versions, this machine, and the hashes of the other
    files."""
    environment: dict[str, Any] = {
        "format": FORMAT,
        "regard": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        **(
            {"kiwipiepy": version("kiwipiepy")}
            if any(CUT in text for text in files.values())
            else {}
        ),
        "platform": f"{sys.platform} {platform.machine()}",
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if chosen_threads is not None:
        environment["chosen_threads"] = chosen_threads
    on_gpu = torch.cuda.is_available()
    environment["accelerator"] = torch.cuda.get_device_name() if on_gpu else None
    if origin is not None:
        environment["imported"] = dict(origin)
    environment["files"] = {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()
    }
    return environment


def write_run_files(folder: Path, files: Mapping[str, str], environment: Mapping[str, Any]) -> None:
    """Write the files of a new run into a new folder or a vacant one; recipe.yaml, the last of
    them, makes it a run."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    assert can_start_in(folder)
    for path in own_files(folder) or ():
        path.unlink()
    for name, text in {"environment.json": json.dumps(environment, indent=1), **files}.items():
        write_file(folder / name, text)
