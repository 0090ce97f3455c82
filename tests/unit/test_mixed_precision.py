"""Weights cast together: what is computed stays the same, bit for bit."""

import pytest
import torch
from torch import Tensor, nn

from regard.data.batches import MaskedBatch, Tokens
from regard.models.bert import BERT, BERTConfig
from regard.objectives.language_model import MaskedTokens
from regard.training.optimiser import HalfWeights


def bert() -> MaskedTokens:
    torch.manual_seed(1)
    config = BERTConfig(layers=2, width=16, heads=2, feed_forward=32, dropout=0.0, next_sentence=False)
    return MaskedTokens(BERT(config, 30)).train()


def batch() -> MaskedBatch:
    ids_BL = torch.randint(5, 30, (3, 7), generator=torch.Generator().manual_seed(2))
    places_P = torch.tensor([1, 4, 9, 15])
    text = Tokens.of(ids_BL, torch.tensor([7, 5, 3]))
    return MaskedBatch(text, torch.zeros_like(ids_BL), places_P, ids_BL.flatten()[places_P], tokens=4)


def learned(objective: MaskedTokens, halves: HalfWeights | None) -> tuple[Tensor, dict[str, Tensor]]:
    with torch.autocast("cpu", torch.bfloat16):
        if halves is None:
            loss = objective(batch())[0]
        else:
            with halves.in_place():
                loss = objective(batch())[0]
    loss.backward()
    return loss.detach(), {
        name: weight.grad for name, weight in objective.named_parameters() if weight.grad is not None
    }


def test_loss_and_gradients_are_those_of_autocast() -> None:
    one, other = bert(), bert()
    loss, slopes = learned(one, None)
    halves = HalfWeights(other, torch.bfloat16)
    half_loss, half_slopes = learned(other, halves)
    assert len(halves.places) == 2 * 10  # five layers a block, weights and biases; the readout's are left alone
    assert torch.equal(loss, half_loss)
    assert slopes.keys() == half_slopes.keys()
    for name, slope in slopes.items():
        assert half_slopes[name].dtype == torch.float32
        assert torch.equal(slope, half_slopes[name]), name


def test_the_weights_are_back_after_an_error_too() -> None:
    objective = bert()
    before = list(objective.parameters())
    with pytest.raises(ZeroDivisionError), HalfWeights(objective, torch.bfloat16).in_place():
        _ = 1 // 0
    assert all(one is other for one, other in zip(before, objective.parameters(), strict=True))
    assert all(isinstance(weight, nn.Parameter) for weight in objective.parameters())


def test_a_weight_that_the_loss_does_not_reach_has_no_gradient() -> None:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    with HalfWeights(layers, torch.bfloat16).in_place():
        out = layers[0](torch.ones(1, 3, dtype=torch.bfloat16)).sum()
    out.backward()
    assert torch.equal(layers[0].bias.grad, torch.ones(3))
    assert layers[1].weight.grad is None


def test_a_module_without_linear_layers_stays_as_it_is() -> None:
    layer = torch.nn.LSTM(2, 3)
    with HalfWeights(layer, torch.bfloat16).in_place():
        assert {weight.dtype for weight in layer.parameters()} == {torch.float32}
