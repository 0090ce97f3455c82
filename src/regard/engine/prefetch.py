"""Batches that are prepared while the model computes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

import torch

from regard.data.batches import AnyBatch

T = TypeVar("T")
B = TypeVar("B", bound=AnyBatch)


def ahead(
    batches: Iterable[tuple[B, T]],
    depth: int,
    change: Callable[[B], B] = lambda batch: batch,
    move: Callable[[B], B] = lambda batch: batch,
) -> Generator[tuple[B, T], None, None]:
    """The same batches, changed, up to `depth` of them prepared in a thread of their own while the
    consumer works.

    With CUDA they lie in pinned memory; `move` then takes them to the device, still in that thread,
    which starts with the first batch asked for. Its errors are raised here. Closing the generator
    ends it.
    """
    free, stop, ready = Semaphore(depth), Event(), SimpleQueue[tuple[B, T] | BaseException | None]()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def prepare() -> None:
        end: BaseException | None = None
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a new thread begins on device 0
            iterator = iter(batches)
            while (
                free.acquire() and not stop.is_set() and (item := next(iterator, None)) is not None
            ):
                batch = change(item[0])
                batch = batch if device is None else batch.map(lambda tensor: tensor.pin_memory())
                ready.put((move(batch), item[1]))
        except BaseException as caught:
            end = caught
        ready.put(end)

    thread = Thread(target=prepare, name="regard-batches", daemon=True)
    thread.start()
    try:
        while isinstance(item := ready.get(), tuple):
            free.release()
            yield item
        if item is not None:
            raise item
    finally:
        stop.set()
        free.release()
        thread.join()
