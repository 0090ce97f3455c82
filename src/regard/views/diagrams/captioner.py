"""The drawings of the captioners: a picture on the left, the words that are written from it on the
right."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from regard.layers import scores
from regard.models import captioner
from regard.views.diagrams.diagram import (
    Block,
    Canvas,
    Component,
    Diagram,
    Moment,
    Picture,
    Tile,
    equation,
    pitch_of,
)
from regard.views.diagrams.recurrent import calls_of, rows_of, writing_moment
from regard.views.diagrams.stacks import draw_anatomy, draw_decoder_of, sublayers_of
from regard.views.explanation import Explanation
from regard.views.labels import percent

SIDE = 300
"""Side of the picture."""
ROW = 84
STRONGEST_RATIO = 6
"""How many times its even share a region gets when it has the strongest colour."""


def draw_captioner(explanation: Explanation) -> Diagram:
    """The picture and its regions, then the decoder that the config names."""
    canvas = Canvas()
    model: Any = explanation.model
    _draw_picture(canvas, explanation)
    drawn = {"plain": _draw_plain, "attention": _draw_attentive, "transformer": _draw_blocks}
    drawn[model.config.decoder](canvas, explanation)
    return canvas.finish(explanation.title)


def _draw_picture(canvas: Canvas, explanation: Explanation) -> None:
    """The picture, and the regions a_i under their convolutions."""
    model: Any = explanation.model
    config = model.config
    picture = explanation.picture
    assert picture is not None
    shown = np.asarray(picture.shown)
    if shown.ndim == 3:
        canvas.pictures.append(Picture(-SIDE / 2, -SIDE / 2, SIDE, _png(shown)))
    canvas.components["image"] = Component(
        "The image encoder",
        equation(captioner.ImageEncoder, "a_i"),
        [f"{picture.regions} regions of {config.width} numbers", f"channels {config.channels}"],
        [captioner.ImageEncoder, captioner.Convolutions],
    )
    a_SD = rows_of(calls_of(explanation, "image_encoder")["image_encoder"][0].output)
    block = Block(
        "image",
        "regions a_i",
        "source",
        0,
        SIDE / 2 + 44,
        130,
        40,
        "image",
        0,
        a_SD.mean(0).tolist(),
        float(abs(a_SD.mean(0)).max()) or 1.0,
        f"the mean of {len(a_SD)} regions",
    )
    canvas.block(block)
    canvas.join((0, SIDE / 2), block.top, "source")
    canvas.moments.append(
        Moment(
            "image",
            "source",
            [f"The picture becomes {picture.regions} regions of {config.width} numbers each."],
            block="image",
        )
    )


def _png(pixels: Any) -> str:
    from PIL import Image  # of the extra `images`, which every run that reads images has

    content = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _columns(explanation: Explanation) -> list[float]:
    pitch = pitch_of([step.token for step in explanation.steps])
    return [SIDE / 2 + 170 + place * pitch for place in range(len(explanation.steps))]


def _tiles(
    canvas: Canvas, explanation: Explanation, block: Block, weights: Sequence[float]
) -> None:
    """Where a word looked: the regions, as violet as their weights are large."""
    picture = explanation.picture
    assert picture is not None
    side = SIDE / picture.columns
    for place, weight in enumerate(weights[: picture.regions]):
        above = (weight * picture.regions - 1) / (STRONGEST_RATIO - 1)  # the even share
        if above > 0:
            row, column = divmod(place, picture.columns)
            x, y = -SIDE / 2 + column * side, -SIDE / 2 + row * side
            canvas.tiles.append(Tile(x, y, side, 0.8 * min(1.0, above), block.key))


def _draw_plain(canvas: Canvas, explanation: Explanation) -> None:
    """Vinyals: the image is the first input of an LSTM."""
    own = _columns(explanation)
    s_TD = rows_of(calls_of(explanation, "decoder")["decoder"][-1].output[0])
    _lstm(canvas, explanation, own, s_TD, 0.0, captioner.PlainCaptioner, ("x_{-1}", "p_{t+1}"))


def _draw_attentive(canvas: Canvas, explanation: Explanation) -> None:
    """Xu: the LSTM looks at the regions before each word."""
    own = _columns(explanation)
    calls = calls_of(explanation, "L_h", "L_z")
    h_TD = rows_of(calls["L_h"][0].inputs[0])
    z_TD = rows_of(calls["L_z"][0].inputs[0])
    attention = explanation.of_kind("alignment")[0]
    canvas.components["z"] = Component(
        "The context: what was read of the picture",
        equation(captioner.AttentiveCaptioner, "alpha_ti", "z_t"),
        [f"{z_TD.shape[1]} numbers"],
        [scores.AdditiveAttention, captioner.AttentiveCaptioner.recur],
    )
    steps = range(1, len(own) + 1)
    names = [f"z_{place}" for place in steps]
    contexts = canvas.states("z", own, ROW, names, "context", z_TD, steps=steps)
    states = _lstm(
        canvas, explanation, own, h_TD, 0.0, captioner.AttentiveCaptioner, ("h_t", "p(y_t)")
    )
    canvas.moments = canvas.moments[:1]
    for place, context in enumerate(contexts):
        canvas.join(context.top, states[place].bottom, "context", context.step)
        if place:
            canvas.join(states[place - 1].bottom, context.left, "target", context.step, dashed=True)
        weights = attention.weights[0][place].tolist()
        _tiles(canvas, explanation, context, weights)
        read = f"{percent(max(weights))} of what it reads is one region."
        canvas.moments.append(writing_moment(explanation.steps[place], context, read))
    canvas.join((SIDE / 2 + 8, ROW), contexts[0].left, "source", 1)


def _lstm(
    canvas: Canvas,
    explanation: Explanation,
    own: Sequence[float],
    values: Any,
    y: float,
    owner: Any,
    lines: Sequence[str],
) -> list[Block]:
    """The row of the decoder's states with the words that they write."""
    steps = range(1, len(own) + 1)
    canvas.components["s"] = Component(
        "The decoder: LSTM",
        equation(owner, *lines),
        [f"{values.shape[1]} numbers per state"],
        [owner],
    )
    states = canvas.states("s", own, y, [f"h_{n}" for n in steps], "target", values, steps=steps)
    for before, after in pairwise(states):
        canvas.join(before.right, after.left, "target", after.step)
    canvas.join((SIDE / 2 + 8, y), states[0].left, "source", 1)
    for block in states:
        canvas.join(block.top, (block.x, y - 44), "target", block.step)
    canvas.tokens([step.token for step in explanation.steps], own, y - 60, "target", steps)
    for step, block in zip(explanation.steps, states, strict=True):
        canvas.moments.append(writing_moment(step, block))
    return states


def _draw_blocks(canvas: Canvas, explanation: Explanation) -> None:
    """The decoder of the Transformer, with regions instead of encoder states."""
    model: Any = explanation.model
    own = _columns(explanation)
    stack = draw_decoder_of(canvas, explanation, own, SIDE / 2 + 20, 1)
    crosses = explanation.of_kind("alignment")
    for place, block in enumerate(stack.last):
        weights = crosses[-1].weights.mean(0)[place].tolist()
        _tiles(canvas, explanation, block, weights)
        read = f"{percent(max(weights))} of what it reads is one region."
        canvas.moments.append(writing_moment(explanation.steps[place], block, read))
    canvas.join((SIDE / 2 + 8, stack.last[0].y), stack.last[0].left, "source", 1)
    parts = sublayers_of(model.decoder[0], "in-decoder", model.config)
    x = own[-1] + 230
    draw_anatomy(canvas, x, SIDE / 2, parts, "target", f"decoder block × {model.config.layers}")
