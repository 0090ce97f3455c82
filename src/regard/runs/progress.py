"""How far a verb has come, told to whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told of what is done now, how much of it is done, and how much there is."""


def summed(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Add up how many more are done, and tell of the sum out of `total`."""
    done = 0

    def moved(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return moved
