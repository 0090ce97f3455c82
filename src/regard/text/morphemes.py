"""Korean words cut into morphemes by kiwipiepy, so that a vocabulary can have morphemes.

Only places are cut: the pieces of a text, joined, are the text. Where two morphemes share a syllable
there is no cut: 갔어요 is 가 + 았 + 어요, and becomes 갔 and 어요.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from regard.errors import import_extra
from regard.text.normalise import Clusters, nfc

CUT = "\ufdd0"
"""The sign between two morphemes of a word, at which the pre-tokenizer of such a vocabulary splits:
a code point that Unicode keeps for a program's own use, so that no text has it."""
TEXTS_AT_ONCE = 1000
"""Texts that are analysed together, on all cores."""
PARTS = re.compile(r".{1,1000}(?:\s|\Z)|.{1,1000}", re.DOTALL)
"""The parts in which a long text is analysed: kiwipiepy's time grows with the square of a word."""
HANGUL = re.compile("[ㄱ-ㅣ가-힣]")

Spans = Sequence[tuple[int, int]]


@cache
def analyser() -> Any:
    """kiwipiepy's analyser, which takes a second to load."""
    library = import_extra(
        "kiwipiepy",
        extra="korean",
        where="tokenizer.kind: morpheme",
        doing="splitting words into morphemes",
    )
    return library.Kiwi()


def cut_places(text: str, morphemes: Spans) -> list[int]:
    """Where words of a text are cut: between two of its morphemes, at least one of them Korean, and
    within neither."""
    places = {place for span in morphemes for place in span}
    within = {place for start, end in morphemes for place in range(start + 1, end)}
    return [
        place
        for place in sorted(places - within)
        if 0 < place < len(text)
        and not (text[place - 1].isspace() or text[place].isspace())
        and HANGUL.search(text[place - 1 : place + 1])
    ]


def places_in(texts: Sequence[str]) -> Iterator[list[int]]:
    """The places of each text as it was typed where it is cut. None is within a character: a
    syllable that was typed as single jamo is analysed as the syllable."""
    composed = [nfc(text) for text in texts]
    for text in composed:
        text.encode()  # refuses half a surrogate pair, as the other vocabularies do
    parts = [[*PARTS.finditer(text)] for text in composed]
    analyses = analyser().tokenize([part[0] for row in parts for part in row])
    for text, read, row in zip(texts, composed, parts, strict=True):
        spans = [
            (part.start() + morpheme.start, part.start() + morpheme.start + morpheme.len)
            for part in row
            for morpheme in next(analyses)
        ]
        places = cut_places(read, spans)
        yield places if read == text else _as_typed(text, places)


def _as_typed(text: str, places: Sequence[int]) -> list[int]:
    """Places in a composed text -> places in the text as it was typed, of those between two
    characters."""
    clusters = Clusters(text).spans()
    lengths = (len(nfc(text[start:end])) for start, end in clusters)
    typed = dict(zip(accumulate(lengths), (end for _, end in clusters), strict=True))
    return [typed[place] for place in places if place in typed]


def with_cuts(text: str, places: Sequence[int]) -> str:
    """The text with CUT at these places."""
    return CUT.join(text[start:end] for start, end in pairwise([0, *places, len(text)]))


def cut_texts(texts: Iterable[str]) -> Iterator[str]:
    """The texts with CUT between their morphemes."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == TEXTS_AT_ONCE:
            yield from map(with_cuts, batch, places_in(batch))
            batch = []
    yield from map(with_cuts, batch, places_in(batch)) if batch else ()


def without_cuts(offset: int, places: Sequence[int]) -> int:
    """An offset in a text with cuts -> the same place in the text without them."""
    in_cut_text = [place + number for number, place in enumerate(places)]
    return offset - bisect_left(in_cut_text, offset)
