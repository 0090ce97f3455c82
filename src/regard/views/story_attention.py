"""A question about a story, and where each hop of a memory network looked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.cells import cell_len

from regard.tasks.story_answering import facts_found
from regard.views.attention import (
    PredictedToken,
)
from regard.views.report import (
    Cell,
    HeatMap,
    HeatMaps,
    Numbers,
    Report,
    Section,
    Table,
)
from regard.views.terminal import SHADES

FACT_MARK = "•"
"""Marks a supporting fact of a story."""


@dataclass(frozen=True, eq=False)
class StoryAttention:
    """A question about a story, how much each hop looked at each sentence, and whether the answer
    is there."""

    sentences: tuple[str, ...]
    """The sentences in the memory, the oldest first."""
    numbers: tuple[int, ...]
    """The user's number of each sentence."""
    forgotten: int
    """How many earlier sentences no longer fit."""
    question: str
    asked: int
    """Which of the `questions` of the input this is, from 1."""
    questions: int
    weights_NS: Numbers
    """If a row sums to less than 1, the rest went to empty memory slots."""
    answer: str | None
    """The right answer, if it was given."""
    facts: tuple[int, ...] | None
    """The indices of the sentences on which the answer rests, if they were given."""

    @property
    def looked(self) -> list[int]:
        """The index of the sentence at which each hop looked most."""
        return [int(place) for place in self.weights_NS.argmax(axis=1)]

    @property
    def nothing(self) -> list[float]:
        """How much each hop looked at empty memories."""
        return [max(0.0, float(1 - weights.sum())) for weights in self.weights_NS]

    def to_json(self) -> dict[str, Any]:
        names = ("sentences", "numbers", "forgotten", "question", "asked", "questions")
        return {name: getattr(self, name) for name in names} | {
            "hops": self.weights_NS.tolist(),
            "nothing": self.nothing,
            "looked": [self.numbers[place] for place in self.looked],
            "answer": self.answer,
            "facts": None if self.facts is None else [self.numbers[fact] for fact in self.facts],
            "facts_found": facts_found(self.looked, self.facts) if self.facts else None,
        }

    def report(self, title: str, answered: PredictedToken) -> Report:
        """The weights as a table and as a map: a row for each sentence, a column for each hop."""
        marks = [
            FACT_MARK if place in (self.facts or ()) else " "
            for place in range(len(self.sentences))
        ]
        lines = zip(self.numbers, marks, self.sentences, strict=True)
        rows = [*(f"{number:3}{mark} {text}" for number, mark, text in lines), "     (nothing)"]
        hops = [f"hop {hop}" for hop in range(1, len(self.weights_NS) + 1)]
        values = np.concatenate([self.weights_NS, np.array(self.nothing)[:, None]], axis=1).T
        shaded = [
            [f"{weight:.3f} {SHADES[round(weight * (len(SHADES) - 1))]}" for weight in row]
            for row in values
        ]
        labels = [*rows[:-1], Cell(rows[-1], ours=True)]
        table = [[label, *weights] for label, weights in zip(labels, shaded, strict=True)]
        notes = [f"{FACT_MARK} marks a supporting fact."] if self.facts else []
        heat_map = HeatMap(rows, hops, values, title, label_width=min(60, max(map(cell_len, rows))))
        maps = [Table([title, *hops], table, notes=notes), HeatMaps([heat_map])]
        answers = Table(["answer", "probability"], answered.candidates, formats=[".3f"])
        forgotten = (
            f"{self.forgotten:,} earlier sentences are forgotten: the memory holds "
            f"{len(self.sentences)}."
        )
        sections = [
            Section("Where each hop looked", maps, in_terminal=1),
            Section("The likeliest answers", [answers]),
        ]
        return Report(title, sections, forgotten if self.forgotten else "", [self.conclusion()])

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
        agrees = {1.0: "it agrees with", 0.0: "it does not agree with"}.get(
            share, "it agrees in part with"
        )
        return f"{'; '.join(most)}: {agrees} the supporting facts ({named})."
