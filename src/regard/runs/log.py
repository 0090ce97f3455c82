"""metrics.jsonl: one line an event, and after a resume none twice and none missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.runs.files import writing


class MetricsLog:
    """Appends lines; knows how long it was at each checkpoint."""

    def __init__(self, path: Path, length: int = 0) -> None:
        """Go on after the first `length` bytes: what a killed process wrote behind them is made anew."""
        self._path = path
        with writing(path):
            self._file = path.open("ab")
            self._file.truncate(min(length, path.stat().st_size))  # never longer: that would fill up with zeros
            self._file.seek(0, os.SEEK_END)

    def write(self, line: dict[str, Any]) -> None:
        with writing(self._path):
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()

    def length(self) -> int:
        """Bytes so far, safe on disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        with suppress(OSError):  # each line was flushed: what is left is one that could not be, as was said then
            self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a line that a killed process left half written is passed over."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
