"""How torch computes during a training on a CPU."""

import pytest
import torch

from regard.training.threads import computing_with, flushes_denormals


def test_numbers_too_small_for_float32_are_0_during_a_training_only() -> None:
    tiny = torch.tensor(1e-40)
    assert float(tiny * 1) == pytest.approx(1e-40, rel=1e-3)
    with computing_with(2):
        assert flushes_denormals()
        assert torch.get_num_threads() == 2
        assert float(tiny * 1) == 0
    assert not flushes_denormals()
    assert float(tiny * 1) > 0
