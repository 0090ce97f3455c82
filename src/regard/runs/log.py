"""metrics.jsonl: one line an event, and after a resume none twice and none missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class MetricsLog:
    """Appends lines; knows how long it was at each checkpoint."""

    def __init__(self, path: Path, length: int = 0) -> None:
        """Go on after the first `length` bytes: what a killed process wrote behind them is made anew."""
        path.touch()
        os.truncate(path, length)
        self._file = path.open("ab")

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()

    def length(self) -> int:
        """Bytes so far, safe on disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a line that a killed process left half written is passed over."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
