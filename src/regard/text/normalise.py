"""Normalisation of text: Unicode composition, white space, case and control characters.

Tokenizers compose text to NFC (Unicode Standard Annex 15), so whatever is compared with their output is composed, too:
Korean typed on a Mac often comes as single jamo (NFD).
"""

from __future__ import annotations

import re
import unicodedata


def nfc(text: str) -> str:
    """The text with composed characters, as every tokenizer trained here writes it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def fold_white_space(text: str) -> str:
    """One blank for each run of white space (line breaks, tabs and no-break spaces too), none at the ends.

    Zero-width characters are not white space: they are part of a word in several scripts.
    """
    return " ".join(text.split())


def comparable(text: str, lowercase: bool) -> str:
    """The form in which an output is compared with a reference."""
    return nfc(text).lower() if lowercase else nfc(text)


def same_name(first: object, second: object) -> bool:
    """Whether two names of columns differ at most in case and in white space at their ends."""
    return str(first).strip().casefold() == str(second).strip().casefold()


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts -1 before 2 before 10, and a2 before a10."""
    if re.fullmatch(r"[-+]?\d+", text):
        return [(0, int(text), "")]
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text)]


def escape_controls(text: str) -> str:
    r"""Write control characters and other unprintable ones as Python escapes, such as \n and \u200b."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The text as a terminal or an XML file shows it in one line.

    Control characters become U+FFFD. Joiners, direction marks and variation selectors are removed: they change the
    width of the characters beside them.
    """
    return "".join(map(_visible, nfc(fold_white_space(text))))


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Cs") or character in "\ufffe\uffff":
        return "\ufffd"
    return "" if category == "Cf" or "\ufe00" <= character <= "\ufe0f" else character
