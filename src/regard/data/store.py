"""Prepared data on disk: memory-mapped columns, in cache folders that appear whole or not at
all."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from regard.data.spans import places_of
from regard.errors import DataError
from regard.text.checksums import checksums, has_checksum
from regard.text.writing import lock_file, place_folder

Array = NDArray[Any]
Integers = NDArray[np.integer[Any]]

MANIFEST = "whole.json"
VERIFIED = "verified.json"
"""Checksums of the files of a folder; sizes and times of those that were found to have them."""
ENTRY = re.compile(r"[a-z]+-[0-9a-f]{32}")
"""Names of the folders in the cache. Nothing else there is ever removed, except leftovers."""
LEFTOVER = re.compile(rf"{ENTRY.pattern}\.[0-9a-f]{{32}}\.(partial|old)")
"""Names of folders that are being written, replaced or removed; and of those whose process was
killed meanwhile."""
DOCUMENT_ENDS = "."
DOCUMENT_CONTINUES = "+"
"""The column `part` of rows that may be pieces of an example: whether it ends with this row or goes
on in the next."""
ROWS_PER_CHUNK = 4096  # rows that are read at once,
CHARACTERS_PER_CHUNK = 1 << 22  # and characters, about: documents may be long
T = TypeVar("T")
P = ParamSpec("P")
_trusting = ContextVar("_trusting", default=True)
"""Whether a folder that was verified, and whose files have the same sizes and times, is taken for
whole."""
_held: dict[Path, BinaryIO] = {}
"""Manifests that this process keeps open and locked until its end, when no column is mapped any
more: no other process removes their folders. At most 64, those used last."""


def cache_folder() -> Path:
    """Where prepared data is kept: REGARD_CACHE, or `regard` in the platform's cache folder."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "regard"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def cache_limit() -> float:
    """The most bytes that the cache may hold: REGARD_CACHE_LIMIT, in GB."""
    given = os.environ.get("REGARD_CACHE_LIMIT") or "20"
    number = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:GB)?\s*", given, re.IGNORECASE)
    if number is None:
        raise DataError(
            f"{given!r} is not a size",
            where="REGARD_CACHE_LIMIT",
            hint="a number of GB: 20, or 0.5",
        )
    return float(number[1]) * 1e9


def stored(name: str, build: Callable[[Path], None]) -> Path:
    """The folder of this name in the cache; `build` fills it first where it is missing, or damaged,
    which is logged.

    It appears whole or not at all, and stays while this process lives. Two processes that build it
    at once both get the folder of the faster one.
    """
    folder = cache_folder() / name
    limit = cache_limit()
    if not _hold(folder):
        if folder.exists():
            logging.getLogger(__name__).warning(
                "%s: damaged, or of an older version: it is made anew", folder
            )
        trim_cache(limit)
        while not _hold(folder):
            _fill(folder, build)
        trim_cache(limit)
    return folder


def _fill(folder: Path, build: Callable[[Path], None]) -> None:
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        with _begin(partial) as manifest:
            build(partial)
            written = {
                name: value for name, value in checksums(partial).items() if name != MANIFEST
            }
            (partial / MANIFEST).write_text(json.dumps({"checksums": written}), encoding="utf-8")
            if sys.platform == "win32":
                manifest.close()  # no folder with an open file can be renamed there
            place_folder(partial, folder, keep=is_whole)
    except OSError as error:
        if partial.exists() and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        what = f"prepared data cannot be stored here: {error.strerror or error}"
        hint = "make room, or set REGARD_CACHE to another folder"
        raise DataError(what, where=str(folder.parent), hint=hint) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def verifying() -> Iterator[None]:
    """Read every file of the folders that are opened meanwhile, also of those that were found whole
    before: a disk may change bytes without changing a time. A training, which lasts long, begins
    so."""
    token = _trusting.set(False)
    try:
        yield
    finally:
        _trusting.reset(token)


def rebuilding(read: Callable[P, T]) -> Callable[P, T]:
    """A function that reads folders of the cache: where one cannot be read, it is called once more,
    `verifying`, which makes damaged folders anew."""

    @wraps(read)
    def read_or_rebuild(*args: P.args, **options: P.kwargs) -> T:
        try:
            return read(*args, **options)
        except (OSError, ValueError, EOFError):
            # as numpy, json and the system raise; a user's mistake is none of them
            with verifying():
                return read(*args, **options)

    return read_or_rebuild


def is_whole(folder: Path) -> bool:
    """Whether every file that was written into the folder is there as it was written.

    A file is read whole for that once, and again when its size or times have changed: a large cache
    opens at once. While `verifying` it is read in any case.
    """
    try:
        written = json.loads((folder / MANIFEST).read_bytes())["checksums"]
        stats = {name: (folder / name).stat() for name in written}
        stamps = {
            name: [file.st_size, file.st_mtime_ns, file.st_ctime_ns] for name, file in stats.items()
        }
        with suppress(OSError, ValueError):
            if _trusting.get() and json.loads((folder / VERIFIED).read_bytes()) == stamps:
                return True
        if not all(has_checksum(folder / name, value) for name, value in written.items()):
            return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    newest = max((file.st_ctime for file in stats.values()), default=0)
    if time.time() - newest > 2:  # a change within a tick of the clock would keep the times
        with suppress(OSError):  # a cache that is only read; a part of the file says nothing
            (folder / VERIFIED).write_text(json.dumps(stamps), encoding="utf-8")
    return True


# Which folders of the cache are in use, and which may be removed


def _begin(partial: Path) -> BinaryIO:
    """Make a folder with an empty manifest, which is locked while it is filled: it is no
    leftover."""
    while True:  # another process may remove it before it is locked
        partial.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            manifest = (partial / MANIFEST).open("wb")
            lock_file(manifest)
            if (partial / MANIFEST).exists():
                return manifest


def _hold(folder: Path) -> bool:
    """Lock a folder until this process ends, and note that it was used; False where it is missing
    or damaged."""
    if folder in _held:
        _held.pop(folder).close()
    try:
        manifest = (folder / MANIFEST).open("rb")
    except OSError:
        return False
    lock_file(manifest)
    if not is_whole(folder):
        manifest.close()
        return False
    _held[folder] = manifest
    if len(_held) > 64:
        _held.pop(next(iter(_held))).close()
    with suppress(OSError, OverflowError):
        # later than every other, also where the clock went back
        used = max(
            [time.time(), *(0.01 + manifest.st_mtime for _, manifest in _manifests(folder.parent))]
        )
        os.utime(folder / MANIFEST, (used, used))
    return True


@dataclass(frozen=True)
class Entry:
    """A folder of the cache: its size, and when it was last used, in seconds since 1970."""

    folder: Path
    bytes: int
    used: float


def cache_entries() -> list[Entry]:
    """The entries of the cache, the last used first."""
    entries = []
    for folder, manifest in _manifests(cache_folder()):
        with suppress(OSError):  # another process may remove it just now
            if ENTRY.fullmatch(folder.name):
                size = _size(folder.path, os.stat(folder).st_mtime_ns)
                entries.append(Entry(Path(folder.path), size, manifest.st_mtime))
    return sorted(entries, key=lambda entry: -entry.used)


def _manifests(cache: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """The folders with a manifest. By `os`: a cache of thousands of folders is looked through for
    every new one."""
    with suppress(OSError), os.scandir(cache) as found:
        for folder in found:
            with suppress(OSError):
                yield folder, os.stat(f"{folder.path}/{MANIFEST}")


@lru_cache(maxsize=1 << 14)
def _size(folder: str, changed: int) -> int:
    """Bytes of the files of an entry. Files are added (`changed` is later then), but hardly written
    to once there."""
    return sum(
        os.stat(os.path.join(path, name)).st_size
        for path, _, names in os.walk(folder)
        for name in names
    )


def trim_cache(limit: float) -> None:
    """Remove leftovers, and then the oldest entries until the others fit the limit; nothing that a
    process uses."""
    for folder in cache_folder().glob("*.*"):
        if LEFTOVER.fullmatch(folder.name):
            _remove(folder)
    entries = cache_entries()
    excess = sum(entry.bytes for entry in entries) - limit
    for entry in reversed(entries):
        if excess > 0 and _remove(entry.folder):
            excess -= entry.bytes


def _remove(folder: Path) -> bool:
    """Remove a folder of the cache, unless a living process has locked it."""
    aside = folder.with_name(f"{folder.name.split('.')[0]}.{uuid.uuid4().hex}.old")
    try:
        with (folder / MANIFEST).open("ab") as manifest:  # made where it is missing
            if not lock_file(manifest, alone=True):
                return False
            if sys.platform == "win32":
                manifest.close()
            folder.rename(aside)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    shutil.rmtree(aside, ignore_errors=True)
    return True


# Columns


def in_chunks(items: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
    """Some at a time, so that neither many nor long ones fill the memory."""
    chunk: list[T] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += characters(item)
        if len(chunk) == ROWS_PER_CHUNK or size >= CHARACTERS_PER_CHUNK:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


class ColumnWriter:
    """Appends rows of unequal length: their values to one file; where each row ends is written in
    the end."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike) -> None:
        self._file = (folder / f"{name}.values").open("wb")
        self._dtype = np.dtype(dtype)
        self._offsets = folder / f"{name}.offsets.npy"
        self._lengths = [np.empty(0, dtype=np.int64)]

    def extend(self, values: Array, lengths: Sequence[int]) -> None:
        """The values of some rows, one row after the other, and how many of them each row has."""
        self._file.write(np.asarray(values, dtype=self._dtype).tobytes())
        self._lengths.append(np.array(lengths, dtype=np.int64))

    def extend_texts(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8") for text in texts]
        self.extend(
            np.frombuffer(b"".join(encoded), dtype=np.uint8), [len(text) for text in encoded]
        )

    def close(self) -> None:
        self._file.close()
        np.save(self._offsets, offsets_of(np.concatenate(self._lengths)))


def offsets_of(lengths: Array) -> Integers:
    """Where rows of these lengths begin that stand end to end, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def token_type(vocabulary: int) -> np.dtype[Any]:
    """The smallest of the two types that tokens are stored in."""
    return np.dtype(np.uint16 if vocabulary <= 2**16 else np.int32)


class TextColumn(Sequence[str]):
    """Texts as UTF-8 bytes and where each one ends; `rows` chooses some of them."""

    def __init__(self, values: Array, offsets: Array, rows: Integers | None = None) -> None:
        self._values = values
        self._offsets = offsets
        self._rows = rows

    @classmethod
    def open(cls, folder: Path, name: str) -> TextColumn:
        column = TokenColumn.open(folder, name, np.uint8)
        return cls(column.values, column.offsets)

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextColumn:
        encoded = [text.encode("utf-8") for text in texts]
        values = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(values, offsets_of(np.array([len(text) for text in encoded])))

    def select(self, rows: Integers) -> TextColumn:
        return TextColumn(
            self._values, self._offsets, rows if self._rows is None else self._rows[rows]
        )

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self._rows is None else len(self._rows)

    @property
    def sizes(self) -> Integers:
        """The bytes of each text."""
        sizes = np.diff(self._offsets)
        return sizes if self._rows is None else sizes[self._rows]

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> TextColumn: ...
    def __getitem__(self, row: int | slice) -> str | TextColumn:
        if isinstance(row, slice):
            return self.select(np.arange(*row.indices(len(self))))
        number = range(len(self))[row]
        number = number if self._rows is None else int(self._rows[number])
        return (
            self._values[self._offsets[number] : self._offsets[number + 1]]
            .tobytes()
            .decode("utf-8")
        )

    def __iter__(self) -> Iterator[str]:
        view = self._values.data
        for first in range(0, len(self), 4096):
            numbers = np.arange(first, min(first + 4096, len(self)))
            rows = numbers if self._rows is None else self._rows[numbers]
            for start, end in zip(
                self._offsets[rows].tolist(), self._offsets[rows + 1].tolist(), strict=True
            ):
                yield str(view[start:end], "utf-8")


def parts(owners: Integers) -> TextColumn:
    """For each row DOCUMENT_ENDS, or DOCUMENT_CONTINUES where the next row belongs to the same example."""
    ends = np.diff(owners, append=-1) != 0
    return TextColumn(
        np.where(ends, ord(DOCUMENT_ENDS), ord(DOCUMENT_CONTINUES)).astype(np.uint8),
        np.arange(len(owners) + 1),
    )


class TokenColumn:
    """Sentences as token ids, one after the other, and where each one ends."""

    def __init__(self, values: Array, offsets: Array) -> None:
        self.values = values
        self.offsets = offsets

    @classmethod
    def open(cls, folder: Path, name: str, dtype: DTypeLike) -> TokenColumn:
        """Mapped and read-only; an empty file cannot be mapped."""
        path = folder / f"{name}.values"
        values = np.empty(0, dtype=dtype)
        if path.stat().st_size:
            values = np.asarray(np.memmap(path, dtype=dtype, mode="r"))
        return cls(values, np.load(folder / f"{name}.offsets.npy", mmap_mode="r"))

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> TokenColumn:
        values = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        return cls(values, offsets_of(np.array([len(row) for row in rows])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Integers:
        row = range(len(self))[row]
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each row, without `<s>` and `</s>`."""
        return np.diff(self.offsets).astype(np.int32)

    def rows_with(self, token: int) -> Integers:
        """The rows that have a token, ascending, once for each time."""
        return np.searchsorted(self.offsets, np.flatnonzero(self.values == token), "right") - 1

    def counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each token stands in the column; read a piece at a time."""
        total = np.zeros(vocabulary, dtype=np.int64)
        for start in range(0, len(self.values), 2**20):
            total += np.bincount(self.values[start : start + 2**20], minlength=vocabulary)
        return total

    def padded(
        self, rows: Integers, *, begin: int | None, end: int | None, pad: int
    ) -> tuple[NDArray[np.int64], ...]:
        """ids [B, L] of these rows between `begin` and `end` (where given), padded on the right;
        and lengths [B]."""
        lengths = self.lengths[rows].astype(np.int64)
        before = int(begin is not None)
        whole = lengths + before + int(end is not None)
        ids = np.full((len(rows), int(whole.max(initial=0))), pad, dtype=np.int64)
        starts = np.arange(len(rows)) * ids.shape[1] + before
        ids.flat[places_of(starts, lengths)] = self.values[places_of(self.offsets[rows], lengths)]
        if begin is not None:
            ids[:, 0] = begin
        if end is not None:
            ids[np.arange(len(rows)), whole - 1] = end
        return ids, whole
