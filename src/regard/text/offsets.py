"""The spans of tokens and words in a text as it was typed.

Offsets count the code points of the text before normalisation. No span begins or ends within an extended grapheme
cluster (Unicode Standard Annex 29): a letter and its accents, the jamo of a Korean syllable, an emoji of several code
points.
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
    """The code points from `start` to `end`, `end` excluded."""

    start: int
    end: int


class Clusters:
    """The grapheme clusters of a text."""

    def __init__(self, text: str) -> None:
        self._simple = text.isascii() and "\r" not in text
        cut = () if self._simple else (span[0] for _, span in _CLUSTERS.pre_tokenize_str(text))
        self._edges = [*cut, len(text)]

    def cut_at(self, offset: int) -> bool:
        """Whether a span may begin or end here: not within a cluster."""
        return self._simple or self._edges[bisect_left(self._edges, offset)] == offset

    def whole(self, start: int, end: int) -> Span:
        """The span of all clusters that overlap [start, end)."""
        if self._simple or start == end:
            return Span(start, end)
        return Span(self._edges[bisect_right(self._edges, start) - 1], self._edges[bisect_left(self._edges, end)])

    def spans(self) -> list[Span]:
        edges = range(self._edges[-1] + 1) if self._simple else self._edges
        return [Span(start, end) for start, end in pairwise(edges)]


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends; empty if it is all white space."""
    part = text[start:end]
    return Span(end - len(part.lstrip()), start + len(part.rstrip())) if part.strip() else Span(start, start)


def token_spans(tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
    """The tokens of each text and their spans, without white space at the ends.

    Tokens that share a cluster, such as the bytes of a syllable, all have the whole of it; a token of white space has
    an empty span.
    """
    rows = []
    for text, (ids, offsets) in zip(texts, tokenizer.encode_offsets(texts), strict=True):
        clusters = Clusters(text)
        rows.append((ids, [clusters.whole(*trimmed(text, *offset)) for offset in offsets]))
    return rows


def word_spans(text: str, words: Words) -> list[Span]:
    """The spans of the words of a text."""
    clusters = [(span, not text[slice(*span)].isspace()) for span in Clusters(text).spans()]
    if words == "characters":
        return [span for span, visible in clusters if visible]
    chunks = []
    for visible, chunk in groupby(clusters, key=lambda cluster: cluster[1]):
        if visible:
            chunks.append([span for span, _ in chunk])
    if words == "whitespace":
        return [Span(chunk[0].start, chunk[-1].end) for chunk in chunks]
    return [part for chunk in chunks for part in _split_punctuation(text, chunk)]


def _split_punctuation(text: str, clusters: list[Span]) -> list[Span]:
    """A word and each punctuation mark around it. Marks within a word stay, and so do the full stops of `U.S.`, `J.`"""
    first, last = 0, len(clusters)
    while first < last and _is_punctuation(text[clusters[first].start]):
        first += 1
    while last > first and _is_punctuation(text[clusters[last - 1].start]):
        last -= 1
    if last < len(clusters) and _abbreviated(text[clusters[first].start : clusters[last].end]):
        last += 1
    word = [Span(clusters[first].start, clusters[last - 1].end)] if first < last else []
    return [*clusters[:first], *word, *clusters[last:]]


def _abbreviated(word: str) -> bool:
    return word.endswith(".") and ("." in word[:-1] or (len(word) == 2 and word[0].isalpha()))


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" or unicodedata.category(character) in ("Sc", "So")
