"""Sheet of ELMo: the vector of a word in two sentences, from the states of all layers."""

from __future__ import annotations

import math

import torch

from regard.models.headed import LayerMix
from regard.views.report import Cell, Section, Table, muted
from regard.views.sheets.sheet import Sheet, number_table, set_weight

SHARES = (2, 3, 5)
"""The weights of the three layers, in tenths."""
GAMMA = 2.0
LAYERS = ("layer 0, the word itself", *(f"layer {number}" for number in (1, 2)))
STATES = (
    ((1, 0), (2, 1), (1, 3)),
    ((1, 0), (0, 2), (-1, 1)),
    ((0, 1), (1, 0), (2, 0)),
    ((0, 1), (1, 1), (0, 2)),
)
"""Forward states in the first sentence and in the second, then the backward states: a vector for
each layer. Layer 0 does not read the sentence."""


@torch.no_grad()
def elmo(
    first: str = "I play the piano", second: str = "We saw a play", word: str = "play"
) -> Sheet:
    """ELMo: the vectors of one word in two sentences: concatenate, weigh, sum, scale."""
    states = torch.tensor(STATES, dtype=torch.float32)
    layers = [torch.cat([states[place], states[place + 2]], dim=-1) for place in (0, 1)]
    mix = LayerMix(len(SHARES))
    set_weight(mix, "s", [math.log(share) for share in SHARES])
    set_weight(mix, "gamma", GAMMA)
    weighted = [mix.weights_N[:, None] * h_ND for h_ND in layers]
    vectors = [mix(h_ND) for h_ND in layers]
    columns = ["", "forward 1", "forward 2", "backward 1", "backward 2"]
    steps = [
        Section(
            "Step 1: concatenate the forward and the backward state of each layer",
            [
                number_table(f"{word}: {sentence}", columns, LAYERS, h_ND, ours=True)
                for sentence, h_ND in zip((first, second), layers, strict=True)
            ],
        ),
        Section(
            "Step 2: weigh the layers, with weights that the task learns",
            [
                Table(
                    ["", "s_j", "exp(s_j)", "weight"],
                    [
                        [
                            Cell(layer, ours=True),
                            Cell(math.log(share), ".2f"),
                            share,
                            Cell(float(weight), ".2f", asked=True),
                        ]
                        for layer, share, weight in zip(LAYERS, SHARES, mix.weights_N, strict=True)
                    ],
                    title="weight = exp(s_j) / sum of all exp(s_j)",
                    in_picture=True,
                ),
                *(
                    number_table(
                        f"weight x layer: {sentence}",
                        columns,
                        LAYERS,
                        h_ND,
                        asked=range(len(LAYERS)),
                        ours=True,
                    )
                    for sentence, h_ND in zip((first, second), weighted, strict=True)
                ),
            ],
        ),
        Section(
            "Steps 3 and 4: sum, and scale by gamma",
            [
                number_table(
                    f"gamma = {GAMMA:g}",
                    columns,
                    [
                        f"{name}: {sentence}"
                        for sentence in (first, second)
                        for name in ("sum", "ELMo")
                    ],
                    torch.stack(
                        [
                            vector
                            for h_ND, mixed in zip(weighted, vectors, strict=True)
                            for vector in (h_ND.sum(0), mixed)
                        ]
                    ),
                    asked=range(4),
                    ours=True,
                ),
                Table(
                    ["vectors", "cosine of the two sentences"],
                    [
                        [Cell("layer 0", ours=True), _cosine(layers[0][0], layers[1][0])],
                        ["ELMo", _cosine(vectors[0], vectors[1])],
                    ],
                    formats=[".2f"],
                    in_picture=True,
                ),
                muted(
                    "Layer 0 has one vector for the word. The layers above read the sentence, so "
                    "the word gets another vector in another sentence."
                ),
            ],
        ),
    ]
    numbers = {
        "layers": [h_ND.tolist() for h_ND in layers],
        "weights": mix.weights_N.tolist(),
        "vectors": [vector.tolist() for vector in vectors],
        "cosine": [_cosine(layers[0][0], layers[1][0]), _cosine(vectors[0], vectors[1])],
    }
    opening = "ELMo_k = gamma x sum of weight_j x h_kj, with h_kj = [forward h ; backward h]"
    return Sheet("One word, two ELMo vectors", opening, steps, numbers)


def _cosine(first_D: torch.Tensor, second_D: torch.Tensor) -> float:
    return float(torch.cosine_similarity(first_D, second_D, dim=0))
