"""The loss computed some positions at a time is the loss, gradients and all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model_cases import CASES, SOURCES, TARGETS, TIED_CASES, batch_of, build
from regard.objectives import cross_entropy
from regard.objectives.cross_entropy import TokenCrossEntropy


def loss_and_gradients(objective: TokenCrossEntropy, scale: float) -> tuple[Tensor, dict[str, Tensor]]:
    objective.zero_grad()
    loss_2 = objective(batch_of(SOURCES, TARGETS))
    (loss_2[0] * scale).backward()
    return loss_2.detach(), {name: p.grad.clone() for name, p in objective.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("case", TIED_CASES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 3])
def test_parts_equal_the_whole(case: str, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = TokenCrossEntropy(build(CASES[case]), smoothing)
    objective.training = True  # the objective smooths, the model keeps its dropout off
    whole, gradients = loss_and_gradients(objective, scale=0.25)
    vocabulary = objective.model.output.linear.weight.shape[0]  # type: ignore[union-attr]
    monkeypatch.setattr(cross_entropy, "LOGITS", dict.fromkeys((True, False), rows * vocabulary))
    parts, in_parts = loss_and_gradients(objective, scale=0.25)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    assert in_parts.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(in_parts[name], gradient, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(objective(batch_of(SOURCES, TARGETS)), whole, rtol=1e-12, atol=1e-12)


def test_no_more_logits_than_allowed_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(CASES[TIED_CASES[0]])
    objective, seen = TokenCrossEntropy(model).train(), []
    readout = model.readout
    monkeypatch.setattr(model, "readout", lambda hidden: seen.append(len(hidden)) or readout(hidden))
    vocabulary = model.output.linear.weight.shape[0]
    monkeypatch.setattr(cross_entropy, "LOGITS", dict.fromkeys((True, False), 2 * vocabulary))
    objective(batch_of(SOURCES, TARGETS))[0].backward()
    assert max(seen) == 2
    assert sum(seen) == batch_of(SOURCES, TARGETS).tokens
