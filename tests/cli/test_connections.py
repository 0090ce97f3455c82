"""The server's connections and its end: half-open ones are closed, and a signal ends a server that
is busy."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx2")

import uvicorn  # noqa: E402

from regard.studio.connections import ConnectionLimits, Server, limited_protocol  # noqa: E402

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n"
LATE = b'{"error": "the headers did not come in 0.5 seconds"}'


@contextmanager
def served(most: int, answer: Any, headers: float = 0.5) -> Iterator[int]:
    """The port of a server with short timers in a thread."""
    config = uvicorn.Config(
        answer,
        http=limited_protocol(most, body_seconds=0.5, header_seconds=headers),
        ws="none",
        log_config=None,
    )
    server = Server(config, 1, lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body, once it is whole."""
    if scope["type"] == "lifespan":
        return
    body, message = b"", await receive()
    while message["type"] == "http.request" and message["more_body"]:
        body, message = body + message["body"], await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body + message.get("body", b"")})


def connected(port: int, *parts: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    for part in parts:
        connection.sendall(part)
    return connection


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes the connection."""
    with closing(connection):
        return b"".join(iter(lambda: connection.recv(4096), b""))


def ends(connection: socket.socket) -> bool:
    """Whether the other side closes the connection without an answer, in one way or the other."""
    try:
        return all_of(connection) == b""
    except ConnectionResetError:
        return True


def test_requests_that_never_end_are_given_up() -> None:
    with served(9, echo) as port:
        silent, headless = connected(port), connected(port, HEAD)
        bodiless = connected(port, HEAD, b"\r\n", b"12345")
        again = connected(port, HEAD, b"\r\n", b"123456789")
        assert b"123456789" in again.recv(4096)
        again.sendall(HEAD)  # a second request, on the same connection
        assert all_of(silent).endswith(LATE)
        assert all_of(headless).startswith(b"HTTP/1.1 408 \r\n")
        assert all_of(again).endswith(LATE)
        assert ends(bodiless)


def test_one_connection_too_many_closes_the_one_that_waited_longest_for_a_request() -> None:
    held, taken = threading.Event(), threading.Semaphore(0)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            taken.release()
            await asyncio.to_thread(held.wait, 60)
            await echo(scope, receive, send)

    with served(3, slow, headers=60) as port:
        whole = [connected(port, HEAD, b"\r\n123456789")]
        assert taken.acquire(timeout=60)
        first, *half_open = [connected(port, HEAD) for _ in range(3)]
        assert ends(first)
        for one in half_open:
            one.sendall(b"\r\n123456789")
            assert taken.acquire(timeout=60)
        assert b"HTTP/1.1 503" in all_of(connected(port))
        held.set()
        for one in (*whole, *half_open):
            assert b"123456789" in one.recv(4096)
            one.close()


def test_limits_leave_handles_for_files() -> None:
    for handles in (0, 20, 90, 200, 1000, 10**6):
        limits = ConnectionLimits.within(handles)
        assert limits.connections >= 8
        assert limits.connections <= 8 or limits.connections + limits.backlog < handles
    assert ConnectionLimits.within(10**6) == ConnectionLimits(1000, 128)


# The commands, with real work


@contextmanager
def command(
    *arguments: object, handles: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process, and its address."""
    resource = pytest.importorskip("resource")
    limit = (
        None
        if handles is None
        else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (handles, handles))
    )
    line = [sys.executable, "-m", "regard", *map(str, arguments), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    server = subprocess.Popen(line, preexec_fn=limit, **pipes)  # type: ignore[call-overload]
    try:
        yield server, re.search(r"http://\S+", server.stdout.readline())[0]
    finally:
        server.kill()
        server.communicate()


def busy(address: str, run: str) -> Future[Any]:
    """The answer to a request that takes a minute, the longest that is allowed, while another one
    waits."""
    inputs = ["abcdefgh" * 235] * 2
    pool, route = ThreadPoolExecutor(2), f"{address}/runs/{run}/predict"
    bodies = [
        {"inputs": inputs, "beam": beam} for beam in (64, 63)
    ]  # other options: not computed together
    first, _ = [pool.submit(httpx.post, route, json=body, timeout=120) for body in bodies]
    pool.shutdown(wait=False)
    while (
        f'regard_queue_length{{run="{run}"}} 2'
        not in httpx.get(f"{address}/metrics", timeout=60).text
    ):
        assert not first.done(), first.result().text
    return first


def accepts(address: str) -> bool:
    try:
        connected(int(address.rpartition(":")[2])).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_busy_server_ends_in_time_and_half_open_connections_leave_room(tiny_run: Path) -> None:
    with command("serve", tiny_run, "--grace", 1, handles=100) as (server, address):
        port = int(address.rpartition(":")[2])
        half_open = [connected(port, HEAD) for _ in range(150)]
        assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "ok"
        for one in half_open:
            one.close()
        answer, before = busy(address, "tiny"), time.monotonic()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, "the search stops, so nothing is left to wait for"
        assert time.monotonic() - before < 30, "the request would take a minute"
        assert answer.result(60).json() == {"error": "the server ends: ask again"}
        said = server.stderr.read().splitlines()
    assert not any("Traceback" in line for line in said)


def test_a_second_signal_ends_a_busy_studio_at_once(tiny_run: Path) -> None:
    with command("studio", tiny_run, "--no-browser") as (server, address):
        answer, before = busy(address, "tiny"), time.monotonic()
        server.send_signal(signal.SIGINT)
        while accepts(address):  # until the first signal has come
            pass
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 128 + signal.SIGINT
        assert time.monotonic() - before < 5, "the first signal alone gives as much"
        assert isinstance(answer.exception(60), httpx.TransportError)
