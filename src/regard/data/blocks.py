"""Raw tokens -> what language models read: pieces of documents, or a text that goes on from batch to batch."""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import TextBatch, Tokens
from regard.data.dataset import Examples
from regard.data.plans import Rows, fixed_batches
from regard.data.raw import RawTokens
from regard.data.store import Integers

EVALUATED_STREAMS = 10
"""Streams that a text is measured in; each begins without memory, so more would cost quality."""


class Pieces(Examples):
    """Stretches of the text, each of which is predicted token by token from the token before it on.

    A document begins where the one before ended: the first piece is predicted from its `</s>`, so that one and the same
    token ends a text and begins the next. A piece within a document is predicted from the last token before it.
    """

    def __init__(self, text: RawTokens, starts: Integers, stops: Integers, corpora: Integers) -> None:
        self.text, self.starts, self.stops = text, starts, stops
        self.corpora, self.weights = corpora, text.weights

    @property
    def lengths(self) -> NDArray[np.int32]:
        return (self.stops - self.starts).astype(np.int32)

    def where(self, example: int) -> str:
        return self.text.place(int(self.text.document_at(self.starts[example])))

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> TextBatch:
        starts, lengths = self.starts[examples] - 1, self.lengths[examples].astype(np.int64) + 1
        places_BL = starts[:, None] + np.arange(int(lengths.max()))
        real_BL = places_BL < (starts + lengths)[:, None]
        ids_BL = self.text.values[np.where(real_BL, places_BL, 0)].astype(np.int64)  # place -1: the last </s>
        ids_BL[~real_BL] = self.text.tokenizer.pad
        spelling = self.text.spelling(places_BL, ids_BL == self.text.tokenizer.unk)
        tokens = Tokens.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths), spelling)
        return TextBatch(tokens, tuple(examples.tolist()), int(lengths.sum()) - len(examples))

    def frequencies(self) -> NDArray[np.int64]:
        return self.text.frequencies()

    def pieces(self, example: int) -> dict[str, list[str]]:
        ids = self.text.values[self.starts[example] : self.stops[example]]
        return {"text": self.text.tokenizer.pieces(ids.tolist())}

    def measured(self, batch_tokens: int) -> list[Rows]:
        """Batches that hold everything once, to measure a model with."""
        return fixed_batches(self, batch_tokens)


def document_pieces(text: RawTokens, max_length: int) -> Pieces:
    """Each document by itself, cut where a row of it would have more than `max_length` tokens."""
    begins, ends = text.bounds[:-1], text.bounds[1:]
    starts, counts = cut_evenly(begins, ends, max_length - 1)
    stops = np.minimum(starts + max_length - 1, np.repeat(ends, counts))
    return Pieces(text, starts, stops, np.repeat(text.corpora, counts))


def contiguous_pieces(text: RawTokens, max_length: int) -> Pieces:
    """The whole text, document after document, cut at every `max_length` tokens, whoever they belong to."""
    starts, stops = cut_throughout(text, max_length)
    return Pieces(text, starts, stops, text.corpora[text.document_at(starts)])


def cut_throughout(text: RawTokens, max_length: int) -> tuple[Integers, Integers]:
    """Where the pieces of the whole text begin and end, each of `max_length` tokens with the one before it."""
    starts = np.arange(0, len(text.values), max_length - 1)
    return starts, np.minimum(starts + max_length - 1, len(text.values))


def cut_evenly(begins: Integers, ends: Integers, room: int) -> tuple[Integers, Integers]:
    """Where pieces of at most `room` tokens begin, and how many of them each stretch has."""
    counts = -(-(ends - begins) // room)
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(begins, counts) + room * number, counts


class Streams(Pieces):
    """The whole text, document after document, read by a batch's rows side by side as so many streams.

    Each stream is a stretch of about the same size, and each batch goes on in all of them where the batch before ended,
    so that a recurrent state can be carried over: truncated back-propagation through time. The last stream may be the
    first to end; from then on a batch has a row less. The plan is the same in every epoch, so a position says which
    batch comes next, and a checkpoint only has to hold the carried state beside it.
    """

    def __init__(self, text: RawTokens, max_length: int) -> None:
        starts, stops = cut_throughout(text, max_length)
        super().__init__(text, starts, stops, np.zeros(len(starts), dtype=np.int16))
        self.weights = (1.0,)
        self.room = max_length - 1

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
        return self._side_by_side(max(1, batch_tokens // self.room))

    def _side_by_side(self, streams: int) -> list[Rows]:
        steps = ceil(len(self) / streams)
        firsts = np.arange(0, len(self), steps)
        return [firsts[firsts + step < len(self)] + step for step in range(steps)]

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> TextBatch:
        batch = super().batch(examples)
        return TextBatch(batch.text, batch.examples, batch.tokens, carries=int(examples[0]) > 0)

    def measured(self, batch_tokens: int) -> list[Rows]:
        return self._side_by_side(EVALUATED_STREAMS)
