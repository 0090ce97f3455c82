"""Sheets of attention between words: self-attention in three steps, and the three places where a
Transformer attends."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from regard.layers.attention import MultiHeadAttention, Visible, attend, recording, split_heads
from regard.views.report import Cell, Section, Table, muted
from regard.views.sheets.sheet import (
    WORD_VECTORS,
    Sheet,
    distinct,
    heat_map,
    indexed,
    number_table,
    set_weight,
    words_of,
)

WIDTH = 4
W_Q = ((1, 0, 0, 1), (0, 1, 1, 0), (1, 0, 1, 0), (0, 1, 0, 1))
W_K = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 1, 0))
W_V = ((2, 0, 0, 0), (0, 2, 0, 0), (0, 0, 2, 0), (0, 0, 0, 2))
LETTERS = ("Q", "K", "V")


def weighted_layer() -> MultiHeadAttention:
    """One head of width 4 with the matrices above; its last projection changes nothing."""
    layer = MultiHeadAttention(WIDTH, heads=1).eval()
    set_weight(layer.W_Q, "weight", torch.tensor(W_Q).T)
    set_weight(layer.W_KV, "weight", torch.cat([torch.tensor(W_K).T, torch.tensor(W_V).T]))
    set_weight(layer.W_O, "weight", torch.eye(WIDTH))
    return layer


@torch.no_grad()
def self_attention(sentence: str = "I like tea") -> Sheet:
    """Self-attention in three steps: queries, keys and values; scores and softmax; the weighted
    sum."""
    words = distinct(words_of(sentence))
    x_LD = torch.tensor(WORD_VECTORS[: len(words)], dtype=torch.float32)
    layer = weighted_layer()
    with recording() as recorded:
        output_LD = layer.attend_to_self(x_LD[None], Visible())[0]
        q_LE = layer.W_Q(x_LD)
        k_BHLE, v_BHLE = layer.keys_values(x_LD[None])
    k_LE = k_BHLE[0, 0]
    v_LE = v_BHLE[0, 0]
    weights_LL = recorded.calls[0][1][0, 0]
    scores_LL = q_LE @ k_LE.T
    scaled_LL = scores_LL / WIDTH**0.5
    every = range(len(words))
    matrices = torch.cat([torch.tensor(W) for W in (W_Q, W_K, W_V)], dim=1)
    heads = [name for letter in LETTERS for name in (f"W_{letter}", "", "", "")]
    columns = ["", *(f"{letter}{n}" for letter in "qkv" for n in range(1, WIDTH + 1))]
    steps = [
        Section(
            "Given: a vector for each word, and three matrices",
            [
                number_table("X", ["", *indexed("x", WIDTH)], words, x_LD),
                number_table("", ["", *heads], ["", "", "", ""], matrices),
            ],
        ),
        Section(
            "Step 1: a query, a key and a value for each word",
            [
                number_table(
                    "q = x W_Q,  k = x W_K,  v = x W_V",
                    columns,
                    words,
                    torch.cat([q_LE, k_LE, v_LE], dim=1),
                    asked=[0],
                )
            ],
        ),
        Section(
            "Step 2: scores, scaled, and their softmax",
            [
                number_table("score = q . k", ["", *words], words, scores_LL, asked=every),
                number_table(
                    "score / sqrt(d_k), with d_k = 4", ["", *words], words, scaled_LL, asked=every
                ),
                number_table("softmax of each row", ["", *words], words, weights_LL, asked=every),
                heat_map(
                    "The attention weights; each row sums to 1",
                    words,
                    words,
                    weights_LL.double().numpy(),
                ),
            ],
        ),
        Section(
            "Step 3: the weighted sum of the values",
            [
                number_table(
                    "output = sum of weight x v",
                    ["", *indexed("o", WIDTH)],
                    words,
                    output_LD,
                    asked=every,
                ),
                muted(
                    "Each word now has a vector that mixes the values of all words. All rows are "
                    "computed at once: softmax(Q K^T / sqrt(d_k)) V."
                ),
            ],
        ),
    ]
    numbers = {
        "words": words,
        "q": q_LE.tolist(),
        "k": k_LE.tolist(),
        "v": v_LE.tolist(),
        "scores": scores_LL.tolist(),
        "scaled": scaled_LL.tolist(),
        "weights": weights_LL.tolist(),
        "output": output_LD.tolist(),
    }
    opening = "Every word asks all words, itself included, what they have to say to it."
    return Sheet("Self-attention by hand", opening, steps, numbers)


SOURCE_VECTORS = ((1, 0), (0, 1), (1, 1))
TARGET_VECTORS = ((1, 0), (0, 2), (2, 1), (1, 1))


@torch.no_grad()
def attention_kinds(source: str = "How are you", target: str = "<s> 잘 지내") -> Sheet:
    """Three attentions of a Transformer: where Q, K and V come from, and who may look at whom."""
    read = distinct(words_of(source, 2, len(SOURCE_VECTORS)))
    written = distinct(words_of(target, 2, len(TARGET_VECTORS)))
    visible = {
        "encoder self-attention": (Visible(), read, read),
        "masked decoder self-attention": (Visible(None, causal=True), written, written),
        "encoder-decoder attention": (Visible(), written, read),
    }
    matrices = {
        name: value.matrix_BQK(len(queries), len(keys), torch.device("cpu"))[0].double()
        for name, (value, queries, keys) in visible.items()
    }
    sources = {
        "encoder self-attention": ("encoder", "encoder", "encoder", "all words of the source"),
        "masked decoder self-attention": (
            "decoder",
            "decoder",
            "decoder",
            "itself and the words before it",
        ),
        "encoder-decoder attention": ("decoder", "encoder", "encoder", "all words of the source"),
    }
    rows = [
        [Cell(name, ours=True), *(Cell(text, ours=True, asked=True) for text in texts)]
        for name, texts in sources.items()
    ]
    q_TE = torch.tensor(TARGET_VECTORS[: len(written)], dtype=torch.float32)
    k_SE = torch.tensor(SOURCE_VECTORS[: len(read)], dtype=torch.float32)
    at_once, one_by_one = _at_all_steps_and_one_by_one(q_TE, k_SE)
    queries = len(written)
    keys = len(read)
    shapes = [
        [
            Cell("RNN decoder", ours=True),
            Cell("one state s_t", ours=True),
            f"[1, {q_TE.shape[1]}]",
            f"[{keys}, {k_SE.shape[1]}]",
            Cell(f"[1, {keys}]", asked=True),
            Cell(queries, asked=True),
        ],
        [
            Cell("Transformer decoder, in training", ours=True),
            Cell("all steps at once", ours=True),
            f"[{queries}, {q_TE.shape[1]}]",
            f"[{keys}, {k_SE.shape[1]}]",
            Cell(f"[{queries}, {keys}]", asked=True),
            Cell(1, asked=True),
        ],
    ]
    steps = [
        Section(
            "Where Q, K and V come from",
            [
                Table(
                    ["attention", "Q", "K", "V", "a word may look at"],
                    rows,
                    in_picture=True,
                )
            ],
        ),
        Section(
            "Who may look at whom: 1 may look, 0 may not",
            [
                *(
                    replace(
                        number_table(
                            name,
                            ["", *visible[name][2]],
                            visible[name][1],
                            matrix,
                            asked=range(len(visible[name][1])),
                        ),
                        in_picture=False,  # which has the maps below
                    )
                    for name, matrix in matrices.items()
                ),
                *(
                    heat_map(name, visible[name][1], visible[name][2], matrix.numpy())
                    for name, matrix in matrices.items()
                ),
            ],
            in_terminal=len(matrices),
        ),
        Section(
            "Q at one step against Q at all steps",
            [
                Table(
                    ["decoder", "Q", "shape of Q", "shape of K", "shape of scores", "products"],
                    shapes,
                    in_picture=True,
                ),
                number_table(
                    "softmax(Q K^T / sqrt(2)) of all steps at once", ["", *read], written, at_once
                ),
                number_table("The same, one step after another", ["", *read], written, one_by_one),
                muted(
                    "The numbers are equal. An RNN cannot compute them at once: its s_t needs "
                    "s_(t-1). A Transformer knows all target words in training, and the mask hides "
                    "those to come."
                ),
            ],
        ),
    ]
    numbers = {
        "visible": {name: matrix.int().tolist() for name, matrix in matrices.items()},
        "all steps": at_once.tolist(),
        "step by step": one_by_one.tolist(),
    }
    opening = "One equation, softmax(Q K^T / sqrt(d_k)) V, in three places of the Transformer."
    return Sheet("Three kinds of attention", opening, steps, numbers)


def _at_all_steps_and_one_by_one(
    q_TE: torch.Tensor, k_SE: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of the encoder-decoder attention, from one product and from one per step."""
    owner = nn.Module()
    keys = split_heads(k_SE[None], 1)
    with recording() as recorded:
        attend(split_heads(q_TE[None], 1), keys, keys, Visible(), owner=owner)
        for q_E in q_TE:
            attend(split_heads(q_E[None, None], 1), keys, keys, Visible(), owner=owner)
    all_steps, *steps = [weights[0, 0] for _, weights, _ in recorded.calls]
    return all_steps, torch.cat(steps)
