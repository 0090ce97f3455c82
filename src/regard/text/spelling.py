"""Words as their letters: what a model reads that makes its vectors of words from characters.

The vocabulary's own words need no letters in a batch, since their ids tell them. A word outside of it is `<unk>`
whatever it is, so its letters travel with it: as an `UnknownWord` in a row of ids, and in a batch as a `Spelling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WORD_BEGINS, WORD_ENDS = 257, 258
CHARACTERS = 259
"""0 fills up short words, then the 256 bytes of UTF-8, then the two ends of a word: any text, any language."""
Letters = tuple[int, ...]


def letters_of(word: str, longest: int) -> Letters:
    """The characters of a word: its bytes in UTF-8 between two ends, at most `longest` of them."""
    return (WORD_BEGINS, *(1 + byte for byte in word.encode()[: longest - 2]), WORD_ENDS)


def table_of(rows: Sequence[Letters]) -> Tensor:
    """The characters of each word, [P, C]."""
    width = max(map(len, rows), default=2)
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long).view(-1, width)


def spelled(words: Sequence[str], longest: int) -> Tensor:
    """A table [V, C] of the characters of each word."""
    return table_of([letters_of(word, longest) for word in words])


class UnknownWord(int):
    """The id of `<unk>`, which it is in every respect, that has not forgotten which word stood there."""

    word: str
    letters: Letters

    @classmethod
    def of(cls, unk: int, word: str, letters: Letters) -> UnknownWord:
        found = cls(unk)
        found.word, found.letters = word, letters
        return found


@dataclass(frozen=True)
class Spelling:
    """The words of a batch that are outside the vocabulary."""

    numbers_BL: Tensor
    """Which of them stands where, from 1; 0 where a token is what its id says."""
    characters_PC: Tensor
    """The characters of number 1, of number 2 and so on; no word is there twice."""

    @staticmethod
    def of(places: Sequence[tuple[int, int]], words: Sequence[Letters], shape: tuple[int, int]) -> Spelling | None:
        """`places` names the row and the column of each word; None where there is no word."""
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
        """Of the unknown words among tokens, as they stand when the rows are padded on the right."""
        found = [(row, column, token) for row, ids in enumerate(rows) for column, token in unknown_in(ids)]
        places, words = [(row, column) for row, column, _ in found], [word.letters for _, _, word in found]
        return Spelling.of(places, words, (len(rows), max(map(len, rows))))

    def back_in(self, ids: Sequence[int], row: int) -> list[int]:
        """The tokens of a row, in which those of unknown words are such again."""
        found = [*ids]
        for column, number in enumerate(self.numbers_BL[row, : len(found)].tolist()):
            if number > 0:
                letters = tuple(letter for letter in self.characters_PC[number - 1].tolist() if letter > 0)
                word = bytes(letter - 1 for letter in letters[1:-1]).decode(errors="replace")
                found[column] = UnknownWord.of(found[column], word, letters)
        return found

    def sent(self, send: Callable[[Tensor], Tensor]) -> Spelling:
        """The same where `send` brings tensors."""
        return Spelling(send(self.numbers_BL), send(self.characters_PC))


def unknown_in(ids: Sequence[int]) -> Iterator[tuple[int, UnknownWord]]:
    """The unknown words among tokens, and where they stand."""
    return ((place, token) for place, token in enumerate(ids) if isinstance(token, UnknownWord))
