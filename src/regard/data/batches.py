"""What a model reads: sentences, images and labels as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from regard.text.spelling import Letters, UnknownWord, letters_of, unknown_in

NO_TAG = -100  # stands in the labels of a batch where a token carries no tag
# the number of masked tokens of a packed batch is rounded up to a multiple of this
MASKED_STEP = 1024
TRIED = 24  # keys that are tried before a group of sentences takes the largest that fits
# the size of a packed row is a multiple of this: an attention kernel works on tiles of so many
# tokens
TILE = 128
WIDE = 2 * TILE  # no sum of two numbers of tokens that fit into a tile is larger


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
    # whether sentences come in the order of `in_tiles`, which is faster in compiled code
    tiled: bool = False

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
class Padded(Tensors):
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
    def of(ids_BL: Tensor, lengths_B: Tensor, spelling: Spelling | None = None) -> Padded:
        return Padded(ids_BL, lengths_B, lengths_B.cpu(), spelling=spelling)

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

    def rounded(self) -> Padded:
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

    def packed(self, size: int, sizes: RowSizes, order_B: Tensor, without: int = 0) -> Padded:
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
class Images(Padded):
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
            if isinstance(value, Padded)
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

    source: Padded
    target: Padded

    def packed(self, sizes: RowSizes) -> Self:
        order_B = sizes.order(self.source.host_lengths_B, self.target.host_lengths_B - 1)
        target = self.target.packed(sizes.second, sizes, order_B, without=1)
        return replace(self, source=self.source.packed(sizes.first, sizes, order_B), target=target)

    def rounded(self) -> Self:
        return replace(self, source=self.source.rounded(), target=self.target.rounded())


@dataclass(frozen=True)
class TextBatch(AnyBatch):
    """Texts for a language model: the hidden state at position t predicts `text[:, t + 1]`."""

    text: Padded
    carries: bool = False
    """Whether each row goes on where the same row of the batch before ended: its first token is the
    last one there."""

    def packed(self, sizes: RowSizes) -> Self:
        order_B = sizes.order(self.text.host_lengths_B - 1)
        return replace(self, text=self.text.packed(sizes.first, sizes, order_B, without=1))


@dataclass(frozen=True)
class MaskedBatch(AnyBatch):
    """Texts of one or two segments, some of whose tokens are masked and to be predicted."""

    text: Padded  # what is read, after masking
    segments_BL: Tensor  # 0 in the first segment, 1 in the second
    # where tokens are to be predicted: b * L + l, the padded positions read row by row
    places_P: Tensor
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
    # whether the hops go without their softmax: at the linear start of a training
    linear: bool = False

    def shapes(self) -> dict[str, list[int]]:
        """The sizes of the padded stories, in sentences, and questions, in words."""
        return {"story": list(self.times_BS.shape), "question": list(self.question_BL.shape)}


@dataclass(frozen=True)
class LabelledBatch(AnyBatch):
    """Texts with what a head is to predict. An example is one row, or several: windows, choices,
    both orders."""

    text: Padded
    segments_BL: Tensor  # 0 in the first segment, 1 in the second
    owners_B: Tensor
    """The number of the example that each row belongs to, from 0; the rows of an example stand side
    by side."""
    # the class or the number of each example [X], the class of each token [B, L], ...
    labels: Tensor
