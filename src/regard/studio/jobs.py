"""Long verbs over HTTP: `evaluate`, `diagnose`, `compare` and `check` as jobs, computed one after
another.

A job is polled, or followed by server-sent events, and can be cancelled. Files of a request are
written to a temporary folder under fixed names; no text of a request is used as a path.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import AfterValidator, Field, model_validator

from regard.api import Loaded, compare, diagnose, evaluate
from regard.errors import ConfigError, DataError, RegardError
from regard.language import shown
from regard.runs.examples import Progress, examples_of
from regard.search.stopping import StoppedError, stoppable
from regard.studio.checker import Checker
from regard.studio.sent import begins_with, refuse_large, refuse_large_files
from regard.studio.served import Body, Served, event, told
from regard.tasks.task import summed
from regard.views.report import Result, in_language, plain

WAITING, KEPT, SECONDS, CHECK_SECONDS, PAUSE = 8, 12, 1800.0, 300.0, 0.2
"""Jobs that may wait; finished ones that are kept; seconds that one may take, and a check; seconds
between two events of one."""
PLAIN = re.compile(r"[\w][\w .()-]{0,99}")
"""Names of files that are sent: no folders, nothing hidden."""
NAME_BYTES = 200
"""Most bytes of a name that is sent, in UTF-8."""
MEASURED = 1_000
"""Sentences that are diagnosed unless a request says how many."""


class MeasureBody(Body):
    """Which examples, and by which search: a split of the run, or rows with its columns."""

    split: Literal["train", "validation", "test"] | None = None
    rows: list[dict[str, Any]] | None = Field(None, min_length=1, max_length=10_000)
    beam: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = Field(None, ge=0, le=10)

    @contextmanager
    def options(self) -> Iterator[dict[str, Any]]:
        """Those of the verbs; rows are a file in a folder of their own, which no message names."""
        options = self.model_dump(include={"split", "beam", "length_penalty"})
        if self.rows is None:
            yield options
            return
        with private_folder() as folder:
            lines = [json.dumps(row, ensure_ascii=False) for row in self.rows]
            (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            yield {**options, "files": [str(folder / "rows.jsonl")]}

    @staticmethod
    def confined(run: Loaded, options: Mapping[str, Any]) -> Loaded:
        """A copy of the run, for which rows that are sent name no files of this machine, such as
        images."""
        own = run.copy()
        if "files" not in options:
            return own
        return own.under(
            own.recipe.model_copy(update={"within": str(Path(options["files"][0]).parent)})
        )


class DiagnoseBody(MeasureBody):
    limit: int = Field(MEASURED, ge=1, le=10_000)
    sweep: list[int] = Field([], max_length=6)
    """Other beams to try."""

    @model_validator(mode="after")
    def _widths(self) -> DiagnoseBody:
        if not all(1 <= width <= 64 for width in self.sweep):
            raise ValueError("a beam is 1 to 64 wide")
        return self


class CompareBody(MeasureBody):
    runs: list[str] = Field(min_length=2, max_length=8)
    baseline: str | None = None


def short_enough(name: str) -> str:
    """A name that a file system can hold, also with a few letters more: most take 255 bytes."""
    if (size := len(name.encode())) > NAME_BYTES:
        raise ValueError(f"the name has {size} bytes in UTF-8, at most {NAME_BYTES} are allowed")
    return name


class SentFile(Body):
    name: Annotated[str, AfterValidator(short_enough)] = Field(pattern=f"^{PLAIN.pattern}$")
    text: str


class CheckBody(Body):
    """A recipe as YAML and the files that it names, or data files alone, for which a recipe is
    proposed."""

    recipe: str | None = Field(None, max_length=100_000)
    files: list[SentFile] = Field([], max_length=8)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder. Errors name its files without it."""
    with TemporaryDirectory(prefix="regard-") as name:
        folder = Path(name).resolve()
        try:
            yield folder
        except RegardError as error:
            problems = [
                replace(
                    problem,
                    where=_without(folder, problem.where),
                    what=_without(folder, problem.what),
                )
                for problem in error.problems
            ]
            raise type(error)(problems=problems) from None


def _without(folder: Path, text: str) -> str:
    return re.sub(
        rf"(\.\./)*{re.escape(folder.name)}/", "", text.replace(f"{folder}/", "")
    ).replace(str(folder), "")


# What each verb answers: what its command's --json prints as `result`, and its report for people


def _answer_of(result: Result, **others: Any) -> dict[str, Any]:
    return {"result": result.to_json(), "report": result.report(), **others}


def _evaluation(run: Served, body: MeasureBody, progress: Progress) -> dict[str, Any]:
    """The metrics, and `predictions`, or how well each example is predicted; nothing is left in the
    run folder."""
    moved = partial(progress, "examples")
    with body.options() as options:
        own = body.confined(run.run, options)
        metrics = evaluate(own, predictions=False, progress=moved, **options)
        predictions = metrics.pop("predictions", None)
        if predictions is None and own.task.writes != "target":  # those are decoded by `diagnose`
            examples = examples_of(own, body.split, options.get("files", ()))
            with suppress(DataError):  # some models cannot say
                predictions = own.task.metrics.by_unit(
                    own.load_model(), examples, summed(moved, len(examples))
                )
    others = {name: value for name, value in metrics.items() if name not in ("errors", "files")}
    return {"result": others, "report": None, "predictions": predictions}


def _diagnosis(run: Served, body: DiagnoseBody, progress: Progress) -> dict[str, Any]:
    """The diagnosis, and every sentence that was judged."""
    with body.options() as options:
        progress("scoring", 0, 0)
        result = diagnose(
            body.confined(run.run, options),
            limit=body.limit,
            sweep=body.sweep,
            progress=progress,
            **options,
        )
    return _answer_of(
        result, sentences=[{**judged.to_json(), "error": judged.error} for judged in result.judged]
    )


def _comparison(runs: Sequence[Served], body: CompareBody, progress: Progress) -> dict[str, Any]:
    with body.options() as options:
        copies = [body.confined(run.run, options) for run in runs]
        return _answer_of(compare(copies, baseline=body.baseline, progress=progress, **options))


def checked(
    body: CheckBody, overrides: Sequence[str], checker: Checker, progress: Progress
) -> dict[str, Any]:
    """What `check` finds, in a process of its own."""
    progress("reading", 0, 0)
    with private_folder() as folder:
        for file in body.files:
            (folder / file.name).write_text(file.text, encoding="utf-8")
        first, *others = [str(folder / file.name) for file in body.files] or [""]
        out: Path | None = folder / "proposal.yaml"  # its paths are relative to it
        if body.recipe is not None:
            (folder / "recipe.yaml").write_text(body.recipe, encoding="utf-8")
            first, others, out = str(folder / "recipe.yaml"), [*overrides], None
        found, sentences = checker.check(
            first, others, folder, out, partial(progress, "reading", 0, 0)
        )
        result = json.loads(_without(folder, json.dumps(found, ensure_ascii=False)))
        return {
            "result": result,
            "report": None,
            "text": [_without(folder, line) for line in sentences],
        }


def _overrides_of(body: CheckBody, folder_of: Callable[[str], Path | None]) -> list[str]:
    """The overrides for what is sent to be checked; what is too large, or cannot be meant, is
    refused."""
    files = {file.name: file.text for file in body.files}
    if body.recipe is not None:
        overrides = begins_with(body.recipe, folder_of)
        refuse_large(body.recipe, overrides, files)
        return overrides
    if not files:
        raise ConfigError("there is nothing to check", where="body", hint="send a recipe, or files")
    if Path(next(iter(files))).suffix.lower() in ("", ".yaml", ".yml"):
        raise ConfigError(
            "this is not a file of data", where=next(iter(files)), hint="send a recipe as `recipe`"
        )
    refuse_large_files(files)
    return []


# Jobs


@dataclass(eq=False)
class Work:
    verb: str
    runs: Sequence[str]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    what: str = ""
    done: int = 0
    total: int = 0
    answer: Mapping[str, Any] = field(default_factory=dict)
    """Of a job that is done or has failed."""
    error: RegardError | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    started: float = 0.0
    seconds: float | None = None
    """How long it may take; SECONDS unless it says."""

    @property
    def limit(self) -> float:
        return SECONDS if self.seconds is None else self.seconds

    @property
    def is_over(self) -> bool:
        """Whether it was cancelled, or has taken too long."""
        return self.cancelled.is_set() or time.monotonic() - self.started > self.limit

    @property
    def finished(self) -> bool:
        return self.state not in ("waiting", "running")

    def move(self, what: str, done: int, total: int) -> None:
        """Called by the verb as it goes on, which stops it if it is over; as does every step of a
        search."""
        if self.is_over:
            raise StoppedError
        self.what, self.done, self.total = what, done, total

    def status(self) -> dict[str, Any]:
        """With the report or the error in the language of the request."""
        names = ("id", "verb", "runs", "state", "what", "done", "total")
        error = told(self.error) if self.error else {}
        status = {
            **{name: getattr(self, name) for name in names},
            **self.answer,
            **error,
            "what": shown(self.what),
        }
        report = self.answer.get("report")
        return {**status, "report": in_language(report).to_json()} if report else status

    def run(self, compute: Callable[[Progress], Mapping[str, Any]]) -> None:
        self.started, state = time.monotonic(), "failed"
        try:
            self.move("", 0, 0)
            self.state = "running"
            with stoppable(lambda: self.is_over):
                self.answer, state = compute(self.move), "done"
        except StoppedError:
            late = {"error": f"it was stopped after {self.limit:g} seconds"}
            self.answer, state = ({}, "cancelled") if self.cancelled.is_set() else (late, "failed")
        except RegardError as error:
            self.error = error
        except Exception:
            logging.getLogger("uvicorn.error").exception("%s of %s", self.verb, self.runs)
            self.answer = {"error": "the server failed; its log says why"}
        finally:
            self.state = state  # type: ignore[assignment]


class Jobs:
    """Jobs by their numbers, which cannot be guessed. One thread computes them, the oldest
    first."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        self.checker = Checker()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")

    def submit(
        self,
        verb: str,
        runs: Sequence[str],
        compute: Callable[[Progress], Mapping[str, Any]],
        seconds: float | None = None,
    ) -> Response:
        waiting = [
            work
            for work in self.works.values()
            if work.state == "waiting" and not work.cancelled.is_set()
        ]
        if len(waiting) >= WAITING:
            raise HTTPException(503, "too many jobs wait: try again later", {"Retry-After": "10"})
        finished = [work.id for work in self.works.values() if work.finished]
        for old in finished[: max(0, len(finished) - KEPT + 1)]:
            del self.works[old]
        work = Work(verb, runs, seconds=seconds)
        self.works[work.id] = work
        self._thread.submit(work.run, compute)
        return _answered(work, 202)

    def find(self, job: str) -> Work:
        if job not in self.works:
            raise HTTPException(404, "there is no job of this name, or it is too old")
        return self.works[job]

    def close(self) -> None:
        for work in self.works.values():
            work.cancelled.set()
        self._thread.shutdown()
        self.checker.close()


async def _events_of(work: Work) -> AsyncIterator[str]:
    """`progress` whenever it has moved, at the end `done`, `failed` or `cancelled` with the whole
    status."""
    last = None
    while not work.finished:
        if (now := (work.state, work.what, work.done, work.total)) != last:
            yield event("progress", plain(work.status()))
        last = now
        await asyncio.sleep(PAUSE)
    yield event(work.state, plain(work.status()))


def long_verbs(
    api: FastAPI, named: Callable[[str], Served], folder_of: Callable[[str], Path | None]
) -> Jobs:
    """The routes; `folder_of` gives the folder of a run by its name, for recipes that begin with
    one."""
    jobs = Jobs()

    @api.post("/runs/{name}/evaluate", status_code=202)
    def evaluate_run(body: MeasureBody, run: Served = Depends(named)) -> Response:
        """A job that computes the task's metrics."""
        run.refuse_rows(body.rows or (), body.beam, body.length_penalty)
        return jobs.submit("evaluate", [run.name], partial(_evaluation, run, body))

    @api.post("/runs/{name}/diagnose", status_code=202)
    def diagnose_run(body: DiagnoseBody, run: Served = Depends(named)) -> Response:
        """A job that tells search errors from model errors."""
        for beam in (body.beam, *body.sweep):
            run.refuse_rows(body.rows or (), beam, body.length_penalty)
        return jobs.submit("diagnose", [run.name], partial(_diagnosis, run, body))

    @api.post("/compare", status_code=202)
    def compare_runs(body: CompareBody) -> Response:
        """A job that compares runs of one task."""
        runs = [*map(named, body.runs)]
        for run in runs:
            run.refuse_rows(body.rows or (), body.beam, body.length_penalty)
        return jobs.submit("compare", body.runs, partial(_comparison, runs, body))

    @api.post("/check", status_code=202)
    def check_recipe(body: CheckBody) -> Response:
        """A job that validates a recipe and its data, or proposes one for the files."""
        overrides = _overrides_of(body, folder_of)
        return jobs.submit(
            "check", [], partial(checked, body, overrides, jobs.checker), CHECK_SECONDS
        )

    @api.get("/jobs/{job}")
    def show_job(work: Work = Depends(jobs.find)) -> Response:
        """How far a job is, and what came of it."""
        return _answered(work)

    @api.get("/jobs/{job}/events")
    async def follow_job(work: Work = Depends(jobs.find)) -> Response:
        """The same as server-sent events."""
        return StreamingResponse(_events_of(work), media_type="text/event-stream")

    @api.delete("/jobs/{job}")
    def cancel_job(work: Work = Depends(jobs.find)) -> Response:
        """Cancel a job."""
        work.cancelled.set()
        return _answered(work)

    return jobs


def _answered(work: Work, status: int = 200) -> Response:
    return JSONResponse(plain(work.status()), status)
