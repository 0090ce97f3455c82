"""The drawings of models that count instead of computing states: bags of words and n-grams."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from regard.models.bag_of_words import BagOfWords
from regard.models.ngram_lm import NgramLanguageModel
from regard.views.diagrams.diagram import (
    BOX_HEIGHT,
    Block,
    Canvas,
    Component,
    Diagram,
    Moment,
    columns_of,
    equation,
    pitch_of,
)
from regard.views.diagrams.recurrent import rows_of
from regard.views.diagrams.stacks import Stack, draw_answers, text_pieces, token_moments
from regard.views.explanation import Explanation
from regard.views.labels import shorten
from regard.views.mathml import formula_and_remark

ROW = 96


def _equation_of(owner: Any, kind: str) -> str:
    """The equation of a docstring that has this name before it: `counts   x_v = n_v`."""
    lines = [line.strip() for line in (inspect.getdoc(owner) or "").splitlines()]
    line = next(line for line in lines if line.startswith(kind))
    return formula_and_remark(line.removeprefix(kind))[0]


@torch.inference_mode()
def draw_bag_of_words(explanation: Explanation) -> Diagram:
    """A number for each word, which all fall into one vector: their order is lost."""
    model: Any = explanation.model
    base = getattr(model, "base", model)
    tokens = text_pieces(explanation)
    batch: Any = explanation.batch
    x_V = rows_of(base.states(batch))[0]
    ids_L = batch.text.ids_BL[0].tolist()
    canvas = Canvas()
    xs = columns_of(tokens)
    canvas.tokens(tokens, xs, 0, "source", [0] * len(tokens))
    kind = base.config.weights
    idf = equation(BagOfWords, "idf_v") if kind == "tf_idf" else ()
    canvas.components |= {
        "weight": Component(
            "The weight of a word",
            [_equation_of(BagOfWords, kind), *idf],
            ["1 number per word"],
            [BagOfWords.counts, BagOfWords.states],
        ),
        "bag": Component(
            "The bag of words: the order is lost",
            equation(BagOfWords, "P(y | x)"),
            [f"{len(x_V)} numbers, one for each word of the vocabulary"],
            [BagOfWords.states],
        ),
    }
    values = x_V[ids_L][:, None]
    labels = [f"x_{place + 1}" for place in range(len(tokens))]
    steps = [0] * len(tokens)
    row = canvas.states("weight", xs, -58, labels, "source", values, steps=steps)
    for x, block in zip(xs, row, strict=True):
        canvas.join((x, -18), block.bottom, "source")
    y = -58.0 - ROW
    peak = float(abs(x_V).max()) or 1.0
    bag = Block(
        "bag",
        "x",
        "context",
        (xs[0] + xs[-1]) / 2,
        y,
        150,
        BOX_HEIGHT,
        "bag",
        1,
        x_V[x_V != 0].tolist(),
        peak,
        "x",
    )
    canvas.block(bag)
    for block in row:
        canvas.join(block.top, bag.bottom, "context", 1, arrow=False)
    canvas.moments += [
        Moment(
            "words",
            "source",
            ["Each word gets one number: how often it is there, and how rare it is elsewhere."],
            block=row[0].key,
        ),
        Moment(
            "bag of words",
            "context",
            ["All words fall into one bag: in another order the text would be the same."],
            block=bag.key,
        ),
    ]
    draw_answers(canvas, explanation, Stack(rows={0: [bag]}, xs=[bag.x], top=y), 1)
    return canvas.finish(shorten(explanation.title, 160))


@torch.inference_mode()
def draw_ngram(explanation: Explanation) -> Diagram:
    """What followed the last words in the training text, at each place."""
    model: Any = explanation.model
    order = model.config.order
    tokens = text_pieces(explanation)
    pitch = pitch_of(tokens)
    xs = [place * pitch for place in range(len(tokens))]
    steps = [*range(len(tokens))]
    last = [f"w_{{t-{back}}}" if back else "w_t" for back in range(order - 2, -1, -1)]
    canvas = Canvas()
    canvas.tokens(tokens, xs, 0, "source", steps)
    canvas.components |= {
        "words": Component(
            "The words of the text",
            [f"h_t = [{' ; '.join(last)}]"],
            ["all that the model knows of the text"],
            [NgramLanguageModel.contexts],
        ),
        "text-1": Component(
            "What followed in the training text",
            [_equation_of(NgramLanguageModel, model.config.smoothing)],
            [f"{order}-grams: the last {order - 1} tokens, no others"],
            [NgramLanguageModel.probabilities, NgramLanguageModel.combine],
        ),
    }
    labels = [f"w_{place + 1}" for place in range(len(tokens))]
    words = canvas.states("words", xs, -58, labels, "source", None, steps=steps)
    labels = [f"h_{place + 1}" for place in range(len(tokens))]
    histories = canvas.states("text-1", xs, -58 - ROW, labels, "context", None, steps=steps)
    for place, (x, word, history) in enumerate(zip(xs, words, histories, strict=True)):
        canvas.join((x, -18), word.bottom, "source", place)
        read = words[max(0, place - order + 2) : place + 1] if order > 1 else []
        canvas.look(history, read, [1 / max(1, order - 1)] * len(read))
    stack = Stack(rows={0: words, 1: histories}, xs=xs, top=-58.0 - ROW)
    canvas.moments += token_moments(explanation, tokens, stack)
    draw_answers(canvas, explanation, stack, len(tokens))
    return canvas.finish(shorten(explanation.title, 160))
