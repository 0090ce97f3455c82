"""Text -> sentences, by the punctuation of English and Korean."""

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
"""Words whose full stop ends no sentence, in small letters and without that stop; none that is a word of its own."""

_OPENING = r"\"'“‘(\[{<「『《〈"
_CLOSING = r"\"'”’)\]}>」』》〉"
# A full stop ends a sentence before white space, unless what follows begins with a small letter. Signs of East Asian
# width need no space, nor does a full stop after the final ending of a Korean verb: 좋았다.그런데.
# Where a text has no capitals, whatever follows may begin one.
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
    """The sentences of a text, in order and stripped; what stands between them is white space only."""
    sentences, start, uncased = [], 0, text == text.lower()
    for end in (_END_UNCASED if uncased else _END).finditer(text):
        if end["plain"] == "." and _goes_on(text[start : end.start()], uncased):
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _goes_on(before: str, uncased: bool) -> bool:
    """Whether a full stop after this belongs to its last word: `Dr.`, `J.`, `e.g.`, or a number of a list, `1.`."""
    found = _LAST_WORD.search(before[-20:])
    word = found[1] if found else ""
    initial = len(word) == 1 and word.isalpha() and word.isascii() and (uncased or word.isupper()) and word not in "Ii"
    listed = word.isdecimal() and before.strip() == word
    return initial or listed or word.lower() in ABBREVIATIONS
