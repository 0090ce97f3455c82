"""ROUGE: how much of the words, pairs of words and order of a reference an output has.

Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", sections 2 and 3.1, with the F1 of precision and
recall, as it is commonly reported.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from regard.text.normalise import comparable


def tokens_of(text: str, tokenize: Literal["words", "characters"], lowercase: bool) -> list[str]:
    """Words, or their characters (Korean syllables); signs that are neither letter nor digit only separate words."""
    signs = (sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in comparable(text, lowercase))
    words = "".join(signs).split()
    return words if tokenize == "words" else list("".join(words))


def rouge_n(output: Sequence[str], reference: Sequence[str], n: int) -> float:
    """F1 of the n-grams, each counted as often as both sides have it."""
    ours, theirs = _ngrams(output, n), _ngrams(reference, n)
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(output: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence."""
    return _f1(common_subsequence(output, reference), len(output), len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a row of its table at once in the bits of one number.

    Hyyro 2004, "Bit-Parallel LCS-length Computation Revisited": bit i of V is 0 where the row rises after first[i].
    """
    places: dict[str, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    every = V = (1 << len(first)) - 1
    for token in second:
        U = V & places.get(token, 0)
        V = (V + U | V - U) & every
    return len(first) - V.bit_count()


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))


def _f1(common: int, output: int, reference: int) -> float:
    """2 P R / (P + R) with P = common / output and R = common / reference."""
    return 2 * common / (output + reference) if common else 0.0
