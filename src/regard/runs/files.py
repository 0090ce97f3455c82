"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.errors import CheckpointError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever keeps a file from being written, a full disk before all, in the user's words."""
    try:
        yield
    except OSError as error:
        saved = any((folder / "last").is_file() for folder in path.parents)  # in a run folder with a checkpoint
        raise CheckpointError(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            hint="what was saved before is whole; --resume goes on from it once this can be written" if saved else "",
        ) from None


def write_text(path: Path, text: str) -> None:
    """Replace a file in one go: a reader sees the old text or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    with writing(path):
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_folder(path.parent)


def write_bytes(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """The same for a file that `fill` writes into a stream of bytes."""
    aside = path.with_name(f".{path.name}.partial")
    with writing(path):
        with aside.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_folder(path.parent)


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder in one go: filled aside, synced, then renamed. What stood there before goes."""
    aside, before = path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.before")
    for leftover in (aside, before):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with writing(path):
            aside.mkdir(parents=True)
            _fill_and_sync(aside, fill)
            if path.exists():
                path.rename(before)
            aside.rename(path)
            sync_folder(path.parent)
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_into(folder: Path, fill: Callable[[Path], None], last: str) -> None:
    """Put files into a folder that is there, as a mounted one must be: `last` appears when all others are whole."""
    aside = folder / ".files.partial"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with writing(folder):
            aside.mkdir()
            _fill_and_sync(aside, fill)
            for path in sorted(aside.iterdir(), key=lambda path: path.name == last):
                path.replace(folder / path.name)
            sync_folder(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fill_and_sync(folder: Path, fill: Callable[[Path], None]) -> None:
    fill(folder)
    for file in (path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder outlast a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
