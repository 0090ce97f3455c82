"""The HTTP server: one route a verb of api.py, for every run that is loaded.

A route checks its body, puts a job into the run's queue (batching.py) and answers with the JSON that the command's
`--json` prints. The server holds no state but the runs; no text of a request is used as a path.
"""

from __future__ import annotations

import asyncio
import html
import json
import math
import re
import secrets
import signal
import socket
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from safetensors import SafetensorError, safe_open
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

import regard.views.files
from regard import __version__
from regard.api import Loaded, Skipped, load
from regard.data import shapes
from regard.data.images import HELD
from regard.errors import DecodeError, InputError, Problem, RegardError
from regard.models.base import Pooling
from regard.runs.run import Run, load_facts
from regard.search.decode import watching
from regard.search.hypotheses import Choice, Live
from regard.search.rules import Rules
from regard.studio.batching import Batcher, FullError, Job
from regard.views.explanation import Options, View
from regard.views.files import json_line

TEXT, EXPLAINED, INPUTS = 20_000, 4_000, 256
"""Most characters of an input, and of one to explain, whose answer grows with its square; most inputs of a request."""
KEPT = 6
"""Runs of a studio that are in memory at once."""
PAGE, TEMPLATES = Path(__file__).parent / "page", Path(regard.views.files.__file__).parent / "templates"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LOCAL = ("127.0.0.1", "localhost", "::1")
LOCAL_NAME = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
"""What requests to this machine call it; a page elsewhere could lead its own name here."""
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
PAGE_POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}


@dataclass(frozen=True)
class Settings:
    """How the server is reached, and what it takes on."""

    host: str = LOCAL[0]
    port: int = 8000
    token: str | None = None
    """What requests must carry as `Authorization: Bearer TOKEN`; without one only this machine is served."""
    window: float = 0.003
    """Seconds that a request waits for others to be computed with it."""
    batch: int = 64
    """Most inputs that are computed at once."""
    queue: int = 1024
    """Most inputs of a run that may wait."""
    timeout: float = 60.0
    """Seconds until a request that has no answer is given up."""
    body: int = 8_000_000
    """Most bytes of a request."""

    def __post_init__(self) -> None:
        if self.host not in LOCAL and not self.token:
            what, hint = f"whoever reaches {self.host} could use the runs", "give --token, or set REGARD_TOKEN"
            raise RegardError(what, where="--host", hint=hint)


# What requests contain

Input = str | list[str] | dict[str, str | list[str]]
"""A text, the texts that an input consists of, or the run's columns; for a run that reads images: a `data:` URL."""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, tree: object) -> object:
        """JSON can spell halves of surrogate pairs, which no answer could repeat."""
        if isinstance(tree, bytes):
            raise ValueError("send JSON, with Content-Type: application/json")
        try:
            json.dumps(tree, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no character") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return tree


class PredictBody(Body):
    inputs: list[Input] = Field(min_length=1, max_length=INPUTS)
    beam: int | None = Field(None, ge=1, le=64)
    nbest: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = Field(None, ge=0, le=10)
    prefix: str | None = Field(None, max_length=1_000)
    sample: bool | None = None
    temperature: float | None = Field(None, gt=0, le=100)
    top_k: int | None = Field(None, ge=1, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    skip_bad: bool = False
    """Whether an input that cannot be read is answered with the reason, instead of failing the request."""
    stream: bool = False
    """Whether the best output so far is sent after every step, as server-sent events. For one input."""

    def options(self) -> dict[str, Any]:
        """Those of `predict`."""
        names = ("sample", "temperature", "top_k", "top_p", "seed")
        sampling = {name: value for name in names if (value := getattr(self, name)) is not None}
        overrides = [f"search.{name}={json.dumps(value)}" for name, value in sampling.items()]
        given = ("beam", "nbest", "length_penalty", "prefix")
        return {**{name: getattr(self, name) for name in given}, "overrides": overrides}


class ScoreBody(Body):
    source: Input
    target: str | list[str] = Field(max_length=TEXT)


class ExplainBody(Body):
    input: Input
    target: str | None = Field(None, max_length=EXPLAINED)
    beam: int | None = Field(None, ge=1, le=64)
    view: View | None = None
    layer: int | str = Field("mean")
    head: int | str = Field("mean")
    rollout: bool = False
    words: bool = False
    step: int | None = Field(None, ge=1)
    padding: int | None = Field(None, ge=0, le=64)
    question: int | None = Field(None, ge=1)
    numbers: bool = False


class FeaturesBody(Body):
    inputs: list[Input] = Field(min_length=1, max_length=INPUTS)
    layer: int = -1
    pooling: Pooling | None = None
    normalize: bool = False


# A run and its queue


class Served:
    """A loaded run, and the queue of requests to it."""

    def __init__(self, name: str, run: Loaded, settings: Settings) -> None:
        self.name, self.run, self.timeout = name, run, settings.timeout
        self._reads_images = run.recipe.model.reads == "image"
        if self._reads_images and run.recipe.model.reading.feature_width is not None:
            raise RegardError("it reads features of images, which a request cannot hold", where=name)
        self.queue = Batcher(window=settings.window, most=settings.batch, room=settings.queue)

    def checked(self, inputs: Sequence[Input], most: int = TEXT) -> Any:
        """The inputs, of which none is too long, and none names a file."""
        for number, one in enumerate(inputs, 1):
            texts = (
                [one] if isinstance(one, str) else one if isinstance(one, list) else json.dumps(one, ensure_ascii=False)
            )
            length, where = sum(map(len, texts)), f"input {number}"
            if self._reads_images and not (isinstance(one, str) and one.startswith((HELD, shapes.PREFIX))):
                raise InputError("an image is expected", where=where, hint=f'as a text: "{HELD}png;base64,..."')
            if not self._reads_images and length > most:
                raise InputError(f"it has {length:,} characters", where=where, hint=f"at most {most:,}")
        return inputs

    def submit(self, job: Job) -> Future[list[Any]]:
        try:
            return self.queue.submit(job)
        except FullError:
            raise HTTPException(503, "the queue is full: try again later", {"Retry-After": "1"}) from None

    async def computed(self, job: Job) -> list[Any]:
        """The answers to a job. One that is given up before its turn is not computed."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.submit(job)), self.timeout)
        except TimeoutError:
            raise HTTPException(504, _late(self.timeout)) from None

    async def alone(self, compute: Callable[[], Any]) -> Any:
        [answer] = await self.computed(Job([None], lambda _: [compute()]))
        return answer

    def predict_job(self, body: PredictBody) -> Job:
        """Requests with the same options are computed together; what cannot be read fails alone."""
        inputs = list(self.run.task.gather(self.run.task.given_inputs(self.checked(body.inputs))))
        options = body.options()
        length = max((len(one.text) for one in inputs), default=0)
        return Job(inputs, lambda all: self.run.predict(all, skip_bad=True, **options), repr(options), length)

    def explain(self, body: ExplainBody) -> Response:
        chosen = Options(body.view, str(body.layer), str(body.head), body.rollout, body.words, body.step)
        names = ("target", "beam", "view", "padding", "question")
        given: dict[str, Any] = {name: getattr(body, name) for name in names}
        explanation = self.run.explain([body.input], **given).select(chosen)
        explanation.refuse_without_effect(padding=body.padding, numbers=body.numbers)
        explanation.heat_maps()  # refuses a layer or head that is not there
        parts = json_line(explanation.worked() if body.numbers else explanation)
        return Response("".join(parts), media_type="application/json")

    def features(self, body: FeaturesBody) -> dict[str, Any]:
        vectors = self.run.features(
            body.inputs, layer=body.layer, pooling=body.pooling, normalize=body.normalize
        ).arrays()
        return {name: array.tolist() for name, array in vectors.items()}


class Runs:
    """The runs by their names: those that are loaded, and folders, which are loaded when they are first asked for."""

    def __init__(
        self,
        settings: Settings,
        loaded: Mapping[str, Loaded] | None = None,
        folders: Callable[[], Mapping[str, Path]] = dict,
        device: str = "auto",
    ) -> None:
        self.settings, self.folders, self.device = settings, folders, device
        self.served = {name: Served(name, run, settings) for name, run in (loaded or {}).items()}
        """Those in memory."""
        self._stamps: dict[str, int] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[str]:
        return iter({**self.served, **self.folders()})

    def __getitem__(self, name: str) -> Served:
        """A run, loaded anew where its best checkpoint is another since."""
        folder = self.folders().get(name)
        with self._lock:
            if folder is None:
                return self.served[name]
            best = folder / "best"
            stamp = best.stat().st_mtime_ns if best.exists() else 0
            if self._stamps.get(name) != stamp:
                run = Served(name, load(folder, device=self.device), self.settings)
                self._let_go([name, *[*self._stamps][: len(self._stamps) - KEPT + 1]])
                self.served[name], self._stamps[name] = run, stamp
            return self.served[name]

    def opened(self, name: str) -> Run:
        """A run whose model need not be loaded."""
        folder = self.folders().get(name)
        return self.served[name].run if folder is None else Run.open(folder)

    def summary(self, name: str) -> dict[str, Any]:
        try:
            run = self.opened(name)
            facts = {"name": name, "task": run.recipe.task, "model": run.recipe.model.kind}
            if (best := run.pointer("best")) is None:
                return {**facts, "parameters": None, "metrics": []}
            with safe_open(best / "model.safetensors", "pt") as weights:
                parameters = sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
            return {**facts, "parameters": parameters, "metrics": load_facts(best).get("best", [])}
        except (RegardError, OSError, SafetensorError) as error:  # one damaged run does not hide the others
            return {"name": name, "error": str(error)}

    def _let_go(self, names: Sequence[str]) -> None:
        for name in names:
            self._stamps.pop(name, None)
            if (old := self.served.pop(name, None)) is not None:
                threading.Thread(target=old.queue.close, daemon=True).start()  # answers what it has


def readable(answers: list[Any], *, skip_bad: bool) -> list[dict[str, Any]]:
    """The predictions of a request, or one error with the inputs that cannot be read."""
    if not skip_bad and (problems := [one.problem for one in answers if isinstance(one, Skipped)]):
        raise InputError(problems=problems)
    return [one.to_json() for one in answers]


# Tokens as they are written


@dataclass(frozen=True)
class Tokens:
    """Observer of a search that reports the best output so far."""

    run: Loaded
    report: Callable[[str], None]

    def step(self, log_p_BWV: Tensor, rules: Rules, live: Live, choice: Choice) -> None:
        ids = [*live.history_BWT[0, choice.parents_BW[0, 0]].tolist(), int(choice.tokens_BW[0, 0])]
        self.report(self.run.tokenizers[self.run.task.writes].decode(ids))


def streamed(served: Served, body: PredictBody) -> AsyncIterator[str]:
    """Server-sent events: `output` with the best output so far, then `prediction`, or `error`."""
    texts: asyncio.Queue[str | None] = asyncio.Queue()
    loop, job = asyncio.get_running_loop(), served.predict_job(body)
    if len(job.inputs) != 1:
        raise DecodeError(f"one input is streamed, not {len(job.inputs)}", where="stream")

    def tell(text: str | None) -> None:
        loop.call_soon_threadsafe(texts.put_nowait, text)

    def compute(inputs: list[Any]) -> Sequence[Any]:
        with watching(Tokens(served.run, tell)):
            return job.compute(inputs)

    future = served.submit(Job(job.inputs, compute))
    future.add_done_callback(lambda _: tell(None))

    async def events() -> AsyncIterator[str]:
        end = loop.time() + served.timeout
        try:
            while (text := await asyncio.wait_for(texts.get(), end - loop.time())) is not None:
                yield _event("output", {"output": text})
            [prediction] = readable(future.result(), skip_bad=body.skip_bad)
            yield _event("prediction", prediction)
        except RegardError as error:
            yield _event("error", _told(error))
        except TimeoutError:
            yield _event("error", {"error": _late(served.timeout)})
        finally:
            future.cancel()

    return events()


def _event(kind: str, content: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"


def _told(error: RegardError) -> dict[str, Any]:
    """With the options of a command called by their names in a body."""
    problems = [
        replace(one, where=one.where[2:].replace("-", "_")) if one.where.startswith("--") else one
        for one in error.problems
    ]
    return {"error": str(problems[0]), "problems": [asdict(problem) for problem in problems]}


def _late(seconds: float) -> str:
    return f"there is no answer after {seconds:g} seconds"


# What every request goes through


@dataclass
class Counts:
    """What /metrics reports of requests, by route."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By route and status."""
    seconds: dict[str, float] = field(default_factory=dict)

    def text(self, runs: Mapping[str, Served]) -> str:
        """In the format of Prometheus."""
        errors = Counter[str]()
        for (route, status), count in self.requests.items():
            errors[route] += count * (status >= 400)
        tables: dict[str, dict[str, float]] = {
            "requests_total": {f'route="{route}",status="{code}"': n for (route, code), n in self.requests.items()},
            "errors_total": {f'route="{route}"': n for route, n in errors.items()},
            "request_seconds_total": {f'route="{route}"': n for route, n in self.seconds.items()},
            "queue_length": {f"run={json.dumps(name)}": len(one.queue) for name, one in runs.items()},
            "batches_total": {f"run={json.dumps(name)}": one.queue.batches for name, one in runs.items()},
            "inputs_total": {f"run={json.dumps(name)}": one.queue.inputs for name, one in runs.items()},
        }
        lines = list[str]()
        for name, rows in tables.items():
            lines.append(f"# TYPE regard_{name} {'counter' if name.endswith('total') else 'gauge'}")
            lines += (f"regard_{name}{{{labels}}} {value}" for labels, value in rows.items())
        return "\n".join(lines) + "\n"


@dataclass
class Guard:
    """Refuses requests without the token, or too large; counts all, and puts safe headers on every answer."""

    app: ASGIApp
    settings: Settings
    counts: Counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, size = time.perf_counter(), 500, 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.settings.body:
                raise HTTPException(413, f"the request is larger than {self.settings.body:,} bytes")
            return message

        async def protected(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = dict(message["headers"])
                headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in headers if one[0] not in given)]
            await send(message)

        try:
            await (self._refusal(scope) or self.app)(scope, limited, protected)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counts.requests[route, status] += 1
            seconds = self.counts.seconds.get(route, 0.0)
            self.counts.seconds[route] = seconds + time.perf_counter() - started

    def _refusal(self, scope: Scope) -> Response | None:
        headers, token = dict(scope["headers"]), self.settings.token
        if token is None and not LOCAL_NAME.fullmatch(headers.get(b"host", b"")):
            return JSONResponse({"error": f"only requests to {LOCAL[0]} are answered"}, 403)
        origin = headers.get(b"origin")
        if token is None and origin not in (None, b"http://" + headers[b"host"]):
            return JSONResponse({"error": "only pages of this server may ask"}, 403)
        if token is None or scope["path"] in ("/", "/health") or scope["path"].startswith("/page/"):
            return None
        given = headers.get(b"authorization", b"")
        if secrets.compare_digest(given, f"Bearer {token}".encode()):
            return None
        return JSONResponse({"error": "a token is needed"}, 401, {"WWW-Authenticate": "Bearer"})


# The routes


def app(given: Mapping[str, Loaded] | Runs, settings: Settings, *, page: bool = False) -> FastAPI:
    """The server of some runs, by their names. With one loaded run its routes also exist without the name."""
    runs, counts = given if isinstance(given, Runs) else Runs(settings, given), Counts()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for one in runs.served.values():
            await asyncio.to_thread(one.queue.close)

    def known(name: str) -> str:
        if name not in runs:
            raise HTTPException(404, f"there is no run of this name: GET /runs lists all {len([*runs])}")
        return name

    def named(name: str) -> Served:
        return runs[known(name)]

    api = FastAPI(title="regard", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    _answer_errors(api)
    _verbs(api, "/runs/{name}", named)
    if len(runs.served) == 1:
        _verbs(api, "", lambda: next(iter(runs.served.values())))
    if page:
        _files(api)

    @api.get("/runs")
    def list_runs() -> list[dict[str, Any]]:
        return [runs.summary(name) for name in runs]

    @api.get("/runs/{name}")
    def show_run(name: str) -> dict[str, Any]:
        return {**runs.summary(known(name)), "recipe": runs.opened(name).recipe.model_dump()}

    @api.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "runs": list(runs)}

    @api.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        return counts.text(runs.served)

    @api.get("/docs", response_class=HTMLResponse)
    async def docs() -> str:
        return "".join(_page(api.openapi()))

    api.add_middleware(Guard, settings=settings, counts=counts)
    return api


def _verbs(api: FastAPI, prefix: str, chosen: Callable[..., Served]) -> None:
    """The routes of one run."""

    @api.post(f"{prefix}/predict")
    async def predict(body: PredictBody, run: Served = Depends(chosen)) -> Response:
        if body.stream:
            return StreamingResponse(streamed(run, body), media_type="text/event-stream")
        answers = await run.computed(run.predict_job(body))
        return JSONResponse({"predictions": readable(answers, skip_bad=body.skip_bad)})

    @api.post(f"{prefix}/score")
    async def score(body: ScoreBody, run: Served = Depends(chosen)) -> Response:
        [source] = run.checked([body.source])
        return JSONResponse(await run.alone(lambda: run.run.score(source, body.target)))

    @api.post(f"{prefix}/explain")
    async def explain(body: ExplainBody, run: Served = Depends(chosen)) -> Response:
        run.checked([body.input], EXPLAINED)
        answer: Response = await run.alone(lambda: run.explain(body))
        return answer

    @api.post(f"{prefix}/features")
    async def features(body: FeaturesBody, run: Served = Depends(chosen)) -> Response:
        run.checked(body.inputs)
        return JSONResponse(await run.alone(lambda: run.features(body)))


def _files(api: FastAPI) -> None:
    """The page: files of this package. A request chooses one of them by its name."""
    files = {path.relative_to(folder).as_posix(): path for folder in (PAGE, TEMPLATES) for path in folder.rglob("*.*")}

    @api.get("/", include_in_schema=False)
    @api.get("/page/{name:path}", include_in_schema=False)
    def show_page(name: str = "index.html") -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return Response(files[name].read_bytes(), headers=PAGE_POLICY, media_type=KINDS[files[name].suffix])


def _answer_errors(api: FastAPI) -> None:
    """Every error is JSON with one sentence."""

    @api.exception_handler(RegardError)
    async def refused(_: object, error: RegardError) -> Response:
        return JSONResponse(_told(error), 422)

    @api.exception_handler(RequestValidationError)
    async def invalid(_: object, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        problem = Problem(".".join(str(part) for part in first["loc"]), first["msg"])
        return JSONResponse({"error": str(problem)}, 422)

    @api.exception_handler(AnyHTTPException)
    async def stated(_: object, error: AnyHTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @api.exception_handler(Exception)
    async def failed(_: object, error: Exception) -> Response:
        return JSONResponse({"error": "the server failed; its log says why"}, 500, HEADERS)


def _page(schema: Mapping[str, Any]) -> Iterator[str]:
    """The routes and their bodies as a page that loads nothing."""
    yield "<!doctype html><meta charset=utf-8><title>regard</title><h1>regard</h1><p><a href=openapi.json>OpenAPI</a>"
    for path, methods in schema["paths"].items():
        yield from (f"<h2>{method.upper()} {html.escape(path)}</h2>" for method in methods)
    for name, body in schema["components"]["schemas"].items():
        if name.endswith("Body"):
            yield f"<h2>{name}</h2><pre>{html.escape(json.dumps(body['properties'], indent=1))}</pre>"


def serve(runs: Mapping[str, Loaded] | Runs, settings: Settings, *, page: bool = False, browse: bool = False) -> None:
    """Answer until SIGINT or SIGTERM, then finish what is there. With the page, `browse` opens it."""
    config = uvicorn.Config(
        app(runs, settings, page=page), access_log=False, server_header=False, log_level="warning",
        timeout_graceful_shutdown=int(settings.timeout) + 1,
    )  # fmt: skip
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.create_server((settings.host, settings.port), family=family) as listening:
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has finished
        address = f"http://{settings.host}:{listening.getsockname()[1]}"
        names = [*runs]
        print(f"studio of {len(names)} runs" if page else f"serving {', '.join(names)}", "on", address, flush=True)
        if browse:
            webbrowser.open(f"{address}/" + (f"#/runs?token={settings.token}" if settings.token else ""))
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
