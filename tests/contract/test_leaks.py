"""A training step leaves nothing behind but weights: what a graph and its tensors hold of each other is never freed."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import language_model_cases
import model_cases
from regard.objectives.cross_entropy import TokenCrossEntropy

STEPS = 3


def live_tensors() -> int:
    return sum(issubclass(type(one), Tensor) for one in gc.get_objects())


def left_behind(step: Callable[[], Tensor]) -> int:
    """Tensors more after some steps than after the first, without the garbage collector's help."""
    gc.collect()
    gc.disable()
    try:
        step().backward()
        before = live_tensors()
        for _ in range(STEPS):
            step().backward()
        return live_tensors() - before
    finally:
        gc.enable()


@pytest.mark.parametrize("case", model_cases.CASES)
def test_a_step_of_an_encoder_decoder(case: str) -> None:
    model, batch = model_cases.build(model_cases.CASES[case], dtype=torch.float32), model_cases.batch_of()
    objective = TokenCrossEntropy(model, 0.1)
    assert left_behind(lambda: objective(batch)[0]) == 0


@pytest.mark.parametrize("case", language_model_cases.CASES)
def test_a_step_of_a_language_model(case: str) -> None:
    model = language_model_cases.build(language_model_cases.CASES[case], dtype=torch.float32)
    objective, batch = language_model_cases.objective_for(case, model), language_model_cases.batch_for(case)
    assert left_behind(lambda: objective(batch)[0]) == 0
