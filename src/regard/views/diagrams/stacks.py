"""The drawings of models whose positions are states on top of each other: the Transformer, its
encoder alone (BERT), its decoder alone (GPT), LSTM language models, ELMo and BiLSTM."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from regard.layers import attention as dot_products
from regard.layers.attention import add_sublayer
from regard.layers.recurrence import LSTMLayer
from regard.models import elmo, headed, transformer
from regard.models.text_classifiers import BiLSTM
from regard.views.attention import Attention
from regard.views.diagrams.diagram import (
    BOX_HEIGHT,
    Block,
    Canvas,
    Component,
    Diagram,
    Frame,
    Line,
    Moment,
    Role,
    Word,
    columns_of,
    equation,
    label_of,
    pitch_of,
)
from regard.views.diagrams.recurrent import calls_of, read_most, rows_of, writing_moment
from regard.views.explanation import Explanation
from regard.views.labels import percent, shorten
from regard.views.mathml import formula_and_remark
from regard.views.report import Numbers

ROW = 86
"""Distance between two layers."""
ENDS_SHOWN = 2
"""Layers that are drawn at each end of a deep stack."""
ANATOMY_WIDTH = 168
ANATOMY_ROW = 50
MAX_ANSWERS = 6
NO_ANSWER = "(no answer)"


def shown_layers(count: int) -> list[int]:
    """The layers that are drawn, from 1: all, or the first and the last."""
    if count <= 2 * ENDS_SHOWN + 1:
        return [*range(1, count + 1)]
    return [*range(1, ENDS_SHOWN + 1), *range(count - ENDS_SHOWN + 1, count + 1)]


@dataclass
class Stack:
    """Rows of states above the tokens that they belong to."""

    rows: dict[int, list[Block]] = field(default_factory=dict)
    """Layer -> its states; layer 0 are the embeddings."""
    xs: Sequence[float] = ()
    top: float = 0.0
    """The height of the last row."""
    gap: float | None = None
    """The height of the layers that are left out."""

    @property
    def last(self) -> list[Block]:
        return self.rows[max(self.rows)]


@dataclass(frozen=True)
class Layers:
    """What a stack is drawn from."""

    name: str
    """The beginning of the keys of its boxes: `encoder`."""
    tokens: Sequence[str]
    states: Sequence[Numbers]
    """[positions, D] of each layer, the embeddings first."""
    role: Role
    steps: Sequence[Sequence[int]]
    """For each layer, the moment at which each position is filled."""
    attentions: Sequence[Attention] = ()
    """The self-attention of each layer; none if it is recurrent."""
    backwards: bool = False
    """Whether a recurrent layer reads from right to left."""
    one_word_vector: bool = False
    """Whether layer 0 has each word vector twice, as ELMo's has."""


def draw_stack(canvas: Canvas, layers: Layers, xs: Sequence[float], y: float) -> Stack:
    """Embeddings, then a row per layer, with the lines of attention or of recurrence."""
    stack = Stack(xs=xs)
    count = len(layers.states) - 1
    shown = [0, *shown_layers(count)]
    before = 0
    for number in shown:
        if number - before > 1:
            canvas.words.append(
                Word(
                    f"⋮ {number - before - 1} more layers",
                    xs[-1] + 46,
                    y + 26,
                    "plain",
                    0,
                    "small",
                    "start",
                )
            )
            stack.gap = y + 22
            y -= 46
        steps = layers.steps[number]
        labels = [
            f"{'x' if number == 0 else 'h'}_{place + 1}" for place in range(len(layers.tokens))
        ]
        row = canvas.states(
            f"{layers.name}-{number}",
            xs,
            y,
            labels,
            layers.role,
            layers.states[number],
            steps=steps,
            names=[
                f"{label}: {label_of(token)}"
                for label, token in zip(labels, layers.tokens, strict=True)
            ],
        )
        if number and layers.attentions:
            attention = layers.attentions[number - 1]
            weights_QK = attention.weights.mean(0)
            for place, block in enumerate(row):
                canvas.look(block, stack.rows[before], weights_QK[place].tolist())
        if number:
            below = stack.rows[before]
            for low, high in zip(below, row, strict=True):
                canvas.join(low.top, high.bottom, "plain", high.step, arrow=False)
            if not layers.attentions:
                _chain(canvas, row, layers)
        if number:
            label = f"layer {number}"
            if layers.attentions:
                label = f"layer {number} · {len(layers.attentions[0].weights)} heads"
            x = xs[-1] + 46
            canvas.words.append(Word(label, x, y + 5, "plain", size="small", anchor="start"))
        stack.rows[number] = row
        stack.top = y
        before = number
        y -= ROW
    return stack


def _chain(canvas: Canvas, row: Sequence[Block], layers: Layers) -> None:
    for left, right in pairwise(row):
        if layers.backwards:
            canvas.join(right.left, left.right, layers.role, left.step)
        else:
            canvas.join(left.right, right.left, layers.role, right.step)


# One block taken apart


@dataclass(frozen=True)
class Sublayer:
    """A part of a block: the box beside the stack, from the input upwards."""

    key: str
    label: str
    component: Component
    role: Role = "plain"
    skipped: int = 0
    """How many boxes, this one and those below it, the residual connection leads around."""


def draw_anatomy(
    canvas: Canvas, x: float, y: float, parts: Sequence[Sublayer], role: Role, title: str
) -> None:
    """The parts of one block in their order, from the bottom to the top, with the residual
    connections around them."""
    start = y
    before: Block | None = None
    for part in parts:
        canvas.components[part.key] = part.component
        block = canvas.block(
            Block(part.key, part.label, part.role, x, y, ANATOMY_WIDTH - 36, 34, part.key)
        )
        if before is not None:
            canvas.join(before.top, block.bottom, role)
        if part.skipped:
            left = block.x - block.width / 2 - 20
            low, high = y + 24 + (part.skipped - 1) * ANATOMY_ROW, y - 24
            path = (
                f"M{x:.0f} {low:.0f}L{left:.0f} {low:.0f}L{left:.0f} {high:.0f}L{x:.0f} {high:.0f}"
            )
            canvas.lines.append(Line(path, "plain", dashed=True, arrow=False))
        before = block
        y -= ANATOMY_ROW
    top = y + ANATOMY_ROW / 2 - 10
    height = start + 34 - top
    canvas.frames.append(Frame(x - ANATOMY_WIDTH / 2 - 8, top, ANATOMY_WIDTH + 16, height, title))


def sublayers_of(block: Any, prefix: str, config: Any) -> list[Sublayer]:
    """The parts of a block of a Transformer, in the order in which they are computed, by its
    modules: attention, feed-forward and norms."""
    width = config.width
    norm = getattr(config, "norm", "post")
    residual = getattr(config, "residual", True)
    parts: list[Sublayer] = []
    for name, module in _parts_of(block):
        parts += _around(_sublayer(name, module, prefix, config), norm, residual, width, prefix)
    return parts


SUBLAYER_NAMES = {
    "feed_forward": "FeedForward({})",
    "cross_attention": "Attention({}, memory)",
}
"""A part of a block in an equation, by the name of its module; every other is self-attention."""


def block_equations(block: Any, config: Any) -> tuple[str, ...]:
    """What a block of a Transformer computes of its input x, a line for each part."""
    norm = getattr(config, "norm", "post")
    residual = getattr(config, "residual", True)
    names = [name for name, _ in _parts_of(block)]
    lines = []
    before = "x"
    for name, after in zip(names, [*"abc"[: len(names) - 1], "y"], strict=True):
        read = f"LayerNorm({before})" if norm == "pre" else before
        line = SUBLAYER_NAMES.get(name, "SelfAttention({})").format(read)
        if residual:
            line = f"{before} + {line}"
        lines.append(f"{after} = LayerNorm({line})" if norm == "post" else f"{after} = {line}")
        before = after
    return tuple(lines)


def _parts_of(block: Any) -> list[tuple[str, Any]]:
    """The attentions and the feed-forward layer of a block, by the names of their modules."""
    return [
        (name, module)
        for name, module in block.named_children()
        if name == "feed_forward" or (name.endswith("_attention") and not name.startswith("around"))
    ]


def _sublayer(name: str, module: Any, prefix: str, config: Any) -> Sublayer:
    width = config.width
    if name == "feed_forward":
        inner = config.feed_forward
        component = Component(
            "Feed-forward layer",
            _first_lines(type(module)),
            [f"{width} -> {inner} -> {width}"],
            [type(module)],
        )
        return Sublayer(f"{prefix}-{name}", "Feed-forward", component)
    heads = getattr(module, "heads", 1)
    equations = (
        equation(dot_products.MultiHeadAttention, "head_i", "MultiHead(")
        if heads > 1
        else _first_lines(type(module))
    )
    crosses = name == "cross_attention"
    component = Component(
        "Attention over the source" if crosses else "Self-attention",
        (*_score_line(), *equations),
        [f"{heads} heads of {width // heads} numbers"],
        [type(module), dot_products.attend_as_written],
    )
    label = "Attention to source" if crosses else "Self-attention"
    return Sublayer(f"{prefix}-{name}", label, component, "context")


def _score_line() -> tuple[str, ...]:
    return equation(dot_products.attend_as_written, "Attention(Q, K, V)")


def _first_lines(owner: Any) -> tuple[str, ...]:
    """The first equation of a docstring: of a head that of its logits, also within a sentence."""
    for line in (inspect.getdoc(owner) or "").splitlines():
        found = re.search(
            r"(?:logits =.*?(?=, \[|\s{3,}|$))|^\s*\S+(?: \S+){0,3} = .*|^softmax\(.*", line
        )
        if found:
            return (formula_and_remark(found[0].partition(", or ")[0])[0],)
    return ()


def _logits_of(head: type) -> tuple[str, ...]:
    """The equation of a head's logits, else its first."""
    lines = [line.strip() for line in (inspect.getdoc(head) or "").splitlines()]
    found = [line for line in lines if line.startswith("logits =")]
    return (formula_and_remark(found[0])[0],) if found else _first_lines(head)


def _around(part: Sublayer, norm: str, residual: bool, width: int, prefix: str) -> list[Sublayer]:
    """A sub-layer with its norm: after it, before it, or nowhere."""
    skipped = 0 if not residual else 2 if norm == "pre" else 1
    marked = Sublayer(part.key, part.label, part.component, part.role, skipped)
    if norm == "none":
        return [marked]
    text = "Add & norm" if residual and norm == "post" else "LayerNorm"
    line = {
        "post": "LayerNorm(x + Dropout(Sublayer(x)))",
        "pre": "x + Dropout(Sublayer(LayerNorm(x)))",
    }[norm]
    component = Component(
        "Residual connection and LayerNorm" if residual else "LayerNorm",
        [f"y = {line}" if residual else f"y = {line.replace('x + ', '')}"],
        [f"{width} numbers per position"],
        [add_sublayer],
    )
    box = Sublayer(f"{part.key}-norm", text, component)
    return [marked, box] if norm == "post" else [box, marked]


# The Transformer


@torch.inference_mode()
def draw_transformer(explanation: Explanation) -> Diagram:
    """The encoder below, the decoder above it; attention to the source goes from one to the
    other."""
    model: Any = explanation.model
    config: Any = model.config
    canvas = Canvas()
    words = explanation.source.texts
    steps = explanation.steps
    encoder = _states(explanation, "encoder", config.encoder_layers)
    xs = columns_of(words)
    canvas.tokens(words, xs, 0, "source", [0] * len(words))
    _components(canvas, "encoder", config, model.encoder)
    layers = Layers(
        "encoder",
        words,
        encoder,
        "source",
        [[number] * len(words) for number in range(len(encoder))],
        explanation.of_kind("encoder"),
    )
    stack = draw_stack(canvas, layers, xs, -56)
    for x, block in zip(xs, stack.rows[0], strict=True):
        canvas.join((x, -18), block.bottom, "source", 0)
    first = len(encoder)
    own = columns_of([step.token for step in steps])
    own = [x + (xs[-1] - own[-1]) / 2 for x in own]
    top = draw_decoder_of(canvas, explanation, own, stack.top - 78, first)
    memory = stack.last
    crosses = explanation.of_kind("alignment")
    for number in top.rows:
        if number:
            for place, block in enumerate(top.rows[number]):
                canvas.look(block, memory, crosses[number - 1].weights.mean(0)[place].tolist())
    left = min(xs[0], own[0]) - ANATOMY_WIDTH / 2 - 92
    draw_anatomy(
        canvas,
        left,
        -30,
        sublayers_of(model.encoder[0], "in-encoder", config),
        "source",
        f"encoder block × {config.encoder_layers}",
    )
    draw_anatomy(
        canvas,
        left,
        stack.top - 96,
        sublayers_of(model.decoder[0], "in-decoder", config),
        "target",
        f"decoder block × {config.decoder_layers}",
    )
    canvas.moments.append(
        Moment(
            "tokens",
            "source",
            [f"Each token becomes {config.width} numbers: its embedding and its position."],
            block=stack.rows[0][0].key,
        )
    )
    canvas.moments += layer_moments(stack, layers, config.encoder_layers)
    for place, step in enumerate(steps):
        block = top.last[place]
        read = read_most(crosses[-1].weights.mean(0)[place], words)
        canvas.moments.append(writing_moment(step, block, read))
    return canvas.finish(explanation.title)


def draw_decoder_of(
    canvas: Canvas, explanation: Explanation, own: Sequence[float], y: float, first: int
) -> Stack:
    """The rows of a Transformer's decoder, the words that it reads below and those that it writes
    above; the first of them is written at the moment `first`."""
    model: Any = explanation.model
    config = model.config
    steps = explanation.steps
    states = _states(explanation, "decoder", len(model.decoder))
    moments = [first + place for place in range(len(steps))]
    read = ["<s>", *(step.token for step in steps[:-1])]
    for word, x, moment in zip(read, own, moments, strict=True):
        canvas.words.append(Word(label_of(word), x, y, "target", moment, "small"))
    count = len(model.decoder)
    _components(canvas, "decoder", config, model.decoder)
    layers = Layers(
        "decoder",
        read,
        [rows[: len(steps)] for rows in states],
        "target",
        [moments] * (count + 1),
        explanation.of_kind("decoder"),
    )
    stack = draw_stack(canvas, layers, own, y - 46)
    for x, block in zip(own, stack.rows[0], strict=True):
        canvas.join((x, y - 12), block.bottom, "target", block.step)
    y = stack.top - 58
    for place, block in enumerate(stack.last):
        canvas.join(block.top, (own[place], y + 16), "target", block.step)
    canvas.tokens([step.token for step in steps], own, y, "target", moments)
    return stack


def _components(canvas: Canvas, name: str, config: Any, blocks: Sequence[Any]) -> None:
    """What the rows of a Transformer's stack are."""
    encodes = name == "encoder"
    canvas.components[f"{name}-0"] = Component(
        "Encoder: the embeddings" if encodes else "Decoder: the embeddings",
        equation(transformer.Transformer, "embed(x)"),
        [f"{config.width} numbers per token"],
        [transformer.TransformerDecoder.embed_target],
    )
    for number, block in enumerate(blocks, 1):
        encoder = f"Encoder, layer {number} of {len(blocks)}"
        decoder = f"Decoder, layer {number} of {len(blocks)}"
        canvas.components[f"{name}-{number}"] = Component(
            encoder if encodes else decoder,
            block_equations(block, config),
            [
                f"{config.heads} heads of {config.width // config.heads} numbers",
                f"feed-forward {config.feed_forward}",
            ],
            [type(block)],
        )


def _states(explanation: Explanation, name: str, count: int) -> list[Numbers]:
    """The input of the first block, and the output of each."""
    calls = calls_of(explanation, *(f"{name}.{number}" for number in range(count)))
    first = rows_of(calls[f"{name}.0"][0].inputs[0])
    return [first, *(rows_of(calls[f"{name}.{n}"][0].output) for n in range(count))]


def layer_moments(stack: Stack, layers: Layers, count: int) -> list[Moment]:
    """One moment per layer: all positions are computed at once."""
    moments = []
    for number in range(1, count + 1):
        row = stack.rows.get(number)
        below = stack.rows[max(drawn for drawn in stack.rows if drawn <= number)]
        moments.append(
            Moment(
                f"layer {number}",
                layers.role,
                [f"Layer {number} of {count}: every token reads all the others, at the same time."],
                [block.key for block in row] if row else (),
                below[0].key,
            )
        )
    return moments


# Models of one text


def text_pieces(explanation: Explanation) -> Sequence[str]:
    return explanation.source.texts or explanation.inputs.texts


@torch.inference_mode()
def draw_text_model(explanation: Explanation) -> Diagram:
    """BERT and its relatives, GPT, the LSTM and ELMo: the layers above a text, then what the run
    predicts from the last one."""
    model: Any = explanation.model
    base = getattr(model, "base", model)
    config: Any = base.config
    tokens = text_pieces(explanation)
    states = [rows_of(layer) for layer in base.layers_of(explanation.batch)]
    canvas = Canvas()
    attentions = [*explanation.attentions.values()]
    pitch = pitch_of(tokens)
    xs = columns_of(tokens) if attentions else [place * pitch for place in range(len(tokens))]
    by_token = config.causal or not attentions
    steps = _steps_of(len(tokens), len(states), by_token=by_token)
    canvas.tokens(tokens, xs, 0, "source", steps[0])
    _text_components(canvas, base, config, len(states) - 1)
    twice = isinstance(base, elmo.ELMo)
    layers = Layers("text", tokens, states, "source", steps, attentions, one_word_vector=twice)
    draw = _draw_both_directions if isinstance(base, elmo.ELMo | BiLSTM) else draw_stack
    stack = draw(canvas, layers, xs, -56)
    for x, block in zip(xs, stack.rows[0], strict=True):
        canvas.join((x, -18), block.bottom, "source", block.step)
    if attentions:
        block = next(module for name, module in base.named_modules() if name.endswith("blocks.0"))
        left = xs[0] - ANATOMY_WIDTH / 2 - 92
        parts = sublayers_of(block, "in-block", config)
        draw_anatomy(canvas, left, -30, parts, "source", f"block × {len(states) - 1}")
    last = max(max(row) for row in steps)
    if by_token:
        canvas.moments += token_moments(explanation, tokens, stack)
    else:
        canvas.moments += _whole_moments(config, stack, layers)
    draw_answers(canvas, explanation, stack, last)
    return canvas.finish(shorten(explanation.title, 160))


def _steps_of(tokens: int, layers: int, *, by_token: bool) -> list[list[int]]:
    if by_token:
        return [[*range(tokens)]] * layers
    return [[number] * tokens for number in range(layers)]


def _text_components(canvas: Canvas, base: Any, config: Any, count: int) -> None:
    """What the rows of a model of one text are."""
    width = getattr(config, "width", None) or getattr(config, "hidden", 0)
    embedding = getattr(base, "embedding", base)
    owner = type(base)
    canvas.components["text-0"] = Component(
        "The embeddings",
        _lines_of(type(embedding), owner, "x =", "h_0"),
        [f"{_embedding_width(config)} numbers per token"],
        [type(embedding)],
    )
    for number in range(1, count + 1):
        facts = [f"{width} numbers per position"]
        if hasattr(config, "heads"):
            facts = [
                f"{config.heads} heads of {width // config.heads} numbers",
                f"feed-forward {config.feed_forward}",
            ]
        blocks = getattr(base, "blocks", None)
        functions = [type(blocks[number - 1])] if blocks is not None else [owner]
        lines = _lines_of(owner, owner, "h_l", "h_t")
        if blocks is not None and len(_parts_of(blocks[number - 1])) > 1:
            lines = block_equations(blocks[number - 1], config)
        canvas.components[f"text-{number}"] = Component(
            f"Layer {number} of {count}", lines, facts, functions
        )


def _lines_of(first: Any, second: Any, *beginnings: str) -> tuple[str, ...]:
    """The first equation that either docstring has."""
    for owner in (first, second):
        for beginning in beginnings:
            try:
                return equation(owner, beginning)
            except (StopIteration, AttributeError):
                continue
    return ()


def _embedding_width(config: Any) -> int:
    names = ("embedding_width", "embedding", "width")
    return next(int(width) for name in names if (width := getattr(config, name, None)))


def _draw_both_directions(canvas: Canvas, layers: Layers, xs: Sequence[float], y: float) -> Stack:
    """A row for each direction of each layer of ELMo or a BiLSTM, whose states are two halves."""
    stack = Stack(xs=xs)
    labels = [f"x_{place + 1}" for place in range(len(xs))]
    states = layers.states
    embedded = states[0][:, : states[0].shape[1] // 2] if layers.one_word_vector else states[0]
    stack.rows[0] = canvas.states(
        "text-0", xs, y, labels, "source", embedded, steps=layers.steps[0]
    )
    below = [stack.rows[0], stack.rows[0]]
    count = len(xs)
    for number in range(1, len(states)):
        half = states[number].shape[1] // 2
        y -= ROW
        for direction, arrow in enumerate("→←"):
            key = f"text-{number}-{direction}"
            way = ("left to right", "right to left")[direction]
            canvas.components[key] = Component(
                f"Layer {number} of {len(states) - 1}, {way}",
                equation(LSTMLayer, "c_t", "h_t"),
                [f"{half} numbers per position"],
                [LSTMLayer if layers.one_word_vector else BiLSTM],
            )
            steps = [*range(count)] if direction == 0 else [count - 1] * count
            values = states[number][:, direction * half : (direction + 1) * half]
            row = canvas.states(
                key,
                xs,
                y,
                [f"{arrow} h_{place + 1}".replace(" ", "") for place in range(count)],
                "source",
                values,
                steps=steps,
            )
            _chain(canvas, row, Layers("", (), (), "source", (), backwards=direction == 1))
            shift = (-12, 12)[direction]
            for low, high in zip(below[direction], row, strict=True):
                canvas.join(
                    (low.x + shift, low.top[1]),
                    (high.x + shift, high.bottom[1]),
                    "source",
                    high.step,
                    arrow=False,
                )
            below[direction] = row
            y -= 64 if direction == 0 else 0
        stack.rows[number] = below[1]
        stack.top = y
    return stack


def token_moments(explanation: Explanation, tokens: Sequence[str], stack: Stack) -> list[Moment]:
    """One moment per token; a language model predicts the next one at each."""
    moments = []
    followed = explanation.steps if len(explanation.steps) == len(tokens) else ()
    for place, token in enumerate(tokens):
        word = label_of(token)
        claim = f"“{word}” is read: its state is computed from it and from what stands before it."
        candidates: Sequence[tuple[str, float]] = ()
        if followed:
            step = followed[place]
            best, p = step.candidates[0]
            claim = f"After “{word}” the likeliest token is “{label_of(best)}”, with probability {p:.2f}."
            candidates = [(label_of(one), q) for one, q in step.candidates]
        looks = [row[place].key for number, row in stack.rows.items() if number]
        moments.append(Moment(word, "source", [claim], looks, stack.last[place].key, candidates))
    return moments


def _whole_moments(config: Any, stack: Stack, layers: Layers) -> list[Moment]:
    count = len(layers.states) - 1
    claim = f"Each token becomes {config.width} numbers: its embedding and its position."
    begin = Moment("tokens", "source", [claim], block=stack.rows[0][0].key)
    return [begin, *layer_moments(stack, layers, count)]


# What is predicted


def draw_answers(canvas: Canvas, explanation: Explanation, stack: Stack, last: int) -> None:
    """The likeliest next tokens, the filled gaps, or the head of a task."""
    y = stack.top - 62
    tokens = text_pieces(explanation)
    steps = explanation.steps
    if hasattr(explanation.model, "head"):
        return _draw_head(canvas, explanation, stack, last)
    if len(steps) == len(tokens):
        for block, step in zip(stack.last, steps, strict=True):
            canvas.join(block.top, (block.x, y + 16), "target", block.step)
            canvas.words.append(
                Word(label_of(step.candidates[0][0]), block.x, y, "target", block.step)
            )
        return None
    places = [place for place, token in enumerate(tokens) if token == "[MASK]"]
    if not steps or len(places) != len(steps):
        return None
    looks = list[str]()
    for place, step in zip(places, steps, strict=True):
        block = stack.last[place]
        looks.append(block.key)
        canvas.join(block.top, (block.x, y + 16), "target", last + 1)
        canvas.words.append(Word(label_of(step.token), block.x, y, "target", last + 1))
        word = label_of(step.token)
        claim = f"“{word}” fills the gap, with probability {step.probability:.2f}."
        candidates = [(label_of(one), p) for one, p in step.candidates]
        canvas.moments.append(Moment(word, "target", [claim], [block.key], block.key, candidates))
    return None


def _draw_head(canvas: Canvas, explanation: Explanation, stack: Stack, last: int) -> None:
    """The head of a task above the states that it reads."""
    model: Any = explanation.model
    head = model.head
    pooling = getattr(head, "pooling", None)
    middle = (stack.xs[0] + stack.xs[-1]) / 2
    read = {"first": stack.last[:1], "last": stack.last[-1:]}.get(pooling or "", stack.last)
    x = read[0].x if len(read) == 1 else middle
    y = stack.top - ROW
    canvas.components["head"] = Component(
        "The head of the task",
        _logits_of(type(head)),
        [
            f"{head.linear.in_features} -> {head.linear.out_features}",
            *([f"pooling: {pooling}"] if pooling else []),
        ],
        [type(head), headed.Headed.forward],
    )
    block = canvas.block(
        Block("head", "Head of the task", "target", x, y, 150, BOX_HEIGHT, "head", last + 1)
    )
    for one in read:
        canvas.join(one.top, block.bottom, "target", last + 1, arrow=len(read) == 1)
    y -= 58
    answer = shorten(explanation.output, 48) or NO_ANSWER
    canvas.join(block.top, (x, y + 16), "target", last + 1)
    canvas.words.append(Word(answer, x, y, "target", last + 1))
    probabilities = explanation.prediction.get("probabilities") or {}
    candidates = [*probabilities.items()][:MAX_ANSWERS]
    claims = [f"The answer is “{answer}”."] if explanation.output else ["There is no answer."]
    if candidates:
        claims.append(f"Its probability is {percent(candidates[0][1])}.")
    looks = [read[0].key] if len(read) == 1 else []
    canvas.moments.append(Moment(answer, "target", claims, looks, block.key, candidates))
