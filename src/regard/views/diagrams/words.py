"""The drawings of models without an order or with a small window: word vectors and the CNN."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.huffman import HuffmanTree
from regard.models.base import Contextual
from regard.models.glove import GloVe
from regard.models.text_classifiers import CNN
from regard.objectives.cbow import ContinuousBagOfWords
from regard.objectives.glove import WeightedLeastSquares
from regard.objectives.skip_gram import SkipGram
from regard.views.diagrams.diagram import (
    Block,
    Canvas,
    Component,
    Diagram,
    Line,
    Moment,
    Word,
    equation,
    label_of,
    pitch_of,
    upright,
)
from regard.views.diagrams.recurrent import rows_of
from regard.views.diagrams.stacks import Stack, draw_answers, text_pieces
from regard.views.explanation import Explanation
from regard.views.labels import shorten
from regard.views.mathml import looks_like_equation

ROW = 96
LOSSES_OF_WORDS: dict[str, type] = {
    "skip_gram": SkipGram,
    "cbow": ContinuousBagOfWords,
    "glove": WeightedLeastSquares,
}
"""`model.method`, or `model.kind` -> where its equations stand."""


@torch.inference_mode()
def draw_cnn(explanation: Explanation) -> Diagram:
    """A row of windows for each width of filter, then the maximum over the text."""
    model: Any = explanation.model
    base = getattr(model, "base", model)
    config = base.config
    tokens = text_pieces(explanation)
    embedded, features = (rows_of(layer) for layer in base.layers_of(explanation.batch))
    canvas = Canvas()
    xs = [place * pitch_of(tokens) for place in range(len(tokens))]
    canvas.tokens(tokens, xs, 0, "source", [0] * len(tokens))
    canvas.components["text-0"] = Component(
        "The embeddings",
        ("x_i = E w_i",),
        [f"{config.embedding} numbers per token"],
        [type(base.embedding)],
    )
    labels = [f"x_{place + 1}" for place in range(len(tokens))]
    row = canvas.states("text-0", xs, -56, labels, "source", embedded, steps=[0] * len(tokens))
    for x, block in zip(xs, row, strict=True):
        canvas.join((x, -18), block.bottom, "source")
    canvas.moments.append(
        Moment(
            "tokens",
            "source",
            [f"Each token becomes {config.embedding} numbers."],
            block=row[0].key,
        )
    )
    y = -56.0
    stack = Stack(rows={0: row}, xs=xs)
    for number, width in enumerate(config.widths, 1):
        y -= ROW
        maps = features[:, (number - 1) * config.maps : number * config.maps]
        stack.rows[number] = _windows(canvas, number, width, maps, row, y, config)
        stack.top = y
    draw_answers(canvas, explanation, stack, len(config.widths))
    return canvas.finish(shorten(explanation.title, 160))


def _windows(
    canvas: Canvas, number: int, width: int, maps: Any, row: list[Block], y: float, config: Any
) -> list[Block]:
    """The filters of one width at each place, in the middle of the tokens that they read."""
    key = f"filters-{number}"
    canvas.components[key] = Component(
        f"Filters over {width} tokens",
        equation(CNN, "c_i", "c^"),
        [f"{config.maps} filters"],
        [CNN.layers_of],
    )
    count = max(1, len(row) - width + 1)
    xs = [(row[n].x + row[min(n + width, len(row)) - 1].x) / 2 for n in range(count)]
    labels = [f"c_{place + 1}" for place in range(count)]
    boxes = canvas.states(key, xs, y, labels, "context", maps[:count], steps=[number] * count)
    strongest = maps[:count].max(1)
    best = int(strongest.argmax())
    for place, block in enumerate(boxes):
        canvas.look(block, row[place : place + width], [1 / width] * width)
    canvas.words.append(
        Word(
            f"width {width} · {config.maps} filters",
            row[-1].x + 46,
            y + 5,
            "plain",
            size="small",
            anchor="start",
        )
    )
    claim = f"Filters over {width} tokens answer most at place {best + 1}."
    canvas.moments.append(
        Moment(f"width {width}", "context", [claim], [boxes[best].key], boxes[best].key)
    )
    return boxes


@torch.inference_mode()
def draw_word_vectors(model: Contextual, tokens: Sequence[str], ids: Sequence[int]) -> Diagram:
    """Each word in turn predicts its neighbours within the window, or is predicted from them, by the
    product of two vectors."""
    canvas = Canvas()
    config: Any = model.config
    is_cbow = getattr(config, "method", None) == "cbow"
    count = len(tokens)
    ids_L = torch.tensor([*ids])
    v_LD = model.static_vectors(ids_L)
    u_LD = _as_neighbours(model, ids_L).float()
    xs = [place * pitch_of(tokens) for place in range(count)]
    canvas.tokens(tokens, xs, 0, "source", [0] * count)
    loss = LOSSES_OF_WORDS[getattr(config, "method", config.kind)]
    canvas.components |= {
        "v": Component(
            "The vector of a word",
            ("v_w = E w",),
            [f"{config.width} numbers per word"],
            [type(model)],
        ),
        "u": Component(
            "The vector of a word as a neighbour",
            _first_equations(loss),
            [f"{config.width} numbers per word", f"window {config.window}"],
            [loss],
        ),
    }
    steps = [*range(count)]
    labels = [f"v_{place + 1}" for place in range(count)]
    centres = canvas.states("v", xs, -60, labels, "target", v_LD.numpy(), steps=steps)
    labels = [f"u_{place + 1}" for place in range(count)]
    neighbours = canvas.states(
        "u", xs, -60 - 2 * ROW, labels, "source", u_LD.numpy(), steps=[0] * count
    )
    canvas.tokens(tokens, xs, -60 - 2 * ROW - 46, "source", [0] * count)
    near_LL = (v_LD @ u_LD.T).sigmoid().numpy()
    near_LL = near_LL.T if is_cbow else near_LL
    for place, block in enumerate(centres):
        canvas.join((block.x, -18), block.bottom, "source", place)
        around = range(max(0, place - config.window), min(count, place + config.window + 1))
        others = [other for other in around if other != place]
        _predict(canvas, block, [neighbours[other] for other in others], near_LL[place, others])
        word = label_of(tokens[place])
        ranked = [others[n] for n in np.argsort(-near_LL[place, others])]
        candidates = [
            (label_of(tokens[other]), float(near_LL[place, other])) for other in ranked[:5]
        ]
        claim = f"“{word}” predicts its neighbours, up to {config.window} words away."
        if is_cbow:
            claim = f"“{word}” is predicted from its neighbours, up to {config.window} words away."
        canvas.moments.append(Moment(word, "target", [claim], [block.key], block.key, candidates))
    return canvas.finish(" ".join(map(label_of, tokens)))


def _as_neighbours(model: Contextual, ids_L: Tensor) -> Tensor:
    """The vectors of words as neighbours, [L, D]; in a Huffman tree, the sum of the vectors on the
    path to each word."""
    if isinstance(model, GloVe):
        return F.embedding(ids_L, model.embedding.neighbours.weight)
    output = model.output
    if not isinstance(output, HuffmanTree):
        return F.embedding(ids_L, output.weight)
    nodes_LKD = F.embedding(output.nodes_VK[ids_L], output.weight)
    return (nodes_LKD * output.signs_VK[ids_L][..., None]).sum(1)


def _predict(canvas: Canvas, centre: Block, others: Sequence[Block], weights: Any) -> None:
    """Lines from a word to its neighbours, as strong as sigmoid(u . v)."""
    for other, weight in zip(others, weights.tolist(), strict=True):
        path = upright(centre.top, other.bottom)
        line = Line(path, "context", centre.step, weight=0.6 * weight, query=centre.key)
        canvas.lines.append(line)


def _first_equations(owner: Any) -> list[str]:
    """The lines of a docstring that are equations."""
    lines = [line.strip() for line in (inspect.getdoc(owner) or "").splitlines()]
    return [line.split("   ")[0] for line in lines if looks_like_equation(line)][:2]
