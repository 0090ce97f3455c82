"""Batches that are prepared while the model computes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from itertools import repeat
from queue import SimpleQueue
from threading import Event, Lock, Semaphore, Thread
from typing import Generic, TypeVar

import torch

from regard.data.batches import AnyBatch
from regard.data.parallel import processors

T = TypeVar("T")
B = TypeVar("B", bound=AnyBatch)

MAX_THREADS = 4
"""Threads that are started at most if their number is not given: more would only wait for Python's
global lock."""
WAITS_PER_THREAD = 8
"""One more thread is started after the consumer had to wait for this many batches."""


def ahead(
    jobs: Iterable[tuple[Callable[[], B], T]],
    depth: int,
    change: Callable[[B], B] = lambda batch: batch,
    move: Callable[[B], B] = lambda batch: batch,
    workers: int | None = None,
) -> Generator[tuple[B, T], None, None]:
    """The batches of the jobs, changed, in order, up to `depth` of them prepared while the consumer
    works.

    `workers` is the number of threads that prepare them. None begins with one, and starts another
    whenever the consumer had to wait for some batches; with 0 a batch is prepared when it is asked
    for. With CUDA, batches lie in pinned memory; `move` then takes them to the device, still in the
    thread. Errors are raised here. Closing the generator ends the threads.
    """

    def prepared(make: Callable[[], B]) -> B:
        batch = change(make())
        if torch.cuda.is_available():
            batch = batch.map(lambda tensor: tensor.pin_memory())
        return move(batch)

    if workers == 0:
        for make, after in jobs:
            yield prepared(make), after
        return
    threads = Threads(jobs, depth, prepared)
    for _ in repeat(None, workers or 1):
        threads.start_another()
    limit = workers or max(1, min(MAX_THREADS, processors() - 1))
    try:
        while (item := threads.next()) is not None:
            if threads.waits == WAITS_PER_THREAD and threads.count < limit:
                threads.start_another()
            yield item
    finally:
        threads.close()


class Threads(Generic[B, T]):
    """Threads that take one job after another. Results come in the order of the jobs."""

    def __init__(
        self,
        jobs: Iterable[tuple[Callable[[], B], T]],
        depth: int,
        prepare: Callable[[Callable[[], B]], B],
    ) -> None:
        self._jobs = iter(jobs)
        self._prepare = prepare
        self._free = Semaphore(depth)
        self._stop = Event()
        self._taking = Lock()
        self._has_ended = False
        self._ready = SimpleQueue[Future[tuple[B, T] | None]]()
        self._threads: list[Thread] = []
        self.waits = 0
        """How often a batch was not ready when it was asked for, since the last thread was started."""
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None

    @property
    def count(self) -> int:
        return len(self._threads)

    def start_another(self) -> None:
        thread = Thread(target=self._run, name="regard-batches", daemon=True)
        self._threads.append(thread)
        self.waits = 0
        thread.start()

    def next(self) -> tuple[B, T] | None:
        """The next batch; None after the last one."""
        result = self._ready.get()
        self.waits += not result.done()
        item = result.result()
        self._free.release()
        return item

    def close(self) -> None:
        self._stop.set()
        for _ in self._threads:
            self._free.release()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        if self._device is not None:
            torch.cuda.set_device(self._device)  # a new thread begins on device 0
        while self._free.acquire() and not self._stop.is_set():
            result = Future[tuple[B, T] | None]()
            try:
                with self._taking:
                    if self._has_ended:
                        return
                    self._ready.put(result)
                    job = self._next_job()
                result.set_result(job and (self._prepare(job[0]), job[1]))
            except BaseException as error:
                result.set_exception(error)

    def _next_job(self) -> tuple[Callable[[], B], T] | None:
        """The next job; None after the last one and after an error."""
        self._has_ended = True
        job = next(self._jobs, None)
        self._has_ended = job is None
        return job
