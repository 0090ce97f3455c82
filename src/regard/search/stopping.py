"""Computations that stop once nobody waits for their answer, as when a client of the server has
left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class StoppedError(Exception):
    """Nobody waits for the answer any more."""


_given_up: ContextVar[Callable[[], bool] | None] = ContextVar("given_up", default=None)


@contextmanager
def stoppable(given_up: Callable[[], bool]) -> Iterator[None]:
    """What is computed in this context ends with a StoppedError soon after `given_up` has become
    true."""
    token = _given_up.set(given_up)
    try:
        yield
    finally:
        _given_up.reset(token)


def stop_if_given_up() -> None:
    """Called before each step of a search, each batch and each image."""
    given_up = _given_up.get()
    if given_up is not None and given_up():
        raise StoppedError
