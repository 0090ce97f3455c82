"""The HTTP server: one route a verb of api.py, for every run that is loaded.

A route checks its body, puts a job into the run's queue and answers with the JSON that the
command's `--json` prints. The server holds no state but the runs; no text of a request is used as a
path.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import time
import webbrowser
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from jinja2 import Environment, FileSystemLoader
from pydantic import Field, create_model
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard import __version__
from regard.api import Loaded, show
from regard.config import problems_in
from regard.errors import ConfigError, RegardError
from regard.language import asked, shown
from regard.studio.connections import Limits, Server, limited_protocol
from regard.studio.jobs import long_verbs
from regard.studio.runs import Runs, Trainings
from regard.studio.served import (
    EXPLAINED,
    LOCAL,
    VERBS,
    Body,
    Input,
    PredictBody,
    Served,
    Settings,
    predicted,
    told,
)
from regard.views.attention import Attention
from regard.views.explanation import MAP_VIEWS, Explanation, View, ViewOptions
from regard.views.report import HeatMap, Numbers, base64_of, in_language

PAGE, TEMPLATES = Path(__file__).parent / "page", Path(__file__).parents[1] / "views" / "templates"
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
NO_ROUTE = (
    "there is no such route: those of a run are /runs/NAME/predict and the like, GET "
    "/openapi.json lists all"
)
UNREAD = "There was an error parsing the body"  # as FastAPI says it
NO_JSON = "the body is not JSON in UTF-8, or is nested too deeply"
ENDING = "the server ends: ask again"
SMALL = 48
"""Most rows and columns of a small picture of a head."""
LOCAL_NAME = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
"""What requests to this machine call it; a page elsewhere could lead its own name here."""
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
PAGE_POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}


# What every request goes through


@dataclass
class Counts:
    """What /metrics reports of requests, by route."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By route and status."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def text(self, runs: Mapping[str, Served]) -> str:
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
class Guard:
    """Refuses requests without the token, or too large; counts all, and puts safe headers on every
    answer."""

    app: ASGIApp
    settings: Settings
    counts: Counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, size, whole, answered = time.perf_counter(), 500, 0, False, False
        asked.set(
            "ko" if dict(scope["headers"]).get(b"accept-language", b"").startswith(b"ko") else "en"
        )

        async def limited() -> Message:
            nonlocal size, whole
            left = None if whole else self.settings.timeout - (time.perf_counter() - started)
            try:
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                what = f"the request has not come whole in {self.settings.timeout:g} seconds"
                raise HTTPException(408, what, {"Connection": "close"}) from None
            size, whole = size + len(message.get("body", b"")), not message.get("more_body", False)
            if size > self.settings.body:
                raise HTTPException(413, f"the request is larger than {self.settings.body:,} bytes")
            return message

        async def protected(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await (self._refusal(scope) or self.app)(scope, limited, protected)
        except asyncio.CancelledError:  # the server ends, and has no more time; a stream just ends
            if not answered:
                await JSONResponse({"error": ENDING}, 503)(scope, receive, protected)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counts.requests[route, status] += 1
            self.counts.seconds[route] += time.perf_counter() - started

    def _refusal(self, scope: Scope) -> Response | None:
        headers, token = dict(scope["headers"]), self.settings.token
        if token is None and not LOCAL_NAME.fullmatch(headers.get(b"host", b"")):
            return JSONResponse({"error": f"only requests to {LOCAL[0]} are answered"}, 403)
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


# The routes


def app(
    given: Mapping[str, Loaded] | Runs, settings: Settings, *, root: Path | None = None
) -> FastAPI:
    """The server of some runs, by their names. With one loaded run its routes also exist without
    the name. With a `root`, the folder for new runs, the page is there too."""
    runs, counts = given if isinstance(given, Runs) else Runs(settings, given), Counts()
    trainings = None if root is None else Trainings(root, runs)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(jobs.close)
        if trainings is not None:
            await asyncio.to_thread(trainings.close)
        for run in runs.served.values():
            await asyncio.to_thread(run.queue.close)

    api = FastAPI(
        title="regard", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    api.state.trainings = trainings
    _answer_errors(api)
    _verbs(api, "/runs/{name}", runs.named)
    jobs = long_verbs(api, runs.named, runs.folder_of)
    if len(runs.served) == 1:
        _verbs(api, "", lambda: next(iter(runs.served.values())))
    if trainings is not None:
        _files(api)
        _verb(api, "/runs/{name}/attention", AttentionBody, runs.named)
        api.get("/show/{picture}")(show_picture)
        trainings.add_routes(api)
    api.get("/runs")(runs.list_runs)
    api.get("/runs/{name}")(runs.show_run)

    @api.get("/health")
    async def health(request: Request) -> dict[str, Any]:
        """That the server answers; needs no token, but names the runs only with it."""
        knows = settings.token is None or has_token(dict(request.scope["headers"]), settings.token)
        return {"status": "ok", **({"runs": list(runs)} if knows else {})}

    @api.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counters for Prometheus."""
        return counts.text(runs.served)

    @api.get("/docs", response_class=HTMLResponse)
    async def docs() -> str:
        """All routes, on a page that loads nothing."""
        pages = Environment(loader=FileSystemLoader(PAGE), autoescape=True)
        pages.filters |= {"json": json.dumps, "kind": _kind}
        schema = api.openapi()
        return pages.get_template("routes.html").render(
            paths=schema["paths"], schemas=schema["components"]["schemas"]
        )

    api.get("/", include_in_schema=False)(
        lambda: RedirectResponse("/docs")
    )  # the studio has its own page there
    api.add_middleware(Guard, settings=settings, counts=counts)
    return api


def _verbs(api: FastAPI, prefix: str, chosen: Callable[..., Served]) -> None:
    @api.post(f"{prefix}/predict")
    async def predict(
        body: PredictBody, request: Request, run: Served = Depends(chosen)
    ) -> Response:
        """The predictions for `inputs`, as `regard predict --json` prints them. With `stream`,
        server-sent events."""
        return await predicted(run, body, request)

    for verb, kind in VERBS.items():
        _verb(api, f"{prefix}/{verb}", kind, chosen)


def _verb(api: FastAPI, path: str, kind: type[Body], chosen: Callable[..., Served]) -> None:
    async def answer(body: Any, request: Request, run: Served = Depends(chosen)) -> Response:
        run.check(body)
        answer = await run.alone(lambda: body.answer(run), request)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    answer.__annotations__["body"] = kind
    api.post(path, name=path.rpartition("/")[2], description=kind.__doc__)(answer)


def show_picture(picture: str) -> dict[str, Any]:
    """A picture of `regard show`."""
    return in_language(show(picture).report()).to_json()


def _files(api: FastAPI) -> None:
    """The page: files of this package. A request chooses one of them by its name."""
    files = {
        path.relative_to(folder).as_posix(): path
        for folder in (PAGE, TEMPLATES)
        for path in folder.rglob("*.*")
    }

    @api.get("/", include_in_schema=False)
    @api.get("/page/{name:path}", include_in_schema=False)
    def show_page(name: str = "index.html") -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return Response(
            files[name].read_bytes(), headers=PAGE_POLICY, media_type=KINDS[files[name].suffix]
        )


# The attention of one input for the page: one map at a time as bytes, all heads as small pictures


class AttentionBody(Body):
    """One map of weights, and all heads as small pictures."""

    input: Input
    target: str | None = Field(None, max_length=EXPLAINED)
    view: View | None = None
    """Default: the first attention that the model has."""
    layer: int | Literal["mean"] = "mean"
    head: int | Literal["mean"] = "mean"
    rollout: bool = False
    words: bool = False
    heads: bool = False
    """Whether every head is given too, as a small picture."""

    def explanation(self, served: Served) -> Explanation:
        """Every attention. What is costly, or changes the input, is done only for the view that
        shows it."""
        view = self.view if self.view in ("occlusion", "masks") else None
        key = json.dumps([self.input, self.target, view])
        if served.last is None or served.last[0] != key:
            padding = None if view else 0
            whole = served.run.explain([self.input], target=self.target, view=view, padding=padding)
            served.last = key, whole
        return served.last[1]

    def answer(self, served: Served) -> dict[str, Any]:
        options = ViewOptions(self.view, str(self.layer), str(self.head), self.rollout, self.words)
        shown = self.explanation(served).select(options)
        view, picture, attentions = shown.view, shown.picture, list[Attention]()
        if view in MAP_VIEWS:
            attentions = shown.of_kind(view)  # type: ignore[arg-type]
        maps = _hops(shown) if view == "hops" else shown.heat_maps()
        parts = [] if maps else in_language(shown.report()).sections[0].parts
        answer = {
            "input": shown.input,
            "output": shown.output,
            "views": list(
                dict.fromkeys([*shown.views, *(["occlusion"] if served.run.task.head else [])])
            ),
            "view": view,
            "layers": len(attentions),
            "heads": len(attentions[0].weights) if attentions else 0,
            "rollout": bool(shown.rollouts) and view in MAP_VIEWS,
            "map": _packed(maps[0]) if maps else None,
            "others": [_packed(other) for other in maps[1:]],
            "small": _small(attentions) if self.heads and attentions else None,
            "picture": None,
            "figures": [part.to_json() for part in parts if part.kind not in ("text", "table")],
        }
        if picture is not None and view == "alignment":
            pixels = base64_of(np.asarray(picture.shown))
            answer["picture"] = {
                "columns": picture.columns,
                "side": len(picture.shown),
                "pixels": pixels,
            }
        return answer


def _hops(explanation: Explanation) -> list[HeatMap]:
    """A row for each hop over the sentences of a story."""
    story = explanation.story
    assert story is not None
    hops = [shown(f"hop {hop}") for hop in range(1, len(story.weights_NS) + 1)]
    return [HeatMap(hops, story.sentences, story.weights_NS, explanation.title)]


def _packed(drawn: HeatMap) -> dict[str, Any]:
    values, name = (
        base64_of(np.asarray(drawn.values, dtype="<f4")),
        shown(drawn.choice[0]) if drawn.choice else "",
    )
    packed = {"rows": drawn.rows, "columns": drawn.columns, "values": values, "peak": drawn.peak}
    return {**packed, "title": drawn.title, "name": name}


def _small(attentions: list[Attention]) -> dict[str, Any]:
    """Every head of every layer in bytes, each as strong as its strongest weight; cells that fall
    together are one."""
    pictures = [
        _fewer(_fewer(weights_QK, 0), 1)
        for attention in attentions
        for weights_QK in attention.weights
    ]
    codes = [
        np.rint(255 * np.sqrt(picture / max(float(picture.max()), 1e-9))) for picture in pictures
    ]
    rows, columns = codes[0].shape
    return {"rows": rows, "columns": columns, "codes": base64_of(np.stack(codes).astype(np.uint8))}


def _fewer(values: Numbers, axis: int) -> Numbers:
    starts = np.unique(np.arange(SMALL) * values.shape[axis] // SMALL)
    fewer: Numbers = np.maximum.reduceat(values, starts, axis=axis)
    return fewer


def _answer_errors(api: FastAPI) -> None:
    """Every error is JSON with one sentence."""

    @api.exception_handler(RegardError)
    async def refused(_: object, error: RegardError) -> Response:
        return JSONResponse(told(error), 422)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        field, given = (
            request.scope["route"].body_field,
            {"body": error.body, "query": dict(request.query_params)},
        )
        kind = create_model("Request", body=(field.field_info.annotation if field else Any, ...))
        return JSONResponse(
            told(ConfigError(problems=problems_in(error.errors(), kind, given))), 422
        )

    @api.exception_handler(AnyHTTPException)
    async def stated(_: object, error: AnyHTTPException) -> Response:
        allowed = (error.headers or {}).get("Allow")
        plain = {
            "Not Found": NO_ROUTE,
            "Method Not Allowed": f"this route answers {allowed} only",
            UNREAD: NO_JSON,
        }
        return JSONResponse(
            {"error": shown(plain.get(error.detail, error.detail))},
            error.status_code,
            error.headers,
        )

    @api.exception_handler(Exception)
    async def failed(_: object, error: Exception) -> Response:
        return JSONResponse({"error": "the server failed; its log says why"}, 500, HEADERS)


def _kind(schema: Mapping[str, Any]) -> str:
    """What a JSON schema allows besides null, in words."""
    if "anyOf" in schema:
        return " or ".join(_kind(kind) for kind in schema["anyOf"] if kind.get("type") != "null")
    if "enum" in schema:
        return ", ".join(map(json.dumps, schema["enum"]))
    names = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    limits = "".join(
        f", {text} {schema[key]:,.10g}" for key, text in names.items() if key in schema
    )
    of = f" of {_kind(schema['items'])}" if "items" in schema else ""
    return f"{schema.get('type') or schema.get('$ref', 'any').rpartition('/')[2]}{of}{limits}"


def serve(
    runs: Mapping[str, Loaded] | Runs,
    settings: Settings,
    *,
    root: Path | None = None,
    browse: bool = False,
) -> None:
    """Answer until SIGINT or SIGTERM, then end as connections.py says. With the page, `browse`
    opens it."""
    api, limits = app(runs, settings, root=root), Limits.of_this_process()
    protocol = limited_protocol(
        limits.connections, settings.timeout + 1
    )  # the Guard gives up the body before
    config = uvicorn.Config(
        api,
        access_log=False,
        server_header=False,
        log_config=None,
        log_level="warning",
        http=protocol,
        ws="none",
        backlog=limits.backlog,
    )
    trainings: Trainings | None = api.state.trainings
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        what = f"nothing can listen on port {settings.port}: {os.strerror(error.errno or 0)}"
        raise RegardError(what, where="--port", hint="0 takes a free one") from None
    with listening:
        signal.signal(
            signal.SIGTERM, lambda *_: None
        )  # uvicorn raises it again when it has finished
        address = f"http://{settings.host}:{listening.getsockname()[1]}"
        names = [*runs]
        what = (
            f"studio of {len(names)} run{'s'[: len(names) != 1]}"
            if root
            else f"serving {', '.join(names)}"
        )
        print(shown(f"{what} on {address}"), flush=True)
        if browse:
            webbrowser.open(
                f"{address}/" + (f"#/runs?token={settings.token}" if settings.token else "")
            )
        with suppress(KeyboardInterrupt):
            Server(config, settings.grace, trainings.stop_all if trainings else lambda: None).run(
                sockets=[listening]
            )
