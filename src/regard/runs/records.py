"""The record of a search as a file, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, DecodeError
from regard.runs.files import write_text


def check_writable(path: Path, option: str = "--record") -> None:
    """Find out before long work that what comes of it has no place to go to."""
    if path.is_dir():
        raise DecodeError("this is a folder, not a file", where=str(path), hint=f"{option} names the file to write")
    if not path.parent.is_dir():
        raise DecodeError("its folder does not exist", where=str(path), hint=f"make it, or name another {option}")


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write it aside, then put it in place."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1)
    try:
        write_text(path, f"{text}\n")
    except CheckpointError as error:
        raise DecodeError(error.problems[0].what, where=str(path)) from None
