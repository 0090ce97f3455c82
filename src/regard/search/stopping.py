"""Stop a computation whose result is no longer needed, for example when a client of the server has
left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class StoppedError(Exception):
    """The result is no longer needed."""


_given_up: ContextVar[Callable[[], bool] | None] = ContextVar("given_up", default=None)


@contextmanager
def stoppable(given_up: Callable[[], bool]) -> Iterator[None]:
    """Inside this context, computations end with a StoppedError soon after `given_up` becomes
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
