"""One training at a time writes to a run folder."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from regard.errors import CheckpointError
from regard.runs.files import writing

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system gives back when the process ends, however it ends.

    The file stays: two processes that each remove and make one could hold a lock of their own. A file system without
    locks has none to hold.
    """
    path = folder / ".lock"
    with writing(path):
        file = path.open("ab")
    with file:
        try:
            _lock(file)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                raise CheckpointError(
                    "another process is training this run",
                    where=str(folder),
                    hint="wait until it ends, or give another --out",
                ) from None
        yield
