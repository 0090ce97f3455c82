"""Examples -> batches: what a model reads, and the order of an epoch by token budget, seeded and
resumable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import ceil, floor
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from regard.data.store import Integers
from regard.text.tokenizers import Letters, UnknownWord, letters_of, unknown_in

NO_TAG = -100  # stands in the labels of a batch where a token carries no tag
Rows = NDArray[np.int64]  # numbers of examples
MASKED_STEP = (
    1024  # the number of masked tokens of a packed batch is rounded up to a multiple of this
)
TRIED = 24  # keys that are tried before a group of sentences takes the largest that fits
# the size of a packed row is a multiple of this: an attention kernel works on tiles of so many
# tokens
TILE = 128
WIDE = 2 * TILE  # no sum of two numbers of tokens that fit into a tile is larger
T = TypeVar("T")


@dataclass(frozen=True)
class Tensors:
    """Tensors that move together."""

    HOST: ClassVar[frozenset[str]] = frozenset()  # fields that always stay in main memory

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same with a function applied to every tensor."""
        values = {
            name: getattr(self, name)
            for name in (field.name for field in fields(self))
            if name not in self.HOST
        }
        changed: dict[str, Any] = {
            name: function(value) for name, value in values.items() if isinstance(value, Tensor)
        }
        changed |= {
            name: value.map(function)
            for name, value in values.items()
            if isinstance(value, Tensors)
        }
        return replace(self, **changed)

    def tensors(self) -> list[Tensor]:
        """All of them, but those that stay in main memory."""
        tensors: list[Tensor] = []
        self.map(lambda tensor: tensors.append(tensor) or tensor)  # type: ignore[func-returns-value]
        return tensors

    def signature(self) -> tuple[Any, ...]:
        """Shapes and settings: what a captured computation depends on."""
        values = (
            getattr(self, field.name) for field in fields(self) if field.name not in self.HOST
        )
        return tuple(
            value.shape
            if isinstance(value, Tensor)
            else value.signature()
            if isinstance(value, Tensors)
            else value
            for value in values
        )

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True)
class Spelling(Tensors):
    """The characters of the unknown words of a batch."""

    # the number of the unknown word at each position, from 1; 0 for a token of the vocabulary
    numbers_BL: Tensor
    characters_PC: Tensor  # the characters of word 1, word 2 and so on, without duplicates

    @staticmethod
    def of(
        places: Sequence[tuple[int, int]], words: Sequence[Letters], shape: tuple[int, int]
    ) -> Spelling | None:
        """`places` are the row and the column of each word; None if there are no words."""
        if not words:
            return None
        numbers: dict[Letters, int] = {}
        numbers_P = torch.tensor([numbers.setdefault(word, len(numbers) + 1) for word in words])
        rows_P, columns_P = torch.tensor(places).T
        numbers_BL = torch.zeros(shape, dtype=torch.long)
        numbers_BL[rows_P, columns_P] = numbers_P
        return Spelling(numbers_BL, pad_sequence([*map(torch.tensor, numbers)], batch_first=True))

    @staticmethod
    def of_rows(rows: Sequence[Sequence[int]]) -> Spelling | None:
        """For rows of tokens that are padded on the right."""
        words = [
            (row, column, token)
            for row, ids in enumerate(rows)
            for column, token in unknown_in(ids)
        ]
        places, letters = (
            [(row, column) for row, column, _ in words],
            [token.letters for _, _, token in words],
        )
        return Spelling.of(places, letters, (len(rows), max(map(len, rows))))

    def restore(self, ids: Sequence[int], row: int) -> list[int]:
        """The tokens of a row of the batch with their `UnknownWord`s."""
        tokens = [*ids]
        for column, number in enumerate(self.numbers_BL[row, : len(tokens)].tolist()):
            if number > 0:
                letters = tuple(
                    letter for letter in self.characters_PC[number - 1].tolist() if letter > 0
                )
                word = bytes(letter - 1 for letter in letters[1:-1]).decode(errors="replace")
                tokens[column] = UnknownWord(tokens[column], word, letters)
        return tokens


def spelled(words: Sequence[str], longest: int) -> Tensor:
    """The characters of each word of a vocabulary, padded, [V, C]."""
    return pad_sequence(
        [torch.tensor(letters_of(word, longest)) for word in words], batch_first=True
    )


@dataclass(frozen=True)
class RowSizes:
    """The fixed sizes of packed batches, so that compiled code meets one shape. A batch that needs
    more has more."""

    first: int  # tokens of the first column, and of the second if there are two
    second: int
    longest: int  # tokens of the longest sentence
    sentences: int
    tiled: bool = (
        False  # whether sentences come in the order of `in_tiles`, which is faster in compiled code
    )

    def order(self, first_B: Tensor, second_B: Tensor | None = None) -> Tensor:
        """In which order sentences of these lengths are packed."""
        return in_tiles(first_B, second_B) if self.tiled else torch.arange(len(first_B))


@dataclass(frozen=True)
class Row(Tensors):
    """Where the tokens of a packed row are: sentence after sentence, then filler, in sentences of a
    tile each."""

    sentences_P: Tensor  # the sentence of each token, ascending
    places_P: Tensor  # the position of each token in its sentence
    next_P: Tensor  # the token after each; NO_TAG in the filler
    # the start of each sentence, then the end of the row, int32 for a kernel: [more than B]
    bounds: Tensor
    longest: int
    # how many sentences there are, if all have the same length and nothing else is in the row
    equal: int = 0


def real_positions(lengths_B: Tensor, width: int) -> Tensor:
    """True for the first `lengths_B[b]` of `width` positions, [B, width]."""
    return torch.arange(width, device=lengths_B.device) < lengths_B[:, None]


def rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _filled(values: Tensor, size: int, filler: int) -> Tensor:
    return functional.pad(values, (0, size - len(values)), value=filler)


def in_tiles(first_B: Tensor, second_B: Tensor | None = None) -> Tensor:
    """An order of sentences, given their lengths in one or two rows, in which most tiles begin and
    end with a sentence.

    Attention then reads one tile of keys for a tile of queries instead of three. First come groups
    of sentences that fill a tile of both rows exactly, then groups that fill one of the first row,
    then what is left.
    """
    left_B, ordered = torch.arange(len(first_B)), list[Tensor]()
    for both in (False,) if second_B is None else (True, False):
        # the tokens of both rows in one number: the sums of such numbers are those of the rows
        keys_B = first_B % TILE * WIDE + (0 if second_B is None else second_B % TILE * both)
        full = torch.tensor(
            _groups(keys_B[left_B].tolist(), TILE * WIDE + TILE * both), dtype=torch.long
        )
        ordered.append(left_B[full])
        left_B = left_B[torch.ones_like(left_B, dtype=torch.bool).index_fill(0, full, False)]
    return torch.cat([*ordered, left_B])


def _groups(keys: Sequence[int], goal: int) -> list[int]:
    """The numbers of the keys that form groups with the sum `goal`, group after group. A key of 0
    is one by itself.

    The largest key begins a group, and one or two others complete it. Where none do, the largest
    key joins after which some would, among the `TRIED` largest; else the largest that fits. A key
    that finds no group stays out.
    """
    held, free, mirrored = (
        dict[int, list[int]](),
        0,
        0,
    )  # bits: the keys left, and their differences to the goal
    for number, key in enumerate(keys):
        held.setdefault(key, []).append(number)
    full = held.pop(0, [])
    for key in held:
        free, mirrored = free | 1 << key, mirrored | 1 << goal - key

    def take(key: int) -> int:
        nonlocal free, mirrored
        number = held[key].pop()
        if not held[key]:
            del held[key]
            free, mirrored = free ^ 1 << key, mirrored ^ 1 << goal - key
        return number

    def completing(missing: int) -> tuple[int, ...]:
        if missing in held:
            return (missing,)
        larger = (free & mirrored >> goal - missing).bit_length() - 1  # of all pairs with that sum
        return (
            (larger, missing - larger)
            if larger > 0 and (2 * larger != missing or len(held[larger]) > 1)
            else ()
        )

    def next_key(missing: int) -> int:
        smaller, fitting = free & (1 << missing) - 1, 0
        for _ in range(min(TRIED, smaller.bit_count())):
            key = smaller.bit_length() - 1
            smaller ^= 1 << key
            if (missing - key) % WIDE <= TILE:  # else the second column would have too many tokens
                if completing(missing - key):
                    return key
                fitting = fitting or key
        return fitting

    for largest in sorted(held, reverse=True):
        while largest in held:
            group, missing = [take(largest)], goal - largest
            while missing and not (last := completing(missing)) and (key := next_key(missing)):
                group.append(take(key))
                missing -= key
            if not missing or last:
                full += group + [take(key) for key in (last if missing else ())]
    return full


@dataclass(frozen=True)
class Tokens(Tensors):
    """Sentences of unequal length, padded on the right; or packed into a row of fixed size: then
    `ids_BL` is [1, P], and only `fixed` knows the lengths."""

    HOST: ClassVar[frozenset[str]] = frozenset({"host_lengths_B"})

    ids_BL: Tensor
    lengths_B: Tensor
    host_lengths_B: Tensor
    """The lengths once more, always in main memory: packing reads them there without waiting for a
    device."""
    spelling: Spelling | None = field(default=None, kw_only=True)
    """The letters of words outside the vocabulary, for a model that reads them."""
    fixed: Row | None = field(
        default=None, kw_only=True
    )  # where the tokens are, if they are packed
    full: bool = field(default=False, kw_only=True)
    """Whether a model is to compute padding like words, so that its steps depend on the shape
    alone."""

    @staticmethod
    def of(ids_BL: Tensor, lengths_B: Tensor, spelling: Spelling | None = None) -> Tokens:
        return Tokens(ids_BL, lengths_B, lengths_B.cpu(), spelling=spelling)

    def row(self, number: int) -> list[int]:
        """The tokens of one of the sentences, with the unknown words that they stand for."""
        ids: list[int] = self.ids_BL[number, : int(self.host_lengths_B[number])].tolist()
        return ids if self.spelling is None else self.spelling.restore(ids, number)

    @property
    def inputs_BT(self) -> Tensor:
        """What a decoder reads: all tokens but the last of each sentence."""
        return self.ids_BL[:, :-1] if self.fixed is None else self.ids_BL

    @property
    def next_BT(self) -> Tensor:
        """What it predicts: all tokens but the first; NO_TAG where padding is computed like
        words."""
        if self.fixed is not None:
            return self.fixed.next_P[None]
        next_BT = self.ids_BL[:, 1:]
        if not self.full:
            return next_BT
        place_T = torch.arange(1, self.ids_BL.shape[1], device=next_BT.device)
        return next_BT.masked_fill(place_T >= self.lengths_B[:, None], NO_TAG)

    def rounded(self) -> Tokens:
        """With so much more padding that there are few different shapes; sentences that are added
        have one token."""
        rows, width = (
            rounded_up(size, max(1, 2 ** (size.bit_length() - 1) // 8))
            for size in self.ids_BL.shape
        )
        added = rows - len(self)
        return replace(
            self,
            ids_BL=functional.pad(self.ids_BL, (0, width - self.ids_BL.shape[1], 0, added)),
            lengths_B=functional.pad(self.lengths_B, (0, added), value=1),
            host_lengths_B=torch.full((rows,), width),
            full=True,
        )

    def packed(self, size: int, sizes: RowSizes, order_B: Tensor, without: int = 0) -> Tokens:
        """Packed in this order into a row of `size`, or of more if they need it, `without` their
        last tokens."""
        lengths_B, width = self.host_lengths_B[order_B] - without, self.ids_BL.shape[1]
        total, ids = int(lengths_B.sum()), self.ids_BL.flatten()
        size = max(size, rounded_up(total, TILE))
        lengths = torch.cat([lengths_B, torch.tensor([TILE]).repeat((size - total) // TILE + 1)])
        ends = lengths.cumsum(0).clamp(max=size)
        starts = functional.pad(ends, (1, 0))  # and the end of the row
        sentences_P = torch.repeat_interleave(torch.diff(starts))
        places_P = (torch.arange(size) - starts[sentences_P])[:total]
        from_P = order_B[sentences_P[:total]] * width + places_P
        slots = (
            max(sizes.sentences, rounded_up(len(self), TILE))
            + max(sizes.first, sizes.second) // TILE
            + 2
        )
        bounds = _filled(starts, slots, size).int()
        longest = max(sizes.longest, TILE, int(lengths_B.max()))
        following_P = _filled(ids[from_P + without], size, NO_TAG)
        equal = len(self) if total == size and int(lengths_B.min()) == int(lengths_B.max()) else 0
        row = Row(sentences_P, _filled(places_P, size, 0), following_P, bounds, longest, equal)
        none = torch.zeros(
            0, dtype=torch.long
        )  # lengths would make a shape of each number of sentences
        return replace(
            self,
            ids_BL=_filled(ids[from_P], size, 0)[None],
            lengths_B=none,
            host_lengths_B=none,
            fixed=row,
        )

    def __len__(self) -> int:
        return self.ids_BL.shape[0]


@dataclass(frozen=True)
class Images(Tokens):
    """Images as a source: its positions are their regions.

    `ids_BL` holds one number for all regions of an image, made from what it shows: it seeds a
    sample's noise.
    """

    # pixels [B, height, width, 3] as bytes; or what another network made of them, [B, S, D]
    shown: Tensor
    columns_B: Tensor  # how many regions stand side by side; the next ones stand below


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
        return {
            name: list(value.ids_BL.shape)
            for name, value in values.items()
            if isinstance(value, Tokens)
        }

    def unnamed(self) -> Self:
        """The tensors alone: what a compiled model may depend on."""
        return replace(self, examples=(), tokens=0)

    def packed(self, sizes: RowSizes) -> Self:
        """The same in rows of fixed size, if there are models that compute on them."""
        raise NotImplementedError

    def rounded(self) -> Self:
        """The same in one of few shapes, for a model whose steps are captured."""
        raise NotImplementedError


@dataclass(frozen=True)
class Batch(AnyBatch):
    """Pairs of sentences. A source ends in `</s>`; a target begins with `<s>`, which is not
    predicted, and ends in `</s>`."""

    source: Tokens
    target: Tokens

    def packed(self, sizes: RowSizes) -> Self:
        order_B = sizes.order(self.source.host_lengths_B, self.target.host_lengths_B - 1)
        target = self.target.packed(sizes.second, sizes, order_B, without=1)
        return replace(self, source=self.source.packed(sizes.first, sizes, order_B), target=target)

    def rounded(self) -> Self:
        return replace(self, source=self.source.rounded(), target=self.target.rounded())


@dataclass(frozen=True)
class TextBatch(AnyBatch):
    """Texts for a language model: the hidden state at position t predicts `text[:, t + 1]`."""

    text: Tokens
    carries: bool = False
    """Whether each row goes on where the same row of the batch before ended: its first token is the
    last one there."""

    def packed(self, sizes: RowSizes) -> Self:
        order_B = sizes.order(self.text.host_lengths_B - 1)
        return replace(self, text=self.text.packed(sizes.first, sizes, order_B, without=1))


@dataclass(frozen=True)
class MaskedBatch(AnyBatch):
    """Texts of one or two segments, some of whose tokens are masked and to be predicted."""

    text: Tokens  # what is read, after masking
    segments_BL: Tensor  # 0 in the first segment, 1 in the second
    places_P: (
        Tensor  # where tokens are to be predicted: b * L + l, the padded positions read row by row
    )
    labels_P: Tensor  # the tokens that stood there
    follows_B: Tensor | None = None
    """1 where the second segment truly follows the first, 0 where it does not; None without this
    objective."""

    def packed(self, sizes: RowSizes) -> Self:
        order_B, width = sizes.order(self.text.host_lengths_B), self.segments_BL.shape[1]
        text = self.text.packed(sizes.first, sizes, order_B)
        assert text.fixed is not None
        row, count, size = (
            text.fixed,
            rounded_up(len(self.places_P), MASKED_STEP),
            text.ids_BL.shape[1],
        )
        real_P = row.sentences_P < len(self.text)
        from_P = order_B[row.sentences_P[real_P]] * width + row.places_P[real_P]
        starts_B = row.bounds[order_B.argsort()]
        follows_B = None if self.follows_B is None else self.follows_B[order_B]
        return replace(
            self,
            text=text,
            segments_BL=_filled(self.segments_BL.flatten()[from_P], size, 0)[None],
            places_P=_filled(starts_B[self.places_P // width] + self.places_P % width, count, 0),
            labels_P=_filled(self.labels_P, count, NO_TAG),
            follows_B=None
            if follows_B is None
            else _filled(follows_B, len(row.bounds) - 1, NO_TAG),
        )


@dataclass(frozen=True)
class StoryBatch(AnyBatch):
    """Stories, a question about each, and its answer in one word."""

    story_BSL: Tensor
    """The words of each sentence, the oldest sentence first; padded on the right, sentences and
    words."""
    times_BS: Tensor  # how long ago each sentence was: 1 for the newest; 0 where there is none
    question_BL: Tensor
    answers_B: Tensor
    linear: bool = (
        False  # whether the hops go without their softmax: at the linear start of a training
    )

    def shapes(self) -> dict[str, list[int]]:
        """The sizes of the padded stories, in sentences, and questions, in words."""
        return {"story": list(self.times_BS.shape), "question": list(self.question_BL.shape)}


@dataclass(frozen=True)
class LabelledBatch(AnyBatch):
    """Texts with what a head is to predict. An example is one row, or several: windows, choices,
    both orders."""

    text: Tokens
    segments_BL: Tensor  # 0 in the first segment, 1 in the second
    owners_B: Tensor
    """The number of the example that each row belongs to, from 0; the rows of an example stand side
    by side."""
    labels: (
        Tensor  # the class or the number of each example [X], the class of each token [B, L], ...
    )


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
