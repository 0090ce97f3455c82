"""Texts -> tokens that have not forgotten the words outside the vocabulary, in memory and on disk."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Array, ArrayWriter, ColumnWriter, Integers, TextColumn, open_array
from regard.text.spelling import Spelling, UnknownWord, letters_of, unknown_in
from regard.text.tokenizers import Tokenizer


def encode_spelled(tokenizer: Tokenizer, texts: Sequence[str], letters: int | None) -> list[list[int]]:
    """The ids of each text. With `letters`, so many of an unknown word, each `<unk>` is an `UnknownWord`."""
    rows = tokenizer.encode_batch(texts)
    held = [number for number, ids in enumerate(rows) if tokenizer.unk in ids] if letters is not None else []
    for number, found in zip(held, unknown_words(tokenizer, [texts[number] for number in held]), strict=True):
        assert letters is not None
        for place, typed in found:
            word = tokenizer.spelling(typed, first=place == 0)
            rows[number][place] = UnknownWord.of(tokenizer.unk, word, letters_of(word, letters))
    return rows


def unknown_words(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Of each text its unknown tokens: their numbers, and what each stands for, the space before a word included.

    A text of words between spaces may itself say `<unk>`: that one is known.
    """
    said = tokenizer.tokens([tokenizer.unk])[0]
    # A letter and its accents, or the jamo of a syllable, are said to stand only where the first of them does.
    composed = [unicodedata.normalize("NFC", text) for text in texts]
    rows = tokenizer.encode_offsets(texts)
    composed_rows = rows if composed == [*texts] else tokenizer.encode_offsets(composed)
    for text, other, as_typed, as_composed in zip(texts, composed, rows, composed_rows, strict=True):
        alike = as_composed[0] == as_typed[0]  # or a vocabulary of others that does not compose
        held, (ids, offsets) = (other, as_composed) if alike else (text, as_typed)
        spans = ((place, held[slice(*offsets[place])]) for place, token in enumerate(ids) if token == tokenizer.unk)
        yield [(place, typed) for place, typed in spans if typed.strip() != said]


@dataclass(frozen=True, eq=False)
class SpeltOut:
    """What it costs to tell which texts the unknown tokens of documents stand for, in nats.

    A model pays for `<unk>`, but not for what stands there: with few words it would pay for almost nothing. So that
    vocabularies can be compared, each unknown token is spelt out by the model that knows least, a uniform one over the
    256 bytes and one sign for the end; with n bytes of UTF-8 that is
        (n + 1) log 257
    """

    tokens: Integers
    """Of each document: how many of its tokens are unknown."""
    nats: NDArray[np.float64]
    """Of each document: what they cost."""

    @classmethod
    def nothing(cls, documents: int) -> SpeltOut:
        return cls(np.zeros(documents, dtype=np.int64), np.zeros(documents))

    @classmethod
    def of(cls, tokenizer: Tokenizer, chunks: Iterable[Sequence[str]]) -> SpeltOut:
        """Of documents as the tokenizer reads them, some at a time."""
        found = [words for texts in chunks for words in unknown_words(tokenizer, texts)]
        signs = [sum(len(typed.strip().encode()) + 1 for _, typed in words) for words in found]
        return cls(np.array([*map(len, found)], dtype=np.int64), np.array(signs) * math.log(257))


@dataclass(frozen=True, eq=False)
class UnknownWords:
    """The words outside the vocabulary among the tokens of a split, in their order."""

    places: Integers
    """Where each stands."""
    words: Sequence[str]
    letters: int

    @classmethod
    def open(cls, folder: Path, split: str, letters: int) -> UnknownWords:
        places = open_array(folder / f"{split}.unknown.places", np.int64)
        return cls(places, TextColumn.open(folder, f"{split}.unknown"), letters)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], letters: int) -> UnknownWords:
        """In memory: those in rows of tokens that stand one after the other."""
        found = [*unknown_in([token for row in rows for token in row])]
        return cls(np.array([place for place, _ in found], dtype=np.int64), [one.word for _, one in found], letters)

    def spelling(self, places_BL: Array, wanted_BL: Array) -> Spelling | None:
        """The letters of the words at some places, where they are wanted."""
        rows, columns = np.nonzero(wanted_BL)
        places = places_BL[rows, columns]
        numbers = np.searchsorted(self.places, places)
        there = np.searchsorted(self.places, places, side="right") > numbers  # a text may itself say <unk>
        words = [letters_of(self.words[number], self.letters) for number in numbers[there].tolist()]
        return Spelling.of([*zip(rows[there].tolist(), columns[there].tolist(), strict=True)], words, places_BL.shape)


class UnknownWriter:
    """Writes them down while the rows of a split are made."""

    def __init__(self, folder: Path, split: str) -> None:
        self._words = ColumnWriter(folder, f"{split}.unknown", np.uint8)
        self._places = ArrayWriter(folder / f"{split}.unknown.places", np.int64)
        self._end = 0

    def extend(self, rows: Sequence[Sequence[int]]) -> None:
        """Those of the next rows."""
        for row in rows:
            found = [*unknown_in(row)]
            self._places.extend([self._end + place for place, _ in found])
            self._words.extend_bytes([token.word.encode() for _, token in found])
            self._end += len(row)

    def close(self) -> None:
        self._places.close()
        self._words.close()
