"""Sheets of what surrounds attention in a Transformer's block: LayerNorm with its residual
connection, and the feed-forward layer."""

from __future__ import annotations

import torch
from torch import nn

from regard import engine
from regard.layers.attention import FeedForward
from regard.models.base import count_parameters
from regard.views.report import Cell, Section, Table, muted
from regard.views.sheets.sheet import Sheet, distinct, indexed, number_table, set_weight, words_of

BEFORE = ((1, 2, 3, 0), (2, 0, 0, 4), (0, 1, 0, 1), (4, 4, 0, 0), (1, 0, 1, 0), (2, 2, 2, 1))
ADDED = ((1, 0, 1, 0), (0, 2, 0, 0), (1, 1, 2, 2), (0, 0, 2, 2), (0, 3, 1, 2), (0, 1, 0, 0))
"""The vectors of the words before a sub-layer, and what the sub-layer computes of them."""
GAMMA = (1.0, 2.0, 1.0, 0.5)
BETA = (0.0, 1.0, -1.0, 0.0)
W_1 = ((1.0, -1.0, 2.0), (0.0, 1.0, -1.0))
B_1 = (0.0, 1.0, -1.0)
W_2 = ((1.0, 0.0), (2.0, 1.0), (0.0, -1.0))
B_2 = (0.5, 0.0)
INPUTS = ((1.0, 2.0), (2.0, -1.0), (-1.0, 1.0), (0.0, 3.0), (3.0, 1.0), (1.0, -2.0))
REAL_WIDTHS = (512, 2048)
"""d_model and d_ff of the paper."""


@torch.no_grad()
def layer_norm(sentence: str = "I like tea") -> Sheet:
    """Residual connection and LayerNorm: mean, variance, and what gamma and beta do."""
    words = distinct(words_of(sentence))
    count = len(words)
    x_LD = torch.tensor(BEFORE[:count], dtype=torch.float32)
    added_LD = torch.tensor(ADDED[:count], dtype=torch.float32)
    sum_LD = x_LD + added_LD
    norm = nn.LayerNorm(x_LD.shape[1])
    normed_LD = norm(sum_LD)
    set_weight(norm, "weight", GAMMA)
    set_weight(norm, "bias", BETA)
    learned_LD = norm(sum_LD)
    statistics_L3 = torch.stack(
        [sum_LD.mean(-1), sum_LD.var(-1, correction=0), sum_LD.std(-1, correction=0)], dim=1
    )
    columns = ["", *indexed("x", x_LD.shape[1])]
    every = range(count)
    steps = [
        Section(
            "Step 1: the residual connection adds what goes in and what comes out",
            [
                number_table("x", columns, words, x_LD),
                number_table("Sublayer(x)", columns, words, added_LD),
                number_table("y = x + Sublayer(x)", columns, words, sum_LD, asked=every),
            ],
        ),
        Section(
            "Step 2: mean and variance of each word, over its own numbers",
            [
                number_table(
                    "m = sum of y / 4,  v = sum of (y - m)^2 / 4",
                    ["", "m", "v", "sqrt(v)"],
                    words,
                    statistics_L3,
                    asked=every,
                )
            ],
        ),
        Section(
            "Step 3: normalise",
            [
                number_table("(y - m) / sqrt(v + 0.00001)", columns, words, normed_LD, asked=every),
                muted("Each row now has mean 0 and variance 1. No other word was looked at."),
            ],
        ),
        Section(
            "Step 4: gamma and beta, which are learned",
            [
                number_table(
                    "gamma and beta", columns, ["gamma", "beta"], torch.tensor([GAMMA, BETA])
                ),
                number_table("gamma x normalised + beta", columns, words, learned_LD, asked=every),
                muted(
                    "At the start gamma = 1 and beta = 0, so step 4 changes nothing until they are "
                    "learned."
                ),
            ],
        ),
    ]
    numbers = {
        "sums": sum_LD.tolist(),
        "mean, variance, deviation": statistics_L3.tolist(),
        "normalised": normed_LD.tolist(),
        "with gamma and beta": learned_LD.tolist(),
    }
    opening = "Every sub-layer of the Transformer ends in LayerNorm(x + Sublayer(x))."
    return Sheet("Residual connection and LayerNorm by hand", opening, steps, numbers)


@torch.no_grad()
def feed_forward(sentence: str = "I like tea") -> Sheet:
    """The feed-forward layer: its formula, its shapes, and 512 to 2048 to 512."""
    words = distinct(words_of(sentence))
    x_LD = torch.tensor(INPUTS[: len(words)])
    layer = FeedForward(2, 3, "relu").eval()
    for name, weight, bias in (("W_1", W_1, B_1), ("W_2", W_2, B_2)):
        set_weight(layer, f"{name}.weight", torch.tensor(weight).T)
        set_weight(layer, f"{name}.bias", bias)
    with engine.plain():
        before_LF = layer.W_1(x_LD)
        inner_LF = layer.W_1(x_LD, layer.activation)
        output_LD = layer(x_LD)
        d_model, d_ff = REAL_WIDTHS
        real = FeedForward(d_model, d_ff, "relu").eval()
        inner = real.W_1(torch.zeros(1, len(words), d_model), real.activation)
        shapes = [[1, len(words), d_model], [*inner.shape], [*real.W_2(inner).shape]]
    weights = torch.tensor([*W_1, B_1])
    second = torch.tensor([*W_2, B_2])
    every = range(len(words))
    steps = [
        Section(
            "Given: two matrices with their biases",
            [
                number_table("x", ["", "1", "2"], words, x_LD),
                number_table("W_1 and b_1", ["", "1", "2", "3"], ["W_1", "", "b_1"], weights),
                number_table("W_2 and b_2", ["", "1", "2"], ["W_2", "", "", "b_2"], second),
            ],
        ),
        Section(
            "Step 1: make it wider",
            [
                number_table("x W_1 + b_1", ["", "1", "2", "3"], words, before_LF, asked=every),
                number_table(
                    "max(0, x W_1 + b_1)", ["", "1", "2", "3"], words, inner_LF, asked=every
                ),
            ],
        ),
        Section(
            "Step 2: back to the width of the model",
            [
                number_table(
                    "max(0, x W_1 + b_1) W_2 + b_2", ["", "1", "2"], words, output_LD, asked=every
                ),
                muted("Every word goes through the same two matrices, without seeing the others."),
            ],
        ),
        Section(
            "At the paper's size",
            [
                Table(
                    ["", "shape: sentences, words, width"],
                    [
                        ["x", str(shapes[0])],
                        ["max(0, x W_1 + b_1)", Cell(str(shapes[1]), asked=True)],
                        ["... W_2 + b_2", Cell(str(shapes[2]), asked=True)],
                    ],
                    title="512 to 2048 to 512",
                    in_picture=True,
                ),
                Table(
                    ["weights", "numbers"],
                    [
                        ["W_1, b_1", Cell(count_parameters(real.W_1), asked=True)],
                        ["W_2, b_2", Cell(count_parameters(real.W_2), asked=True)],
                        [Cell("together", ours=True), Cell(count_parameters(real), asked=True)],
                    ],
                    in_picture=True,
                ),
            ],
        ),
    ]
    numbers = {
        "before the activation": before_LF.tolist(),
        "inner": inner_LF.tolist(),
        "output": output_LD.tolist(),
        "shapes": shapes,
        "parameters": count_parameters(real),
    }
    opening = "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2"
    return Sheet("The feed-forward layer by hand", opening, steps, numbers)
