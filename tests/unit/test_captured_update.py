"""Clipping and the optimiser's step as one CUDA graph: the weights are those of torch's functions."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.engine.graphs import CapturedUpdate
from regard.engine.optimisers import without_compiler

CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
)


class Model(nn.Module):
    """One of its layers is used only now and then, and one never."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.rare = nn.Linear(5, 7)
        self.unused = nn.Linear(2, 2)
        self.last = nn.Linear(7, 3)

    def forward(self, x_BD: Tensor, *, rare: bool) -> Tensor:
        hidden_BD = self.first(x_BD) + (self.rare(x_BD) if rare else 0.0)
        logits_BY: Tensor = self.last(hidden_BD.tanh())
        return logits_BY


def optimiser_of(model: nn.Module, kind: type[torch.optim.Adam]) -> torch.optim.Adam:
    """Two groups with rates and decay of their own, as in a training."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() <= 1]
    groups: Any = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors}]
    return without_compiler(kind)(groups, 1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("limit", [0.5, None])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_weights_and_norms_are_those_of_clipping_and_the_optimiser(
    kind: type[torch.optim.Adam], limit: float | None, device: str
) -> None:
    """In 60 steps the size of the batch and the rates change, gradients are clipped or not, a
    layer gets its first gradient late, and gradients move once, as after a lack of memory."""
    torch.manual_seed(1)
    model = Model().double().to(device)
    expected = copy.deepcopy(model)
    optimiser = optimiser_of(model, kind)
    other = optimiser_of(expected, kind)
    update = CapturedUpdate(model.parameters(), optimiser, limit)
    norms = []
    for step in range(60):
        x_BD = torch.randn(3 + step % 3, 5, dtype=torch.double, device=device)
        for each in (model, expected):
            loss = (2.0 * each(x_BD, rare=step > 20)).square().mean() * (4.0 if step % 2 else 0.01)
            loss.backward()  # type: ignore[no-untyped-call]
        for own in (optimiser, other):
            for group, rate in zip(own.param_groups, (1e-2, 3e-3), strict=True):
                group["lr"] = rate * min(step + 1, 60 - step) / 30
        norm = update()
        torch.testing.assert_close(norm, clipped(expected, limit))
        norms.append(float(norm))
        other.step()
        other.zero_grad(set_to_none=False)
        if step == 40:
            optimiser.zero_grad(set_to_none=True)
            other.zero_grad(set_to_none=True)
    assert min(norms) < 0.5 < max(norms)
    for found, weight in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, weight, rtol=1e-5, atol=1e-6)
    assert (update.captured is not None) == (device == "cuda")


def clipped(model: nn.Module, limit: float | None) -> Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), limit or float("inf"))


def test_it_applies_to_fused_adam_and_to_models_that_do_not_clip_by_themselves() -> None:
    model = Model()
    assert CapturedUpdate.applies(torch.optim.AdamW(model.parameters(), fused=True), model)
    assert not CapturedUpdate.applies(torch.optim.Adam(model.parameters()), model)
    assert not CapturedUpdate.applies(torch.optim.SGD(model.parameters(), fused=True), model)
    model.clip_gradients = lambda limit: None  # type: ignore[assignment]
    assert not CapturedUpdate.applies(torch.optim.Adam(model.parameters(), fused=True), model)
