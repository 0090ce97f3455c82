"""Text -> sentences, by English and Korean punctuation."""

from __future__ import annotations

import re
from typing import Literal

Sentences = Literal["punctuation", "lines"]
"""How the sentences of a text are found."""

_ABBREVIATIONS = """
    dr mr mrs ms prof rev hon gen capt lt sgt sen gov st mt ft jr sr vs viz cf ca approx dept univ inc ltd corp nos vol
    fig figs eq eqs ch pp p eds e.g i.e a.m p.m jan feb apr jun jul aug sep sept oct nov dec mon tue wed thu fri
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
"""Abbreviations in lower case without the full stop; none that is also an ordinary word."""

_OPENING = r"\"'“‘(\[{<「『《〈"
_CLOSING = r"\"'”’)\]}>」』》〉"
# A full stop before white space ends a sentence, unless a lower-case letter follows. East Asian punctuation needs no
# space, nor does a full stop after the final ending of a Korean verb: 좋았다.그런데.
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
    sentences, start, uncased = [], 0, text == text.lower()
    for end in (_END_UNCASED if uncased else _END).finditer(text):
        if end["plain"] == "." and _is_abbreviation(text[start : end.start()], uncased):
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_abbreviation(before: str, uncased: bool) -> bool:
    """Whether the full stop after this text belongs to its last word: `Dr.`, `J.`, `e.g.`, or the list number `1.`."""
    match = _LAST_WORD.search(before[-20:])
    word = match[1] if match else ""
    initial = len(word) == 1 and word.isalpha() and word.isascii() and (uncased or word.isupper()) and word not in "Ii"
    listed = word.isdecimal() and before.strip() == word
    return initial or listed or word.lower() in ABBREVIATIONS
