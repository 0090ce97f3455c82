"""Texts -> tokens that have not forgotten the words outside the vocabulary, in memory and on disk."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.spelling import Spelling, UnknownWord, letters_of, unknown_in
from regard.data.store import Array, ArrayWriter, ColumnWriter, Integers, TextColumn, open_array
from regard.data.tokenizers import Tokenizer


def encode_spelled(tokenizer: Tokenizer, texts: Sequence[str], letters: int | None) -> list[list[int]]:
    """The ids of each text. With `letters`, so many of an unknown word, each `<unk>` is an `UnknownWord`."""
    rows = tokenizer.encode_batch(texts)
    held = [number for number, ids in enumerate(rows) if tokenizer.unk in ids] if letters is not None else []
    # A letter and its accents, or the jamo of a syllable, are said to stand only where the first of them does.
    composed = [unicodedata.normalize("NFC", texts[number]) for number in held]
    for number, text, found in zip(held, composed, tokenizer.encode_offsets(composed), strict=True):
        if found[0] != rows[number]:  # a vocabulary of others that does not compose
            text, found = texts[number], tokenizer.encode_offsets([texts[number]])[0]
        assert letters is not None
        rows[number] = _with_words(tokenizer, text, *found, letters)
    return rows


def _with_words(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]], letters: int
) -> list[int]:
    said = tokenizer.tokens([tokenizer.unk])[0]  # a text of words between spaces may itself say that one is unknown
    found = [*ids]
    for number in [number for number, token in enumerate(ids) if token == tokenizer.unk]:
        typed = text[slice(*offsets[number])]
        if typed.strip() != said:
            word = tokenizer.spelling(typed, first=number == 0)
            found[number] = UnknownWord.of(tokenizer.unk, word, letters_of(word, letters))
    return found


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
