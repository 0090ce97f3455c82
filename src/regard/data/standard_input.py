"""The lines of standard input, as they come."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.text.files import MAX_LINE_BYTES, TextFile

PIPE_BYTES = 1 << 16  # most bytes of a pipe that are read at once
PlacedLine = tuple[str, str]  # a line, and where it stands


@dataclass(frozen=True)
class HeldFile(TextFile):
    """A text that can be read only once, such as standard input, as a file."""

    path: Path = Path()
    content: bytes = b""
    before: int = 0  # lines that came earlier

    def where(self, line: int) -> str:
        return super().where(self.before + line)

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.content))

    def _undecodable(self, error: UnicodeDecodeError, line: int) -> DataError:
        [problem] = super()._undecodable(error, line).problems  # its hint is for files
        hint = "standard input must be UTF-8; give the file with --file instead"
        return DataError(problem.what, where=problem.where, hint=hint)


def lines_as_they_come(
    stream: io.BufferedIOBase, *, skip_bad: bool = False
) -> Iterator[list[PlacedLine]]:
    """The lines of standard input as they come: all that are there, then those that come next.

    A regular file is there as a whole. With `skip_bad`, lines that are not valid UTF-8 are returned
    as well.
    """
    before = 0
    held = bytearray()
    errors = "surrogateescape" if skip_bad else "strict"
    is_whole = True
    with suppress(OSError):
        is_whole = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)

    def lines(content: bytes) -> list[PlacedLine]:
        nonlocal before
        file = HeldFile("standard input", errors=errors, content=content, before=before)
        placed = [(text, file.where(line)) for line, text in enumerate(file.lines(), 1)]
        before += len(placed)
        return placed

    while block := stream.read() if is_whole else stream.read1(PIPE_BYTES):
        held += block
        end = len(held) if is_whole else held.rfind(b"\n", len(held) - len(block)) + 1
        if end or len(held) > MAX_LINE_BYTES:  # which is refused
            yield lines(bytes(held[: end or None]))
            del held[:end]
    if held:
        yield lines(bytes(held))
