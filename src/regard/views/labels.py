"""How tokens are written beside a figure.

a space, or "▁" alone      ␣      what character models write between words
</s>                       ⏎      one column wide, so that the maps of character models need no tall labels
▁Haus                      ▁Haus  the mark of a word start stays: it tells words from their continuations
a control character        �      it must neither control the terminal nor break the XML
"""

from __future__ import annotations

from rich.cells import cell_len

from regard.text.normalise import one_line


def label(piece: str) -> str:
    """A token as it is shown; the module's docstring lists the signs."""
    if piece == "</s>":
        return "⏎"
    if not piece.strip().strip("▁"):
        return "␣"
    text = one_line(piece)
    # A combining mark alone would be drawn on the neighbour's letter.
    return f"◌{text}" if cell_len(text[:1]) == 0 else text


def number(value: float) -> str:
    """Two decimals, or one significant digit of a smaller number."""
    return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"


def clusters(text: str) -> list[str]:
    """Letters, each with its combining marks."""
    found: list[str] = []
    for character in text:
        if found and cell_len(character) == 0:
            found[-1] += character
        else:
            found.append(character)
    return found


def shorten(text: str, width: int) -> str:
    """The text in at most `width` columns, with "…" for what is left out."""
    if cell_len(text) <= width:
        return text
    kept, room = "", width - 1
    for cluster in clusters(text):
        room -= cell_len(cluster)
        if room < 0:
            break
        kept += cluster
    return f"{kept}…"
