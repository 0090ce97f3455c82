"""The HTTP server: one route per verb of api.py, for every run that is loaded.

A route checks its body, puts a job into the run's queue and answers with the JSON that the
command's `--json` prints. Besides the loaded runs the server holds the long jobs, the trainings that
it started, and counters; all of them end with it. No text of a request is used as a path.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from jinja2 import Environment, FileSystemLoader

from regard import __version__
from regard.api import Loaded, show
from regard.course.topics import topics, topics_or_refusal
from regard.errors import RegardError
from regard.language import default_language, shown
from regard.studio.answers import answer_errors
from regard.studio.attention_maps import AttentionBody
from regard.studio.branches import BranchBody, UnknownBody
from regard.studio.connections import ConnectionLimits, Server, limited_protocol
from regard.studio.courses import Courses
from regard.studio.drawings import DiagramBody
from regard.studio.guard import Guard, RequestCounts, has_token
from regard.studio.images import SentImages
from regard.studio.long_verbs import add_long_verbs
from regard.studio.predicting import predict_response
from regard.studio.requests import PredictBody, StrictRoute
from regard.studio.runs import Runs
from regard.studio.served import ServedRun
from regard.studio.settings import Settings
from regard.studio.trainings import Trainings
from regard.studio.verbs import VERB_BODIES, VerbBody
from regard.views.page import page
from regard.views.report import in_language
from regard.views.thumbnail import thumbnail

PAGE = Path(__file__).parent / "page"
MAX_QUERY_CHARACTERS = 200
"""Most characters of a word to look for."""
TEMPLATES = Path(__file__).parents[1] / "views" / "templates"
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
PAGE_POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}


def create_app(
    loaded_or_runs: Mapping[str, Loaded] | Runs, settings: Settings, *, root: Path | None = None
) -> FastAPI:
    """The server of some runs, by their names. With one loaded run its routes also exist without
    the name. With a `root`, the folder for new runs, the page is there too."""
    runs = loaded_or_runs
    if not isinstance(runs, Runs):
        runs = Runs(settings, runs)
    counts = RequestCounts()
    trainings = None
    courses = None
    if root is not None:
        runs.roots.append(root)
        trainings = Trainings(root, runs)
        courses = Courses(root.absolute().parent / "course", runs)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(app.state.jobs.close)
        if courses is not None:
            await asyncio.to_thread(courses.close)
        if trainings is not None:
            await asyncio.to_thread(trainings.close)
        for run in runs.served.values():
            await asyncio.to_thread(run.queue.close)

    api = FastAPI(
        title="regard", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    api.router.route_class = StrictRoute
    api.state.trainings = trainings
    answer_errors(api, runs.public)
    _add_verbs(api, "/runs/{name}", runs.named)
    api.state.jobs = add_long_verbs(api, runs)
    if len(runs.served) == 1:
        _add_verbs(api, "", lambda: next(iter(runs.served.values())))
    if courses is not None:
        courses.add_routes(api)
    if trainings is not None:
        _add_page(api)
        _add_verb(api, "/runs/{name}/attention", AttentionBody, runs.named)
        _add_verb(api, "/runs/{name}/branch", BranchBody, runs.named)
        _add_verb(api, "/runs/{name}/unknown", UnknownBody, runs.named)
        _add_verb(api, "/runs/{name}/diagram", DiagramBody, runs.named)
        api.get("/show/{picture}")(show_picture)
        api.get("/show/{picture}/thumbnail")(show_thumbnail)
        api.get("/show/{picture}/exercise")(show_exercise)
        SentImages().add_routes(api)
        api.get("/topics")(list_topics)
        trainings.add_routes(api)
    api.get("/runs")(runs.list_runs)
    api.get("/runs/{name}")(runs.show_run)
    _add_status(api, runs, settings, counts)
    _add_documentation(api)
    # the page of the studio, if there is one, has this route already
    api.get("/", include_in_schema=False)(lambda: RedirectResponse("/docs"))
    api.add_middleware(Guard, settings=settings, counts=counts)
    return api


def _add_status(api: FastAPI, runs: Runs, settings: Settings, counts: RequestCounts) -> None:
    @api.get("/health")
    async def health(request: Request) -> dict[str, Any]:
        """Says that the server answers; needs no token, but names the runs only with it."""
        knows = settings.token is None or has_token(dict(request.scope["headers"]), settings.token)
        return {"status": "ok", **({"runs": list(runs)} if knows else {})}

    @api.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counters for Prometheus."""
        return counts.prometheus_text(runs.served)


def _add_documentation(api: FastAPI) -> None:
    @api.get("/docs", response_class=HTMLResponse)
    async def docs() -> str:
        """All routes, on a page that loads nothing."""
        pages = Environment(loader=FileSystemLoader(PAGE), autoescape=True)
        pages.filters |= {"json": json.dumps, "kind": _allowed_values}
        schema = api.openapi()
        return pages.get_template("routes.html").render(
            paths=schema["paths"], schemas=schema["components"]["schemas"]
        )


def _add_verbs(api: FastAPI, prefix: str, chosen: Callable[..., ServedRun]) -> None:
    @api.post(f"{prefix}/predict")
    async def predict(
        body: PredictBody, request: Request, run: ServedRun = Depends(chosen)
    ) -> Response:
        """The predictions for `inputs`, as `regard predict --json` prints them. With `stream`,
        server-sent events."""
        return await predict_response(run, body, request)

    for verb, kind in VERB_BODIES.items():
        _add_verb(api, f"{prefix}/{verb}", kind, chosen)


def _add_verb(
    api: FastAPI, path: str, kind: type[VerbBody], chosen: Callable[..., ServedRun]
) -> None:
    async def answer(body: Any, request: Request, run: ServedRun = Depends(chosen)) -> Response:
        run.check(body)
        answer = await run.compute_alone(lambda: body.answer(run.in_languages_of(body)), request)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    # FastAPI reads the type of a body from the annotation, and each verb has its own type
    answer.__annotations__["body"] = kind
    api.post(path, name=path.rpartition("/")[2], description=kind.__doc__)(answer)


def show_picture(picture: str) -> dict[str, Any]:
    """A picture of `regard show`."""
    return in_language(show(picture).report()).to_json()


def show_thumbnail(picture: str) -> dict[str, str]:
    """A small drawing of a picture of `regard show`, for a list."""
    return {"svg": _thumbnail(picture, default_language())}


def show_exercise(picture: str) -> dict[str, str]:
    """A worked example as a page to print: with blanks, and then with its solution."""
    return {"html": page(show(picture, exercise=True, solution=True).report())}


@cache
def _thumbnail(picture: str, language: str) -> str:
    """Drawn once per language, which is that of the request."""
    return thumbnail(in_language(show(picture).report()))


def list_topics(query: str = Query("", max_length=MAX_QUERY_CHARACTERS)) -> list[dict[str, Any]]:
    """The topics of the course that a word finds, as `regard course WORD --json` prints them;
    without a word all of them."""
    found = topics_or_refusal(query) if query.strip() else topics()
    return [topic.to_json() for topic in found]


def _add_page(api: FastAPI) -> None:
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
            files[name].read_bytes(),
            headers=PAGE_POLICY,
            media_type=MEDIA_TYPES[files[name].suffix],
        )


def _allowed_values(schema: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows besides null, in words."""
    if "anyOf" in schema:
        return " or ".join(
            _allowed_values(kind) for kind in schema["anyOf"] if kind.get("type") != "null"
        )
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
    items = f" of {_allowed_values(schema['items'])}" if "items" in schema else ""
    name = schema.get("type") or schema.get("$ref", "any").rpartition("/")[2]
    return f"{name}{items}{limits}"


def serve(
    runs: Mapping[str, Loaded] | Runs,
    settings: Settings,
    *,
    root: Path | None = None,
    browse: bool = False,
) -> None:
    """Answer until SIGINT or SIGTERM, then end as connections.py says. With the page, `browse`
    opens it."""
    api = create_app(runs, settings, root=root)
    limits = ConnectionLimits.of_this_process()
    # the Guard gives up a body that is late before the connection is closed
    protocol = limited_protocol(limits.connections, body_seconds=settings.timeout + 1)
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
    with _listening_socket(settings) as listening:
        server = Server(config, settings.grace, trainings.stop_all if trainings else lambda: None)
        # before uvicorn listens to signals, and when it raises the signal again as it has finished
        signal.signal(signal.SIGTERM, server.end)
        address = f"http://{settings.host}:{listening.getsockname()[1]}"
        names = [*runs]
        what = f"serving {', '.join(names)}"
        if root:
            what = f"studio of {len(names)} run{'' if len(names) == 1 else 's'}"
        print(shown(f"{what} on {address}"), flush=True)
        if browse:
            token = f"#/runs?token={settings.token}" if settings.token else ""
            webbrowser.open(f"{address}/{token}")
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def _listening_socket(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        what = f"nothing can listen on port {settings.port}: {os.strerror(error.errno or 0)}"
        raise RegardError(what, where="--port", hint="0 takes a free one") from None
