"""Files and folders that are written whole or not at all, and locks."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import CheckpointError, DecodeError

NEEDED = re.compile(
    r"recipe\.yaml|environment\.json|tokenizer(\.\w+)?\.json|metrics\.jsonl|best|last|checkpoints/.*"
)
"""The files of a run folder that no output may replace."""
PARTIAL_NAME = re.compile(r"\..+\.(\d+)\.partial")
"""The names that `atomic_file` gives to incomplete files, which contain the number of the
process."""


@contextmanager
def writing(path: Path, hint: str = "") -> Iterator[None]:
    """Turn an OSError raised while `path` is written, a full disk above all, into a message for the
    user."""
    try:
        yield
    except OSError as error:
        # in a run folder with a checkpoint
        if any((folder / "last").is_file() for folder in path.parents):
            hint = (
                hint
                or "what was saved before is whole; --resume continues from it once this can be "
                "written"
            )
        raise CheckpointError(
            f"cannot be written: {error.strerror or error}", where=str(path), hint=hint
        ) from None


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A stream of bytes that replaces the file `path` once it is complete: readers see the old file
    or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _sync_folder(path.parent)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path) -> None:
    """Remove the files that `atomic_file` left in a folder when a process of this machine was
    killed."""
    for path in folder.glob(".*.partial"):
        if (
            (left := PARTIAL_NAME.fullmatch(path.name))
            and path.is_file()
            and not _is_alive(int(left[1]))
        ):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Whether a process of this machine runs; on Windows, where asking would end it, it is taken
    to."""
    if os.name == "nt" or not 0 < process < 1 << 31:
        return process > 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file atomically; text is written as UTF-8."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


class GrowingFile:
    """A file that grows piece by piece as NAME.partial, and gets its name once it is complete.

    Beside it NAME.partial.json says what it is made of, and how much of it is whole: `resume`
    continues from there after a crash. What `append` has returned from is on the disk.
    """

    def __init__(
        self, path: Path, about: dict[str, Any], *, resume: bool = False, overwrite: bool = False
    ) -> None:
        self.path = path
        self._about = about
        self.done = dict[str, int]()
        self.partial = path.with_name(f"{path.name}.partial")
        self._state = path.with_name(f"{path.name}.partial.json")
        size = 0
        if resume and self.partial.exists():
            size = self._resumed()
        elif self.partial.exists() and self.partial.stat().st_size and not overwrite:
            what = "the output of an interrupted command exists"
            raise DecodeError(
                what,
                where=str(self.partial),
                hint="--resume continues it, --overwrite starts again",
            )
        with writing(path):
            self._file = self.partial.open("ab")
            if not lock_file(self._file, alone=True):
                raise DecodeError(
                    "another process is writing it",
                    where=str(self.partial),
                    hint="wait until it ends",
                )
            self._file.truncate(size)

    def _resumed(self) -> int:
        """The size of the complete part, in bytes; sets `done`."""
        try:
            state = json.loads(self._state.read_bytes())
            about = state["about"]
            size = int(state["bytes"])
            self.done = state["done"]
        except (OSError, ValueError, KeyError, TypeError):
            about = self._about
            size = 0  # it ended before the first piece was whole
        if size > self.partial.stat().st_size:
            raise DecodeError(
                "the file was shortened since",
                where=str(self.partial),
                hint="--overwrite starts again",
            )
        if other := [name for name, value in self._about.items() if about.get(name) != value]:
            what = f"it was begun with other values of {', '.join(other)}"
            raise DecodeError(
                what, where=str(self.partial), hint="give the same, or --overwrite to start again"
            )
        return size

    def append(self, content: bytes, done: dict[str, int]) -> None:
        """Add a piece; `done` is noted with it."""
        with writing(
            self.path, f"what was written before is whole in {self.partial}: --resume continues it"
        ):
            self._file.write(content)
            self._file.flush()
            os.fsync(self._file.fileno())
            state = {"about": self._about, "bytes": self._file.tell(), "done": done}
            write_file(self._state, json.dumps(state))
        self.done = done

    def complete(self) -> None:
        self.close()
        with writing(self.path):
            os.replace(self.partial, self.path)
            self._state.unlink(missing_ok=True)
            _sync_folder(self.path.parent)

    def close(self) -> None:
        self._file.close()


def lock_file(file: BinaryIO, *, alone: bool = False) -> bool:
    """Lock an open file, shared with others or `alone`. On Windows an open file is lock enough."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except OSError:
            return False
    return True


def write_folder(path: Path, fill: Callable[[Path], None], replace: bool = False) -> None:
    """Create a folder atomically: `fill` writes into another one, which is then renamed. `replace`
    is for a folder whose neighbours are all ours: it replaces an old one, and what a killed process
    left beside it."""
    partial = path.with_name(
        f".{path.name}.partial" if replace else f".{path.name}.{uuid.uuid4().hex}.partial"
    )
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with writing(path):
            partial.mkdir(parents=True)
            fill(partial)
            place_folder(partial, path, replace=replace)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def place_folder(
    partial: Path, path: Path, keep: Callable[[Path], bool] | None = None, replace: bool = True
) -> None:
    """Sync a complete folder and rename it to `path`. A folder that is there already is removed,
    unless `keep`; without `replace` it is an error."""
    for file in (file for file in partial.rglob("*") if file.is_file()):
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
    _sync_folder(partial)
    old = partial.with_suffix(".old")
    while True:
        shutil.rmtree(old, ignore_errors=True)
        try:
            partial.rename(path)
            break
        except OSError as error:
            if not replace or error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if keep is not None and keep(path):
            return
        with suppress(FileNotFoundError):  # another process may have removed it just now
            path.rename(old)
    _sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(
    path: Path, option: str, inputs: Iterable[object] = (), *, overwrite: bool = False
) -> None:
    """Refuse a path where no file can or may be written, before the work whose result it should
    hold.

    `overwrite` allows to replace a file; not one of the `inputs` (paths, or texts that may be
    paths), nor one below a folder of theirs, unless that is in a run, nor standard input, nor what
    a run folder needs.
    """
    what = ""
    hint = f"give another {option}"
    whole = path.resolve()
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
    elif path.exists():
        runs = [folder for folder in whole.parents if (folder / "environment.json").is_file()]
        read: list[str | int] = [0, *map(str, inputs)]
        folders = {
            Path(str(file)) for file in read if os.path.isabs(str(file)) and os.path.isdir(file)
        }
        if any(os.path.exists(file) and os.path.samefile(path, file) for file in read):
            what = "this file is read here"
        elif any(NEEDED.fullmatch(whole.relative_to(folder).as_posix()) for folder in runs):
            what = "a run needs it"
        elif not runs and folders.intersection(whole.parents):
            what = "this file is in a folder of data"
        elif not overwrite:
            what = "the file exists already"
            hint = f"{hint}, or --overwrite"
    if what:
        raise DecodeError(what, where=str(path), hint=hint)
