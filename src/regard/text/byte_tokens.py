"""Byte vocabularies: the character that represents each byte, and back."""

from __future__ import annotations

from collections.abc import Sequence

CONTINUATION_SIGN = "‿"
"""Shown for a token that holds only the last bytes of a character."""
_PLAIN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = iter(range(0x100, 0x200))
BYTES = [chr(byte if byte in _PLAIN else next(_OTHERS)) for byte in range(256)]
"""The character that represents each byte in a byte vocabulary: GPT-2's table, as in the library.
Printable Latin-1 characters represent themselves; the other bytes take the characters from U+0100
on, in order."""
_BYTE_OF = {character: byte for byte, character in enumerate(BYTES)}


def bytes_of(token: str) -> bytes:
    """The bytes that a token of a byte vocabulary represents."""
    return b"".join(
        bytes([_BYTE_OF[sign]]) if sign in _BYTE_OF else sign.encode() for sign in token
    )


def characters_of_bytes(tokens: Sequence[str], special: Sequence[bool]) -> list[str]:
    """The characters that begin in each token of a byte vocabulary."""
    pieces = [
        token if is_special else "" for token, is_special in zip(tokens, special, strict=True)
    ]
    owners: list[int] = []
    data = bytearray()
    for position, token in enumerate(tokens):
        if not special[position]:
            token_bytes = bytes_of(token)
            data += token_bytes
            owners += [position] * len(token_bytes)
    start = 0
    # a byte that is not UTF-8 becomes one half surrogate
    for character in data.decode("utf-8", "surrogateescape"):
        pieces[owners[start]] += "\ufffd" if "\ud800" <= character <= "\udfff" else character
        start += len(character.encode("utf-8", "surrogateescape"))
    return [piece or CONTINUATION_SIGN for piece in pieces]
