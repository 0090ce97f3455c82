"""Raw tokens -> what BERT reads: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with the question whether
B follows A (or what the vocabulary's own template has in place of these special tokens).

Devlin et al. 2019, arXiv:1810.04805, section 3.1, task 2: in half of the examples B truly comes
after A, in the other half it is taken from another document.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import MaskedBatch, Padded
from regard.data.epochs import Examples, Rows, SizedExamples, fixed_batches, plan
from regard.data.raw import RawTokens, cut
from regard.data.spans import Spans, framed_spans
from regard.data.store import Integers
from regard.errors import DataError
from regard.text.normalise import Sentences
from regard.text.templates import Slot
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK

PAIR_DRAWS = 1
MASK_DRAWS = 2  # what numbers are drawn for, so that the one leaves the other as it is
# how far a negative may stand in the order of lengths, and how many there are tried
NEAR = 32
MAX_TRIES = 64
NOTED_SHARE = 0.05  # the share of a text from which a note says that it is left out
MORE_DOCUMENTS = "end documents with blank lines, or say documents: lines"
MORE_SENTENCES: dict[Sentences, str] = {
    "punctuation": "sentences are found by . ! and ?, data.sentences=lines takes every line "
    "for one",
    "lines": "every line is a sentence, data.sentences=punctuation finds them by . ! and ?",
}


@dataclass(frozen=True, eq=False)
class Shown(SizedExamples):
    """The segments that an epoch shows, from their first token up to, but without, their last."""

    a_starts: Integers
    a_stops: Integers
    b_starts: Integers
    b_stops: Integers
    follows: NDArray[np.bool_] | None  # whether B follows A; None where there is no B
    corpora: Integers
    weights: tuple[float, ...]
    template: tuple[Slot, ...]  # what stands around the segments

    @property
    def lengths(self) -> NDArray[np.int32]:
        both = self.a_stops - self.a_starts + self.b_stops - self.b_starts
        return (both + self.special).astype(np.int32)

    @property
    def special(self) -> int:
        return sum(token is not None for token, _ in self.template)


OUTCOMES = ("not to predict", "[MASK]", "another token", "unchanged")
"""What masking makes of a token: it is not chosen; or it is, and shown as one of the three."""


class Segments(Examples):
    """Segments of a text with some tokens hidden, drawn anew in each epoch."""

    def __init__(self, text: RawTokens, masking: Masking, corpora: Integers) -> None:
        self.text = text
        self.masking = masking
        self.corpora = corpora
        self.weights = text.weights
        self.masked_share = masking.rate
        self.left_out = text.pieces.left_out
        self.shown = lru_cache(maxsize=2)(self.draw)
        """The same as `draw`, kept for the two latest epochs."""

    def draw(self, seed: int, epoch: int) -> Shown:
        """The segments of an epoch; the same for the same seed and epoch on every machine."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Notes for the user on text that is not shown."""
        yield from ()

    @property
    def documents(self) -> int:
        """How many documents are shown."""
        return len(np.unique(self.text.document_at(self.shown(0, 0).a_starts)))

    @property
    def lengths(self) -> NDArray[np.int32]:
        return self.shown(0, 0).lengths

    def plan(self, batch_tokens: int, seed: int, epoch: int, *, fill: bool = False) -> list[Rows]:
        return plan(self.shown(seed, epoch), batch_tokens, seed, epoch, fill=fill)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> MaskedBatch:
        rows_BL, segments_BL, lengths = self._rows(examples, seed, epoch)
        masked = self.masking(
            rows_BL, Draws(seed, epoch, MASK_DRAWS, int(examples[0]), len(examples))
        )
        ids_BL, places_P, labels_P = map(torch.from_numpy, masked)
        text = Padded.of(ids_BL, torch.from_numpy(lengths))
        follows = self.shown(seed, epoch).follows
        follows_B = (
            None if follows is None else torch.from_numpy(follows[examples].astype(np.int64))
        )
        segments = torch.from_numpy(segments_BL)
        numbers = tuple(examples.tolist())
        return MaskedBatch(
            text, segments, places_P, labels_P, follows_B, examples=numbers, tokens=len(places_P)
        )

    def _rows(self, examples: Integers, seed: int, epoch: int) -> tuple[Ids, Ids, Integers]:
        """A, and B where there is a second segment, among the special tokens; which segment; the
        lengths of both."""
        shown = self.shown(seed, epoch)
        texts = [
            Spans(self.text.values, starts[examples], stops[examples] - starts[examples])
            for starts, stops in (
                (shown.a_starts, shown.a_stops),
                (shown.b_starts, shown.b_stops),
            )
        ]
        return framed_spans(shown.template, texts, self.text.tokenizer.pad)

    def where(self, example: int) -> str:
        return self.text.place(int(self.text.document_at(self.shown(0, 0).a_starts[example])))

    def frequencies(self) -> NDArray[np.int64]:
        counts = self.text.frequencies()
        counts[self.text.tokenizer.end] = 0  # which is read, but never predicted
        return counts

    def pieces(self, example: int) -> dict[str, list[str]]:
        ids_1L, _, _ = self._rows(np.array([example]), 0, 0)
        masked_1L = self.batch(np.array([example])).text.ids_BL
        pieces = self.text.tokenizer.pieces
        return {"text": pieces(ids_1L[0].tolist()), "masked": pieces(masked_1L[0].tolist())}

    def outcomes(self, batches: int, batch_tokens: int) -> dict[str, int]:
        """The outcomes of the masking of the first batches, without special tokens."""
        counts = dict.fromkeys(OUTCOMES, 0)
        special = torch.tensor(sorted(self.text.tokenizer.special))
        for rows in islice(fixed_batches(self, batch_tokens), batches):
            batch = self.batch(rows)
            shown_P = batch.text.ids_BL.flatten()[batch.places_P]
            hidden = int(shown_P.eq(self.masking.mask).sum())
            same = int(shown_P.eq(batch.labels_P).sum())
            read = int((~torch.isin(batch.text.ids_BL, special)).sum()) + hidden
            by_outcome = read - len(shown_P), hidden, len(shown_P) - hidden - same, same
            counts = {
                name: counts[name] + count for name, count in zip(OUTCOMES, by_outcome, strict=True)
            }
        return counts


class SingleSegments(Segments):
    """Documents, cut where they are longer than the model reads at once; or all documents joined,
    each with its end, and cut into pieces of one length."""

    def __init__(
        self, text: RawTokens, masking: Masking, max_length: int, *, joined: bool = False
    ) -> None:
        room = max_length - (len(text.tokenizer.templates[0]) - 1)
        begins, ends = text.bounds[:-1], text.bounds[1:] - 1
        if joined:
            begins, ends = text.bounds[:1], text.bounds[-1:] - 1
        self._starts, self._stops, _ = cut(begins, ends, room)
        super().__init__(text, masking, text.corpora[text.document_at(self._starts)])

    def draw(self, seed: int, epoch: int) -> Shown:
        nothing = np.zeros_like(self._starts)
        template = self.text.tokenizer.templates[0]
        return Shown(
            self._starts, self._stops, nothing, nothing, None, self.corpora, self.weights, template
        )


class SentencePairs(Segments):
    """Pairs of segments, each of whole sentences.

    Documents are cut once into spans of sentences that fit. Each epoch then cuts every span in two
    after another sentence, and half of them get the second part of a span of another document
    instead, one of about the same length. So what follows and what does not are the same parts:
    neither lengths nor breaks give the answer away.
    """

    def __init__(
        self,
        text: RawTokens,
        masking: Masking,
        max_length: int,
        where: str = "data",
        hint: str = MORE_DOCUMENTS,
        sentences: Sentences = "punctuation",
    ) -> None:
        """For messages: `where` names the text, `hint` is how it gets more documents, `sentences`
        how to find them."""
        self._room = max_length - (len(text.tokenizer.templates[1]) - 2)
        self._firsts, self._lasts, self._owners = sentence_spans(text, self._room)
        if len(np.unique(self._owners)) < 2:
            long = int((np.diff(text.documents) >= 2).sum())
            what = (
                "next-sentence prediction needs two documents of two sentences or more: a "
                "negative comes from another"
            )
            what += (
                f"; {'there is 1' if long == 1 else 'there are none'} here, of {len(text):,} in all"
            )
            hints = [
                hint,
                *[MORE_SENTENCES[sentences]] * (long < len(text)),
                "or set model.next_sentence=false",
            ]
            raise DataError(what, where=where, hint="; ".join(hints))
        super().__init__(text, masking, text.corpora[self._owners])

    def notes(self) -> Iterator[str]:
        documents = len(self.text)
        tokens = len(self.text.values)
        limits = self.text.sentences
        alone = documents - len(np.unique(self._owners))
        beyond = int(np.maximum(0, limits[self._lasts] - limits[self._firsts] - self._room).sum())
        if alone > NOTED_SHARE * documents:
            what = (
                f"{alone:,} of {documents:,} training documents have one sentence and are left out"
            )
            yield f"{what}: model.next_sentence=false reads them"
        if beyond > NOTED_SHARE * tokens:
            what = (
                f"{beyond:,} of {tokens:,} training tokens, in sentences too long for a "
                "pair, are left out"
            )
            yield f"{what}: model.next_sentence=false reads them"

    def draw(self, seed: int, epoch: int) -> Shown:
        draws = Draws(seed, epoch, PAIR_DRAWS)
        count = len(self._firsts)
        limits = self.text.sentences
        cuts = self._firsts + 1 + (draws(count) * (self._lasts - self._firsts - 1)).astype(np.int64)
        middles = limits[cuts]
        a_starts = np.maximum(limits[self._firsts], middles - (self._room - self._room // 4))
        # without </s>
        ends = limits[self._lasts] - (self._lasts == self.text.documents[self._owners + 1])
        rooms = self._room - (middles - a_starts)
        follows = draws(count) < 0.5
        true_stops = np.minimum(ends, middles + rooms)
        others = self._negatives(true_stops - middles, rooms, draws)
        b_starts, b_stops = middles[others], np.minimum(true_stops[others], middles[others] + rooms)
        # Where another document happens to continue with the very same words, they truly follow
        for row in np.flatnonzero(true_stops - middles == b_stops - b_starts):
            true, other = slice(middles[row], true_stops[row]), slice(b_starts[row], b_stops[row])
            follows[row] |= np.array_equal(self.text.values[true], self.text.values[other])
        b_starts, b_stops = (
            np.where(follows, middles, b_starts),
            np.where(follows, true_stops, b_stops),
        )
        template = self.text.tokenizer.templates[1]
        return Shown(
            a_starts, middles, b_starts, b_stops, follows, self.corpora, self.weights, template
        )

    def _negatives(self, sizes: Integers, rooms: Integers, draws: Draws) -> Integers:
        """For each span one of another document, near it in the order of the second parts' lengths,
        that has room."""
        count = len(sizes)
        owners = self._owners
        order = np.argsort(sizes + draws(count), kind="stable")
        ranks = np.empty(count, dtype=np.int64)
        ranks[order] = np.arange(count)
        fitting = np.searchsorted(sizes[order], rooms, side="right")
        near = ranks + np.round((2 * draws(count) - 1) * NEAR).astype(np.int64)
        near = np.clip(near, 0, fitting - 1)
        for _ in range(MAX_TRIES):
            own = owners[order[near]] == owners
            if not own.any():
                return order[near]
            near = np.where(own, (near - 1) % fitting, near)
        # Few documents: any of another one, cut off where it does not fit
        first = np.searchsorted(owners, owners, side="left")
        size = np.bincount(owners)[owners]
        any_other = (draws(count) * (count - size)).astype(np.int64)
        any_other += np.where(any_other >= first, size, 0)
        return np.where(owners[order[near]] == owners, any_other, order[near])


def sentence_spans(text: RawTokens, room: int) -> tuple[Integers, Integers, Integers]:
    """Spans of two sentences or more, of `room` tokens if they can: first sentence, the one after,
    and document.

    A sentence that would be left alone at the end of its document is merged into the previous span,
    or gets the last sentence of it.
    """
    limits = text.sentences
    documents = text.documents
    spans = array("q")  # three numbers a span, as they lie in memory
    for document, (first, last) in enumerate(pairwise(documents.tolist())):
        while last - first >= 2:
            fits = int(np.searchsorted(limits, limits[first] + room, side="right")) - 1
            stop = min(max(fits, first + 2), last)
            if last - stop == 1:
                stop = stop - 1 if stop - first > 2 else last
            spans.extend((first, stop, document))
            first = stop
    firsts, lasts, owners = (
        np.frombuffer(spans, dtype=np.int64).reshape(-1, 3).T if spans else np.empty((3, 0), int)
    )
    return firsts, lasts, owners


CONTINUES_WORD = "##"
"""What a piece begins with that continues a word, in the vocabularies of other tools."""
BROKEN_CHARACTER = "\ufffd"  # what stands for a part of a character's bytes
# what a piece begins with that has a space before it, in the vocabularies that say so
SPACES = (MARK, "Ġ", " ")

Whole = Literal["off", "words", "eojeol"]
Ids = NDArray[np.int64]


class Draws:
    """Numbers from 0 to 1 that are the same on every machine for the same key."""

    def __init__(self, *key: int) -> None:
        # Raw bits: NumPy promises to keep them the same between its versions, and nothing else
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def __call__(self, *shape: int) -> NDArray[np.float64]:
        raw = self._bits.random_raw(int(np.prod(shape)))
        drawn: NDArray[np.float64] = np.multiply(
            raw >> np.uint64(11), 2.0**-53, dtype=np.float64
        ).reshape(shape)
        return drawn


@dataclass(frozen=True, eq=False)
class Masking:
    """Masks texts of one vocabulary, which has [MASK]."""

    tokenizer: Tokenizer
    rate: float = 0.15
    whole: Whole = "off"
    hidden: float = 0.8
    replaced: float = 0.1

    def __call__(self, ids_BL: Ids, draws: Draws) -> tuple[Ids, Ids, Ids]:
        """Texts after masking [B, L], the places where a token is to be predicted [P], and what
        stood there [P].

        Each token, or each whole word, is chosen by itself with the probability `rate`.

        Where that chooses nothing in the whole batch, one is taken, so that there is something to
        learn from. What is chosen becomes [MASK], a random token that is not special, or stays as
        it is.
        """
        ranks_BL = draws(*ids_BL.shape)
        if self.whole != "off":
            ranks_BL = np.take_along_axis(ranks_BL, self._first_of_word(ids_BL), axis=1)
        ranks_BL = np.where(self.is_special_V[ids_BL], 1.0, ranks_BL)  # which is never below a rate
        chosen_BL = ranks_BL < max(self.rate, np.nextafter(ranks_BL.min(), 1.0))
        places_P = np.flatnonzero(chosen_BL)
        labels_P = ids_BL.ravel()[places_P]
        how_P = draws(len(labels_P))
        which_P = draws(len(labels_P))
        plain = np.flatnonzero(~self.is_special_V)
        random_P = plain[(which_P * len(plain)).astype(np.int64)]
        shown_P = np.where(how_P < self.hidden + self.replaced, random_P, labels_P)
        masked_BL = ids_BL.copy()
        masked_BL.flat[places_P] = np.where(how_P < self.hidden, self.mask, shown_P)
        return masked_BL, places_P, labels_P

    @property
    def mask(self) -> int:
        assert self.tokenizer.mask is not None
        return self.tokenizer.mask

    @cached_property
    def is_special_V(self) -> NDArray[np.bool_]:
        special = np.zeros(self.tokenizer.size, dtype=bool)
        special[sorted(self.tokenizer.special)] = True
        return special

    @cached_property
    def _marks_continuing(self) -> bool:
        """Whether the vocabulary marks the pieces that continue a word, and not the spaces before
        words."""
        spelt = self.tokenizer.tokens(range(self.tokenizer.size))
        # ### is then a heading, not the rest of a word
        if any(token.startswith(SPACES) for token in spelt):
            return False
        return any(
            token.startswith(CONTINUES_WORD) and len(token) > len(CONTINUES_WORD) for token in spelt
        )

    @cached_property
    def _kinds_V(self) -> NDArray[np.int8]:
        """The kind of each token: letters 0, digits 1, other signs 2; plus 4 if it begins a word."""
        kinds = list[int]()
        continuing = self._marks_continuing
        spelt = self.tokenizer.tokens(range(self.tokenizer.size))
        written = self.tokenizer.token_bytes()
        for token, added in zip(spelt, written, strict=True):
            begins = (
                not token.startswith(CONTINUES_WORD) if continuing else token.startswith(SPACES)
            )
            sign = added.decode(errors="replace").lstrip()[:1]
            is_letter = sign.isalpha() or sign == BROKEN_CHARACTER
            kinds.append((1 if sign.isnumeric() else 0 if is_letter else 2) + 4 * begins)
        return np.array(kinds, dtype=np.int8)

    def _first_of_word(self, ids_BL: Ids) -> Ids:
        """For each position, where its word begins.

        An eojeol is all that stands between two spaces. A word is less: letters, digits and other
        signs are apart. Pieces that are marked as continuing belong to the piece before them,
        whatever is asked for: where words began was decided when the vocabulary was made, and
        spaces are lost.
        """
        kinds_BL = self._kinds_V[ids_BL]
        begins_BL = (kinds_BL >= 4) | self.is_special_V[ids_BL]
        if self.whole == "words" and not self._marks_continuing:
            kind_BL = kinds_BL % 4
            begins_BL[:, 1:] |= (kind_BL[:, 1:] != kind_BL[:, :-1]) | (kind_BL[:, 1:] == 2)
        begins_BL[:, 1:] |= self.is_special_V[ids_BL[:, :-1]]
        begins_BL[:, 0] = True
        places_L = np.arange(ids_BL.shape[1])
        return np.maximum.accumulate(np.where(begins_BL, places_L, 0), axis=1)
