"""Words as sequences of characters, and unknown words that keep their spelling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

WORD_BEGINS = 257
WORD_ENDS = 258
CHARACTER_IDS = 259
"""The number of character ids of models that build word vectors from characters (ELMo): 0 pads
short words, then come the 256 bytes of UTF-8, then the begin and the end of a word."""
CharacterIds = tuple[int, ...]  # the characters of a word


def letters_of(word: str, longest: int) -> CharacterIds:
    """The characters of a word: begin, its bytes in UTF-8, end; at most `longest` in all."""
    return (WORD_BEGINS, *(1 + byte for byte in word.encode()[: longest - 2]), WORD_ENDS)


class UnknownWord(int):
    """The id of `<unk>`, which also holds the word that it replaces."""

    word: str
    letters: CharacterIds

    def __new__(cls, unk: int, word: str, letters: CharacterIds) -> UnknownWord:
        token = super().__new__(cls, unk)
        token.word = word
        token.letters = letters
        return token


def unknown_in(ids: Sequence[int]) -> Iterator[tuple[int, UnknownWord]]:
    """The unknown words among tokens, and their positions."""
    return (
        (position, token) for position, token in enumerate(ids) if isinstance(token, UnknownWord)
    )
