"""What a model reads: sentences, images and labels as tensors.

A batch is always padded here. `engine/shapes.py` has the packed forms of batches, which a GPU
computes faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import TypeVar

from regard.text.spelling import CharacterIds, Token, UnknownWord, letters_of, unknown_in

NO_TAG = -100
"""The label of a token without one. torch's cross-entropy ignores it by default."""


# Values made of tensors


@dataclass(frozen=True)
class Tensors:
    """A value made of tensors, which move to a device together."""

    HOST: ClassVar[frozenset[str]] = frozenset()
    """Fields that always stay in main memory."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """A copy with a function applied to every tensor."""
        changed: dict[str, Any] = {}
        for name, value in self._moving().items():
            if isinstance(value, Tensor):
                changed[name] = function(value)
            elif isinstance(value, Tensors):
                changed[name] = value.map(function)
        return replace(self, **changed)

    def tensors(self) -> list[Tensor]:
        """All tensors except those that stay in main memory."""
        tensors: list[Tensor] = []
        for value in self._moving().values():
            if isinstance(value, Tensor):
                tensors.append(value)
            elif isinstance(value, Tensors):
                tensors += value.tensors()
        return tensors

    def signature(self) -> tuple[Any, ...]:
        """Shapes and settings: everything that the operations of a model depend on, besides the
        numbers in the tensors."""
        parts: list[Any] = []
        for value in self._moving().values():
            if isinstance(value, Tensor):
                parts.append(value.shape)
            elif isinstance(value, Tensors):
                parts.append(value.signature())
            else:
                parts.append(value)
        return tuple(parts)

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def _moving(self) -> dict[str, Any]:
        names = (field.name for field in fields(self))
        return {name: getattr(self, name) for name in names if name not in self.HOST}


@dataclass(frozen=True)
class Spelling(Tensors):
    """The characters of the unknown words of a batch."""

    numbers_BL: Tensor
    """The number of the unknown word at each position, from 1; 0 for a token of the vocabulary."""
    characters_PC: Tensor
    """The characters of word 1, word 2 and so on, without duplicates."""

    @staticmethod
    def of(
        places: Sequence[tuple[int, int]], words: Sequence[CharacterIds], shape: tuple[int, int]
    ) -> Spelling | None:
        """`places` are the row and the column of each word; None if there are no words."""
        if not words:
            return None
        numbers: dict[CharacterIds, int] = {}
        numbers_P = torch.tensor([numbers.setdefault(word, len(numbers) + 1) for word in words])
        rows_P, columns_P = torch.tensor(places).T
        numbers_BL = torch.zeros(shape, dtype=torch.long)
        numbers_BL[rows_P, columns_P] = numbers_P
        return Spelling(numbers_BL, pad_sequence([*map(torch.tensor, numbers)], batch_first=True))

    @staticmethod
    def of_rows(rows: Sequence[Sequence[Token]]) -> Spelling | None:
        """For rows of tokens that are padded on the right."""
        places: list[tuple[int, int]] = []
        words: list[CharacterIds] = []
        for row, ids in enumerate(rows):
            for column, token in unknown_in(ids):
                places.append((row, column))
                words.append(token.letters)
        return Spelling.of(places, words, (len(rows), max(map(len, rows))))

    def restore(self, ids: Sequence[int], row: int) -> list[Token]:
        """The tokens of a row of the batch with their `UnknownWord`s."""
        tokens: list[Token] = [*ids]
        for column, number in enumerate(self.numbers_BL[row, : len(tokens)].tolist()):
            if number > 0:
                characters = self.characters_PC[number - 1].tolist()
                letters = tuple(letter for letter in characters if letter > 0)
                word = bytes(letter - 1 for letter in letters[1:-1]).decode(errors="replace")
                tokens[column] = UnknownWord(ids[column], word, letters)
        return tokens


def spelled(words: Sequence[str], longest: int) -> Tensor:
    """The characters of each word of a vocabulary, padded, [V, C]."""
    return pad_sequence(
        [torch.tensor(letters_of(word, longest)) for word in words], batch_first=True
    )


# Positions


def real_positions(lengths_B: Tensor, width: int) -> Tensor:
    """True for the first `lengths_B[b]` of `width` positions, [B, width]."""
    return torch.arange(width, device=lengths_B.device) < lengths_B[:, None]


def real_places(lengths_B: Tensor, host_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """The sentence of each real token and its place in that sentence, sentence by sentence, [P]
    each.

    The lengths in main memory give P, so that nothing waits for a device.
    """
    total = int(host_lengths_B.sum())
    sentences_P = torch.repeat_interleave(lengths_B, output_size=total)
    starts_B = lengths_B.cumsum(0) - lengths_B
    places_P = torch.arange(total, device=lengths_B.device) - starts_B[sentences_P]
    return sentences_P, places_P


# Sentences and images


class Tokens(Protocol):
    """Sentences as tokens, in one of two layouts: `Padded`, or packed into one row without padding
    (`Packed` in engine/packing.py).

    A model that can compute on both layouts calls these methods and never asks which one it has.
    """

    @property
    def ids(self) -> Tensor:
        """The tokens as an embedding reads them: [B, L], or [1, P] if packed."""

    @property
    def inputs(self) -> Tokens:
        """The input of a model that predicts each next token: the sentences without their last
        tokens."""

    def predicted(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden states [P, D] that predict a token, and these tokens [P]; `hidden` are those
        of `inputs`."""

    def arrange(self, values_BL: Tensor) -> Tensor:
        """Padded values, one per token, in this layout."""

    @property
    def is_real(self) -> Tensor:
        """True for tokens, False for padding and filler, in the layout of `ids`."""

    def with_ids(self, ids: Tensor) -> Self:
        """Sentences of the same lengths with other tokens, in the layout of `ids`."""

    def restore(self, hidden: Tensor) -> Tensor:
        """Hidden states of the model in the layout of the batch that it was given."""

    def restore_heads(self, keys: Tensor) -> Tensor:
        """`restore` for keys or values of all heads: [B, H, L, E], or [1, H, P, E] if packed."""


@dataclass(frozen=True)
class Ragged(Tensors):
    """Rows of different lengths: each is a sentence or an image."""

    HOST: ClassVar[frozenset[str]] = frozenset({"host_lengths_B"})

    lengths_B: Tensor
    """Positions of each row: tokens, or regions of an image."""
    host_lengths_B: Tensor
    """The lengths once more, always in main memory, where they are read without waiting for a
    device."""

    def __len__(self) -> int:
        return len(self.lengths_B)

    @property
    def device(self) -> torch.device:
        return self.lengths_B.device

    @property
    def shape(self) -> list[int]:
        """The number of rows, and of positions with padding."""
        return [len(self), int(self.host_lengths_B.max())]

    def contents(self) -> list[bytes]:
        """For each row bytes that depend on what it shows alone: they seed the noise of samples."""
        raise NotImplementedError


@dataclass(frozen=True)
class Padded(Ragged):
    """Sentences of different lengths, padded on the right."""

    keeps_shape: ClassVar[bool] = False
    """Whether a model computes the padding, too, so that only the shape decides its operations."""

    ids_BL: Tensor
    spelling: Spelling | None = None
    """The letters of words outside the vocabulary, for a model that reads them."""

    @classmethod
    def of(cls, ids_BL: Tensor, lengths_B: Tensor, spelling: Spelling | None = None) -> Self:
        return cls(lengths_B, lengths_B.cpu(), ids_BL, spelling)

    def row(self, number: int) -> list[Token]:
        """The tokens of one of the sentences, with the unknown words that they stand for."""
        ids = self.ids_BL[number, : int(self.host_lengths_B[number])].tolist()
        return [*ids] if self.spelling is None else self.spelling.restore(ids, number)

    @property
    def shape(self) -> list[int]:
        return list(self.ids_BL.shape)

    def contents(self) -> list[bytes]:
        ids_BL = self.ids_BL.cpu().long()
        lengths = self.host_lengths_B.tolist()
        return [
            ids_L[:length].numpy().tobytes() for ids_L, length in zip(ids_BL, lengths, strict=True)
        ]

    @property
    def loop_lengths_B(self) -> Tensor:
        """The positions of each sentence that a loop over time computes, in main memory."""
        return self.host_lengths_B

    def real(self, values_BL: Tensor) -> Tensor:
        """The values at all real positions, sentence by sentence: [B, L, ...] -> [P, ...]."""
        sentences_P, places_P = real_places(self.lengths_B, self.host_lengths_B)
        index_P = sentences_P * self.ids_BL.shape[1] + places_P
        return values_BL.flatten(0, 1).index_select(0, index_P)

    # `Tokens`

    @property
    def ids(self) -> Tensor:
        return self.ids_BL

    @property
    def inputs(self) -> Padded:
        return Padded(self.lengths_B - 1, self.host_lengths_B - 1, self.ids_BL[:, :-1])

    def predicted(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.inputs
        return inputs.real(hidden), inputs.real(self.ids_BL[:, 1:])

    @property
    def is_real(self) -> Tensor:
        return real_positions(self.lengths_B, self.ids_BL.shape[1])

    def with_ids(self, ids: Tensor) -> Self:
        return replace(self, ids_BL=ids)

    def arrange(self, values_BL: Tensor) -> Tensor:
        return values_BL

    def restore(self, hidden: Tensor) -> Tensor:
        return hidden

    def restore_heads(self, keys: Tensor) -> Tensor:
        return keys


@dataclass(frozen=True)
class Images(Ragged):
    """Images, whose positions are their regions."""

    shown: Tensor
    """Pixels as bytes, [B, height, width, 3]; or features from another network, [B, S, D]."""
    columns_B: Tensor
    """How many regions stand side by side; the next ones stand below."""
    checksums_B: Tensor
    """A number for each image, made from what it shows."""

    def contents(self) -> list[bytes]:
        pairs = zip(self.checksums_B.cpu(), self.host_lengths_B.tolist(), strict=True)
        return [checksum.repeat(regions).numpy().tobytes() for checksum, regions in pairs]


# Batches

S = TypeVar("S", bound=Ragged, default=Padded)


@dataclass(frozen=True)
class AnyBatch(Tensors):
    """What a model reads in one step."""

    examples: tuple[int, ...] = field(default=(), kw_only=True)
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = field(default=0, kw_only=True)
    """How many predictions the loss is summed over: tokens, labels or answers."""

    def shapes(self) -> dict[str, list[int]]:
        """The sizes of the texts."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.shape for name, value in values.items() if isinstance(value, Ragged)}

    @property
    def keeps_shape(self) -> bool:
        """Whether the operations of a model depend on the shapes alone, and not on the lengths."""
        values = (getattr(self, field.name) for field in fields(self))
        return all(value.keeps_shape for value in values if isinstance(value, Padded))

    def unnamed(self) -> Self:
        """The tensors alone: what a compiled model may depend on."""
        return replace(self, examples=(), tokens=0)


@dataclass(frozen=True)
class Batch(AnyBatch, Generic[S]):
    """Pairs of sentences, or images and captions. A source text ends in `</s>`; a target begins
    with `<s>`, which is not predicted, and ends in `</s>`."""

    source: S
    target: Padded


@dataclass(frozen=True)
class TextBatch(AnyBatch):
    """Texts for a language model: the hidden state at position t predicts `text[:, t + 1]`."""

    text: Padded
    carries: bool = False
    """Whether each row goes on where the same row of the batch before ended: its first token is the
    last one there."""


@dataclass(frozen=True)
class MaskedBatch(AnyBatch):
    """Texts of one or two segments, some of whose tokens are masked and to be predicted."""

    text: Padded
    """The texts after masking."""
    segments_BL: Tensor
    """0 in the first segment, 1 in the second."""
    places_P: Tensor
    """Where tokens are to be predicted: b * L + l, the padded positions read row by row."""
    labels_P: Tensor
    """The tokens before masking."""
    follows_B: Tensor | None = None
    """1 where the second segment truly follows the first, 0 where it does not; None without this
    objective."""

    def first_tokens(self, hidden_BLD: Tensor) -> Tensor:
        """The hidden states of the first token of each text, [B, 1, D]."""
        return hidden_BLD[:, :1]


@dataclass(frozen=True)
class StoryBatch(AnyBatch):
    """Stories, a question about each, and its answer in one word."""

    story_BSL: Tensor
    """The words of each sentence, the oldest sentence first; padded on the right, sentences and
    words."""
    times_BS: Tensor
    """How long ago each sentence was: 1 for the newest; 0 on padding."""
    question_BL: Tensor
    answers_B: Tensor
    linear: bool = False
    """Whether the hops omit their softmax: at the linear start of a training."""

    def shapes(self) -> dict[str, list[int]]:
        """The sizes of the padded stories, in sentences, and questions, in words."""
        return {"story": list(self.times_BS.shape), "question": list(self.question_BL.shape)}


@dataclass(frozen=True)
class LabelledBatch(AnyBatch):
    """Texts and what a head predicts for them. An example is one row, or several: windows, choices,
    both orders."""

    text: Padded
    segments_BL: Tensor
    """0 in the first segment, 1 in the second."""
    owners_B: Tensor
    """The number of the example that each row belongs to, from 0; the rows of an example stand side
    by side."""
    labels: Tensor
    """The class or the number of each example [X], the class of each token [B, L], ..."""
