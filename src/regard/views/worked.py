"""One attention worked step by step, as numbers to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from torch import Tensor

from regard.views.labels import label, pad
from regard.views.seen import Step

SOFTMAX = "alpha_j = exp(e_j) / sum_k exp(e_k)"
SHOWN = 4
"""Numbers of a vector that are printed."""
MOST_KEYS = 16
"""Keys that are printed: those with the largest weights, in their order."""


@dataclass(frozen=True)
class Line:
    """An equation and its value, a vector."""

    equation: str
    value_D: Tensor


@dataclass(frozen=True)
class Letters:
    """What a paper calls the score, the weight and the value of a key, and their sum."""

    score: str = "e_j"
    weight: str = "alpha_j"
    value: str = "v_j"
    context: str = "c = sum_j alpha_j v_j"


MEMORY_LETTERS = Letters("e_i", "p_i", "c_i", "o = sum_i p_i c_i")
"""Those of memory networks (Sukhbaatar et al. 2015); the paper has none for the score."""
SOFTMAX_OF_MEMORIES = "p_i = exp(e_i) / sum_k exp(e_k)"


@dataclass(frozen=True)
class Worked:
    """An attention at one query: query, keys -> scores -> weights -> context -> what is done with it."""

    title: str
    query: tuple[Line, ...]
    """The state that looks, and what is made of it before it meets the keys."""
    keys: tuple[str, ...]
    vectors: dict[str, Tensor]
    """What stands for each key on the way to its score, [K, D] by name; the values are among them."""
    score_equation: str
    scores_K: Tensor
    """-inf where the query may not look."""
    weight_equation: str
    weights_K: Tensor
    context_D: Tensor
    after: tuple[Line, ...]
    """What is done with the context."""
    step: Step | None
    """The token that is being written; None where it is the source that looks."""
    letters: Letters = Letters()

    def to_json(self) -> dict[str, Any]:
        """All the numbers; a score of null is that of a key that may not be looked at."""
        return {
            "title": self.title,
            "query": {line.equation: line.value_D.tolist() for line in self.query},
            "keys": self.keys,
            "vectors": {name: vectors_KD.tolist() for name, vectors_KD in self.vectors.items()},
            "scores": [score if math.isfinite(score) else None for score in self.scores_K.tolist()],
            "weights": self.weights_K.tolist(),
            "context": self.context_D.tolist(),
            "after": {line.equation: line.value_D.tolist() for line in self.after},
        }

    def to_text(self) -> str:
        """For the terminal: the first numbers of each vector, and the keys with the largest weights."""
        lines = [self.title, "", "1. The query", *_written(self.query)]
        lines += ["", "2. The keys, their scores, and the softmax of the scores"]
        lines += [f"   {self.score_equation}", f"   {self.weight_equation}", *self._table()]
        lines += ["", "3. The context: the values, weighted and summed"]
        lines += _written([Line(self.letters.context, self.context_D)])
        lines += ["", "4. What is done with the context", *_written(self.after)]
        if self.step is not None:
            likeliest = "   ".join(f"{label(one.token)} {one.probability:.4f}" for one in self.step.candidates)
            lines += ["   in the end, softmax over the vocabulary: the five likeliest tokens", f"      {likeliest}"]
        return "\n".join(lines) + "\n"

    def _table(self) -> list[str]:
        """One line a key, and one for those that are left out."""
        rows = sorted(self.weights_K.topk(min(MOST_KEYS, len(self.keys))).indices.tolist())
        letters, values_KD = self.letters, self.vectors[self.letters.value]
        vectors = {name: vectors_KD for name, vectors_KD in self.vectors.items() if name != letters.value}
        cells = [["", *vectors, letters.score, letters.weight, letters.value]]
        for j in rows:
            score = float(self.scores_K[j])
            shown = [f"{score:.4f}" if math.isfinite(score) else "hidden", f"{float(self.weights_K[j]):.4f}"]
            cells.append(
                [label(self.keys[j]), *(_vector(of[j]) for of in vectors.values()), *shown, _vector(values_KD[j])]
            )
        widths = [max(cell_len(row[column]) for row in cells) for column in range(len(cells[0]))]
        table = ["   " + "  ".join(map(pad, row, widths)).rstrip() for row in cells]
        if len(rows) < len(self.keys):
            rest = float(self.weights_K.sum() - self.weights_K[rows].sum())
            table.append(f"   and {len(self.keys) - len(rows)} more, with {rest:.4f} of the weight")
        return table


def _written(lines: tuple[Line, ...] | list[Line]) -> list[str]:
    width = max((len(line.equation) for line in lines), default=0)
    return [f"   {line.equation:{width}}   {_vector(line.value_D)}" for line in lines]


def _vector(value_D: Tensor) -> str:
    shown = " ".join(f"{number:7.4f}" for number in value_D[:SHOWN].tolist())
    return f"[{shown} …]" if len(value_D) > SHOWN else f"[{shown}]"
