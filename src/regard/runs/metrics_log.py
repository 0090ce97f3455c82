"""The metrics log of a run: metrics.jsonl."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError
from regard.runs.checkpoints import read_facts
from regard.text.writing import writing

LOG_FILE = "metrics.jsonl"


class MetricsLog:
    """metrics.jsonl, to append to. After a resume no event is there twice and none is missing."""

    def __init__(self, path: Path, length: int = 0) -> None:
        """Continue after the first `length` bytes, those at the last checkpoint: later lines are
        written again."""
        self._path = path
        with writing(path):
            self._file = path.open("ab+")
            self._file.truncate(
                min(length, path.stat().st_size)
            )  # a longer file would be filled up with zeros
            self._file.seek(0)
            self.checksum = zlib.crc32(self._file.read())

    def write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        with writing(self._path):
            self._file.write(data)
            self._file.flush()
        self.checksum = zlib.crc32(data, self.checksum)

    def length(self) -> int:
        """Bytes so far, synced to the disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        # every line was flushed, and one that could not be has raised an error
        with suppress(OSError):
            self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a last line that a killed process left incomplete is skipped. An error
    where lines are not as they were written."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    event: dict[str, Any] = json.loads(line)
                    numbers = [
                        event["step"],
                        event["seconds_per_step"] if event["event"] == "train" else 0,
                    ]
                    if not all(isinstance(value, int | float) for value in numbers):
                        raise ValueError
                except (ValueError, TypeError, KeyError, RecursionError):
                    what, hint = "the line is damaged: it is no event of a training", "remove it"
                    raise CheckpointError(what, where=f"{path}:{number}", hint=hint) from None
                yield event
    if damage := damage_of_log(path):
        hint = (
            "copy the file back from elsewhere, or remove it: only what it tells of the "
            "training is lost"
        )
        raise CheckpointError(damage, where=str(path), hint=hint)


def is_log(path: Path) -> bool:
    """Whether a file is a log of a training as `MetricsLog` writes it, perhaps with an incomplete
    last line; or there is none."""
    begin = b'{"event": '
    try:
        with path.open("rb") as file:
            return all(line.startswith(begin) or begin.startswith(line) for line in file)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def damage_of_log(path: Path) -> str:
    """How a log differs from what it was at the last checkpoint; empty where it does not, or where
    nothing is known."""
    try:
        checkpoint = (
            path.parent / "checkpoints" / (path.parent / "last").read_text(encoding="utf-8").strip()
        )
        known = read_facts(checkpoint / "checkpoint.json")["log"]
        with path.open("rb") as file:
            written = file.read(known["bytes"])
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return ""
    if len(written) < known["bytes"]:
        return "the file is damaged: its end is missing"
    return (
        ""
        if zlib.crc32(written) == known["checksum"]
        else "the file is damaged: it is not as it was written"
    )
