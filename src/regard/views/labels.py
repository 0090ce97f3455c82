"""How a piece of text is written beside a picture.

a blank, or "▁" alone      ␣      what character models write between words
</s>                       ⏎      one column wide, so that character pictures need no tall labels
▁Haus                      ▁Haus  the mark of a word start stays: it tells words from their continuations; in SVG it
                                  is a pale "_", which is as narrow in every font
a control character        �      it must neither steer the terminal nor break the XML
"""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len

from regard.text.normalise import one_line

FONTS = "'Noto Sans CJK KR', 'Noto Sans KR', 'Apple SD Gothic Neo', 'Malgun Gothic', NanumGothic, sans-serif"
"""Fonts with Hangul and Latin letters: Linux (two names), macOS, Windows, Linux again; then whatever there is."""


def label(piece: str) -> str:
    """A piece as it stands in a picture; the module's docstring lists the signs."""
    if piece == "</s>":
        return "⏎"
    if not piece.strip().strip("▁"):
        return "␣"
    text = one_line(piece)
    # A combining mark of its own would land on the neighbour's letter: give it a place to sit.
    return f"◌{text}" if cell_len(text[:1]) == 0 else text


def number(value: float) -> str:
    """Two decimals, or one digit of what would vanish in them."""
    return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"


def clusters(text: str) -> list[str]:
    """Letters, each with the marks that stand on it."""
    found: list[str] = []
    for character in text:
        if found and cell_len(character) == 0:
            found[-1] += character
        else:
            found.append(character)
    return found


def shorten(text: str, width: float, measure: Callable[[str], float] = cell_len) -> str:
    """The text in at most `width` columns (or what `measure` counts), with "…" for what is left out."""
    if measure(text) <= width:
        return text
    kept, room = "", width - measure("…")
    for cluster in clusters(text):
        room -= measure(cluster)
        if room < 0:
            break
        kept += cluster
    return f"{kept}…"


def wrap(text: str, width: float, lines: int, measure: Callable[[str], float] = cell_len) -> list[str]:
    """The text in at most so many lines of `width`, broken at blanks where there are any, with "…" for what is left."""
    found: list[str] = []
    while len(found) < lines - 1 and measure(text) > width:
        fits, room = "", width
        for cluster in clusters(text):
            room -= measure(cluster)
            if room < 0 and fits:  # a line takes one letter, however narrow it is
                break
            fits += cluster
        ends = len(fits) if text[len(fits) :].startswith(" ") else fits.rfind(" ")
        fits = fits[:ends] if 3 * ends > len(fits) else fits  # a long word may be cut, rather than a line left empty
        found.append(fits.strip())
        text = text[len(fits) :].strip()
    return [*found, shorten(text, width, measure)]


def text_width(text: str, font: float) -> float:
    """How wide a text is in letters of this size, at most: who writes a file cannot measure in its reader's fonts."""
    return font * sum(_em(character) for character in text)


def _em(character: str) -> float:
    columns = cell_len(character)
    if columns != 1 or character in "MWmw@%…—␣⏎◌�":
        return 1.0 if columns else 0.0
    if character == " ":
        return 0.35
    return 0.72 if character.isupper() else 0.6


def pad(text: str, width: int) -> str:
    """The text and so many blanks that it takes `width` columns of a terminal."""
    return text + " " * (width - cell_len(text))
