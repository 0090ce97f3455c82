"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace a file in one go: a reader sees the old text or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    with aside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder in one go: filled aside, synced, then renamed. What stood there before goes."""
    aside = path.with_name(f".{path.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        fill(aside)
        for file in aside.iterdir():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
        sync_folder(aside)
        if path.exists():
            shutil.rmtree(path)
        aside.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder outlast a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
