"""Normalisation by hand."""

import pytest

from regard.tasks.translation import comparable
from regard.text.normalise import fold_white_space, nfc, one_line, same_name
from regard.text.tokenizers import Tokenizer, TokenizerConfig, shown

HANGUL_JAMO = "\u1112\u1161\u11ab\u1100\u116e\u11a8"
"""한국 as a Mac writes it: three jamo a syllable."""


@pytest.mark.parametrize(("text", "expected"), [
    (HANGUL_JAMO, "한국"),
    ("한국", "한국"),
    ("Cafe\u0301", "Caf\u00e9"),
    ("a\u0323\u0307", "\u1ea1\u0307"),  # marks are reordered, and composed where a composed letter exists
    ("\u212b", "\u00c5"),  # the sign of the angstrom is the letter
    ("ﬁ ａ ½", "ﬁ ａ ½"),  # compatibility characters stay: this is not NFKC
    ("plain\tASCII", "plain\tASCII"),
    ("", ""),
])  # fmt: skip
def test_nfc(text: str, expected: str) -> None:
    assert nfc(text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    (" a\tb\r\nc\u00a0\u3000 d \n", "a b c d"),  # tab, line break, no-break space, ideographic space
    ("a\u2028b\x0bc\x0cd\x85e", "a b c d e"),  # line separator, vertical tab, form feed, next line
    ("a\u200bb\u200d\ufeffc", "a\u200bb\u200d\ufeffc"),  # zero width is no white space
    (" \n\u00a0", ""),
    (HANGUL_JAMO + "  가", HANGUL_JAMO + " 가"),
])  # fmt: skip
def test_fold_white_space(text: str, expected: str) -> None:
    assert fold_white_space(text) == expected


def test_what_is_compared() -> None:
    """Outputs in NFC and if configured in lower case; names of columns whatever their case."""
    assert comparable(HANGUL_JAMO + " A", lowercase=False) == "한국 A"
    assert comparable("CAFE\u0301 İ", lowercase=True) == "caf\u00e9 i\u0307"
    assert all(same_name(*names) for names in ((" Text ", "text"), ("STRASSE", "straße"), (1, "1")))
    assert not same_name("text a", "texta")


@pytest.mark.parametrize(("text", "escaped", "line"), [
    ("a\x1b[31mb", "a\\x1b[31mb", "a\ufffd[31mb"),  # must not colour the terminal
    ("a\tb\n", "a\\tb\\n", "a b"),
    ("a\u200bb\u202ec", "a\\u200bb\\u202ec", "abc"),  # zero-width space, right-to-left override
    ("❤\ufe0f", "❤\ufe0f", "❤"),  # variation selectors are printable, but have no width
    ("a\ufffeb", "a\\ufffeb", "a\ufffdb"),  # not allowed in XML
    (HANGUL_JAMO, HANGUL_JAMO, "한국"),
])  # fmt: skip
def test_control_characters(text: str, escaped: str, line: str) -> None:
    assert shown(text) == escaped
    assert one_line(text) == line


def test_a_vocabulary_with_a_token_for_two_blanks_keeps_white_space() -> None:
    text = " a\n\n b  "
    folding = Tokenizer.train(TokenizerConfig(kind="word"), ["a  b"])
    assert (folding.keeps_white_space, folding.fold(text)) == (False, "a b")
    keeping = Tokenizer.from_json(folding.to_json().replace('"▁a"', '"▁▁"'))
    assert (keeping.keeps_white_space, keeping.fold(text)) == (True, text)
