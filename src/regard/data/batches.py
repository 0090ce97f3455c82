"""Examples -> batches by token budget: a seeded order that can be taken up again at any batch, prepared ahead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, floor
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import Batch, Tokens
from regard.data.dataset import Dataset

Examples = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Position:
    """The next batch of a stream: its epoch, and its number in the order of that epoch, both from 0."""

    epoch: int
    index: int


START = Position(0, 0)


def plan(dataset: Dataset, batch_tokens: int, seed: int, epoch: int) -> list[Examples]:
    """The batches of an epoch, in order; the same for the same seed and epoch on every machine.

    A batch has rows * longest <= batch_tokens, where longest is the greatest of its `Dataset.lengths`; an example that
    is longer than the budget is a batch of its own. Batches are cut from the examples sorted by length, and shuffled.
    """
    # Raw bits and not `Generator.permutation`: NumPy promises to keep the first the same between its versions
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    examples = _drawn(dataset, bits)
    batches = _cut(_sorted_by_length(dataset, examples, bits), dataset.lengths, batch_tokens)
    return [batches[number] for number in np.argsort(bits.random_raw(len(batches)), kind="stable")]


def _drawn(dataset: Dataset, bits: np.random.PCG64) -> Examples:
    """The examples of an epoch: weight 2 shows each one twice, 1.5 each one and a half of them again."""
    if all(weight == 1 for weight in dataset.weights):
        return np.arange(len(dataset))
    drawn = []
    for number, weight in enumerate(dataset.weights):
        examples = np.flatnonzero(dataset.corpora == number)
        part = ceil((weight - floor(weight)) * len(examples))
        chosen = np.argsort(bits.random_raw(len(examples)), kind="stable")[:part]
        drawn += [examples] * floor(weight) + [examples[chosen]]
    return np.concatenate(drawn)


def _sorted_by_length(dataset: Dataset, examples: Examples, bits: np.random.PCG64) -> Examples:
    """Shortest first; among equals by how much the first column is longer than the last, give or take a token.

    The second key keeps the padding of both columns small, up and down in turn so that it does not jump where the
    length grows by one. The random token mixes the batches anew in each epoch.
    """
    lengths = dataset.lengths[examples].astype(np.int64)
    columns = [column.lengths[examples].astype(np.int64) for column in dataset.columns.values()]
    noise = (bits.random_raw(len(examples)) >> np.uint64(47)).astype(np.int64)  # 17 bits: two tokens of 2**16
    second = ((columns[0] - columns[-1]) << 16) + noise
    keys = (lengths << 40) + np.where(lengths % 2 == 0, second, -second)
    return examples[np.argsort(keys, kind="stable")]


def _cut(examples: Examples, lengths: NDArray[np.int32], batch_tokens: int) -> list[Examples]:
    """As many examples a batch as the budget allows; they come sorted by length, so the last one is the longest."""
    batches = []
    sorted_lengths = lengths[examples].astype(np.int64)
    start = 0
    while start < len(examples):
        most = max(1, batch_tokens // int(sorted_lengths[start]))
        cost = sorted_lengths[start : start + most]
        rows = max(1, int(np.searchsorted(cost * np.arange(1, len(cost) + 1), batch_tokens, side="right")))
        batches.append(examples[start : start + rows])
        start += rows
    return batches


def fixed_batches(dataset: Dataset, batch_tokens: int) -> list[Examples]:
    """Each example once, shortest first: for validation and test, where the order does not matter."""
    return _cut(np.argsort(dataset.lengths, kind="stable"), dataset.lengths, batch_tokens)


def auto_batch_tokens(dataset: Dataset, *, on_cpu: bool) -> int:
    """The budget that `training.batch_tokens: auto` stands for: a hundredth of an epoch's positions.

    So an epoch has about a hundred steps; not below 1,024, where gradients get noisy, nor above 16,384, which any
    current GPU holds, or 4,096 on a CPU, which larger batches would only fill with activations; a multiple of 256.
    """
    weights = np.asarray(dataset.weights)[dataset.corpora]
    positions = float(dataset.lengths @ weights)
    return int(np.clip(round(positions / 100 / 256) * 256, 1024, 4096 if on_cpu else 16384))


def batch_of(dataset: Dataset, examples: NDArray[np.integer[Any]]) -> Batch:
    """These examples as tensors: a source up to `</s>`, a target from `<s>` to `</s>`."""
    source = _tokens(dataset, "source", examples, begin=False)
    target = _tokens(dataset, "target", examples, begin=True)
    predicted = int(target.lengths_B.sum()) - len(examples)
    return Batch(source, target, tuple(examples.tolist()), predicted)


def _tokens(dataset: Dataset, column: str, examples: NDArray[np.integer[Any]], *, begin: bool) -> Tokens:
    special = dataset.tokenizers[column]
    first = special.begin if begin else None
    ids_BL, lengths_B = dataset.columns[column].padded(examples, begin=first, end=special.end, pad=special.pad)
    return Tokens.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))


class Stream:
    """Epoch after epoch of batches without end, and with each batch the position to go on from.

    All processes walk through the same order from the same position in groups of `world` batches, and process `rank`
    takes the batch of that number in each group. A group may begin in one epoch and end in the next, so none is left
    incomplete. The position that comes with a batch is the end of its group: the same in every process.
    """

    def __init__(
        self,
        dataset: Dataset,
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
        self._plans: dict[int, list[Examples]] = {}

    def epoch_batches(self, epoch: int) -> int:
        """How many batches the epoch has, over all processes."""
        return len(self._plan(epoch))

    def __iter__(self) -> Iterator[tuple[Batch, Position]]:
        position = self._forward(self.position, 0)
        while True:
            mine = self._forward(position, self.rank)
            batch = batch_of(self.dataset, self._plan(mine.epoch)[mine.index])
            position = self._forward(position, self.world)
            yield batch, position

    def _forward(self, position: Position, batches: int) -> Position:
        epoch, index = position.epoch, position.index + batches
        while index >= self.epoch_batches(epoch):
            index -= self.epoch_batches(epoch)
            epoch += 1
        return Position(epoch, index)

    def _plan(self, epoch: int) -> list[Examples]:
        """Keeps the two latest epochs, since a group may reach from one into the next."""
        if epoch not in self._plans:
            planned = plan(self.dataset, self.batch_tokens, self.seed, epoch)
            self._plans = {epoch: planned, **{key: old for key, old in self._plans.items() if key == epoch - 1}}
        return self._plans[epoch]


@dataclass(frozen=True)
class _End:
    """The last thing a preparing thread hands over."""

    error: BaseException | None


def ahead(
    batches: Iterable[tuple[Batch, T]], depth: int, move: Callable[[Batch], Batch] | None = None
) -> Generator[tuple[Batch, T], None, None]:
    """The same batches, up to `depth` of them prepared in a thread of their own while the consumer works.

    With CUDA they lie in pinned memory; `move` then takes them to the device, still in that thread, which starts with
    the first batch asked for. Its errors are raised here. Closing the generator ends it.
    """
    free, stop, ready = Semaphore(depth), Event(), SimpleQueue[tuple[Batch, T] | _End]()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def prepare() -> None:
        error = None
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a new thread begins on device 0
            iterator = iter(batches)
            while free.acquire() and not stop.is_set() and (item := next(iterator, None)) is not None:
                batch = item[0] if device is None else item[0].pin()
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
