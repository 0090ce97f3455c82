"""The linear layer of a search: the same product whichever way round it is taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.linear import FEW_ROWS, LARGE_WEIGHT, Linear


@pytest.mark.parametrize("rows", [*FEW_ROWS, FEW_ROWS.stop, 20])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("width", "out"), [(7, 3), (64, LARGE_WEIGHT // 64 + 1)])
def test_few_rows_give_what_torch_gives(rows: int, bias: bool, width: int, out: int) -> None:
    torch.manual_seed(rows)
    ours, theirs = Linear(width, out, bias=bias).double(), nn.Linear(width, out, bias=bias).double()
    theirs.load_state_dict(ours.state_dict())
    turned = torch.randn(width, rows).double().t()  # as it comes out of such a layer, column by column
    for x in (turned, turned[:, None], turned[None]):
        with torch.inference_mode():
            found = ours(x)
        assert found.shape == theirs(x).shape
        torch.testing.assert_close(found.clone(), theirs(x).detach(), rtol=1e-12, atol=1e-12)


def test_gradients_reach_weights_also_with_few_rows() -> None:
    layer = Linear(4, 3)
    layer(torch.ones(2, 4)).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, torch.full((3, 4), 2.0))
