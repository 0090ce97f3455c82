"""Examples -> batches: what a model reads, and the order of an epoch by token budget, seeded and resumable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil, floor
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.store import Integers
from regard.text.tokenizers import Letters, UnknownWord, letters_of, unknown_in

NO_TAG = -100
"""Stands in the labels of a batch where a token carries no tag."""
Rows = NDArray[np.int64]
"""Numbers of examples."""
T = TypeVar("T")


@dataclass(frozen=True)
class Tensors:
    """Tensors that move together."""

    HOST: ClassVar[frozenset[str]] = frozenset()
    """Fields that always stay in main memory."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same with a function applied to every tensor."""
        values = {name: getattr(self, name) for name in (field.name for field in fields(self)) if name not in self.HOST}
        changed: dict[str, Any] = {name: function(value) for name, value in values.items() if isinstance(value, Tensor)}
        changed |= {name: value.map(function) for name, value in values.items() if isinstance(value, Tensors)}
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True)
class Spelling(Tensors):
    """The characters of the unknown words of a batch."""

    numbers_BL: Tensor
    """The number of the unknown word at each position, from 1; 0 for a token of the vocabulary."""
    characters_PC: Tensor
    """The characters of word 1, word 2 and so on, without duplicates."""

    @staticmethod
    def of(places: Sequence[tuple[int, int]], words: Sequence[Letters], shape: tuple[int, int]) -> Spelling | None:
        """`places` are the row and the column of each word; None if there are no words."""
        if not words:
            return None
        numbers: dict[Letters, int] = {}
        numbers_P = torch.tensor([numbers.setdefault(word, len(numbers) + 1) for word in words])
        rows_P, columns_P = torch.tensor(places).T
        numbers_BL = torch.zeros(shape, dtype=torch.long)
        numbers_BL[rows_P, columns_P] = numbers_P
        return Spelling(numbers_BL, _padded([*numbers]))

    @staticmethod
    def of_rows(rows: Sequence[Sequence[int]]) -> Spelling | None:
        """For rows of tokens that are padded on the right."""
        words = [(row, column, token) for row, ids in enumerate(rows) for column, token in unknown_in(ids)]
        places, letters = [(row, column) for row, column, _ in words], [token.letters for _, _, token in words]
        return Spelling.of(places, letters, (len(rows), max(map(len, rows))))

    def restore(self, ids: Sequence[int], row: int) -> list[int]:
        """The tokens of a row of the batch with their `UnknownWord`s."""
        tokens = [*ids]
        for column, number in enumerate(self.numbers_BL[row, : len(tokens)].tolist()):
            if number > 0:
                letters = tuple(letter for letter in self.characters_PC[number - 1].tolist() if letter > 0)
                word = bytes(letter - 1 for letter in letters[1:-1]).decode(errors="replace")
                tokens[column] = UnknownWord(tokens[column], word, letters)
        return tokens


def spelled(words: Sequence[str], longest: int) -> Tensor:
    """The characters of each word of a vocabulary, padded, [V, C]."""
    return _padded([letters_of(word, longest) for word in words])


def _padded(rows: Sequence[Letters]) -> Tensor:
    width = max(map(len, rows), default=2)
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long).view(-1, width)


@dataclass(frozen=True)
class Tokens(Tensors):
    """Sentences of unequal length, padded on the right."""

    HOST: ClassVar[frozenset[str]] = frozenset({"host_lengths_B"})

    ids_BL: Tensor
    lengths_B: Tensor
    host_lengths_B: Tensor
    """The lengths once more, always in main memory: packing reads them there without waiting for a device."""
    spelling: Spelling | None = field(default=None, kw_only=True)
    """The letters of words outside the vocabulary, for a model that reads them."""

    @staticmethod
    def of(ids_BL: Tensor, lengths_B: Tensor, spelling: Spelling | None = None) -> Tokens:
        return Tokens(ids_BL, lengths_B, lengths_B.cpu(), spelling=spelling)

    def row(self, number: int) -> list[int]:
        """The tokens of one of the sentences, with the unknown words that they stand for."""
        ids: list[int] = self.ids_BL[number, : int(self.host_lengths_B[number])].tolist()
        return ids if self.spelling is None else self.spelling.restore(ids, number)

    def __len__(self) -> int:
        return self.ids_BL.shape[0]


@dataclass(frozen=True)
class Images(Tokens):
    """Images as a source: its positions are their regions.

    `ids_BL` holds one number for all regions of an image, made from what it shows: it seeds a sample's noise.
    """

    shown: Tensor
    """Pixels [B, height, width, 3] as bytes; or what another network made of them, [B, S, D]."""
    columns_B: Tensor
    """How many regions stand side by side; the next ones stand below."""


@dataclass(frozen=True)
class AnyBatch(Tensors):
    """What a model reads in one step."""

    examples: tuple[int, ...] = field(default=(), kw_only=True)
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = field(default=0, kw_only=True)
    """How many predictions the loss is summed over: tokens, labels or answers."""

    def shapes(self) -> dict[str, list[int]]:
        """The sizes of the padded texts."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value.ids_BL.shape) for name, value in values.items() if isinstance(value, Tokens)}

    def unnamed(self) -> Self:
        """The tensors alone: what a compiled model may depend on."""
        return replace(self, examples=(), tokens=0)


@dataclass(frozen=True)
class Batch(AnyBatch):
    """Pairs of sentences. A source ends in `</s>`; a target begins with `<s>`, which is not predicted, and ends in
    `</s>`."""

    source: Tokens
    target: Tokens


@dataclass(frozen=True)
class TextBatch(AnyBatch):
    """Texts for a language model: the hidden state at position t predicts `text[:, t + 1]`."""

    text: Tokens
    carries: bool = False
    """Whether each row goes on where the same row of the batch before ended: its first token is the last one there."""


@dataclass(frozen=True)
class MaskedBatch(AnyBatch):
    """Texts of one or two segments, some of whose tokens are masked and to be predicted."""

    text: Tokens
    """What is read, after masking."""
    segments_BL: Tensor
    """0 in the first segment, 1 in the second."""
    places_P: Tensor
    """Where tokens are to be predicted: b * L + l, the padded positions read row by row."""
    labels_P: Tensor
    """The tokens that stood there."""
    follows_B: Tensor | None = None
    """1 where the second segment truly follows the first, 0 where it does not; None without this objective."""


@dataclass(frozen=True)
class StoryBatch(AnyBatch):
    """Stories, a question about each, and its answer in one word."""

    story_BSL: Tensor
    """The words of each sentence, the oldest sentence first; padded on the right, sentences and words."""
    times_BS: Tensor
    """How long ago each sentence was: 1 for the newest; 0 where there is none."""
    question_BL: Tensor
    answers_B: Tensor
    linear: bool = False
    """Whether the hops go without their softmax: at the linear start of a training."""

    def shapes(self) -> dict[str, list[int]]:
        """The sizes of the padded stories, in sentences, and questions, in words."""
        return {"story": list(self.times_BS.shape), "question": list(self.question_BL.shape)}


@dataclass(frozen=True)
class LabelledBatch(AnyBatch):
    """Texts with what a head is to predict. An example is one row, or several: windows, choices, both orders."""

    text: Tokens
    segments_BL: Tensor
    """0 in the first segment, 1 in the second."""
    owners_B: Tensor
    """The number of the example that each row belongs to, from 0; the rows of an example stand side by side."""
    labels: Tensor
    """The class or the number of each example [X], the class of each token [B, L], ..."""


class Measured(ABC):
    """What the plan of an epoch depends on."""

    corpora: Integers
    """The number of the corpus that each example came from."""
    weights: tuple[float, ...]
    """How often an epoch shows the examples of each corpus."""

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

    where: Callable[[int], str]
    """The place of an example in the user's files: `train.en:17`."""

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch, in order; the same for the same seed and epoch on every machine."""
        return plan(self, batch_tokens, seed, epoch)

    @abstractmethod
    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> AnyBatch:
        """These examples as tensors; random choices depend on the seed and the epoch alone."""

    def longest_example(self) -> int:
        """The example that needs the most memory."""
        return int(np.argmax(self.lengths))


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
    second = noise
    if dataset.length_differences is not None:
        second = noise + (dataset.length_differences[examples].astype(np.int64) << 16)
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


B = TypeVar("B", bound=AnyBatch)


def ahead(
    batches: Iterable[tuple[B, T]], depth: int, move: Callable[[B], B] | None = None
) -> Generator[tuple[B, T], None, None]:
    """The same batches, up to `depth` of them prepared in a thread of their own while the consumer works.

    With CUDA they lie in pinned memory; `move` then takes them to the device, still in that thread, which starts with
    the first batch asked for. Its errors are raised here. Closing the generator ends it.
    """
    free, stop, ready = Semaphore(depth), Event(), SimpleQueue[tuple[B, T] | BaseException | None]()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def prepare() -> None:
        end: BaseException | None = None
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a new thread begins on device 0
            iterator = iter(batches)
            while free.acquire() and not stop.is_set() and (item := next(iterator, None)) is not None:
                batch = item[0] if device is None else item[0].map(lambda tensor: tensor.pin_memory())
                ready.put((move(batch) if move else batch, item[1]))
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
