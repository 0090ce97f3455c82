"""Examples -> batches by token budget: a seeded order that can be taken up again at any batch, prepared ahead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar, cast

import torch

from regard.data.batch import AnyBatch
from regard.data.dataset import Examples, Rows, auto_batch_tokens, fixed_batches, plan

__all__ = ["START", "Position", "Stream", "ahead", "auto_batch_tokens", "fixed_batches", "plan"]

B = TypeVar("B", bound=AnyBatch)
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Position:
    """The next batch of a stream: its epoch, and its number in the order of that epoch, both from 0."""

    epoch: int
    index: int


START = Position(0, 0)


class Stream:
    """Epoch after epoch of batches without end, and with each batch the position to go on from.

    All processes walk through the same order from the same position in groups of `world` batches, and process `rank`
    takes the batch of that number in each group. A group may begin in one epoch and end in the next, so none is left
    incomplete. The position that comes with a batch is the end of its group: the same in every process.
    """

    def __init__(
        self,
        dataset: Examples,
        batch_tokens: int,
        seed: int,
        position: Position = START,
        *,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        assert len(dataset) > 0
        assert 0 <= rank < world
        self.dataset, self.batch_tokens, self.seed = dataset, batch_tokens, seed
        self.position, self.rank, self.world = position, rank, world
        self._plans: dict[int, list[Rows]] = {}

    def epoch_batches(self, epoch: int) -> int:
        """How many batches the epoch has, over all processes."""
        return len(self._plan(epoch))

    def __iter__(self) -> Iterator[tuple[AnyBatch, Position]]:
        position = self._forward(self.position, 0)
        while True:
            mine = self._forward(position, self.rank)
            batch = self.dataset.batch(self._plan(mine.epoch)[mine.index], self.seed, mine.epoch)
            position = self._forward(position, self.world)
            yield batch, position

    def _forward(self, position: Position, batches: int) -> Position:
        epoch, index = position.epoch, position.index + batches
        while index >= self.epoch_batches(epoch):
            index -= self.epoch_batches(epoch)
            epoch += 1
        return Position(epoch, index)

    def _plan(self, epoch: int) -> list[Rows]:
        """Keeps the two latest epochs, since a group may reach from one into the next."""
        if epoch not in self._plans:
            planned = self.dataset.plan(self.batch_tokens, self.seed, epoch)
            self._plans = {epoch: planned, **{key: old for key, old in self._plans.items() if key == epoch - 1}}
        return self._plans[epoch]


@dataclass(frozen=True)
class _End:
    """The last thing a preparing thread hands over."""

    error: BaseException | None


def ahead(
    batches: Iterable[tuple[B, T]], depth: int, move: Callable[[B], B] | None = None
) -> Generator[tuple[B, T], None, None]:
    """The same batches, up to `depth` of them prepared in a thread of their own while the consumer works.

    With CUDA they lie in pinned memory; `move` then takes them to the device, still in that thread, which starts with
    the first batch asked for. Its errors are raised here. Closing the generator ends it.
    """
    free, stop, ready = Semaphore(depth), Event(), SimpleQueue[tuple[B, T] | _End]()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def prepare() -> None:
        error = None
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a new thread begins on device 0
            iterator = iter(batches)
            while free.acquire() and not stop.is_set() and (item := next(iterator, None)) is not None:
                batch = item[0] if device is None else cast("B", item[0].pin())
                ready.put((move(batch) if move else batch, item[1]))
        except BaseException as caught:
            error = caught
        ready.put(_End(error))

    thread = Thread(target=prepare, name="regard-batches", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            free.release()
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        free.release()
        thread.join()
