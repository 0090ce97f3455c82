"""The drawing of the memory network that is a language model: the words that each hop looks at."""

from __future__ import annotations

from typing import Any

import torch

from regard.models.base import real_BL
from regard.models.memory_lm import MemoryLanguageModel
from regard.views.diagrams.diagram import Canvas, Component, Diagram, equation, pitch_of
from regard.views.diagrams.stacks import Stack, draw_answers, text_pieces, token_moments
from regard.views.explanation import Explanation
from regard.views.labels import shorten

ROW = 96


@torch.inference_mode()
def draw_memory_words(explanation: Explanation) -> Diagram:
    """Every word is a memory; each hop looks at the memories before each place."""
    model: Any = explanation.model
    batch: Any = explanation.batch
    tokens = text_pieces(explanation)
    count = len(tokens)
    _, looks = model.read(batch.text.ids_BL, real_BL(batch.text), batch.text.ids_BL.shape[1])
    xs = [place * pitch_of(tokens) for place in range(count)]
    steps = [*range(count)]
    canvas = Canvas()
    canvas.tokens(tokens, xs, 0, "source", steps)
    canvas.components["memories"] = Component(
        "The memories",
        equation(MemoryLanguageModel, "m_i", "c_i"),
        [f"the last {model.config.memory} words", f"{model.config.width} numbers per memory"],
        [MemoryLanguageModel.read],
    )
    labels = [f"m_{place + 1}" for place in range(count)]
    memories = canvas.states("memories", xs, -58, labels, "source", None, steps=steps)
    for place, (x, block) in enumerate(zip(xs, memories, strict=True)):
        canvas.join((x, -18), block.bottom, "source", place)
    stack = Stack(rows={0: memories}, xs=xs, top=-58.0)
    for number, p_BQL in enumerate(looks, 1):
        key = f"text-{number}"
        canvas.components[key] = Component(
            f"Hop {number}",
            equation(MemoryLanguageModel, "p_i", "o^k", "u^{k+1}"),
            ["all hops have the same weights"],
            [MemoryLanguageModel.read],
        )
        labels = [f"u_{place + 1}" for place in range(count)]
        y = -58.0 - ROW * number
        states = canvas.states(key, xs, y, labels, "context", None, steps=steps)
        for place, state in enumerate(states):
            canvas.look(state, memories[: place + 1], p_BQL[0, place, : place + 1].tolist())
        stack.rows[number] = states
        stack.top = y
    canvas.moments += token_moments(explanation, tokens, stack)
    draw_answers(canvas, explanation, stack, count)
    return canvas.finish(shorten(explanation.title, 160))
