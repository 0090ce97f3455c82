"""What a model reads: padded tokens with their lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.text.spelling import Spelling

NO_TAG = -100
"""Stands in the labels of a batch where a token carries no tag."""


@dataclass(frozen=True)
class Tokens:
    """Sentences of unequal length, padded on the right."""

    ids_BL: Tensor
    lengths_B: Tensor
    host_lengths_B: Tensor
    """The lengths once more, always in main memory: packing reads them there without waiting for a device."""
    spelling: Spelling | None = field(default=None, kw_only=True)
    """The letters of words outside the vocabulary, for a model that reads them."""

    @staticmethod
    def of(ids_BL: Tensor, lengths_B: Tensor, spelling: Spelling | None = None) -> Tokens:
        return Tokens(ids_BL, lengths_B, lengths_B.cpu(), spelling=spelling)

    def to(self, device: torch.device | str) -> Tokens:
        return self._sent(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Tokens:
        return self._sent(lambda tensor: tensor.pin_memory())

    def row(self, number: int) -> list[int]:
        """The tokens of one of the sentences, with the unknown words that they stand for."""
        ids: list[int] = self.ids_BL[number, : int(self.host_lengths_B[number])].tolist()
        return ids if self.spelling is None else self.spelling.restore(ids, number)

    def _sent(self, send: Callable[[Tensor], Tensor]) -> Tokens:
        spelling = None if self.spelling is None else self.spelling.map(send)
        return Tokens(send(self.ids_BL), send(self.lengths_B), self.host_lengths_B, spelling=spelling)

    def __len__(self) -> int:
        return self.ids_BL.shape[0]


@dataclass(frozen=True)
class Images(Tokens):
    """Images as a source: its positions are their regions, so that whoever reads lengths need not know.

    `ids_BL` holds one number for all regions of an image, made from what it shows: a sample's noise hangs on it.
    """

    shown: Tensor
    """Pixels [B, height, width, 3] as bytes; or what another network made of them, [B, S, D]."""
    columns_B: Tensor
    """How many regions stand side by side; the next ones stand below."""

    def to(self, device: torch.device | str) -> Images:
        return self._with(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Images:
        return self._with(lambda tensor: tensor.pin_memory())

    def _with(self, send: Callable[[Tensor], Tensor]) -> Images:
        ids_BL, lengths_B, shown, columns_B = map(send, (self.ids_BL, self.lengths_B, self.shown, self.columns_B))
        return Images(ids_BL, lengths_B, self.host_lengths_B, shown, columns_B)


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences. A source ends in `</s>`; a target begins with `<s>` and ends in `</s>`."""

    source: Tokens
    target: Tokens
    examples: tuple[int, ...] = ()
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = 0
    """How many target tokens are predicted: each target without its `<s>`."""

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.source.to(device), self.target.to(device), self.examples, self.tokens)

    def shapes(self) -> dict[str, list[int]]:
        """How large the padded texts are."""
        return {"source": list(self.source.ids_BL.shape), "target": list(self.target.ids_BL.shape)}

    def unnamed(self) -> Batch:
        """The tensors alone: what a compiled model may depend on."""
        return Batch(self.source, self.target)

    def pin(self) -> Batch:
        return Batch(self.source.pin(), self.target.pin(), self.examples, self.tokens)


@dataclass(frozen=True)
class TextBatch:
    """Texts for a language model: the hidden state at position t predicts `text[:, t + 1]`."""

    text: Tokens
    examples: tuple[int, ...] = ()
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = 0
    """How many tokens are predicted: each text without its first."""
    carries: bool = False
    """Whether each row goes on where the same row of the batch before ended: its first token is the last one there."""

    def to(self, device: torch.device | str) -> TextBatch:
        return replace(self, text=self.text.to(device))

    def shapes(self) -> dict[str, list[int]]:
        """How large the padded texts are."""
        return {"text": list(self.text.ids_BL.shape)}

    def unnamed(self) -> TextBatch:
        """The tensors alone: what a compiled model may depend on."""
        return TextBatch(self.text, carries=self.carries)

    def pin(self) -> TextBatch:
        return replace(self, text=self.text.pin())


@dataclass(frozen=True)
class MaskedBatch:
    """Texts of one or two segments, some of whose tokens are to be found again from what stands around them."""

    text: Tokens
    """What is read, after masking."""
    segments_BL: Tensor
    """0 in the first segment, 1 in the second."""
    places_P: Tensor
    """Where tokens are to be predicted: b * L + l, the padded positions read row by row."""
    labels_P: Tensor
    """The tokens that stood there."""
    follows_B: Tensor | None = None
    """1 where the second segment truly follows the first, 0 where it does not; None where that is not asked."""
    examples: tuple[int, ...] = ()
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = 0
    """How many tokens are predicted."""

    def _with(self, text: Tokens, send: Callable[[Tensor], Tensor]) -> MaskedBatch:
        follows_B = None if self.follows_B is None else send(self.follows_B)
        segments_BL, places_P, labels_P = (send(one) for one in (self.segments_BL, self.places_P, self.labels_P))
        return MaskedBatch(text, segments_BL, places_P, labels_P, follows_B, self.examples, self.tokens)

    def to(self, device: torch.device | str) -> MaskedBatch:
        return self._with(self.text.to(device), lambda tensor: tensor.to(device, non_blocking=True))

    def shapes(self) -> dict[str, list[int]]:
        """How large the padded texts are."""
        return {"text": list(self.text.ids_BL.shape)}

    def unnamed(self) -> MaskedBatch:
        """The tensors alone: what a compiled model may depend on."""
        return replace(self, examples=(), tokens=0)

    def pin(self) -> MaskedBatch:
        return self._with(self.text.pin(), lambda tensor: tensor.pin_memory())


@dataclass(frozen=True)
class StoryBatch:
    """Stories, a question about each, and its answer in one word."""

    story_BSL: Tensor
    """The words of each sentence, the oldest sentence first; padded on the right, sentences and words."""
    times_BS: Tensor
    """How long ago each sentence was: 1 for the newest; 0 where there is none."""
    question_BL: Tensor
    answers_B: Tensor
    linear: bool = False
    """Whether the hops go without their softmax: at the linear start of a training."""
    examples: tuple[int, ...] = ()
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = 0
    """How many answers are to be given."""

    def _with(self, send: Callable[[Tensor], Tensor]) -> StoryBatch:
        story_BSL, times_BS = send(self.story_BSL), send(self.times_BS)
        question_BL, answers_B = send(self.question_BL), send(self.answers_B)
        return StoryBatch(story_BSL, times_BS, question_BL, answers_B, self.linear, self.examples, self.tokens)

    def to(self, device: torch.device | str) -> StoryBatch:
        return self._with(lambda tensor: tensor.to(device, non_blocking=True))

    def shapes(self) -> dict[str, list[int]]:
        """How large the padded texts are: stories in sentences, questions in words."""
        return {"story": list(self.times_BS.shape), "question": list(self.question_BL.shape)}

    def unnamed(self) -> StoryBatch:
        """The tensors alone: what a compiled model may depend on."""
        return replace(self, examples=(), tokens=0)

    def pin(self) -> StoryBatch:
        return self._with(lambda tensor: tensor.pin_memory())


@dataclass(frozen=True)
class LabelledBatch:
    """Texts with what a head is to find in them. An example is one row, or several: windows, choices, both orders."""

    text: Tokens
    segments_BL: Tensor
    """0 in the first segment, 1 in the second."""
    owners_B: Tensor
    """The number of the example that each row belongs to, from 0; the rows of an example stand side by side."""
    labels: Tensor
    """What is to be found: the class or the number of each example [X], the class of each token [B, L], ..."""
    examples: tuple[int, ...] = ()
    """The numbers of the examples in their dataset, to name a batch by."""
    tokens: int = 0
    """How many things are to be found."""

    def _with(self, text: Tokens, send: Callable[[Tensor], Tensor]) -> LabelledBatch:
        segments_BL, owners_B, labels = (send(one) for one in (self.segments_BL, self.owners_B, self.labels))
        return LabelledBatch(text, segments_BL, owners_B, labels, self.examples, self.tokens)

    def to(self, device: torch.device | str) -> LabelledBatch:
        return self._with(self.text.to(device), lambda tensor: tensor.to(device, non_blocking=True))

    def shapes(self) -> dict[str, list[int]]:
        """How large the padded texts are."""
        return {"text": list(self.text.ids_BL.shape)}

    def unnamed(self) -> LabelledBatch:
        """The tensors alone: what a compiled model may depend on."""
        return replace(self, examples=(), tokens=0)

    def pin(self) -> LabelledBatch:
        return self._with(self.text.pin(), lambda tensor: tensor.pin_memory())


AnyBatch = Batch | TextBatch | MaskedBatch | StoryBatch | LabelledBatch
