"""How much each word matters: what a model's answer loses where the word is left out, as bars."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.cells import cell_len

from regard.text.normalise import one_line
from regard.views.heatmap import Heatmap, Numbers
from regard.views.labels import number, pad, shorten
from regard.views.seen import CELLS

BARS = "█", "▒"
"""What a bar is made of: where the value falls without the word, and where it rises."""
NAMED = 3
"""Words that are named for each tag."""


@dataclass(frozen=True, eq=False)
class Occlusion:
    """What a model says of a text, and by how much each value falls without each of its words.

    Erasure of a word (Li et al. 2016, arXiv:1612.08220, section 3.1), as a difference of probabilities:

        fall(w) = S(x) - S(x less w)                S the probability of the answer to x, or the number
    """

    answers: tuple[str, ...]
    """What is explained: a label, an answer, a number; of a tagger, every word with its tag."""
    values: tuple[float, ...]
    """S(x) of each."""
    words: tuple[str, ...]
    """Those that were left out, one at a time."""
    falls_WA: Numbers
    """Below 0 where a value rises. What a tagger says of a word does not fall without that word."""

    @property
    def title(self) -> str:
        named = "each tag's probability" if len(self.answers) != 1 else f"{self.answers[0]} = {self.values[0]:.3f}"
        return f"how much {named} falls without each word"

    @property
    def peak(self) -> float:
        """What a whole bar stands for: the largest fall, or a tenth of the value where all falls are small."""
        return max(float(np.abs(self.falls_WA).max()), abs(self.values[0]) / 10) or 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "answers": list(self.answers),
            "values": list(self.values),
            "words": list(self.words),
            "falls": self.falls_WA.tolist(),
        }

    def heatmap(self, about: str) -> Heatmap:
        """A bar a word, made of cells of its own shade; of a tagger, a row a word and a column a tag."""
        title, words = f"{self.title} · {about}", tuple(map(one_line, self.words))
        if len(self.answers) != 1:
            return Heatmap(words, self.answers, self.falls_WA, title)
        falls_W = self.falls_WA[:, 0]
        peak = self.peak
        filled_WC = np.arange(CELLS) < np.ceil(np.abs(falls_W)[:, None].round(3) / peak * CELLS)
        marks = tuple(number(peak * cell / CELLS) if cell % (CELLS // 4) == 0 else "" for cell in range(CELLS))
        rows = tuple(f"{_signed(fall)} {word}" for fall, word in zip(falls_W, words, strict=True))
        return Heatmap(rows, marks, np.where(filled_WC, falls_W[:, None], 0.0), title, label_width=28, bars=True)

    def to_text(self) -> str:
        """For the terminal: a line a word."""
        columns = shutil.get_terminal_size().columns
        if len(self.answers) == 1:
            return "\n".join([shorten(self.title, columns), *self._bars(columns)]) + "\n"
        title = "each tag, its probability, and how much of it is lost without which words"
        return "\n".join([shorten(title, columns), *self._tags(columns)]) + "\n"

    def _bars(self, columns: int) -> list[str]:
        falls_W = self.falls_WA[:, 0]
        peak = self.peak
        words = [shorten(one_line(word), columns // 3) for word in self.words]
        margin = max(map(cell_len, words))
        room = max(1, columns - margin - 9)
        bars = [BARS[fall < 0] * round(room * abs(fall) / peak) for fall in falls_W.tolist()]
        rows = zip(words, falls_W, bars, strict=True)
        return [f"{pad(word, margin)} {_signed(fall)} {bar}".rstrip() for word, fall, bar in rows]

    def _tags(self, columns: int) -> list[str]:
        """Each word with its tag, and the words without which that falls most."""
        names = [shorten(one_line(answer), columns // 2) for answer in self.answers]
        margin = max(map(cell_len, names))
        lines = []
        for name, value, falls_W in zip(names, self.values, self.falls_WA.T, strict=True):
            most = np.argsort(-falls_W, kind="stable")[:NAMED]
            named = "  ".join(f"{one_line(self.words[w])} {_signed(falls_W[w])}" for w in most if falls_W[w] >= 0.0005)
            lines.append(shorten(f"{pad(name, margin)} {value:.3f}  {named or '(no word by itself)'}", columns))
        return lines


def _signed(fall: float) -> str:
    """Three decimals, of which nothing is never below zero."""
    return f"{round(float(fall), 3) + 0.0:+.3f}"
