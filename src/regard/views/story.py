"""A question about a story: at which sentences each hop looked, and whether these are the supporting facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.cells import cell_len

from regard.tasks.story_answering import facts_found
from regard.views.recording import Attention
from regard.views.report import HeatMap, HeatMaps, Numbers, Part, Table
from regard.views.terminal import SHADES

FACT = "•"
"""Marks a supporting fact."""


@dataclass(frozen=True, eq=False)
class Story:
    """A question about a story, and how much each hop looked at each sentence."""

    question: str
    sentences: tuple[str, ...]
    """Those in the memory, the oldest first."""
    forgotten: int
    """How many came before them."""
    weights_NS: Numbers
    """What is missing to 1, a hop looked at empty memories."""
    answer: str | None
    """The right answer, where it was given."""
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the sentences in memory that the answer rests on, where they were given."""
    numbers: tuple[int, ...]
    """What the user calls each sentence in memory."""
    asked: int = 1
    """Which of the questions of the input this is, from 1."""
    questions: int = 1
    """How many there are."""

    @property
    def looked(self) -> list[int]:
        """The sentence at which each hop looked most."""
        return [int(place) for place in self.weights_NS.argmax(axis=1)]

    @property
    def nothing(self) -> list[float]:
        """How much each hop looked at empty memories."""
        return [max(0.0, float(1 - weights.sum())) for weights in self.weights_NS]

    def attentions(self) -> dict[str, Attention]:
        """One for each hop, whose only query is the question."""
        visible = np.ones((1, len(self.sentences)), dtype=bool)
        return {
            f"hops.{hop}": Attention(
                f"hops.{hop}", "hops", hop + 1, (self.question,), self.sentences, weights_S[None, None], visible
            )
            for hop, weights_S in enumerate(self.weights_NS.astype(np.float32))
        }

    def title(self, answer: str, probability: float) -> str:
        right = "" if self.answer is None or self.answer.lower() == answer.lower() else f", not {self.answer}"
        return f"{self.question} {answer} ({probability:.3f}){right}"

    def note(self) -> str:
        if not self.forgotten:
            return ""
        return f"{self.forgotten:,} earlier sentences are forgotten: the memory holds {len(self.sentences)}."

    def conclusion(self) -> str:
        """Where the hops looked most, and whether these are the supporting facts."""
        most = []
        for hop, (place, nothing) in enumerate(zip(self.looked, self.nothing, strict=True), 1):
            sentence = f"sentence {self.numbers[place]}"
            empty = nothing > self.weights_NS[hop - 1, place]
            where = f"nothing ({nothing:.3f}), then at {sentence}" if empty else sentence
            most.append(f"hop {hop} looked most at {where}")
        if not self.facts:
            return f"{'; '.join(most)}. The supporting facts are not known."
        named = ", ".join(str(self.numbers[fact]) for fact in sorted(self.facts))
        share = facts_found(self.looked, self.facts)
        agrees = {1.0: "it agrees with", 0.0: "it does not agree with"}.get(share, "it agrees in part with")
        return f"{'; '.join(most)}: {agrees} the supporting facts ({named})."

    def to_json(self) -> dict[str, Any]:
        return {
            "sentences": list(self.sentences),
            "numbers": list(self.numbers),
            "forgotten": self.forgotten,
            "question": self.question,
            "asked": self.asked,
            "questions": self.questions,
            "hops": self.weights_NS.tolist(),
            "nothing": self.nothing,
            "looked": [self.numbers[place] for place in self.looked],
            "answer": self.answer,
            "facts": None if self.facts is None else [self.numbers[fact] for fact in self.facts],
            "facts_found": facts_found(self.looked, self.facts) if self.facts else None,
        }

    def parts(self, title: str) -> list[Part]:
        """The weights as a table and as a map: a row for each sentence, a column for each hop."""
        marks = [FACT if place in (self.facts or ()) else " " for place in range(len(self.sentences))]
        lines = zip(self.numbers, marks, self.sentences, strict=True)
        rows = [*(f"{number:3}{mark} {text}" for number, mark, text in lines), "     (nothing)"]
        hops = [f"hop {hop}" for hop in range(1, len(self.weights_NS) + 1)]
        values = np.concatenate([self.weights_NS, np.array(self.nothing)[:, None]], axis=1).T
        table = [[row, *map(_shaded, weights)] for row, weights in zip(rows, values.tolist(), strict=True)]
        notes = [f"{FACT} marks a supporting fact."] if self.facts else []
        heat_map = HeatMap(rows, hops, values, title, label_width=min(60, max(map(cell_len, rows))))
        return [Table([title, *hops], table, notes=notes), HeatMaps([heat_map])]


def _shaded(weight: float) -> str:
    return f"{weight:.3f} {SHADES[round(weight * (len(SHADES) - 1))]}"
