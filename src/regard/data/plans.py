"""Which examples make a batch: by a budget of tokens, in a seeded order that is the same on every machine."""

from __future__ import annotations

from math import ceil, floor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Integers

Rows = NDArray[np.int64]
"""Numbers of examples."""


class Measured(Protocol):
    """What a plan goes by."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The positions that each example takes up in a model."""
        ...

    @property
    def slants(self) -> NDArray[np.int32] | None:
        """By how much the first of two columns is longer than the second, where there are two."""
        ...

    @property
    def corpora(self) -> Integers:
        """The number of the corpus that each example came from."""
        ...

    @property
    def weights(self) -> tuple[float, ...]:
        """How often an epoch shows the examples of each corpus."""
        ...

    def __len__(self) -> int: ...


def plan(dataset: Measured, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
    """The batches of an epoch, in order; the same for the same seed and epoch on every machine.

    A batch has rows * longest <= batch_tokens, where longest is the greatest of its `lengths`; an example that
    is longer than the budget is a batch of its own. Batches are cut from the examples sorted by length, and shuffled.
    """
    # Raw bits and not `Generator.permutation`: NumPy promises to keep the first the same between its versions
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    examples = _drawn(dataset, bits)
    batches = _cut(_sorted_by_length(dataset, examples, bits), dataset.lengths, batch_tokens)
    return [batches[number] for number in np.argsort(bits.random_raw(len(batches)), kind="stable")]


def _drawn(dataset: Measured, bits: np.random.PCG64) -> Rows:
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


def _sorted_by_length(dataset: Measured, examples: Rows, bits: np.random.PCG64) -> Rows:
    """Shortest first; among equals by how much the first column is longer than the last, give or take a token.

    The second key keeps the padding of both columns small, up and down in turn so that it does not jump where the
    length grows by one. The random token mixes the batches anew in each epoch.
    """
    lengths = dataset.lengths[examples].astype(np.int64)
    noise = (bits.random_raw(len(examples)) >> np.uint64(47)).astype(np.int64)  # 17 bits: two tokens of 2**16
    slants = 0 if dataset.slants is None else dataset.slants[examples].astype(np.int64) << 16
    second = slants + noise
    keys = (lengths << 40) + np.where(lengths % 2 == 0, second, -second)
    return examples[np.argsort(keys, kind="stable")]


def _cut(examples: Rows, lengths: NDArray[np.int32], batch_tokens: int) -> list[Rows]:
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


def fixed_batches(dataset: Measured, batch_tokens: int) -> list[Rows]:
    """Each example once, shortest first: for validation and test, where the order does not matter."""
    return _cut(np.argsort(dataset.lengths, kind="stable"), dataset.lengths, batch_tokens)


def auto_batch_tokens(dataset: Measured, *, on_cpu: bool) -> int:
    """The budget that `training.batch_tokens: auto` stands for: a hundredth of an epoch's positions.

    So an epoch has about a hundred steps; not below 1,024, where gradients get noisy, nor above 16,384, which any
    current GPU holds, or 4,096 on a CPU, which larger batches would only fill with activations; a multiple of 256.
    """
    weights = np.asarray(dataset.weights)[dataset.corpora]
    positions = float(dataset.lengths @ weights)
    return int(np.clip(round(positions / 100 / 256) * 256, 1024, 4096 if on_cpu else 16384))
