"""The batches of an epoch: which examples form a batch, and in which order; seeded and resumable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, floor, sqrt
from typing import cast

import numpy as np
from numpy.typing import NDArray

from regard.data.batches import AnyBatch, TextBatch
from regard.data.store import Integers
from regard.data.tiles import TILE, full_batches

Rows = NDArray[np.int64]
"""Numbers of examples."""

STEPS_PER_EPOCH = 100
"""`training.batch_tokens: auto` divides an epoch into about so many batches."""


# Examples


class SizedExamples(ABC):
    """Examples with their lengths: all that the plan of an epoch depends on."""

    corpora: Integers
    """The number of the corpus that each example came from."""
    weights: tuple[float, ...]
    """How often an epoch shows the examples of each corpus."""
    masked_share: float = 0.0
    """The share of the tokens that are masked and to be predicted, if only those are."""

    def __len__(self) -> int:
        return len(self.corpora)

    @property
    @abstractmethod
    def lengths(self) -> NDArray[np.int32]:
        """The most positions that each example takes up in a model."""

    @property
    def length_differences(self) -> NDArray[np.int32] | None:
        """How much longer the first of two columns is than the second; None for a single column."""
        return None


class Examples(SizedExamples):
    """The examples of one split, as training uses them."""

    where: Callable[[int], str]
    """The place of an example in the user's files: `train.en:17`."""
    left_out: str = ""
    """A note on bad rows that were dropped while the split was read."""

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
    dataset: SizedExamples, batch_tokens: int, seed: int, epoch: int, *, fill: bool = False
) -> list[Rows]:
    """The batches of an epoch, in order; the same for the same seed and epoch on every machine.

    A batch has rows * longest <= batch_tokens, where longest is the greatest of its `lengths`; an
    example that is longer than the budget is a batch of its own. Batches are cut from the examples
    sorted by length, and shuffled. With `fill` a batch has examples of any length, as many as
    `row_sizes` hold, in the order in which they fill tiles (`full_batches`).
    """
    # Raw bits and not `Generator.permutation`: NumPy promises to keep the first the same between
    # its versions
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    examples = _drawn(dataset, bits)
    if fill:
        return _full(dataset, examples, batch_tokens, bits)
    batches = _cut(_sorted_by_length(dataset, examples, bits), dataset.lengths, batch_tokens)
    return [batches[number] for number in np.argsort(bits.random_raw(len(batches)), kind="stable")]


def _drawn(dataset: SizedExamples, bits: np.random.PCG64) -> Rows:
    """The examples of an epoch: weight 2 shows each one twice, weight 1.5 each one, and half of them
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


def _sorted_by_length(dataset: SizedExamples, examples: Rows, bits: np.random.PCG64) -> Rows:
    """Shortest first; among equals by how much the first column is longer than the second, plus
    noise of up to two tokens.

    The second key keeps the padding of both columns small. It goes up and down in turn, so that it
    does not jump when the length grows by one. The noise mixes the batches anew in each epoch.
    """
    lengths = dataset.lengths[examples].astype(np.int64)
    # 17 random bits, of which 2**16 are a token
    noise = (bits.random_raw(len(examples)) >> np.uint64(47)).astype(np.int64)
    second = noise
    if dataset.length_differences is not None:
        second = noise + (dataset.length_differences[examples].astype(np.int64) << 16)
    keys = (lengths << 40) + np.where(lengths % 2 == 0, second, -second)
    return examples[np.argsort(keys, kind="stable")]


def _cut(examples: Rows, lengths: NDArray[np.int32], batch_tokens: int) -> list[Rows]:
    """As many examples per batch as the budget allows; they come sorted by length, so the last one
    is the longest."""
    batches = []
    sorted_lengths = lengths[examples].astype(np.int64)
    start = 0
    while start < len(examples):
        most_rows = max(1, batch_tokens // int(sorted_lengths[start]))
        longest = sorted_lengths[start : start + most_rows]
        positions = longest * np.arange(1, len(longest) + 1)
        rows = max(1, int(np.searchsorted(positions, batch_tokens, side="right")))
        batches.append(examples[start : start + rows])
        start += rows
    return batches


def fixed_batches(dataset: SizedExamples, batch_tokens: int) -> list[Rows]:
    """Batches with each example once, shortest first: for validation and test, whose order does not
    matter."""
    return _cut(np.argsort(dataset.lengths, kind="stable"), dataset.lengths, batch_tokens)


def auto_batch_tokens(dataset: SizedExamples, *, on_cpu: bool) -> int:
    """The budget that `training.batch_tokens: auto` stands for: an epoch has about a hundred steps.

    It is at least 1,024, since gradients of smaller batches are noisy, and at most 16,384, which
    any current GPU holds. On a CPU it is at most 4,096: larger batches are not faster there. It is
    a multiple of 256.
    """
    weights = np.asarray(dataset.weights)[dataset.corpora]
    positions = float(dataset.lengths @ weights)
    budget = round(positions / STEPS_PER_EPOCH / 256) * 256
    return int(np.clip(budget, 1024, 4096 if on_cpu else 16384))


def _columns(dataset: SizedExamples) -> list[NDArray[np.int64]]:
    """The positions that each example takes up in each column, of which there are one or two."""
    longer = dataset.lengths.astype(np.int64)
    if dataset.length_differences is None:
        return [longer]
    difference = dataset.length_differences.astype(np.int64)
    return [longer - np.maximum(-difference, 0), longer - np.maximum(difference, 0)]


# Batches that fill rows of a fixed size


@dataclass(frozen=True)
class RowSizes:
    """The sizes of the rows that sentences are packed into, so that compiled code meets one shape.
    A batch that needs larger ones gets larger ones."""

    first: int
    """Tokens of the first column."""
    second: int
    """Tokens of the second column, if there are two."""
    longest: int
    """Tokens of the longest sentence."""
    sentences: int
    masked: int = 0
    """Masked tokens, if only those are predicted. Their number is random, and is nearly never
    larger."""


def row_sizes(dataset: SizedExamples, batch_tokens: int) -> RowSizes:
    """`batch_tokens` for the column with more tokens, and for the other one in proportion; at least
    the longest example. There is room for half as many sentences again as an average batch has."""
    columns = _columns(dataset)
    totals = [int(column.sum()) for column in columns]
    first, *others = (
        rounded_up(max(int(batch_tokens * total / max(totals)), int(column.max())), TILE)
        for column, total in zip(columns, totals, strict=True)
    )
    second = others[0] if others else first
    sentences = 1.5 * max(first, second) * len(dataset) / max(totals)
    longest = int(dataset.lengths.max())
    # as many as are expected, and six standard deviations
    share = dataset.masked_share
    masked = share * first + 6 * sqrt(share * (1 - share) * first)
    return RowSizes(
        first,
        second,
        longest,
        rounded_up(int(sentences), TILE),
        masked=rounded_up(ceil(masked), TILE),
    )


def rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _full(
    dataset: SizedExamples, examples: Rows, batch_tokens: int, bits: np.random.PCG64
) -> list[Rows]:
    """As many examples per batch as both rows hold."""
    sizes = row_sizes(dataset, batch_tokens)
    columns = [column[examples] for column in _columns(dataset)]
    batches = full_batches(columns, [sizes.first, sizes.second][: len(columns)], bits)
    return [examples[batch] for batch in batches]


# The stream of batches


@dataclass(frozen=True, order=True)
class Position:
    """The next batch of a stream: its epoch, and its number in the order of that epoch, both from
    0."""

    epoch: int
    index: int


START = Position(0, 0)


class Stream:
    """The batches of one epoch after another, without end, each with the position after it.

    All processes read the same order from the same position in groups of `world` batches, and
    process `rank` takes the batch of that number in each group. A group may begin in one epoch and
    end in the next, so none is incomplete. The position that comes with a batch is the end of its
    group, which is the same in every process.

    With `shared`, for rows that continue in the next batch, every process takes its own rows of
    each batch instead.
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
        self.dataset = dataset
        self.seed = seed
        self.position = position
        self.rank = rank
        self.world = world
        self.shared = shared
        # a group may reach from one epoch into the next
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: dataset.plan(batch_tokens, seed, epoch, fill=fill)
        )

    def epoch_batches(self, epoch: int) -> int:
        """How many batches the epoch has, over all processes."""
        return len(self._plan(epoch))

    def rows(self, epoch: int) -> slice:
        """The rows of a shared batch that this process takes. Only the last row may end before the
        others."""
        shares = np.array_split(np.arange(len(self._plan(epoch)[0])), self.world)
        return slice(int(shares[self.rank][0]), int(shares[self.rank][-1]) + 1)

    def __iter__(self) -> Iterator[tuple[AnyBatch, Position]]:
        return ((make(), after) for make, after in self.jobs())

    def jobs(self) -> Iterator[tuple[Callable[[], AnyBatch], Position]]:
        """A function for each batch, which makes it, and the position after it. Several threads may
        call these functions at once."""
        position = self._forward(self.position, 0)
        while self.shared:
            make = partial(self._shared_batch, position)
            position = self._forward(position, 1)
            yield make, position
        while True:
            own = self._forward(position, self.rank)
            examples = self._plan(own.epoch)[own.index]
            position = self._forward(position, self.world)
            yield partial(self.dataset.batch, examples, self.seed, own.epoch), position

    def _shared_batch(self, position: Position) -> AnyBatch:
        """The rows of this process, which go on where its rows of the batch before ended."""
        mine = self._plan(position.epoch)[position.index][self.rows(position.epoch)]
        text = cast("TextBatch", self.dataset.batch(mine, self.seed, position.epoch))
        return replace(text, carries=position.index > 0)

    def _forward(self, position: Position, batches: int) -> Position:
        epoch = position.epoch
        index = position.index + batches
        while index >= self.epoch_batches(epoch):
            index -= self.epoch_batches(epoch)
            epoch += 1
        return Position(epoch, index)
