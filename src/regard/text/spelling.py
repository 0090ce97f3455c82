"""Words as characters, for models that build word vectors from characters (ELMo).

The words of the vocabulary need no characters in a batch: their ids tell them. A word outside it has the id of `<unk>`,
so its characters are kept beside the id: as an `UnknownWord` in a row of ids, and in a batch as a `Spelling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer

WORD_BEGINS, WORD_ENDS = 257, 258
CHARACTERS = 259
"""0 pads short words, then come the 256 bytes of UTF-8, then the begin and the end of a word."""
Letters = tuple[int, ...]


def letters_of(word: str, longest: int) -> Letters:
    """The characters of a word: begin, its bytes in UTF-8, end; at most `longest` in all."""
    return (WORD_BEGINS, *(1 + byte for byte in word.encode()[: longest - 2]), WORD_ENDS)


def table_of(rows: Sequence[Letters]) -> Tensor:
    """The characters of each word, padded, [P, C]."""
    width = max(map(len, rows), default=2)
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long).view(-1, width)


def spelled(words: Sequence[str], longest: int) -> Tensor:
    """The characters of each word of a vocabulary, padded, [V, C]."""
    return table_of([letters_of(word, longest) for word in words])


class UnknownWord(int):
    """The id of `<unk>` that also holds the word it stands for."""

    word: str
    letters: Letters

    @classmethod
    def of(cls, unk: int, word: str, letters: Letters) -> UnknownWord:
        token = cls(unk)
        token.word, token.letters = word, letters
        return token


def unknown_in(ids: Sequence[int]) -> Iterator[tuple[int, UnknownWord]]:
    """The unknown words among tokens, and their positions."""
    return ((position, token) for position, token in enumerate(ids) if isinstance(token, UnknownWord))


def encode_spelled(tokenizer: Tokenizer, texts: Sequence[str], letters: int | None) -> list[list[int]]:
    """The ids of each text. With `letters`, each `<unk>` is an `UnknownWord` of at most so many characters."""
    rows = tokenizer.encode_batch(texts)
    if letters is None:
        return rows
    with_unknown = [number for number, ids in enumerate(rows) if tokenizer.unk in ids]
    words = unknown_words(tokenizer, [texts[number] for number in with_unknown])
    for number, row_words in zip(with_unknown, words, strict=True):
        for position, typed in row_words:
            word = tokenizer.spelling(typed, first=position == 0)
            rows[number][position] = UnknownWord.of(tokenizer.unk, word, letters_of(word, letters))
    return rows


def unknown_words(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """The unknown tokens of each text: their positions and their text, including the space before a word.

    A text of words split at spaces may itself contain `<unk>`: that one is known.
    """
    [unknown] = tokenizer.tokens([tokenizer.unk])
    # Offsets of a decomposed character cover only its first code point, so take them from the composed text.
    composed = [nfc(text) for text in texts]
    rows = tokenizer.encode_offsets(texts)
    composed_rows = rows if composed == [*texts] else tokenizer.encode_offsets(composed)
    for text, composed_text, row, composed_row in zip(texts, composed, rows, composed_rows, strict=True):
        same = composed_row[0] == row[0]  # not so for a vocabulary of another tool that does not compose
        source, (ids, offsets) = (composed_text, composed_row) if same else (text, row)
        words = ((place, source[slice(*offsets[place])]) for place, token in enumerate(ids) if token == tokenizer.unk)
        yield [(place, word) for place, word in words if word.strip() != unknown]


@dataclass(frozen=True, eq=False)
class SpeltOut:
    """The cost of spelling out the unknown tokens of documents, in nats.

    A model pays for predicting `<unk>`, but not for the word behind it, so a tiny vocabulary would have the best score.
    To compare vocabularies, each unknown token is also charged under a uniform model over the 256 bytes and an end
    symbol; a word of n bytes of UTF-8 costs
        (n + 1) log 257
    """

    tokens: NDArray[np.int64]
    """The number of unknown tokens of each document."""
    nats: NDArray[np.float64]
    """Their cost."""

    @classmethod
    def nothing(cls, documents: int) -> SpeltOut:
        return cls(np.zeros(documents, dtype=np.int64), np.zeros(documents))

    @classmethod
    def of(cls, tokenizer: Tokenizer, chunks: Iterable[Sequence[str]]) -> SpeltOut:
        """For documents as the tokenizer reads them, in chunks."""
        documents = [words for texts in chunks for words in unknown_words(tokenizer, texts)]
        symbols = [sum(len(word.strip().encode()) + 1 for _, word in words) for words in documents]
        return cls(np.array([*map(len, documents)], dtype=np.int64), np.array(symbols) * math.log(257))


@dataclass(frozen=True)
class Spelling:
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
        return Spelling(numbers_BL, table_of([*numbers]))

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
                tokens[column] = UnknownWord.of(tokens[column], word, letters)
        return tokens

    def map(self, function: Callable[[Tensor], Tensor]) -> Spelling:
        """Apply a function, such as a move to a device, to both tensors."""
        return Spelling(function(self.numbers_BL), function(self.characters_PC))
