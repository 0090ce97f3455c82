"""Where tokens and words stand in a text as it was typed.

Offsets count characters (code points) of the text as it came in, not of what a normaliser makes of it. No span ever
begins or ends within what people see as one character: a letter and its accents, the jamo of a Korean syllable, an
emoji of several code points (extended grapheme clusters, Unicode Standard Annex 29).
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from regard.text.tokenizers import Tokenizer

Words = Literal["punctuation", "whitespace", "characters"]
_CLUSTERS = Split(Regex(r"\X"), "isolated")


class Span(NamedTuple):
    """Characters from `start` up to, but without, `end`."""

    start: int
    end: int


class Clusters:
    """What people see as the characters of a text."""

    def __init__(self, text: str) -> None:
        self._simple = text.isascii() and "\r" not in text
        cut = () if self._simple else (span[0] for _, span in _CLUSTERS.pre_tokenize_str(text))
        self._edges = [*cut, len(text)]

    def cut_at(self, place: int) -> bool:
        """Whether a character ends and another begins at a place, so that a span may begin or end there."""
        return self._simple or self._edges[bisect_left(self._edges, place)] == place

    def whole(self, start: int, end: int) -> Span:
        """The span of all characters that have a part in [start, end)."""
        if self._simple or start == end:
            return Span(start, end)
        return Span(self._edges[bisect_right(self._edges, start) - 1], self._edges[bisect_left(self._edges, end)])

    def spans(self) -> list[Span]:
        edges = range(self._edges[-1] + 1) if self._simple else self._edges
        return [Span(start, end) for start, end in pairwise(edges)]


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends; empty where there is nothing else."""
    held = text[start:end]
    return Span(end - len(held.lstrip()), start + len(held.rstrip())) if held.strip() else Span(start, start)


def token_spans(tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
    """The tokens of each text and the characters that each stands for, without white space around them.

    Two tokens that share a character, such as the bytes of a syllable, both have all of it; a token of white space
    only has an empty span.
    """
    found = []
    for text, (ids, offsets) in zip(texts, tokenizer.encode_offsets(texts), strict=True):
        clusters = Clusters(text)
        found.append((ids, [clusters.whole(*trimmed(text, *offset)) for offset in offsets]))
    return found


def word_spans(text: str, words: Words) -> list[Span]:
    """The words of a text that is typed."""
    clusters = [(span, not text[slice(*span)].isspace()) for span in Clusters(text).spans()]
    if words == "characters":
        return [span for span, seen in clusters if seen]
    chunks = []
    for seen, chunk in groupby(clusters, key=lambda cluster: cluster[1]):
        if seen:
            chunks.append([span for span, _ in chunk])
    if words == "whitespace":
        return [Span(chunk[0].start, chunk[-1].end) for chunk in chunks]
    return [part for chunk in chunks for part in _parted(text, chunk)]


def _parted(text: str, clusters: list[Span]) -> list[Span]:
    """A word and the signs around it, each by itself; signs within it stay, and so does the stop of `U.S.` and `J.`"""
    first, last = 0, len(clusters)
    while first < last and _is_sign(text[clusters[first].start]):
        first += 1
    while last > first and _is_sign(text[clusters[last - 1].start]):
        last -= 1
    if last < len(clusters) and _abbreviated(text[clusters[first].start : clusters[last].end]):
        last += 1
    word = [Span(clusters[first].start, clusters[last - 1].end)] if first < last else []
    return [*clusters[:first], *word, *clusters[last:]]


def _abbreviated(word: str) -> bool:
    return word.endswith(".") and ("." in word[:-1] or (len(word) == 2 and word[0].isalpha()))


def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" or unicodedata.category(character) in ("Sc", "So")
