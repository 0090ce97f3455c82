"""Requests of many clients, computed together: a queue for each run, and a thread that answers it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


class FullError(Exception):
    """The queue has no room, or is closed."""


@dataclass(eq=False)
class Job:
    """One request: its inputs, and the function that has one answer for each of a list of inputs."""

    inputs: Sequence[Any]
    compute: Callable[[list[Any]], Sequence[Any]]
    kind: Hashable = None
    """Jobs of one kind are computed together: their functions do the same. None: computed alone."""
    length: int = 0
    """Of its longest input."""
    answers: Future[list[Any]] = field(default_factory=Future)


class Batcher:
    """Answers jobs in a thread of its own, the oldest first, together with waiting jobs of its kind."""

    def __init__(self, *, window: float, most: int, room: int) -> None:
        self.window, self.most, self.room = window, most, room
        """Seconds that a job waits for others; inputs computed at once; inputs that may wait."""
        self.batches = self.inputs = 0
        """Computed so far."""
        self._waiting: list[Job] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[list[Any]]:
        """An answer for each of its inputs, in their order. Raises `FullError` where there is no room for them."""
        with self._changed:
            if self._closed or len(self) + len(job.inputs) > self.room:
                raise FullError
            self._waiting.append(job)
            self._changed.notify()
        return job.answers

    def __len__(self) -> int:
        """Inputs that wait."""
        return sum(len(job.inputs) for job in self._waiting)

    def close(self) -> None:
        """Take no more jobs, and return when those that wait are answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            self._answer([job for job in jobs if job.answers.set_running_or_notify_cancel()])

    def _next(self) -> list[Job] | None:
        """The oldest job, and those of its kind that are nearest to it in length; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            oldest = self._waiting[0]
            if oldest.kind is not None:
                self._changed.wait_for(lambda: self._closed or len(self) >= self.most, self.window)
            alike = [job for job in self._waiting[1:] if job.kind == oldest.kind is not None]
            jobs, count = [oldest], len(oldest.inputs)
            for job in sorted(alike, key=lambda job: abs(job.length - oldest.length)):
                if (count := count + len(job.inputs)) > self.most:
                    break
                jobs.append(job)
            taken = set(map(id, jobs))
            self._waiting = [job for job in self._waiting if id(job) not in taken]
            return jobs

    def _answer(self, jobs: list[Job]) -> None:
        """Compute jobs together. If that fails they are computed one by one, so that only those at fault fail."""
        if not jobs:
            return
        inputs = [one for job in jobs for one in job.inputs]
        try:
            answers = iter(jobs[0].compute(inputs))
            parts = [[next(answers) for _ in job.inputs] for job in jobs]
        except BaseException as error:
            for job in jobs if len(jobs) > 1 else []:
                self._answer([job])
            if len(jobs) == 1:
                jobs[0].answers.set_exception(error)
            return
        self.batches, self.inputs = self.batches + 1, self.inputs + len(inputs)
        for job, part in zip(jobs, parts, strict=True):
            job.answers.set_result(part)
