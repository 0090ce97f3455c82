"""Sheets of the RNN encoder-decoder with attention: the annotations of the encoder, and the four
steps of the decoder's attention."""

from __future__ import annotations

import torch
from torch import Tensor

from regard import engine
from regard.data.batches import Padded
from regard.layers.attention import recording
from regard.layers.recurrence import RecurrentEncoder
from regard.models.luong import Luong, LuongConfig
from regard.views.report import Bars, Cell, Section, Table, muted
from regard.views.sheets.sheet import Sheet, distinct, number_table, set_weight, words_of

ENCODER_STATES = ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0), (-0.5, 0.5), (0.5, -0.5))
DECODER_STATE = (2.0, 0.0)
W_C = ((1.0, 0.0, 0.5, 0.0), (0.0, 1.0, 0.0, 0.5))
W_S = ((2.0, 0.0), (0.0, 2.0), (-1.0, 1.0), (0.0, -1.0))
NEXT_WORDS = ("잘", "지내", "안녕", "</s>")
INPUTS = (1.0, 0.0, -1.0, 0.5, 2.0, -0.5)
RECURRENT_WEIGHT = 0.5
REAL_WIDTH = 128


def small_luong() -> Luong:
    """Luong's model of width 2 with the score `dot` and the matrices above."""
    config = LuongConfig(
        embedding=2, hidden=2, cell="rnn", score="dot", input_feeding=False, dropout=0.0
    )
    model = Luong(config, len(NEXT_WORDS), len(NEXT_WORDS)).eval()
    set_weight(model.W_c, "weight", W_C)
    set_weight(model.output.linear, "weight", W_S)
    set_weight(model.output.linear, "bias", torch.zeros(len(NEXT_WORDS)))
    return model


@torch.no_grad()
def attention_steps(sentence: str = "How are you") -> Sheet:
    """Attention of an RNN decoder in four steps: scores, softmax, weighted sum, [c; s] to the
    output."""
    words = distinct(words_of(sentence, 2, len(ENCODER_STATES)))
    h_SD = torch.tensor(ENCODER_STATES[: len(words)])
    s_D = torch.tensor(DECODER_STATE)
    model = small_luong()
    with recording() as recorded:
        memory = model.attention.memory(h_SD[None], torch.tensor([len(words)]))
        attentional_D = model.attentional(s_D[None, None], memory, 0)[0, 0]
        logits_V = model.readout(attentional_D)
    weights_S = recorded.calls[0][1][0, 0, 0]
    scores_S = model.attention.scores(s_D[None, None], memory.keys_BSA)[0, 0]
    c_D = weights_S @ h_SD
    p_V = logits_V.softmax(-1)
    names = ["1", "2"]
    given = number_table("Encoder states h_1, h_2, ...", ["", *names], words, h_SD)
    state = number_table("The decoder's state s_t", ["", *names], ["s_t"], s_D[None])
    steps = [
        Section("Given: the states of encoder and decoder", [given, state]),
        Section(
            "Step 1: a score for each word, and step 2: their softmax",
            [
                number_table(
                    "score = s_t . h_j,  weight = exp(score) / sum of all exp(score)",
                    ["", *words],
                    ["score", "exp(score)", "weight"],
                    torch.stack([scores_S, scores_S.exp(), weights_S]),
                    asked=[0, 1, 2],
                    ours=True,
                ),
                Bars(words, {"": weights_S.tolist()}, "weight", "The weights sum to 1", span=1.0),
            ],
        ),
        Section(
            "Step 3: the context, a weighted sum of the encoder states",
            [
                number_table(
                    "c_t = sum of weight x h_j", ["", *names], ["c_t"], c_D[None], asked=[0]
                )
            ],
        ),
        Section(
            "Step 4: context and state together, and the next word",
            [
                number_table("W_c", ["", "c1", "c2", "s1", "s2"], ["", ""], torch.tensor(W_C)),
                number_table(
                    "h~_t = tanh(W_c [c_t ; s_t])",
                    ["", *names],
                    ["[c_t ; s_t]: c_t", "[c_t ; s_t]: s_t", "h~_t"],
                    torch.stack([c_D, s_D, attentional_D]),
                    asked=[0, 2],
                ),
                number_table(
                    "W_s: a row for each word", ["", *names], NEXT_WORDS, torch.tensor(W_S)
                ),
                number_table(
                    "P(next word) = softmax(W_s h~_t)",
                    ["", *NEXT_WORDS],
                    ["W_s h~_t", "probability"],
                    torch.stack([logits_V, p_V]),
                    asked=[0, 1],
                    ours=True,
                ),
                muted(
                    "Without attention step 4 would read s_t alone, and s_t would have to carry the "
                    "whole sentence."
                ),
            ],
        ),
    ]
    numbers = {
        "words": words,
        "scores": scores_S.tolist(),
        "weights": weights_S.tolist(),
        "context": c_D.tolist(),
        "attentional state": attentional_D.tolist(),
        "logits": logits_V.tolist(),
        "probabilities": p_V.tolist(),
    }
    opening = (
        "The decoder is about to write its first word. It scores every encoder state against its "
        "own (Luong's dot product)."
    )
    return Sheet("Attention of an RNN decoder, step by step", opening, steps, numbers)


def small_encoder() -> RecurrentEncoder:
    """A bidirectional RNN of width 1: h = tanh(x + h_before / 2) in both directions."""
    encoder = RecurrentEncoder("rnn", 1, 1, bidirectional=True).eval()
    for direction in ("", "_reverse"):
        set_weight(encoder.rnn, f"weight_ih_l0{direction}", [[1.0]])
        set_weight(encoder.rnn, f"weight_hh_l0{direction}", [[RECURRENT_WEIGHT]])
        set_weight(encoder.rnn, f"bias_ih_l0{direction}", [0.0])
        set_weight(encoder.rnn, f"bias_hh_l0{direction}", [0.0])
    return encoder


def _text(words: int) -> Padded:
    return Padded.of(torch.zeros(1, words, dtype=torch.long), torch.tensor([words]))


@torch.no_grad()
def annotation(sentence: str = "I love you") -> Sheet:
    """Annotations of a bidirectional encoder: forward and backward states of each word, and their
    width."""
    words = distinct(words_of(sentence))
    x_L = torch.tensor(INPUTS[: len(words)])
    text = _text(len(words))
    wide = RecurrentEncoder("gru", REAL_WIDTH, REAL_WIDTH, bidirectional=True).eval()
    with engine.plain():
        h_L2 = small_encoder()(x_L[None, :, None], text)[0][0]
        shape = list(wide(torch.zeros(1, len(words), REAL_WIDTH), text)[0].shape)
    forward_L, backward_L = h_L2.T
    widths: list[tuple[str, str | Cell]] = [
        ("forward", f"[1, {len(words)}, {REAL_WIDTH}]"),
        ("backward", f"[1, {len(words)}, {REAL_WIDTH}]"),
        ("annotation", Cell(str(shape), asked=True)),
    ]
    steps = [
        Section(
            "Step 1: read from left to right",
            [_states_table("forward h_j = tanh(x_j + forward h_(j-1) / 2)", words, x_L, forward_L)],
        ),
        Section(
            "Step 2: read from right to left",
            [
                _states_table(
                    "backward h_j = tanh(x_j + backward h_(j+1) / 2)", words, x_L, backward_L
                )
            ],
        ),
        Section(
            "Step 3: the annotation of a word is both states, one after the other",
            [
                number_table(
                    "h_j = [forward h_j ; backward h_j]",
                    ["", "forward", "backward"],
                    words,
                    h_L2,
                    asked=range(len(words)),
                )
            ],
        ),
        Section(
            "At a real size",
            [
                Table(
                    ["states", "shape: sentences, words, width"],
                    [[Cell(name, ours=True), shown] for name, shown in widths],
                    title="A GRU of width 128 in each direction: 128 + 128 = 256",
                    in_picture=True,
                ),
                muted(
                    "The annotation of the first word has seen the whole sentence: from the left "
                    "the word alone, from the right all words after it."
                ),
            ],
        ),
    ]
    numbers = {
        "words": words,
        "forward": forward_L.tolist(),
        "backward": backward_L.tolist(),
        "annotations": h_L2.tolist(),
        "real shape": shape,
    }
    opening = "Bahdanau calls the encoder's states annotations: each sums up the sentence around one word."
    return Sheet("Annotations of a bidirectional encoder", opening, steps, numbers)


def _states_table(title: str, words: list[str], x_L: Tensor, h_L: Tensor) -> Table:
    every = range(len(words))
    rows = [
        [
            word,
            Cell(float(x_L[place]), "g"),
            Cell(float(h_L[place]), ".2f", asked=place in every),
        ]
        for place, word in enumerate(words)
    ]
    return Table(["", "x_j", "h_j"], rows, title=title, in_picture=True)
