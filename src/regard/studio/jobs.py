"""Jobs: long work of the server, done one after another. A job is polled, or followed by server-sent
events, and can be cancelled."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi import HTTPException
from fastapi.responses import JSONResponse, Response

from regard.errors import RegardError
from regard.language import shown, shown_comments
from regard.runs.examples import ReportProgress
from regard.search.stopping import StoppedError, stoppable
from regard.studio.answers import error_json, event
from regard.studio.checker import Checker
from regard.views.report import in_language, plain

MAX_WAITING_JOBS = 8
"""Jobs that may wait."""
MAX_FINISHED_JOBS = 12
"""Finished jobs that are kept."""
JOB_SECONDS = 1800.0
"""Seconds that a job may take."""
EVENT_PAUSE_SECONDS = 0.2
"""Seconds between two events of a job."""


TOLD = ("notes", "mistakes")
"""Texts of an answer that are told in the language of the request."""


def _translated(texts: Any) -> Any:
    return shown(texts) if isinstance(texts, str) else [*map(_translated, texts)]


@dataclass(eq=False)
class Job:
    """Work of a verb on some runs: how far it is, and what came of it."""

    verb: str
    runs: Sequence[str]
    seconds: float = JOB_SECONDS
    """Seconds that it may take."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    what: str = ""
    done: int = 0
    total: int = 0
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The answer of a job that is done or has failed."""
    error: RegardError | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    started: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it was cancelled, or has taken too long."""
        return self.cancelled.is_set() or time.monotonic() - self.started > self.seconds

    @property
    def is_finished(self) -> bool:
        return self.state not in ("waiting", "running")

    def move(self, what: str, done: int, total: int) -> None:
        """Called by the verb as it goes on, which stops it if it is over; as does every step of a
        search."""
        if self.is_over:
            raise StoppedError
        self.what = what
        self.done = done
        self.total = total

    def status(self) -> dict[str, Any]:
        """All about the job, with the report or the error in the language of the request."""
        names = ("id", "verb", "runs", "state", "what", "done", "total")
        error = error_json(self.error) if self.error else {}
        status = {
            **{name: getattr(self, name) for name in names},
            **self.answer,
            **error,
            "what": shown(self.what),
            **{name: _translated(self.answer[name]) for name in TOLD if name in self.answer},
        }
        if proposal := self.answer.get("proposal"):
            status["proposal"] = shown_comments(proposal)
        report = self.answer.get("report")
        return {**status, "report": in_language(report).to_json()} if report else status

    def run(self, compute: Callable[[ReportProgress], Mapping[str, Any]]) -> None:
        """Compute the answer. The state changes last, when everything else is there."""
        self.started = time.monotonic()
        state: Literal["done", "failed", "cancelled"] = "failed"
        try:
            self.move("", 0, 0)
            self.state = "running"
            with stoppable(lambda: self.is_over):
                self.answer = compute(self.move)
            state = "done"
        except StoppedError:
            if self.cancelled.is_set():
                state = "cancelled"
            else:
                self.answer = {"error": f"it was stopped after {self.seconds:g} seconds"}
        except RegardError as error:
            self.error = error
        except Exception:
            logging.getLogger("uvicorn.error").exception("%s of %s", self.verb, self.runs)
            self.answer = {"error": "the server failed; its log says why"}
        finally:
            self.state = state


class Jobs:
    """Jobs by their names, which cannot be guessed. One thread computes them, the oldest first."""

    def __init__(self, public: Callable[[Any], Any]) -> None:
        self.jobs: dict[str, Job] = {}
        self.public = public
        """Gives an answer without the server's paths."""
        self.checker = Checker()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")

    def submit(self, job: Job, compute: Callable[[ReportProgress], Mapping[str, Any]]) -> Response:
        """Queue a job, if not too many wait, and forget the oldest finished ones."""
        waiting = [
            other
            for other in self.jobs.values()
            if other.state == "waiting" and not other.cancelled.is_set()
        ]
        if len(waiting) >= MAX_WAITING_JOBS:
            raise HTTPException(503, "too many jobs wait: try again later", {"Retry-After": "10"})
        finished = [other.id for other in self.jobs.values() if other.is_finished]
        for old in finished[: max(0, len(finished) - MAX_FINISHED_JOBS + 1)]:
            del self.jobs[old]
        self.jobs[job.id] = job
        self._thread.submit(job.run, compute)
        return self.answer(job, 202)

    def find(self, job: str) -> Job:
        """The job of a name; the routes take `job` from their path."""
        if job not in self.jobs:
            raise HTTPException(404, "there is no job of this name, or it is too old")
        return self.jobs[job]

    def close(self) -> None:
        """Cancel all jobs, and wait for the one that runs."""
        for job in self.jobs.values():
            job.cancelled.set()
        self._thread.shutdown()
        self.checker.close()

    def answer(self, job: Job, status: int = 200) -> Response:
        return JSONResponse(self._status_of(job), status)

    async def events_of(self, job: Job) -> AsyncIterator[str]:
        """`progress` whenever it has moved, at the end `done`, `failed` or `cancelled` with the
        whole status."""
        last = None
        while not job.is_finished:
            now = (job.state, job.what, job.done, job.total)
            if now != last:
                yield event("progress", self._status_of(job))
            last = now
            await asyncio.sleep(EVENT_PAUSE_SECONDS)
        yield event(job.state, self._status_of(job))

    def _status_of(self, job: Job) -> dict[str, Any]:
        status: dict[str, Any] = self.public(plain(job.status()))
        return status
