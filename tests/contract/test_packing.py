"""Sentences end to end in one row: what is packed, and that a Transformer computes the same from it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from model_cases import CASES, batch_of, build, tokens_of
from regard.layers.attention import attend
from regard.layers.packing import Packing
from regard.layers.visibility import Visibility
from regard.models.transformer import Transformer


def test_packing_by_hand() -> None:
    tokens = tokens_of([[5, 6, 3], [7, 3], [8, 9, 4, 3]], extra=1)
    packing = Packing.of(tokens)
    assert packing.pack(tokens.ids_BL).tolist() == [[5, 6, 3, 7, 3, 8, 9, 4, 3]]
    assert packing.places_P.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert packing.bounds.tolist() == [0, 3, 5, 9]
    assert packing.longest == 4
    padded = packing.unpack(packing.pack(tokens.ids_BL))
    assert padded.tolist() == [[5, 6, 3, 0, 0], [7, 3, 0, 0, 0], [8, 9, 4, 3, 0]]


def test_packing_without_the_last_token_of_each() -> None:
    tokens = tokens_of([[2, 6, 3], [2, 3]])
    packing = Packing.of(tokens, without=1)
    assert packing.pack(tokens.ids_BL[:, :-1]).tolist() == [[2, 6, 2]]
    assert packing.bounds.tolist() == [0, 2, 3]


PACKABLE = [name for name, config in CASES.items() if name.startswith("transformer")]


@pytest.mark.parametrize("case", PACKABLE)
def test_packed_equals_padded(case: str) -> None:
    model = build(CASES[case])
    assert isinstance(model, Transformer)
    batch = batch_of(extra=2)
    with torch.no_grad():
        packed, padded = model.forward_packed(batch).hidden_BTD, model(batch).hidden_BTD
    real = torch.arange(padded.shape[1]) < batch.target.lengths_B[:, None] - 1
    torch.testing.assert_close(packed[real], padded[real], atol=1e-12, rtol=1e-12)
    assert not packed[~real].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel for packed sentences needs a GPU")
@pytest.mark.parametrize("causal", [False, True])
def test_the_kernel_equals_the_equation_on_a_gpu(causal: bool) -> None:
    queries = Packing.of(tokens_of([[5, 6, 3], [7, 3], [8, 9, 4, 3]]).to("cuda"))
    keys = queries if causal else Packing.of(tokens_of([[5, 3], [7, 6, 5, 3], [8, 3]]).to("cuda"))
    q, k, v = (torch.randn(1, 2, size, 16, device="cuda") for size in (9, 9 if causal else 8, 9 if causal else 8))
    visible = Visibility(causal=causal, packed=(queries, keys))
    expected = attend(q, k, v, visible, owner=nn.Identity())
    halves = (x.bfloat16() for x in (q, k, v))
    torch.testing.assert_close(attend(*halves, visible, owner=nn.Identity()).float(), expected, atol=0.03, rtol=0.03)
