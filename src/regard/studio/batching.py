"""The queue of a run: requests of many clients, computed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fastapi import HTTPException

from regard.search.stopping import StoppedError, stoppable


@dataclass(eq=False)
class QueuedRequest:
    """One request: its inputs, and the function that has one answer for each of a list of
    inputs."""

    inputs: Sequence[Any]
    compute: Callable[[list[Any]], Sequence[Any]]
    kind: Hashable = None
    """Requests of one kind are computed together, since their functions do the same. None: alone."""
    length: int = 0
    """Characters of its longest input."""
    answers: Future[list[Any]] = field(default_factory=Future)
    given_up: bool = False
    """Whether nobody waits for the answers any more."""

    @property
    def size(self) -> int:
        """About how much there is to compute: inputs times characters."""
        return len(self.inputs) * max(1, self.length)

    def give_up(self) -> None:
        """Stop what is computed of it, and do not begin what waits."""
        self.given_up = True
        self.answers.cancel()


class Batcher:
    """Answers requests in a thread of its own, the oldest first, together with waiting requests of
    its kind."""

    def __init__(self, *, window: float, max_inputs: int, max_waiting: int) -> None:
        self.window = window
        """Seconds that a request waits for others."""
        self.max_inputs = max_inputs
        """Most inputs that are computed at once."""
        self.max_waiting = max_waiting
        """Most inputs that may wait."""
        self.batches = 0
        """Batches computed so far."""
        self.inputs = 0
        """Inputs computed so far."""
        self._waiting: list[QueuedRequest] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, request: QueuedRequest) -> Future[list[Any]]:
        """An answer for each of its inputs, in their order, if there is room for them."""
        with self._changed:
            self._waiting = [waiting for waiting in self._waiting if not waiting.given_up]
            if self._closed or len(self) + len(request.inputs) > self.max_waiting:
                raise HTTPException(503, "the queue is full: try again later", {"Retry-After": "1"})
            self._waiting.append(request)
            self._changed.notify()
        return request.answers

    def __len__(self) -> int:
        """Inputs that wait."""
        return sum(len(request.inputs) for request in self._waiting)

    def close(self) -> None:
        """Take no more requests, and return when those that wait are answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._answer(
                [request for request in batch if request.answers.set_running_or_notify_cancel()]
            )

    def _next_batch(self) -> list[QueuedRequest] | None:
        """The oldest request, and those of its kind that are nearest to it in length; None when
        there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            oldest = self._waiting[0]
            if oldest.kind is not None:
                self._changed.wait_for(
                    lambda: self._closed or len(self) >= self.max_inputs, self.window
                )
            batch = self._batch_with(oldest)
            self._waiting = [request for request in self._waiting if request not in batch]
            return batch

    def _batch_with(self, oldest: QueuedRequest) -> list[QueuedRequest]:
        alike = [
            request for request in self._waiting[1:] if request.kind == oldest.kind is not None
        ]
        batch = [oldest]
        count = len(oldest.inputs)
        for request in sorted(alike, key=lambda request: abs(request.length - oldest.length)):
            count += len(request.inputs)
            if count > self.max_inputs:
                break
            batch.append(request)
        return batch

    def _answer(self, batch: list[QueuedRequest]) -> None:
        """Compute requests together. If that fails they are computed one by one, so that only those
        at fault fail.

        If clients give up the larger part of the work, it stops, and what others wait for is
        computed without it.
        """
        batch = [request for request in batch if not request.given_up]
        if not batch:
            return
        inputs = [item for request in batch for item in request.inputs]
        try:
            with stoppable(lambda: _is_mostly_given_up(batch)):
                answers = iter(batch[0].compute(inputs))
                parts = [[next(answers) for _ in request.inputs] for request in batch]
        except StoppedError:
            self._answer(batch)
            return
        except BaseException as error:
            if len(batch) == 1:
                batch[0].answers.set_exception(error)
                return
            for request in batch:
                self._answer([request])
            return
        self.batches += 1
        self.inputs += len(inputs)
        for request, part in zip(batch, parts, strict=True):
            request.answers.set_result(part)


def _is_mostly_given_up(batch: Sequence[QueuedRequest]) -> bool:
    given_up = sum(request.size for request in batch if request.given_up)
    return 2 * given_up > sum(request.size for request in batch)
