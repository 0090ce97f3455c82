"""Sheet of tokenizers: one sentence under every kind."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from regard.data.corpora import generate
from regard.errors import RegardError
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.views.report import Bars, Cell, Section, Table, muted
from regard.views.sheets.sheet import Sheet

CORPORA = ("tales-en", "tales-ko", "reviews-en", "reviews-ko")
TEXTS = 400
"""Texts of each corpus that the vocabularies are learned from."""
LONGEST_SENTENCE = 200
"""Characters of a sentence that a table of its tokens can show."""
PURPOSES: Mapping[Any, str] = {
    "character": "characters",
    "byte": "bytes of UTF-8",
    "jamo": "letters of Hangul syllables",
    "word": "words and punctuation",
    "morpheme": "morphemes, by kiwipiepy",
    "bpe": "subwords: frequent pairs merged",
    "wordpiece": "subwords: likely pairs merged",
    "unigram": "subwords: unlikely pieces dropped",
}
"""The kinds of tokenizers in the order of the sheet, and their tokens."""


def tokenizers(
    sentence: str = "The foxes slept. 여우들은 도서관에서 잤어요.", vocabulary: int = 800
) -> Sheet:
    """One sentence under every kind of tokenizer, side by side: tokens, counts and the way back."""
    if not 0 < len(sentence.strip()) <= LONGEST_SENTENCE:
        raise RegardError(
            f"a sheet is for a sentence of 1 to {LONGEST_SENTENCE} characters", where="sentence"
        )
    results = dict[str, tuple[list[str], int, str]]()
    refused = dict[str, str]()
    texts = [tale for corpus in CORPORA for tale, *_ in generate(corpus, TEXTS, 1, "train")]
    for kind in PURPOSES:
        try:
            tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=vocabulary), texts)
        except RegardError as error:  # such as a library that is not installed
            refused[kind] = str(error.problems[0])
            continue
        ids = tokenizer.encode(sentence)
        unknown = ids.count(tokenizer.unk)
        results[kind] = tokenizer.pieces(ids), unknown, tokenizer.decode(ids)
    written = unicodedata.normalize("NFC", sentence)
    rows = [
        [
            kind,
            Cell(PURPOSES[kind], ours=True),
            " | ".join(tokens),
            Cell(len(tokens), asked=True),
            unknown,
            Cell(
                "yes" if back == written else "no",
                ours=True,
                tone="good" if back == written else "bad",
            ),
        ]
        for kind, (tokens, unknown, back) in results.items()
    ]
    steps = [
        Section(
            sentence,
            [
                Table(
                    ["kind", "a token is", "tokens", "count", "unknown tokens", "text comes back"],
                    rows,
                    notes=[*_refusals(refused)],
                    in_picture=True,
                ),
                Bars(
                    [*results],
                    {"": [len(tokens) for tokens, _, _ in results.values()]},
                    "tokens",
                    "Tokens of the sentence",
                ),
                muted(
                    "▁ is the space before a word. Short tokens make long sequences and know every "
                    "word; long tokens make short sequences and know only what was frequent."
                ),
            ],
        )
    ]
    numbers = {
        kind: {"tokens": tokens, "count": len(tokens), "unknown": unknown, "decoded": back}
        for kind, (tokens, unknown, back) in results.items()
    }
    opening = (
        f"Vocabularies of at most {vocabulary:,} tokens, learned from English and Korean texts."
    )
    return Sheet("One sentence, every tokenizer", opening, steps, {"sentence": sentence, **numbers})


def _refusals(refused: dict[str, str]) -> Iterator[str]:
    for kind, problem in refused.items():
        yield f"{kind}: {problem}"
