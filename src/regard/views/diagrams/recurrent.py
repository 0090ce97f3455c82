"""The drawings of the recurrent encoder-decoders: two RNNs side by side, or a decoder above the
states that it attends to, unrolled over time."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from regard.layers import recurrence, scores
from regard.layers.attention import recording
from regard.models.bahdanau import Bahdanau
from regard.models.luong import Luong
from regard.models.rnn import RNN
from regard.views.attention import Attention, ModuleCall, PredictedToken, module_calls
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
from regard.views.explanation import Explanation
from regard.views.labels import percent
from regard.views.report import Numbers

ROW = 84
"""Distance between two rows of boxes."""
MAX_DRAWN_LAYERS = 3
CELL_NAMES = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}


@torch.inference_mode()
def calls_of(explanation: Explanation, *names: str) -> dict[str, list[ModuleCall]]:
    """What these modules compute for the sentence."""
    with recording(), module_calls(explanation.model, names) as calls:
        explanation.forward()
    return calls


def rows_of(tensor: Any) -> Numbers:
    """The states of the first sentence, [positions, D]."""
    numbers: Numbers = tensor[0].float().cpu().numpy()
    return numbers


@dataclass(frozen=True)
class Encoded:
    """The encoder as it was drawn."""

    top: list[Block]
    """The boxes of its last layer, from left to right."""
    y: float
    """The height of the highest row."""
    last: list[Block]
    """The boxes that hold the state after the last token, one per direction."""
    steps: list[int]


def draw_encoder(
    canvas: Canvas, explanation: Explanation, xs: Sequence[float], h_SD: Numbers
) -> Encoded:
    """Words, and a row of cells per layer and direction; the states of the last layer are theirs."""
    config: Any = explanation.model.config
    words = explanation.source.texts
    cell = CELL_NAMES[config.cell]
    backwards = getattr(config, "reverse_source", False)
    order = [*range(len(words))]
    steps = order[::-1] if backwards else order
    canvas.tokens(words, xs, 0, "source", steps)
    both = config.bidirectional
    drawn = min(config.layers, MAX_DRAWN_LAYERS)
    y = -58.0
    below: list[Block] = []
    directions = (False, True) if both else (backwards,)
    last: list[Block] = []
    for layer in range(1, drawn + 1):
        is_last = layer == drawn
        row: list[Block] = []
        for number, leftwards in enumerate(directions):
            name = f"encoder-{layer}-{number}"
            halves = h_SD.shape[1] // len(directions)
            values = h_SD[:, number * halves : (number + 1) * halves] if is_last else None
            way = "right to left" if leftwards else "left to right"
            canvas.components[name] = Component(
                f"Encoder, layer {layer} of {config.layers}: {cell}, {way}",
                equation(RNN, "h_t"),
                [f"{config.hidden} numbers per state"],
                [recurrence.RecurrentEncoder],
            )
            arrow = "←" if leftwards else "→"
            boxes = canvas.states(
                name,
                xs,
                y,
                [f"{arrow} {cell}"] * len(words),
                "source",
                values,
                steps=steps,
                width=72,
                names=[f"h_{place + 1}: {label_of(word)}" for place, word in enumerate(words)],
            )
            _chain(canvas, boxes, steps, leftwards=leftwards)
            for place, box in enumerate(boxes):
                start = (xs[place], -18.0) if not below else below[place].top
                shift = 0 if len(directions) == 1 else (-14, 14)[number]
                canvas.join(
                    (start[0] + shift, start[1]),
                    (box.x + shift, box.bottom[1]),
                    "source",
                    steps[place],
                )
            row = boxes
            last.append(boxes[0 if leftwards else -1])
            y -= ROW - 22 if both and number == 0 else ROW
        below = row
    return Encoded(below, y + ROW, last[-len(directions) :], steps)


def _chain(
    canvas: Canvas, boxes: Sequence[Block], steps: Sequence[int], *, leftwards: bool
) -> None:
    """The state goes from each cell to the next."""
    for before, after in pairwise(boxes):
        if leftwards:
            canvas.join(after.left, before.right, "source", max(steps[0], before.step))
        else:
            canvas.join(before.right, after.left, "source", after.step)


def reading_moments(
    words: Sequence[str], order: Sequence[int], row: Sequence[Block]
) -> list[Moment]:
    """One moment per token, in the order of reading."""
    moments = []
    for place in sorted(range(len(words)), key=lambda place: order[place]):
        word = label_of(words[place])
        moments.append(
            Moment(
                word,
                "source",
                [f"“{word}” is read: the new state is computed from it and from the state before."],
                block=row[place].key,
            )
        )
    return moments


def writing_moment(step: PredictedToken, block: Block, read: str = "") -> Moment:
    """The moment at which a token is written."""
    word = label_of(step.token)
    return Moment(
        word,
        "target",
        [f"“{word}” is written, with probability {step.probability:.2f}.", *filter(None, [read])],
        [block.key],
        block.key,
        [(label_of(token), p) for token, p in step.candidates],
    )


def words_written(
    canvas: Canvas, explanation: Explanation, xs: Sequence[float], y: float, first: int
) -> None:
    """The written tokens, each at its moment."""
    steps = range(first, first + len(xs))
    canvas.tokens([step.token for step in explanation.steps], xs, y, "target", steps)


# Without attention


def draw_rnn(explanation: Explanation) -> Diagram:
    """One RNN below the other, and the vector c between them: all that the upper one knows."""
    canvas = Canvas()
    config: Any = explanation.model.config
    words, steps = explanation.source.texts, explanation.steps
    calls = calls_of(explanation, "encoder", "V")
    h_SD = rows_of(calls["encoder"][0].output[0])
    s_TD = rows_of(calls["V"][0].inputs[0])
    c_D = calls["encoder"][0].output[1][0][-1][0].float().cpu().numpy()
    xs, own = _two_rows(explanation)
    encoded = draw_encoder(canvas, explanation, xs, h_SD)
    first = len(words) + 1
    canvas.components["c"] = Component(
        "The vector c",
        equation(RNN, "h_t"),
        [f"{len(c_D)} numbers, however long the sentence is"],
        [RNN.encode, recurrence.Bridge],
    )
    y = encoded.y - ROW - 14
    [c] = canvas.states("c", [0.0], y, ["c"], "context", c_D[None], steps=[first - 1], width=96)
    for block in encoded.last:
        canvas.lines.append(Line(upright(block.top, c.bottom), "context", first - 1))
    note = f"the whole sentence in {len(c_D)} numbers"
    canvas.words.append(Word(note, c.right[0] + 12, y + 5, "context", first - 1, "small", "start"))
    read = ["<s>", *(label_of(step.token) for step in steps[:-1])]
    moments = range(first, first + len(steps))
    y -= ROW - 8
    inputs_y = y
    for word, x, step in zip(read, own, moments, strict=True):
        canvas.words.append(Word(word, x, y, "target", step, "small"))
    below: list[Block] = []
    drawn = min(config.layers, MAX_DRAWN_LAYERS)
    y -= 58
    for layer in range(1, drawn + 1):
        name = f"decoder-{layer}"
        canvas.components[name] = Component(
            f"Decoder, layer {layer} of {config.layers}: {CELL_NAMES[config.cell]}",
            equation(RNN, "s_t", "p(y_t"),
            [f"{config.hidden} numbers per state"],
            [RNN.decode],
        )
        labels = [f"s_{place + 1}" for place in range(len(steps))]
        values = s_TD if layer == drawn else None
        row = canvas.states(name, own, y, labels, "target", values, steps=moments, width=72)
        for place, block in enumerate(row):
            start = below[place].top if below else (own[place], inputs_y - 14)
            canvas.join(start, block.bottom, "target", block.step)
            if place:
                canvas.join(row[place - 1].right, block.left, "target", block.step)
        _reach_from(canvas, c, row[0], first)
        if config.context == "every_step" and layer == 1:
            for block in row[1:]:
                end = (block.x - 22, block.bottom[1])
                canvas.lines.append(Line(upright(c.top, end), "context", block.step, dashed=True))
        below = row
        y -= ROW
    _finish_writing(canvas, explanation, below, own, y + ROW, first)
    canvas.moments += reading_moments(words, encoded.steps, encoded.top)
    count = len(c_D)
    claim = f"The last state is the vector c: {count} numbers are all that the decoder knows of the sentence."
    canvas.moments.append(Moment("c", "context", [claim], block=c.key))
    canvas.moments += [writing_moment(*pair) for pair in zip(steps, below, strict=True)]
    return canvas.finish(explanation.title)


def _reach_from(canvas: Canvas, c: Block, state: Block, step: int) -> None:
    """A curve from the vector c to the left side of the first state of the decoder."""
    (x1, y1), (x2, y2) = c.left, state.left
    bend = x2 - 30
    path = f"M{x1:.0f} {y1:.0f}C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    canvas.lines.append(Line(path, "context", step))


# With attention


def draw_bahdanau(explanation: Explanation) -> Diagram:
    """The context c_i is read before the step, by the state before: c_i, then s_i, then y_i."""
    config: Any = explanation.model.config
    width = config.hidden
    embedding = config.embedding
    calls = calls_of(explanation, "encoder", "UVC_o", "bridge")
    h_SD = rows_of(calls["encoder"][0].output[0])
    read_TD = rows_of(calls["UVC_o"][0].inputs[0])
    s_TD, c_TD = read_TD[:, :width], read_TD[:, width + embedding :]
    s_0 = calls["bridge"][0].output[0].float().cpu().numpy()[:1]
    canvas = Canvas()
    encoded, annotations, own, first = _attended(canvas, explanation, h_SD)
    attention = explanation.of_kind("alignment")[0]
    score = explanation.model.get_submodule("attention")
    parts = {
        "c": Component(
            "The context: what was read",
            (
                score_line(score),
                *equation(scores.ScoredAttention, "alpha_ij"),
                *equation(Bahdanau, "c_i"),
            ),
            [f"{c_TD.shape[1]} numbers"],
            [type(score), scores.ScoredAttention.weights, scores.ScoredAttention.forward],
        ),
        "s": Component(
            f"The decoder: {CELL_NAMES[config.cell]}",
            equation(Bahdanau, "s_i", "t_i", "p(y_i"),
            [f"{width} numbers per state"],
            [Bahdanau.recur, Bahdanau.deep_output],
        ),
        "s0": Component(
            "The first state of the decoder",
            ("s_0 = tanh(W_s h_last)",),
            [f"{width} numbers"],
            [recurrence.Bridge],
        ),
    }
    canvas.components |= parts
    moments = range(first, first + len(own))
    y = annotations[0].y - ROW - 6
    names = [f"c_{place + 1}" for place in range(len(own))]
    contexts = canvas.states("c", own, y, names, "context", c_TD, steps=moments, width=72)
    y -= ROW
    names = [f"s_{place + 1}" for place in range(len(own))]
    states = canvas.states("s", own, y, names, "target", s_TD, steps=moments, width=72)
    [start] = canvas.states(
        "s0", [own[0] - 128], y, ["s_0"], "target", s_0, steps=[first - 1], width=72
    )
    note = f"begins with {_last_states(encoded)}"
    canvas.words.append(Word(note, start.x, start.top[1] - 12, "target", first - 1, "small"))
    before = start
    for place, (context, state) in enumerate(zip(contexts, states, strict=True)):
        canvas.join(before.right, state.left, "target", state.step)
        canvas.join(before.bottom, context.left, "target", state.step, dashed=True)
        canvas.join(context.top, state.bottom, "context", state.step)
        canvas.look(context, annotations, attention.weights[0][place].tolist())
        before = state
    _finish_writing(canvas, explanation, states, own, y, first)
    _attended_moments(canvas, explanation, encoded, annotations, contexts, attention)
    return canvas.finish(explanation.title)


def draw_luong(explanation: Explanation) -> Diagram:
    """The context c_t is read after the step, by the new state: h_t, then c_t, then h~_t."""
    config: Any = explanation.model.config
    calls = calls_of(explanation, "encoder", "W_c")
    h_SD = rows_of(calls["encoder"][0].output[0])
    read_TD = np.concatenate([_flat(call.inputs[0]) for call in calls["W_c"]])
    tilde_TD = np.tanh(np.concatenate([_flat(call.output) for call in calls["W_c"]]))
    width = h_SD.shape[1]
    canvas = Canvas()
    encoded, annotations, own, first = _attended(canvas, explanation, h_SD, room=150)
    attention = explanation.of_kind("alignment")[0]
    score = explanation.model.get_submodule("attention")
    canvas.components |= {
        "c": Component(
            "The context: what was read",
            (score_line(score), *equation(Luong, "c_t")),
            [f"{width} numbers"],
            [type(score), scores.ScoredAttention.weights, scores.ScoredAttention.forward],
        ),
        "h": Component(
            f"The decoder: {CELL_NAMES[config.cell]}, {config.layers} layers",
            equation(Luong, "h_t "),
            [f"{config.hidden} numbers per state"],
            [Luong.feed if config.input_feeding else Luong.decode],
        ),
        "tilde": Component(
            "The attentional state",
            equation(Luong, "h~_t", "p(y_t"),
            [f"{tilde_TD.shape[1]} numbers"],
            [Luong.attentional],
        ),
    }
    moments = range(first, first + len(own))
    y = annotations[0].y - ROW - 6
    numbers = range(1, len(own) + 1)
    contexts = canvas.states(
        "c",
        [x + 36 for x in own],
        y,
        [f"c_{n}" for n in numbers],
        "context",
        read_TD[:, :width],
        steps=moments,
        width=66,
    )
    y -= ROW - 10
    states = canvas.states(
        "h",
        [x - 30 for x in own],
        y,
        [f"h_{n}" for n in numbers],
        "target",
        read_TD[:, width:],
        steps=moments,
        width=66,
    )
    y -= ROW
    tildes = canvas.states(
        "tilde", own, y, [f"h̃_{n}" for n in numbers], "target", tilde_TD, steps=moments, width=72
    )
    note = f"begins with {_last_states(encoded)}"
    x, middle = states[0].left
    canvas.words.append(Word(note, x - 34, middle - 14, "target", first, "small", "end"))
    canvas.join((x - 64, middle), states[0].left, "target", first, dashed=True)
    for place, (context, state, tilde) in enumerate(zip(contexts, states, tildes, strict=True)):
        if place:
            canvas.join(states[place - 1].right, state.left, "target", state.step)
            if config.input_feeding:
                canvas.join(tildes[place - 1].right, state.top, "target", state.step, dashed=True)
        canvas.join(state.bottom, context.left, "target", state.step, dashed=True)
        canvas.join(state.top, (tilde.x - 18, tilde.bottom[1]), "target", state.step)
        canvas.join(context.top, (tilde.x + 24, tilde.bottom[1]), "context", state.step)
        canvas.look(context, annotations, attention.weights[0][place].tolist())
    _finish_writing(canvas, explanation, tildes, own, y, first)
    _attended_moments(canvas, explanation, encoded, annotations, contexts, attention)
    return canvas.finish(explanation.title)


def _last_states(encoded: Encoded) -> str:
    """The names of the states from which the decoder begins."""
    return ", ".join(_first_or_last(encoded, block) for block in encoded.last)


def _first_or_last(encoded: Encoded, block: Block) -> str:
    """The arrow of a direction and the state at its end, from which the decoder begins."""
    place = 1 if block.x < encoded.top[-1].x else len(encoded.top)
    return f"{block.label[0]} h{place}"


def _flat(tensor: Any) -> Numbers:
    numbers: Numbers = tensor.reshape(-1, tensor.shape[-1]).float().cpu().numpy()
    return numbers


def score_line(attention: Any) -> str:
    """The equation of an attention's score; the docstring of the dot product has two, the second
    scaled."""
    lines = [line.strip() for line in (inspect.getdoc(type(attention)) or "").splitlines()]
    line = next(line for line in lines if line.startswith(("e_ij =", "score(")))
    equations = re.split(r"\s{3,}", line)
    return equations[1 if getattr(attention, "scaled", False) else 0]


def _attended(
    canvas: Canvas, explanation: Explanation, h_SD: Numbers, room: float = 0
) -> tuple[Encoded, list[Block], list[float], int]:
    """The encoder with a row of annotations above it, and the columns of the decoder."""
    words = explanation.source.texts
    xs, own = _two_rows(explanation, room)
    encoded = draw_encoder(canvas, explanation, xs, h_SD)
    y = encoded.y - ROW + 6
    canvas.components["annotations"] = Component(
        "The annotations: the states of the encoder",
        equation(recurrence.RecurrentEncoder, "h_j"),
        [f"{len(words)} states of {h_SD.shape[1]} numbers"],
        [recurrence.RecurrentEncoder],
    )
    config: Any = explanation.model.config
    seen = [*encoded.steps]
    if config.bidirectional:
        seen = [len(words) - 1] * len(words)
    names = [f"h_{place + 1}" for place in range(len(words))]
    full = [f"h_{place + 1}: {label_of(word)}" for place, word in enumerate(words)]
    annotations = canvas.states(
        "annotations", xs, y, names, "source", h_SD, steps=seen, width=72, names=full
    )
    for place, block in enumerate(annotations):
        canvas.join(encoded.top[place].top, block.bottom, "source", block.step)
    return encoded, annotations, own, len(words)


def _two_rows(explanation: Explanation, room: float = 0) -> tuple[list[float], list[float]]:
    """The columns of the words that are read, and of those that are written above them: both about
    as wide."""
    words = explanation.source.texts
    written = [step.token for step in explanation.steps]
    own_pitch = max(pitch_of(written), room)
    pitch = pitch_of(words)
    widest = max(pitch * (len(words) - 1), own_pitch * (len(written) - 1))
    pitch = min(1.6 * pitch, widest / max(1, len(words) - 1))
    own_pitch = min(1.6 * own_pitch, widest / max(1, len(written) - 1))
    return _centred(len(words), pitch), _centred(len(written), own_pitch)


def _centred(count: int, pitch: float) -> list[float]:
    return [(place - (count - 1) / 2) * pitch for place in range(count)]


def _finish_writing(
    canvas: Canvas,
    explanation: Explanation,
    last: Sequence[Block],
    own: Sequence[float],
    y: float,
    first: int,
) -> None:
    """The written words above the last row, each of which enters the next step."""
    y -= 62
    words_written(canvas, explanation, own, y, first)
    for place, block in enumerate(last):
        canvas.join(block.top, (own[place], y + 16), "target", block.step)


def _attended_moments(
    canvas: Canvas,
    explanation: Explanation,
    encoded: Encoded,
    annotations: Sequence[Block],
    contexts: Sequence[Block],
    attention: Attention,
) -> None:
    words = explanation.source.texts
    canvas.moments += reading_moments(words, encoded.steps, encoded.top)
    for place, (step, context) in enumerate(zip(explanation.steps, contexts, strict=True)):
        canvas.moments.append(
            writing_moment(step, context, read_most(attention.weights.mean(0)[place], words))
        )


def read_most(weights: Numbers, words: Sequence[str]) -> str:
    """The end of a claim: which word was read most."""
    most = int(np.argmax(weights))
    return f"{percent(float(weights[most]))} of what it reads is “{label_of(words[most])}”."
