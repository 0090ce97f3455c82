"""Weights cast together: what is computed stays the same, bit for bit."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from language_model_cases import CASES, masked_batch
from model_cases import build
from regard.engine.half_weights import HalfWeights
from regard.objectives.language_model import MaskedTokens


def bert() -> MaskedTokens:
    return MaskedTokens(build(CASES["bert-masked-only"], dtype=torch.float32)).train()


def learned(
    objective: MaskedTokens, halves: HalfWeights | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    with torch.autocast("cpu", torch.bfloat16), halves.in_place() if halves else nullcontext():
        loss = objective(masked_batch())[0]
    loss.backward()
    return loss.detach(), {
        name: one.grad for name, one in objective.named_parameters() if one.grad is not None
    }


def test_loss_and_gradients_are_those_of_autocast() -> None:
    one, other = bert(), bert()
    halves = HalfWeights(other, torch.bfloat16)
    (loss, slopes), (half_loss, half_slopes) = learned(one), learned(other, halves)
    assert (
        len(halves.places) == 2 * 10
    )  # five layers a block, weights and biases; the readout's are left alone
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
