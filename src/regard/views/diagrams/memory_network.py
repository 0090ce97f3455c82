"""The drawing of a memory network: the sentences of a story, and the hops that read them one after
the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.models.memory_network import MemoryNetwork
from regard.views.diagrams.diagram import (
    BOX_HEIGHT,
    Block,
    Canvas,
    Component,
    Diagram,
    Line,
    Moment,
    Word,
    equation,
    text_width,
)
from regard.views.explanation import Explanation, ViewOptions
from regard.views.labels import percent, shorten

SENTENCE_ROW = 34
MAX_SENTENCES = 14
"""Sentences that are drawn: the last ones."""
MAX_CHARACTERS = 44
HOP_WIDTH = 190
MAX_ANSWERS = 6


def draw_memory_network(explanation: Explanation) -> Diagram:
    """Sentences on the left, a column for each hop, the answer on the right."""
    model: Any = explanation.model
    config = model.config
    story = explanation.story
    assert story is not None
    canvas = Canvas()
    first = max(0, len(story.sentences) - MAX_SENTENCES)
    sentences = [shorten(text, MAX_CHARACTERS) for text in story.sentences[first:]]
    numbers = story.numbers[first:]
    left = max([140, *(text_width(text, 14) for text in sentences)]) + 44
    height = SENTENCE_ROW * len(sentences)
    canvas.components |= _components(config)
    rows = []
    for place, text in enumerate(sentences):
        y = (place - len(sentences)) * SENTENCE_ROW
        rows.append(
            canvas.block(
                Block(
                    f"memory-{place}",
                    f"{numbers[place]}  {text}",
                    "source",
                    left / 2,
                    y,
                    left,
                    27,
                    "memory",
                    0,
                )
            )
        )
    if first:
        y = -height - SENTENCE_ROW
        canvas.words.append(Word(f"{first} earlier sentences", left / 2, y, "plain", size="small"))
    base = 54.0
    middle = -height / 2 - SENTENCE_ROW / 2
    question = shorten(story.question, 60)
    x = left + 120
    worked = [
        explanation.select(ViewOptions("hops", layer=hop)).worked()
        for hop in range(1, config.hops + 1)
    ]
    u_D = next(iter(worked[0].query.values())).tolist()
    canvas.words.append(Word(question, left / 2, base + 5, "target", 1))
    before = canvas.block(
        Block(
            "question",
            "u_1",
            "target",
            x,
            base,
            72,
            BOX_HEIGHT,
            "question",
            1,
            u_D,
            max(map(abs, u_D)),
        )
    )
    canvas.join((left / 2 + text_width(question, 19) / 2 + 8, base), before.left, "target", 1)
    canvas.moments.append(
        Moment(
            "story", "source", ["Every sentence becomes a key m and a value c."], block="memory-0"
        )
    )
    canvas.moments.append(
        Moment("question", "target", ["The question becomes the first query u."], block="question")
    )
    for hop, work in enumerate(worked, 1):
        weights = story.weights_NS[hop - 1][first:]
        step = hop + 1
        o_D = work.context_D.tolist()
        output = canvas.block(
            Block(
                f"hop-{hop}",
                f"o_{hop}",
                "context",
                x + 30,
                middle,
                72,
                BOX_HEIGHT,
                "hop",
                step,
                o_D,
                max(map(abs, o_D)),
            )
        )
        for place, weight in enumerate(weights):
            if weight >= 0.02:
                _look(canvas, rows[place], output, float(weight))
        following = next(iter(work.after.values())).tolist()
        x += HOP_WIDTH
        query = canvas.block(
            Block(
                f"u-{hop + 1}",
                f"u_{hop + 1}",
                "target",
                x,
                base,
                72,
                BOX_HEIGHT,
                "query",
                step,
                following,
                max(map(abs, following)),
            )
        )
        canvas.join(before.top, (output.x - 14, output.bottom[1]), "target", step, dashed=True)
        canvas.join(before.right, query.left, "target", step)
        canvas.join(output.right, query.top, "context", step)
        most = int(np.argmax(weights))
        nothing = story.nothing[hop - 1]
        claims = [
            f"Hop {hop} reads sentence {numbers[most]} most: {percent(float(weights[most]))}.",
            f"Empty memories get {percent(nothing)}.",
        ]
        canvas.moments.append(Moment(f"hop {hop}", "context", claims, [output.key], output.key))
        before = query
    answer = explanation.output
    step = config.hops + 2
    canvas.join(before.right, (before.x + 70, base), "target", step)
    canvas.words.append(Word(answer, before.x + 82, base + 6, "target", step, anchor="start"))
    candidates = [*explanation.steps[0].candidates][:MAX_ANSWERS]
    probability = explanation.steps[0].probability
    claim = f"The answer is “{answer}”, with probability {probability:.2f}."
    hops = [f"hop-{hop}" for hop in range(1, config.hops + 1)]
    canvas.moments.append(Moment(answer, "target", [claim], hops, before.key, candidates))
    return canvas.finish(shorten(explanation.title, 160))


def _look(canvas: Canvas, key: Block, query: Block, weight: float) -> None:
    """A line that leaves a sentence to the right."""
    (x1, y1), (x2, y2) = key.right, query.left
    middle = x1 + 0.55 * (x2 - x1)
    path = f"M{x1:.0f} {y1:.0f}C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    canvas.lines.append(Line(path, "context", query.step, weight=weight, query=query.key))


def _components(config: Any) -> dict[str, Component]:
    width = f"{config.width} numbers"
    return {
        "memory": Component(
            "The memory: a key and a value for each sentence",
            equation(MemoryNetwork, "m_i", "c_i", "l_kj"),
            [width],
            [MemoryNetwork.memory, MemoryNetwork.sentence_vectors],
        ),
        "question": Component(
            "The question",
            equation(MemoryNetwork, "u^1"),
            [width],
            [MemoryNetwork.sentence_vectors],
        ),
        "hop": Component(
            "What the hop read",
            equation(MemoryNetwork, "p_i", "o^k"),
            [width],
            [MemoryNetwork.forward],
        ),
        "query": Component(
            "The next query",
            [*equation(MemoryNetwork, "u^{k+1}"), *equation(MemoryNetwork, "a ")],
            [width],
            [MemoryNetwork.forward],
        ),
    }
