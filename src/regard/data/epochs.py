"""The batches of an epoch: which examples form a batch, and in which order; seeded and resumable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor
from typing import cast

import numpy as np
from numpy.typing import NDArray

from regard.data.batches import TILE, AnyBatch, RowSizes, TextBatch, rounded_up
from regard.data.store import Integers

Rows = NDArray[np.int64]
"""Numbers of examples."""


class Measured(ABC):
    """What the plan of an epoch depends on."""

    corpora: Integers  # the number of the corpus that each example came from
    weights: tuple[float, ...]  # how often an epoch shows the examples of each corpus

    def __len__(self) -> int:
        return len(self.corpora)

    @property
    @abstractmethod
    def lengths(self) -> NDArray[np.int32]:
        """The most positions that each example takes up in a model."""

    @property
    def length_differences(self) -> NDArray[np.int32] | None:
        """How much longer the first of two columns is than the second, where there are two."""
        return None


class Examples(Measured):
    """The examples of one split, as training uses them."""

    where: Callable[[int], str]  # the place of an example in the user's files: `train.en:17`
    left_out: str = ""  # a note on bad rows that were dropped while it was read

    def plan(self, batch_tokens: int, seed: int, epoch: int, *, fill: bool = False) -> list[Rows]:
        """The batches of an epoch: see `plan`."""
        return plan(self, batch_tokens, seed, epoch, fill=fill)

    @abstractmethod
    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> AnyBatch:
        """These examples as tensors; random choices depend on the seed and the epoch alone."""

    def longest_example(self) -> int:
        """The example that needs the most memory."""
        return int(np.argmax(self.lengths))


def plan(
    dataset: Measured, batch_tokens: int, seed: int, epoch: int, *, fill: bool = False
) -> list[Rows]:
    """The batches of an epoch, in order; the same for the same seed and epoch on every machine.

    A batch has rows * longest <= batch_tokens, where longest is the greatest of its `lengths`; an
    example that is longer than the budget is a batch of its own. Batches are cut from the examples
    sorted by length, and shuffled. With `fill` a batch has examples of any length, in random order,
    as many as `row_sizes` hold.
    """
    # Raw bits and not `Generator.permutation`: NumPy promises to keep the first the same between
    # its versions
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    examples = _drawn(dataset, bits)
    if fill:
        order = examples[np.argsort(bits.random_raw(len(examples)), kind="stable")]
        return _cut_full(order, _columns(dataset), row_sizes(dataset, batch_tokens))
    batches = _cut(_sorted_by_length(dataset, examples, bits), dataset.lengths, batch_tokens)
    return [batches[number] for number in np.argsort(bits.random_raw(len(batches)), kind="stable")]


def _drawn(dataset: Measured, bits: np.random.PCG64) -> Rows:
    """The examples of an epoch: weight 2 shows each one twice, 1.5 each one and a half of them
    again."""
    if all(weight == 1 for weight in dataset.weights):
        return np.arange(len(dataset))
    drawn = []
    for number, weight in enumerate(dataset.weights):
        examples = np.flatnonzero(dataset.corpora == number)
        part = ceil(round(weight % 1 * len(examples), 6))
        chosen = np.argsort(bits.random_raw(len(examples)), kind="stable")[:part]
        drawn += [examples] * floor(weight) + [examples[chosen]]
    return np.concatenate(drawn)


def _sorted_by_length(dataset: Measured, examples: Rows, bits: np.random.PCG64) -> Rows:
    """Shortest first; among equals by how much the first column is longer than the last, give or
    take a token.

    The second key keeps the padding of both columns small, up and down in turn so that it does not
    jump where the length grows by one. The random token mixes the batches anew in each epoch.
    """
    lengths = dataset.lengths[examples].astype(np.int64)
    noise = (bits.random_raw(len(examples)) >> np.uint64(47)).astype(
        np.int64
    )  # 17 bits: two tokens of 2**16
    second = noise
    if dataset.length_differences is not None:
        second = noise + (dataset.length_differences[examples].astype(np.int64) << 16)
    keys = (lengths << 40) + np.where(lengths % 2 == 0, second, -second)
    return examples[np.argsort(keys, kind="stable")]


def _cut(examples: Rows, lengths: NDArray[np.int32], batch_tokens: int) -> list[Rows]:
    """As many examples a batch as the budget allows; they come sorted by length, so the last one is
    the longest."""
    batches = []
    sorted_lengths = lengths[examples].astype(np.int64)
    start = 0
    while start < len(examples):
        most = max(1, batch_tokens // int(sorted_lengths[start]))
        cost = sorted_lengths[start : start + most]
        rows = max(
            1, int(np.searchsorted(cost * np.arange(1, len(cost) + 1), batch_tokens, side="right"))
        )
        batches.append(examples[start : start + rows])
        start += rows
    return batches


def _columns(dataset: Measured) -> list[NDArray[np.int64]]:
    """The positions that each example takes up in each of the two columns; twice the same where
    there is one."""
    longer = dataset.lengths.astype(np.int64)
    if dataset.length_differences is None:
        return [longer, longer]
    difference = dataset.length_differences.astype(np.int64)
    return [longer - np.maximum(-difference, 0), longer - np.maximum(difference, 0)]


def row_sizes(dataset: Measured, batch_tokens: int) -> RowSizes:
    """`batch_tokens` for the column with more tokens, and for the other one in proportion; at least
    the longest."""
    columns, longest = _columns(dataset), int(dataset.lengths.max())
    totals, most = (
        [int(column.sum()) for column in columns],
        [int(column.max()) for column in columns],
    )
    wanted = [int(batch_tokens * total / max(totals)) for total in totals]
    first, second = (rounded_up(max(pair), TILE) for pair in zip(wanted, most, strict=True))
    sentences = 1.5 * max(first, second) * len(dataset) / max(totals)
    return RowSizes(first, second, longest, rounded_up(int(sentences), TILE))


def _cut_full(examples: Rows, columns: Sequence[NDArray[np.int64]], sizes: RowSizes) -> list[Rows]:
    """As many examples a batch as both rows hold."""
    ends = [np.cumsum(column[examples]) for column in columns]
    batches, start, used = list[Rows](), 0, (0, 0)
    while start < len(examples):
        full = used[0] + sizes.first, used[1] + sizes.second
        stop = min(
            int(np.searchsorted(end, most, side="right"))
            for end, most in zip(ends, full, strict=True)
        )
        stop = max(start + 1, stop)
        batches.append(examples[start:stop])
        start, used = stop, (int(ends[0][stop - 1]), int(ends[1][stop - 1]))
    return batches


def fixed_batches(dataset: Measured, batch_tokens: int) -> list[Rows]:
    """Each example once, shortest first: for validation and test, where the order does not
    matter."""
    return _cut(np.argsort(dataset.lengths, kind="stable"), dataset.lengths, batch_tokens)


def auto_batch_tokens(dataset: Measured, *, on_cpu: bool) -> int:
    """The budget that `training.batch_tokens: auto` stands for: a hundredth of an epoch's
    positions.

    So an epoch has about a hundred steps; not below 1,024, where gradients get noisy, nor above
    16,384, which any current GPU holds, or 4,096 on a CPU, which larger batches would only fill
    with activations; a multiple of 256.
    """
    weights = np.asarray(dataset.weights)[dataset.corpora]
    positions = float(dataset.lengths @ weights)
    return int(np.clip(round(positions / 100 / 256) * 256, 1024, 4096 if on_cpu else 16384))


@dataclass(frozen=True, order=True)
class Position:
    """The next batch of a stream: its epoch, and its number in the order of that epoch, both from
    0."""

    epoch: int
    index: int


START = Position(0, 0)


class Stream:
    """Epoch after epoch of batches without end, and with each batch the position to go on from.

    All processes walk through the same order from the same position in groups of `world` batches,
    and process `rank` takes the batch of that number in each group. A group may begin in one epoch
    and end in the next, so none is left incomplete. The position that comes with a batch is the end
    of its group: the same in every process.

    Rows that go on in the next batch are `shared`: every process takes its own rows of each batch.
    """

    def __init__(
        self,
        dataset: Examples,
        batch_tokens: int,
        seed: int,
        position: Position = START,
        *,
        fill: bool = False,
        rank: int = 0,
        world: int = 1,
        shared: bool = False,
    ) -> None:
        assert len(dataset) > 0
        assert 0 <= rank < world
        self.dataset, self.seed = dataset, seed
        self.position, self.rank, self.world, self.shared = position, rank, world, shared
        # a group may reach from one epoch into the next
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: dataset.plan(batch_tokens, seed, epoch, fill=fill)
        )

    def epoch_batches(self, epoch: int) -> int:
        """How many batches the epoch has, over all processes."""
        return len(self._plan(epoch))

    def rows(self, epoch: int) -> slice:
        """The rows of a shared batch that are this process's. Only the last row may end before the
        others."""
        shares = np.array_split(np.arange(len(self._plan(epoch)[0])), self.world)
        return slice(int(shares[self.rank][0]), int(shares[self.rank][-1]) + 1)

    def __iter__(self) -> Iterator[tuple[AnyBatch, Position]]:
        position = self._forward(self.position, 0)
        while self.shared:
            mine = self._plan(position.epoch)[position.index][self.rows(position.epoch)]
            text = cast("TextBatch", self.dataset.batch(mine, self.seed, position.epoch))
            batch: AnyBatch = replace(text, carries=position.index > 0)
            position = self._forward(position, 1)
            yield batch, position
        while True:
            own = self._forward(position, self.rank)
            batch = self.dataset.batch(self._plan(own.epoch)[own.index], self.seed, own.epoch)
            position = self._forward(position, self.world)
            yield batch, position

    def _forward(self, position: Position, batches: int) -> Position:
        epoch, index = position.epoch, position.index + batches
        while index >= self.epoch_batches(epoch):
            index -= self.epoch_batches(epoch)
            epoch += 1
        return Position(epoch, index)
