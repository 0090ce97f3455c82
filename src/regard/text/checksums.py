"""Checksums of files, and keys for cached results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

XXH3 = "xxh3:"
"""The prefix of a checksum: the name of its hash."""


def checksums(folder: Path) -> dict[str, str]:
    """The checksum of every file below a folder, by its path in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): checksum(path) for path in files}


def key_of(settings: Any) -> str:
    """A short name for a tree of plain values."""
    return hashlib.blake2b(
        json.dumps(settings, sort_keys=True).encode(), digest_size=16
    ).hexdigest()


def checksum(path: Path) -> str:
    """The name of the hash and the hash of a file's bytes, 128 bits:
    `xxh3:99aa06d3014798d86001c324468d497f`.

    It is read 4 MiB at a time, which is faster than mapping it. `has_checksum` compares.
    """
    piece = memoryview(bytearray(1 << 22))
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            digest.update(piece[:count])
    return f"{XXH3}{digest.hexdigest()}"


def has_checksum(path: Path, written: object) -> bool:
    """Whether a file has the checksum that was stored for it. Earlier versions stored sums of
    words, without a name."""
    return (checksum if str(written).startswith(XXH3) else word_sums)(path) == written


def word_sums(path: Path) -> str:
    """The checksum of earlier versions: SHA-256 of the size and of one 64-bit sum for every 4,096
    bytes.

    Each sum misses words that change places. It is kept to read what those versions wrote: a file
    is padded with zeros to whole MiB.
    """
    piece = np.empty(1 << 22, dtype=np.uint8)
    size = 0
    digest = hashlib.sha256()
    numbers = piece.view("<u8").reshape(-1, 512)
    with path.open("rb") as file:
        while count := file.readinto(piece.data):
            rows = -(-count // 4096)
            piece[count : rows * 4096] = 0
            digest.update(
                numbers[:rows].sum(axis=1).tobytes().ljust(-(-count // (1 << 20)) * 2048, b"\0")
            )
            size += count
    digest.update(str(size).encode())
    return digest.hexdigest()
