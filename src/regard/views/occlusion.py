"""How much a model's answer depends on each word of its input: the input is read again without
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.text.normalise import one_line
from regard.views.report import (
    Bars,
    Cell,
    HeatMap,
    HeatMaps,
    Numbers,
    Part,
    Table,
)

WORDS_PER_TAG = 3
"""Number of words named per tag."""


@dataclass(frozen=True, eq=False)
class Occlusion:
    """The model's answers for a text, and how much the value of each falls without each of its
    words.

    Erasure of a word (Li et al. 2016, arXiv:1612.08220, section 3.1), as a difference of
    probabilities:

        fall(w) = S(x) - S(x without w)             S: the probability of the answer to x, or the number
    """

    answers: tuple[str, ...]
    """The explained answers: one label, text or number; for a tagger, every word with its tag."""
    values: tuple[float, ...]
    """S(x) of each answer."""
    words: tuple[str, ...]
    """The words left out, one at a time."""
    falls_WA: Numbers
    """Negative if the value rises. The fall of a word's own tag is 0."""

    def to_json(self) -> dict[str, Any]:
        return {
            "answers": self.answers,
            "values": self.values,
            "words": self.words,
            "falls": self.falls_WA.tolist(),
        }

    def parts(self, about: str) -> list[Part]:
        """A bar for each word; for a tagger, the words that each tag depends on most, and a map of
        all."""
        words = [one_line(word) for word in self.words]
        if not words:
            note = "There is no word that can be left out: the text would be empty without it."
            rows = [
                [one_line(answer), value]
                for answer, value in zip(self.answers, self.values, strict=True)
            ]
            return [Table(["answer", "value"], rows, about, notes=[note], formats=[".3f"])]
        if len(self.answers) == 1:
            [name] = self.answers
            [value] = self.values
            title = f"how much {name} = {value:.3f} falls without each word · {about}"
            falls = [
                round(float(fall), 3) + 0.0 for fall in self.falls_WA[:, 0]
            ]  # + 0.0: no negative zero
            # An axis of at least a tenth of the value keeps noise from looking like a reason.
            return [
                Bars(words, {"fall": falls}, "fall; below 0 it rises", title, span=abs(value) / 10)
            ]
        table_rows = []
        for answer, value, falls_W in zip(self.answers, self.values, self.falls_WA.T, strict=True):
            most = [
                w
                for w in np.argsort(-falls_W, kind="stable")[:WORDS_PER_TAG]
                if falls_W[w] >= 0.0005
            ]
            named = "  ".join(f"{words[w]} {falls_W[w]:+.3f}" for w in most)
            table_rows.append([one_line(answer), value, named or Cell("no single word", ours=True)])
        table = Table(
            ["word/tag", "probability", "falls most without"], table_rows, formats=[".3f"]
        )
        title = "how much the probability of each tag falls without each word"
        heat_map = HeatMap(
            words, [*map(one_line, self.answers)], self.falls_WA, f"{title} · {about}"
        )
        return [table, HeatMaps([heat_map], title=title)]
