"""The CRF against sums over all sequences of tags, written as plain loops."""

from itertools import pairwise, product
from math import exp, log

import pytest
import torch
from torch import Tensor

from regard.layers.crf import CRF

TAGS = 3


@pytest.fixture
def crf() -> CRF:
    torch.manual_seed(0)
    crf = CRF(TAGS).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter).requires_grad_(False)
    return crf


def score(crf: CRF, P: list[list[float]], tags: tuple[int, ...]) -> float:
    total = float(crf.b_Y[tags[0]]) + float(crf.e_Y[tags[-1]])
    for place, tag in enumerate(tags):
        total += P[place][tag]
    for before, after in pairwise(tags):
        total += float(crf.A[before, after])
    return total


def sequences(length: int) -> list[tuple[int, ...]]:
    return [*product(range(TAGS), repeat=length)]


def scores(length: int) -> Tensor:
    return torch.randn(
        length, TAGS, dtype=torch.double, generator=torch.Generator().manual_seed(length)
    )


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_best_tags_are_those_of_all_sequences(crf: CRF, length: int) -> None:
    P = scores(length)
    best = max(sequences(length), key=lambda tags: score(crf, P.tolist(), tags))
    assert crf.best(P) == [*best]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_marginals_add_up_the_sequences_with_a_tag(crf: CRF, length: int) -> None:
    P = scores(length)
    weights = {tags: exp(score(crf, P.tolist(), tags)) for tags in sequences(length)}
    expected = [
        [
            sum(weight for tags, weight in weights.items() if tags[place] == tag)
            for tag in range(TAGS)
        ]
        for place in range(length)
    ]
    assert torch.allclose(
        crf.log_marginals(P).exp(), torch.tensor(expected).double() / sum(weights.values())
    )


def test_the_likelihood_of_sentences_of_different_lengths(crf: CRF) -> None:
    lengths, tags = [4, 1, 2], [(0, 2, 2, 1), (1,), (2, 0)]
    P_BLY = torch.full((3, 4, TAGS), 1e3, dtype=torch.double)  # which padding would show
    tags_BL = torch.full((3, 4), -100)
    expected = []
    for row, (length, own) in enumerate(zip(lengths, tags, strict=True)):
        P_BLY[row, :length] = scores(length)
        tags_BL[row, :length] = torch.tensor(own)
        log_z = log(
            sum(exp(score(crf, scores(length).tolist(), every)) for every in sequences(length))
        )
        expected.append(score(crf, scores(length).tolist(), own) - log_z)
    found = crf.log_likelihood(P_BLY, tags_BL, torch.tensor(lengths))
    assert found.tolist() == pytest.approx(expected)
