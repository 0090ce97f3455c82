"""The profile of data: all that a recipe is proposed from."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from statistics import mean, quantiles
from typing import Any, NamedTuple

from regard.data.corpora import Part
from regard.text.normalise import nfc
from regard.text.vocabularies import common_characters


class TextStatistics(NamedTuple):
    """Statistics of a column of texts."""

    script: str  # what most letters belong to: Latin, Hangul, Cjk, ...
    words: float  # words of a text, on average
    characters: int  # what 99 of 100 texts do not exceed; of raw text the average
    alphabet: int  # different characters, without rare ones

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextStatistics:
        lengths = sorted(map(len, texts)) or [0]
        longest = quantiles(lengths, n=100)[-1] if len(lengths) > 1 else lengths[0]
        letters = (sign for text in texts[:300] for sign in nfc(text)[:300] if sign.isalpha())
        scripts = Counter(
            unicodedata.name(letter, "no").split()[0].split("-")[0] for letter in letters
        )
        script = scripts.most_common(1)[0][0].capitalize() if scripts else "no"
        alphabet = common_characters(Counter(chain.from_iterable(map(nfc, texts))))
        return cls(
            script, mean(len(text.split()) for text in texts or [""]), round(longest), len(alphabet)
        )


@dataclass(frozen=True)
class DataProfile:
    """The data that a recipe is proposed for."""

    task: str
    data: dict[str, Any]  # the line `data.train`: the file, as a Path, and its columns
    examples: int
    sizes: tuple[TextStatistics, ...] = ()  # of what is read and, last, of what is written
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # what else the data decides, by its path in the recipe
    notes: tuple[str, ...] = ()  # what the user should know of the choice
    held_out: dict[Part, dict[str, Any]] = field(default_factory=dict)
    """The lines `data.validation` and `data.test`, if they have files of their own."""


def japanese_settings(texts: Sequence[str]) -> dict[str, Any]:
    """BLEU on the words that MeCab finds, for Japanese texts if it is installed."""
    with_kana = sum(re.search("[\u3041-\u30ff]", text) is not None for text in texts)
    is_japanese = with_kana > len(texts) / 2 and find_spec("MeCab") is not None
    return {"evaluation": {"tokenize": "ja-mecab"}} if is_japanese else {}
