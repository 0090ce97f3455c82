"""Ctrl-C and other signals that end a training after the step that it is in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818 (not an error)
    """The user pressed Ctrl-C, and the run has been saved."""


@contextmanager
def stop_requests() -> Iterator[list[bool]]:
    """A list that gets an entry when the user presses Ctrl-C, a scheduler sends SIGTERM, or the
    terminal is closed; the second time interrupts at once. A closed terminal sends SIGHUP once or
    twice and can no longer be written to; `nohup` lets it pass."""
    requests: list[bool] = []
    interrupting = numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers = [*interrupting, signal.SIGHUP]
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def handle(number: int, frame: FrameType | None) -> None:
        if requests and number in interrupting:
            raise KeyboardInterrupt
        requests.append(True)
        for stream in terminals:
            if not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    try:
        before = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not in the main thread: the caller handles signals
        yield requests
        return
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
