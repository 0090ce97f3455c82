"""The middleware of all requests: limits, the token, counts and safe headers."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi import HTTPException
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.language import request_language
from regard.studio.answers import SAFE_HEADERS
from regard.studio.served import ServedRun
from regard.studio.settings import LOCAL_HOSTS, Settings

SERVER_ENDS = "the server ends: ask again"
LOCAL_NAME = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
"""The names that requests may call this machine by. A page elsewhere could make its own name lead
here."""


@dataclass
class RequestCounts:
    """The counts of requests that /metrics reports, by route."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How many, by route and status."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def prometheus_text(self, runs: Mapping[str, ServedRun]) -> str:
        errors = Counter[str]()
        for (route, status), count in self.requests.items():
            errors[route] += count * (status >= 400)
        tables: dict[str, dict[str, float]] = {
            "requests_total": {
                f'route="{route}",status="{code}"': n for (route, code), n in self.requests.items()
            },
            "errors_total": {f'route="{route}"': n for route, n in errors.items()},
            "request_seconds_total": {f'route="{route}"': n for route, n in self.seconds.items()},
            "queue_length": {
                f"run={json.dumps(name)}": len(run.queue) for name, run in runs.items()
            },
            "batches_total": {
                f"run={json.dumps(name)}": run.queue.batches for name, run in runs.items()
            },
            "inputs_total": {
                f"run={json.dumps(name)}": run.queue.inputs for name, run in runs.items()
            },
        }
        lines = list[str]()
        for name, rows in tables.items():
            lines.append(f"# TYPE regard_{name} {'counter' if name.endswith('total') else 'gauge'}")
            lines += (f"regard_{name}{{{labels}}} {value}" for labels, value in rows.items())
        return "\n".join(lines) + "\n"


@dataclass
class GuardedRequest:
    """One request on its way through the Guard."""

    settings: Settings
    receive: Receive
    send: Send
    started: float = field(default_factory=time.perf_counter)
    size: int = 0
    """Bytes of its body that have come."""
    is_complete: bool = False
    """Whether its body has come whole."""
    status: int = 500
    is_answered: bool = False

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    async def receive_limited(self) -> Message:
        """The next message of the client, unless its body is late or too large."""
        left = None if self.is_complete else self.settings.timeout - self.seconds
        try:
            message = await asyncio.wait_for(self.receive(), left)
        except TimeoutError:
            what = f"the request has not come whole in {self.settings.timeout:g} seconds"
            raise HTTPException(408, what, {"Connection": "close"}) from None
        self.size += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        if self.size > self.settings.body:
            raise HTTPException(413, f"the request is larger than {self.settings.body:,} bytes")
        return message

    async def send_protected(self, message: Message) -> None:
        """Send a part of the answer, with safe headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_answered = True
            headers = MutableHeaders(scope=message)
            for name, value in SAFE_HEADERS.items():
                headers.setdefault(name, value)
        await self.send(message)


@dataclass
class Guard:
    """Refuses requests without the token, or too large; counts all, and puts safe headers on every
    answer."""

    app: ASGIApp
    settings: Settings
    counts: RequestCounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = GuardedRequest(self.settings, receive, send)
        language = dict(scope["headers"]).get(b"accept-language", b"")
        request_language.set("ko" if language.startswith(b"ko") else "en")
        try:
            answer = self._refusal(scope) or self.app
            await answer(scope, request.receive_limited, request.send_protected)
        except asyncio.CancelledError:  # the server ends, and has no more time; a stream just ends
            if not request.is_answered:
                refusal = JSONResponse({"error": SERVER_ENDS}, 503)
                await refusal(scope, receive, request.send_protected)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counts.requests[route, request.status] += 1
            self.counts.seconds[route] += request.seconds

    def _refusal(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        token = self.settings.token
        if token is None and not LOCAL_NAME.fullmatch(headers.get(b"host", b"")):
            return JSONResponse({"error": f"only requests to {LOCAL_HOSTS[0]} are answered"}, 403)
        origin = headers.get(b"origin")
        if token is None and origin not in (None, b"http://" + headers[b"host"]):
            return JSONResponse({"error": "only pages of this server may ask"}, 403)
        if token is None or scope["path"] in ("/", "/health") or scope["path"].startswith("/page/"):
            return None
        if has_token(headers, token):
            return None
        return JSONResponse({"error": "a token is needed"}, 401, {"WWW-Authenticate": "Bearer"})


def has_token(headers: Mapping[bytes, bytes], token: str) -> bool:
    return secrets.compare_digest(headers.get(b"authorization", b""), f"Bearer {token}".encode())
