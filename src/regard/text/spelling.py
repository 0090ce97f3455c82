"""Words as sequences of characters, and unknown words that keep their spelling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

WORD_BEGINS = 257
WORD_ENDS = 258
CHARACTER_IDS = 259
"""The number of character ids of models that build word vectors from characters (ELMo): 0 pads
short words, then come the 256 bytes of UTF-8, then the begin and the end of a word."""
CharacterIds = tuple[int, ...]  # the characters of a word


def letters_of(word: str, longest: int) -> CharacterIds:
    """The characters of a word: begin, its bytes in UTF-8, end; at most `longest` in all."""
    return (WORD_BEGINS, *(1 + byte for byte in word.encode()[: longest - 2]), WORD_ENDS)


@dataclass(frozen=True)
class UnknownWord:
    """A token outside the vocabulary, with the word that `<unk>` replaces."""

    unk: int
    """The id of `<unk>`, for models that do not read letters."""
    word: str
    letters: CharacterIds


Token = int | UnknownWord  # the id of a token of the vocabulary, or a word outside it


def ids_of(tokens: Sequence[Token]) -> list[int]:
    """The ids of tokens: that of `<unk>` for each unknown word."""
    if UnknownWord not in set(map(type, tokens)):
        return cast("list[int]", [*tokens])
    return [token.unk if isinstance(token, UnknownWord) else token for token in tokens]


def unknown_in(tokens: Sequence[Token]) -> Iterator[tuple[int, UnknownWord]]:
    """The unknown words among tokens, and their positions."""
    for position, token in enumerate(tokens):
        if isinstance(token, UnknownWord):
            yield position, token
