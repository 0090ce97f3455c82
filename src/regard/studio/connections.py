"""Connections of the server: how long clients may take, how many there may be, and how the server
ends after a signal.

uvicorn has no timer for a request that never becomes complete, counts connections only once their
headers are there, and waits for its threads however long they compute.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import psutil
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from regard.language import shown

HEADER_SECONDS = 10.0
"""Seconds until the headers of a request must be there, from the connection or from their first
byte."""
CLOSING_SECONDS = 2.0
"""Seconds that jobs and queues have to end, once the time for requests is over."""
MAX_CONNECTIONS = 1_000
"""Most connections at once."""
MAX_BACKLOG = 128
"""Most connections that wait to be accepted."""
MAX_RESERVE = 64
"""Most file handles that are left for files."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections the server has at once, and how many the system keeps waiting."""

    connections: int
    backlog: int

    @classmethod
    def of_this_process(cls) -> ConnectionLimits:
        """The limits that the free file handles of this process allow. Connections in the backlog
        need handles before they are counted."""
        try:
            import resource
        except ImportError:  # Windows has no such limit
            return cls(MAX_CONNECTIONS, MAX_BACKLOG)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most == resource.RLIM_INFINITY:
            return cls(MAX_CONNECTIONS, MAX_BACKLOG)
        return cls.within(most - psutil.Process().num_fds())

    @classmethod
    def within(cls, handles: int) -> ConnectionLimits:
        """The limits for so many file handles that are free."""
        backlog = max(8, min(MAX_BACKLOG, handles // 4))
        reserve = max(8, min(MAX_RESERVE, handles // 4))
        return cls(max(8, min(MAX_CONNECTIONS, handles - backlog - reserve)), backlog)


class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with timers and at most so many connections.

    A connection is closed if the headers of a request, or its body, are not complete in time. One
    connection too many closes the one that has waited longest for a request, or is refused if all
    of them have one.
    """

    max_connections = MAX_CONNECTIONS
    header_seconds = HEADER_SECONDS
    body_seconds = math.inf
    _timer: asyncio.TimerHandle | None = None
    _request: Any = None  # the last one whose headers were complete
    _has_body_to_come = False
    _opened = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened = time.monotonic()
        self._wait(self.header_seconds)
        others = [
            one for one in self.connections if one is not self and not one.transport.is_closing()
        ]
        if len(others) >= self.max_connections:
            waiting = [one for one in others if not one.is_answering]
            if waiting:
                min(waiting, key=LimitedProtocol._rank).transport.abort()
            else:
                self._refuse(503, "too many connections: try again later")

    def _rank(self) -> tuple[bool, float]:
        """The order in which connections are closed: first those that owe a request."""
        return self._timer is None, self._opened

    @property
    def is_answering(self) -> bool:
        """Whether a whole request waits for its answer."""
        return (
            self.cycle is not None
            and not self.cycle.response_complete
            and not self._has_body_to_come
        )

    def data_received(self, data: bytes) -> None:
        if self._timer is None:  # the next request begins
            self._wait(self.header_seconds)
        super().data_received(data)
        request = self.cycle
        if request is not self._request:  # its headers are complete
            self._request = request
            self._has_body_to_come = request.more_body
            self._wait(self.body_seconds if request.more_body else None)
        elif self._has_body_to_come and not request.more_body:
            self._has_body_to_come = False
            self._wait(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(error)

    def _wait(self, seconds: float | None) -> None:
        """Set the timer, instead of the one before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        self._timer = None
        if self.is_answering:  # the beginning of another request can wait for that
            self._wait(self.header_seconds)
        elif self._has_body_to_come:  # the application has answered, or will not
            self.transport.abort()
        else:
            self._refuse(408, f"the headers did not come in {self.header_seconds:g} seconds")

    def _refuse(self, status: int, what: str) -> None:
        content = json.dumps({"error": what}).encode()
        lines = [
            b"HTTP/1.1 %d " % status,
            b"content-type: application/json",
            b"connection: close",
        ]
        lines += [b"content-length: %d" % len(content), b"", content]
        if not self.transport.is_closing():
            self.transport.write(b"\r\n".join(lines))
            self.transport.close()


def limited_protocol(
    max_connections: int, body_seconds: float, header_seconds: float = HEADER_SECONDS
) -> type[asyncio.Protocol]:
    """The protocol with these limits; uvicorn takes a class and makes one object per connection."""
    limits = {
        "max_connections": max_connections,
        "body_seconds": body_seconds,
        "header_seconds": header_seconds,
    }
    return type("LimitedProtocol", (LimitedProtocol,), limits)


class Server(uvicorn.Server):
    """A server that ends some seconds after the first SIGINT or SIGTERM, however busy it is; at
    once after a second."""

    def __init__(self, config: uvicorn.Config, grace: float, on_stop: Callable[[], None]) -> None:
        config.timeout_graceful_shutdown = math.ceil(grace)
        super().__init__(config)
        self.grace = grace
        """Seconds that requests have to be answered."""
        self.on_stop = on_stop
        """Called with the first signal."""

    def end(self, sig: int, frame: FrameType | None) -> None:
        """End after a signal that comes before the server runs; one that comes after it has ended
        changes nothing."""
        if not self.should_exit:
            self.handle_exit(sig, frame)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
        self.on_stop()
        watch = threading.Timer(
            math.ceil(self.grace) + CLOSING_SECONDS, partial(self._give_up, sig)
        )
        watch.daemon = True
        watch.start()

    def _give_up(self, sig: int) -> None:
        """End the process: threads that compute cannot be ended."""
        what = f"ended with work that was not done within {self.grace:g} seconds"
        print(f"regard: {shown(what)}", file=sys.stderr, flush=True)
        os._exit(128 + sig)
