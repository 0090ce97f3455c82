"""Random draws that give the same text on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def pick(random: Random, items: Sequence[T]) -> T:
    """One of the items. `random()` is the only draw whose sequence Python promises to keep between versions."""
    return items[int(random.random() * len(items))]
