"""Text before it is tokens: normalisation, sentences, words, and the spans of each.

Tokenizers compose text to NFC (Unicode Standard Annex 15), so whatever is compared with their
output is composed, too: Korean typed on a Mac often comes as single jamo (NFD).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

nfc = partial(unicodedata.normalize, "NFC")
"""The text with composed characters, as every tokenizer trained here writes it."""


def fold_white_space(text: str) -> str:
    """One blank for each run of white space (line breaks, tabs and no-break spaces too), none at
    the ends.

    Zero-width characters are not white space: they are part of a word in several scripts.
    """
    return " ".join(text.split())


def same_name(first: object, second: object) -> bool:
    """Whether two names of columns differ at most in case and in white space at their ends."""
    return str(first).strip().casefold() == str(second).strip().casefold()


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts -1 before 2 before 10, and a2 before a10."""
    if re.fullmatch(r"[-+]?\d+", text):
        return [(0, int(text), "")]
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", text)
    ]


def one_line(text: str) -> str:
    """The text as a terminal or an XML file shows it in one line.

    Control characters become U+FFFD. Joiners, direction marks and variation selectors are removed:
    they change the width of the adjacent characters.
    """
    shown = ""
    for character in nfc(fold_white_space(text)):
        category = unicodedata.category(character)
        if category in ("Cc", "Cs") or character in "\ufffe\uffff":
            shown += "\ufffd"
        elif category != "Cf" and not "\ufe00" <= character <= "\ufe0f":
            shown += character
    return shown


Sentences = Literal["punctuation", "lines"]  # how the sentences of a text are found

_ABBREVIATIONS = """
    dr mr mrs ms prof rev hon gen capt lt sgt sen gov st mt ft jr sr vs viz cf ca approx dept univ inc ltd corp nos vol
    fig figs eq eqs ch pp p eds e.g i.e a.m p.m jan feb apr jun jul aug sep sept oct nov dec mon tue wed thu fri
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
"""Abbreviations in lower case without the full stop; none that is also an ordinary word."""

_OPENING = r"\"'“‘(\[{<「『《〈"
_CLOSING = r"\"'”’)\]}>」』》〉"
# A full stop before white space ends a sentence, unless a lower-case letter follows. East Asian
# punctuation needs no space, nor does a full stop after the final ending of a Korean verb: 좋았다.그런데.
# In a text without capitals a lower-case letter may begin a sentence.
_END, _END_UNCASED = (
    re.compile(
        rf"(?P<plain>[.!?…]+[{_CLOSING}]*)(?=\s+[{_OPENING}]*[^\s{small}{_OPENING}])"
        rf"|[。！？]+[{_CLOSING}]*"
        rf"|(?<=[다요죠까네음함됨임])[.!?]+(?=[가-힣])"
    )
    for small in ("a-z", "")
)
_LAST_WORD = re.compile(rf"(?:^|[\s{_OPENING}])(\S*)$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, stripped; only the white space between them is lost."""
    sentences = []
    start = 0
    uncased = text == text.lower()
    for end in (_END_UNCASED if uncased else _END).finditer(text):
        if end["plain"] == "." and _is_abbreviation(text[start : end.start()], uncased):
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_abbreviation(before: str, uncased: bool) -> bool:
    """Whether the full stop after this text belongs to its last word: `Dr.`, `J.`, `e.g.`, or the
    list number `1.`."""
    match = _LAST_WORD.search(before[-20:])
    word = match[1] if match else ""
    initial = (
        len(word) == 1
        and word.isalpha()
        and word.isascii()
        and (uncased or word.isupper())
        and word not in "Ii"
    )
    listed = word.isdecimal() and before.strip() == word
    return initial or listed or word.lower() in ABBREVIATIONS


# Spans count the code points of the text as it was typed. None begins or ends within an extended
# grapheme cluster (Unicode Standard Annex 29): a letter and its accents, the jamo of a Korean
# syllable, an emoji of several code points.

# how a text is split into words
Words = Literal["punctuation", "whitespace", "characters", "characters_and_blanks"]
_CLUSTERS = Split(Regex(r"\X"), "isolated")


class Span(NamedTuple):
    """The code points from `start` to `end`, `end` excluded."""

    start: int
    end: int


class Clusters:
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
        return Span(
            self._edges[bisect_right(self._edges, start) - 1],
            self._edges[bisect_left(self._edges, end)],
        )

    def spans(self) -> list[Span]:
        edges = range(self._edges[-1] + 1) if self._simple else self._edges
        return [Span(start, end) for start, end in pairwise(edges)]


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends; empty if it is all white space."""
    part = text[start:end]
    return (
        Span(end - len(part.lstrip()), start + len(part.rstrip()))
        if part.strip()
        else Span(start, start)
    )


def joined_words(words: Sequence[str]) -> tuple[str, list[Span]]:
    """Words as one text, with spaces between them, and the place of each word in it. White space
    alone is not a word, except among single characters."""
    visible = [word for word in words if word.strip()]
    by_character = visible and all(len(word) == 1 for word in visible)
    kept = [word or " " for word in words] if by_character else visible
    ends = [end - 1 for end in accumulate(len(word) + 1 for word in kept)]
    spans = [Span(end - len(word), end) for word, end in zip(kept, ends, strict=True)]
    return " ".join(kept), spans


def word_spans(text: str, words: Words) -> list[Span]:
    clusters = [(span, not text[slice(*span)].isspace()) for span in Clusters(text).spans()]
    if words == "characters_and_blanks":
        return [span for span, _ in clusters]
    if words == "characters":
        return [span for span, visible in clusters if visible]
    groups = groupby(clusters, key=lambda cluster: cluster[1])
    chunks = [[span for span, _ in group] for visible, group in groups if visible]
    if words == "whitespace":
        return [Span(chunk[0].start, chunk[-1].end) for chunk in chunks]
    return [part for chunk in chunks for part in _split_punctuation(text, chunk)]


def _split_punctuation(text: str, clusters: list[Span]) -> list[Span]:
    """A word and each punctuation mark around it. Marks within a word stay, and so do the full
    stops of `U.S.`, `J.`"""
    first = 0
    last = len(clusters)
    while first < last and _is_punctuation(text[clusters[first].start]):
        first += 1
    while last > first and _is_punctuation(text[clusters[last - 1].start]):
        last -= 1
    if last < len(clusters):
        begun = text[clusters[first].start : clusters[last].end]
        last += begun.endswith(".") and (
            "." in begun[:-1] or (len(begun) == 2 and begun[0].isalpha())
        )
    word = [Span(clusters[first].start, clusters[last - 1].end)] if first < last else []
    return [*clusters[:first], *word, *clusters[last:]]


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" or unicodedata.category(character) in (
        "Sc",
        "So",
    )
