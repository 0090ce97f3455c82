"""The equations of the three captioners, over pixels and over features. The contract is in
contract/test_models.py."""

import math

import pytest
import torch
from torch.nn import functional as F

import plain
from captioner_cases import ATTENDING, CASES, WIDTH, batch_of, pictures_of
from model_cases import TARGETS, build, close, logits_of
from regard.data.images import Picture
from regard.models.captioner import AttentiveCaptioner, Convolutions
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.text.vocabularies import BEGIN, END


@pytest.mark.parametrize("case", ATTENDING)
def test_every_region_matters(case: str) -> None:
    model, [picture, *_] = build(CASES[case]), pictures_of(CASES[case])
    before = logits_of(model, batch_of([picture], [TARGETS[0]]))[0]
    shown = picture.shown.copy()
    shown.reshape(-1)[: 3 if shown.ndim == 3 else WIDTH] = 0
    after = logits_of(
        model, batch_of([Picture(shown, picture.regions, picture.columns)], [TARGETS[0]])
    )[0]
    assert (after - before).abs().amax(-1).min() > 1e-11


def test_against_plain_loops_xu() -> None:
    """Gate, state, deep output and penalty of Xu 2015, in loops over Python numbers."""
    model, [_, picture, *_] = (
        build(CASES["attention-of-features"]),
        pictures_of(CASES["attention-of-features"]),
    )
    assert isinstance(model, AttentiveCaptioner)
    w, ids = plain.lists_of(model), [BEGIN, 4, 9, END]
    cell = {
        name.removeprefix("cell."): value for name, value in w.items() if name.startswith("cell.")
    }
    scored = {
        name.removeprefix("attention."): value
        for name, value in w.items()
        if name.startswith("attention.")
    }
    a = [annotation(w, x, place, picture.columns) for place, x in enumerate(picture.shown.tolist())]
    mean = [sum(column) / len(a) for column in zip(*a, strict=True)]
    bridged = [
        plain.linear(mean, w[f"bridge.W_s.{part}.weight"], w[f"bridge.W_s.{part}.bias"])
        for part in (0, 1)
    ]
    carry = [[math.tanh(value) for value in part] for part in bridged]
    expected, attended = [], [0.0] * len(a)
    for token in ids[:-1]:
        alpha, c = plain.scored_attention("additive", scored, carry[0], a)
        attended = plain.add(attended, alpha)
        beta = plain.sigmoid(plain.linear(carry[0], w["W_beta.weight"], w["W_beta.bias"])[0])
        z, y = [beta * one for one in c], w["target_embedding.weight"][token]
        carry = plain.lstm_cell(cell, [*y, *z], carry)
        deep = (
            plain.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])
            for name, x in (("L_h", carry[0]), ("L_z", z))
        )
        hidden = plain.add(y, *deep)
        expected.append(plain.linear(hidden, w["output.linear.weight"], w["output.linear.bias"]))
    batch = batch_of([picture], [ids])
    close(logits_of(model, batch)[0], torch.tensor(expected, dtype=torch.float64), 1e-6)
    penalty = sum((1 - one) ** 2 for one in attended)
    plain_2, whole_2 = (
        TokenCrossEntropy(model)(batch),
        TokenCrossEntropy(model, doubly_stochastic=0.5)(batch),
    )
    close(whole_2 - plain_2, torch.tensor([0.5 * penalty, 0.0], dtype=torch.float64), 1e-6)


def annotation(w: plain.Weights, x: list[float], place: int, columns: int) -> list[float]:
    name = "image_encoder"
    projected = plain.linear(x, w[f"{name}.W.weight"], w[f"{name}.W.bias"])
    normed = plain.layer_norm(projected, w[f"{name}.norm.weight"], w[f"{name}.norm.bias"])
    half = len(normed) // 2
    return plain.add(
        normed, [*plain.position(place // columns, half), *plain.position(place % columns, half)]
    )


def test_the_penalty_counts_no_padding_and_no_step_behind_the_end() -> None:
    """Two images of different sizes, the second caption two steps shorter."""
    model, pictures = (
        build(CASES["attention-of-features"]),
        pictures_of(CASES["attention-of-features"], 2),
    )
    long, short = [BEGIN, 4, 5, 6, END], [BEGIN, 4, END]
    together = model(batch_of(pictures, [long, short])).attended_BS
    close(together.sum(1), [4.0, 2.0])
    batch = batch_of(pictures, [long, short])
    regions = [row[: len(picture.shown)] for row, picture in zip(together, pictures, strict=True)]
    assert len(regions[0]) != len(regions[1])
    penalty = (
        TokenCrossEntropy(model, doubly_stochastic=1.0)(batch)[0]
        - TokenCrossEntropy(model)(batch)[0]
    )
    close(penalty, sum(((1 - row) ** 2).sum() for row in regions))


def test_the_image_is_read_before_the_words() -> None:
    """Vinyals 2015: the same LSTM reads [CNN(I), words] in one go."""
    model, [picture, *_] = (
        build(CASES["plain-of-features"]),
        pictures_of(CASES["plain-of-features"]),
    )
    ids = [BEGIN, 4, 9, END]
    batch = batch_of([picture], [ids])
    with torch.no_grad():
        regions_SD = F.relu(model.W_I(model.image_encoder(batch.source)))[0]  # type: ignore[operator]
        image_D = torch.stack([max(column) for column in regions_SD.t()])
        whole = torch.cat([image_D[None], model.target_embedding(torch.tensor(ids[:-1]))])
        states_TD, _ = model.decoder(whole[None])  # type: ignore[operator]
    close(model(batch).hidden_BTD[0], states_TD[0, 1:])


@pytest.mark.parametrize(("side", "stages"), [(64, 3), (30, 2), (9, 3)])
def test_regions_are_what_the_convolutions_make(side: int, stages: int) -> None:
    pixels, network = (
        torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8),
        Convolutions([8] * stages),
    )
    found = network(pixels)
    assert found.shape == (2, (side >> stages) ** 2, 8)
    changed = pixels.clone()
    changed[0, 0, 0] = 255 - changed[0, 0, 0]
    after = network(changed)
    assert not torch.allclose(after[0, 0], found[0, 0])
    assert torch.equal(after[1], found[1]), "an image sees its neighbour"
