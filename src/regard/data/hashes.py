"""Texts -> 64-bit numbers that stand for them: what duplicates and leaks are found by, and splits drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Integers
from regard.text.normalise import nfc

Hashes = NDArray[np.uint64]


def hashes_of(texts: Sequence[str]) -> Hashes:
    """The same for letters that are composed and those that are not: tokenizers read them as one (NFC)."""
    digests = [hashlib.blake2b(nfc(text).encode("utf-8"), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def mixed(values: Hashes) -> Hashes:
    """A bijection of the 64-bit numbers that spreads them evenly: the finisher of SplitMix64 (Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def combined(columns: Sequence[Hashes]) -> Hashes:
    """One hash of several in their order."""
    result = np.zeros_like(columns[0])
    for column in columns:
        result = mixed(result ^ column)
    return result


def of_examples(hashes: Hashes, firsts: Integers) -> Hashes:
    """The hash of each example from those of its rows; that of its only row, where it is one."""
    found = hashes[firsts[:-1]]
    for example in np.flatnonzero(np.diff(firsts) > 1):
        rows = hashes[firsts[example] : firsts[example + 1]]
        found[example] = combined([*rows[:, None]])[0]
    return found
