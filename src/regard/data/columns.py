"""What the columns of a user's table look like: their names, whether they hold text, its script and size."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import mean, quantiles

from regard.data.rows import Key
from regard.text.normalise import nfc

Columns = Mapping[Key, Sequence[str]]
"""The first rows of a table, column by column."""


CROWDED = ("Cjk", "Hiragana", "Katakana")
"""Scripts of thousands of signs."""


@dataclass(frozen=True)
class Column:
    """One side of the pairs."""

    key: Key
    """The column's name or number, or the file."""
    script: str
    """What most letters belong to: Latin, Hangul, Cjk, …"""
    words: float
    """Words of a text, on average."""
    characters: int
    """What 99 of 100 texts do not exceed."""

    @property
    def by_character(self) -> bool:
        """Whether metrics had better count characters than words."""
        return self.script in ("Hangul", *CROWDED)


def column_of(key: Key, texts: Sequence[str]) -> Column:
    """What texts look like."""
    lengths = sorted(map(len, texts))
    longest = quantiles(lengths, n=100)[-1] if len(lengths) > 1 else lengths[0]
    return Column(key, _script(texts), mean(len(text.split()) for text in texts), round(longest))


def is_text(values: Sequence[str]) -> bool:
    """Most values have letters, and they are not a few labels or the addresses of something."""
    filled = [value for value in values if any(map(str.isalpha, value))]
    addresses = sum(value.startswith(("http://", "https://")) for value in filled)
    few = len(values) > 50 and len(set(values)) <= 10
    return len(filled) > len(values) / 2 and addresses <= len(filled) / 2 and not few


def last_name(key: Key) -> str:
    """The last part of a nested name, in small letters."""
    return str(key).rpartition(".")[2].lower()


def _script(texts: Sequence[str]) -> str:
    counts = Counter(_scripts(islice(texts, 300)))
    return counts.most_common(1)[0][0] if counts else "no"


def _scripts(texts: Iterator[str]) -> Iterator[str]:
    """The script of each letter: the first word of its name in Unicode."""
    for text in texts:
        for sign in nfc(text)[:300]:
            if sign.isalpha() and (name := unicodedata.name(sign, "")):
                yield name.split()[0].split("-")[0].capitalize()
