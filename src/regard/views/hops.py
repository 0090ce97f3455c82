"""`explain` for questions about stories: at which sentences each hop looked, and whether these are the right ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.cells import cell_len

from regard.data.batch import StoryBatch
from regard.errors import DecodeError
from regard.models.base import device_of
from regard.models.memory_network import MemoryNetwork
from regard.runs import Run
from regard.runs.settings import device_named
from regard.tasks.inputs import Inputs
from regard.tasks.story_answering import facts_found
from regard.tasks.story_inputs import all_questions
from regard.text.files import write_file
from regard.views.heatmap import Heatmap, Numbers
from regard.views.page import Cell, figure, page, paragraph, section, table
from regard.views.png import to_png
from regard.views.seen import Candidate, Step
from regard.views.story_numbers import work_out_story
from regard.views.svg import to_svg
from regard.views.terminal import SHADES
from regard.views.worked import Worked

FACT = "•"
"""Marks a supporting fact."""
LABEL = 60
"""Columns for a sentence beside a picture."""


@dataclass(frozen=True, eq=False)
class Hops:
    """An answer, and how much each hop looked at each sentence."""

    input: str
    question: str
    sentences: tuple[str, ...]
    """Those that are remembered, the oldest first."""
    forgotten: int
    """How many came before them."""
    weights_NS: Numbers
    probabilities: dict[str, float]
    """The likeliest answers, best first."""
    answer: str | None
    """The right answer, where it was given."""
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the remembered sentences that it rests on, where they were given."""
    numbers: tuple[int, ...]
    """What the user calls each remembered sentence."""
    asked: int = 1
    """Which of the questions of the input this is, from 1."""
    questions: int = 1
    """How many there are."""
    model: MemoryNetwork | None = field(default=None, repr=False)
    batch: StoryBatch | None = field(default=None, repr=False)
    """What the model read, for those who work it out."""

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    @property
    def looked(self) -> list[int]:
        """The sentence at which each hop looked most."""
        return [int(place) for place in self.weights_NS.argmax(axis=1)]

    @property
    def nothing(self) -> list[float]:
        """How much each hop looked at memories that the story leaves empty."""
        return [max(0.0, float(1 - weights.sum())) for weights in self.weights_NS]

    @property
    def title(self) -> str:
        right = "" if self.answer is None or self.answer.lower() == self.output.lower() else f", not {self.answer}"
        return f"{self.question} {self.output} ({self.probabilities[self.output]:.3f}){right}"

    def _look(self, hop: int) -> str:
        place, nothing = self.looked[hop], self.nothing[hop]
        if nothing > self.weights_NS[hop, place]:
            return f"hop {hop + 1} looked most at nothing ({nothing:.3f}), then at sentence {self.numbers[place]}"
        return f"hop {hop + 1} looked most at sentence {self.numbers[place]}"

    def verdict(self) -> str:
        """What the hops looked at, and whether it is what the answer rests on."""
        most = "; ".join(self._look(hop) for hop in range(len(self.weights_NS)))
        if not self.facts:
            return f"{most}. The supporting facts are not known."
        named = ", ".join(str(self.numbers[fact]) for fact in sorted(self.facts))
        share = facts_found(self.looked, self.facts)
        agrees = {1.0: "it agrees with", 0.0: "it does not agree with"}.get(share, "it agrees in part with")
        return f"{most}: {agrees} the supporting facts ({named})."

    def to_json(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "output": self.output,
            "probabilities": self.probabilities,
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

    def rows(self) -> list[str]:
        """The sentences with their numbers, supporting facts marked; then what is left empty."""
        marks = [FACT if place in (self.facts or ()) else " " for place in range(len(self.sentences))]
        width = max(3, *(len(str(number)) for number in self.numbers))
        lines = zip(self.numbers, marks, self.sentences, strict=True)
        return [*(f"{number:{width}}{mark} {text}" for number, mark, text in lines), f"{'':{width}}  (nothing)"]

    def work_out(self, hop: int | None = None) -> Worked:
        """A hop, from 1, in numbers; the last one unless told otherwise."""
        assert self.model is not None
        assert self.batch is not None
        hops = len(self.weights_NS)
        if hop is not None and not 1 <= hop <= hops:
            raise DecodeError(f"there is no hop {hop}", where="--layer", hint=f"allowed: 1 to {hops}")
        likely = tuple(Candidate(word, p) for word, p in self.probabilities.items())
        return work_out_story(
            self.model,
            self.batch,
            [f"{number} {text}" for number, text in zip(self.numbers, self.sentences, strict=True)],
            hop=hop or hops,
            title=f"attention over the story, hop {hop or hops} of {hops}: {self.question}",
            step=Step(self.output, self.probabilities[self.output], 1, likely),
        )

    def columns(self) -> Numbers:
        """How much each hop looked at each row."""
        return np.concatenate([self.weights_NS, np.array(self.nothing)[:, None]], axis=1).T

    def heatmap(self) -> Heatmap:
        columns = tuple(f"hop {hop}" for hop in range(1, len(self.weights_NS) + 1))
        rows = tuple(self.rows())
        widest = min(LABEL, max(map(cell_len, rows)))
        return Heatmap(rows, columns, self.columns(), self.title, label_width=widest)

    def to_text(self) -> str:
        """For the terminal: a line a sentence, a column a hop."""
        lines = [self.title]
        if self.forgotten:
            lines.append(f"{self.forgotten:,} earlier sentences are forgotten: the memory holds {len(self.sentences)}.")
        lines.append(" ".join(f"hop {hop:<4}" for hop in range(1, len(self.weights_NS) + 1)))
        for row, weights in zip(self.rows(), self.columns(), strict=True):
            cells = (f"{weight:.3f} {SHADES[round(float(weight) * (len(SHADES) - 1))]} " for weight in weights)
            lines.append(f"{' '.join(cells)} {row}")
        others = "  ".join(f"{word} {p:.3f}" for word, p in self.probabilities.items())
        return "\n".join([*lines, self.verdict(), f"likeliest: {others}"]) + "\n"

    def to_page(self) -> str:
        head = ["", *(f"hop {hop}" for hop in range(1, len(self.weights_NS) + 1))]
        looks: list[list[Cell]] = [
            [row, *map(float, weights)] for row, weights in zip(self.rows(), self.columns(), strict=True)
        ]
        likely: list[list[Cell]] = [[word, p] for word, p in self.probabilities.items()]
        forgotten = (
            [paragraph(f"{self.forgotten:,} earlier sentences are forgotten.", kind="muted")] if self.forgotten else []
        )
        return page(
            self.title,
            paragraph(self.verdict()),
            *forgotten,
            section("Where each hop looked", figure(to_svg(self.heatmap()), f"{FACT} marks a supporting fact.")),
            section("The likeliest answers", table(["answer", "probability"], likely)),
            section("All weights", table(head, looks)),
        )


def explain_hops(
    run: Run,
    text: str,
    *,
    question: int | None = None,
    places: Sequence[str] | None = None,
    checkpoint: str = "best",
    device: str = "auto",
) -> Hops:
    """A question of a text, answered, and where each hop of the model looked; `places` name its lines."""
    lines = text.split("\n")
    asked = all_questions(lines, places or ["input"] * len(lines))
    number = len(asked) if question is None else question
    if not 1 <= number <= len(asked):
        raise DecodeError(f"there is no question {number}", where="--question", hint=f"allowed: 1 to {len(asked)}")
    typed = asked[number - 1]
    model = run.load_model(checkpoint, device_named(device))
    run.task.encode_inputs(model, Inputs([typed.text], [typed.place])).readable()
    examples = run.task.typed_examples([typed])
    first = np.zeros(1, dtype=np.int64)
    batch = run.task.batch(examples, first).to(device_of(model))
    with torch.inference_mode():
        p_NBIS = model(batch).p_NBIS
    kept = int(examples.columns["sizes"].lengths[0])
    return Hops(
        input=text,
        question=typed.question,
        sentences=typed.story[-kept:],
        forgotten=len(typed.story) - kept,
        weights_NS=p_NBIS[:, 0, model.winner].float().cpu().numpy(),
        probabilities=run.task.likeliest_answers(model, examples, first)[0],
        answer=typed.answer,
        facts=run.task.kept_facts(examples, 0),
        numbers=typed.numbers[-kept:],
        asked=number,
        questions=len(asked),
        model=model,
        batch=batch,
    )


WRITERS: dict[str, Callable[[Hops, Path], bytes]] = {
    ".svg": lambda hops, path: to_svg(hops.heatmap()).encode(),
    ".png": lambda hops, path: to_png(hops.heatmap(), where=str(path)),
    ".html": lambda hops, path: hops.to_page().encode(),
    ".json": lambda hops, path: (json.dumps(hops.to_json(), ensure_ascii=False) + "\n").encode(),
}
"""The formats of views/draw.py, whose `check_output` has looked at the path."""


def write_hops(hops: Hops, path: Path) -> None:
    """Draw a file of the format that its suffix names: whole, or not at all."""
    write_file(path, WRITERS[path.suffix.lower()](hops, path))
