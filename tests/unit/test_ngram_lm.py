"""N-gram language models: counts by hand, probabilities against plain loops over dictionaries."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from math import exp, log
from typing import Any

import pytest
import torch

from language_model_cases import text_batch
from model_cases import tokens_of
from regard.errors import ConfigError
from regard.models.ngram_lm import NgramConfig, NgramLanguageModel
from regard.objectives.language_model import LeavingOneOut

V = 6
TEXTS = [[0, 1, 2, 1, 3, 0], [0, 1, 2, 2, 4, 0], [0, 4, 1, 2, 0]]
"""Texts between two tokens 0; the token 5 occurs nowhere."""
SMOOTHINGS = ("add_k", "interpolation", "kneser_ney")
Events = Sequence[tuple[tuple[int, ...], int]]
"""Contexts, with fillers before a text, and the words after them."""


def fitted(smoothing: str, order: int = 3) -> NgramLanguageModel:
    config = NgramConfig.model_validate({"smoothing": smoothing, "order": order})
    model = NgramLanguageModel(config, V).double()
    model.count(iter([tokens_of(TEXTS[:1]), tokens_of(TEXTS[1:])]))
    return model


def events(order: int) -> list[tuple[tuple[int, ...], int]]:
    rows = [[*[V] * (order - 1), *text] for text in TEXTS]
    return [
        (tuple(row[place - order + 1 : place]), row[place])
        for row in rows
        for place in range(order, len(row))
    ]


def plain_counts(seen: Events, order: int, n: int, *, continued: bool) -> Counter[tuple[int, ...]]:
    """How often each n-gram occurs; or the number of words before it, if there is one."""
    grams = [(*context, word)[order - n :] for context, word in seen]
    if not continued or n == order:
        return Counter(grams)
    longer = Counter((*context, word)[order - n - 1 :] for context, word in seen)
    counts = Counter[tuple[int, ...]]()
    for gram, count in longer.items():
        counts[gram[1:]] += count if gram[0] == V else 1
    return counts


def plain_p(model: Any, seen: Events, context: tuple[int, ...], word: int) -> float:
    """The equations of NgramLanguageModel, term by term."""
    order, a = model.config.order, model.a.tolist()
    smoothing = model.config.smoothing
    p, shares = 1 / V, 0.0
    if smoothing == "interpolation":
        shares = exp(a[0]) / sum(map(exp, a))
        p = shares / V
    for n in range(1, order + 1):
        counts = plain_counts(seen, order, n, continued=smoothing == "kneser_ney")
        h = context[order - n :]
        after = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == h}
        c, total = after.get(word, 0), sum(after.values())
        if smoothing == "add_k":
            p = (c + exp(a[0])) / (total + V * exp(a[0]))
        elif smoothing == "interpolation" and total:
            weight = exp(a[n]) / sum(map(exp, a))
            p += weight * c / total
            shares += weight
        elif smoothing == "kneser_ney" and total:
            discount = 1 / (1 + exp(-a[n - 1]))
            p = max(c - discount, 0) / total + discount * len(after) / total * p
    return p / shares if smoothing == "interpolation" else p


def test_a_bigram_by_hand() -> None:
    """After 1 comes 2 three times and 3 once. With k = 0.1, p(2 | 1) = 3.1 / 4.6."""
    model = fitted("add_k", order=2)
    p = model.readout(torch.tensor([[1.0]]).double())[0].exp()
    assert p.tolist() == pytest.approx(
        [0.1 / 4.6, 0.1 / 4.6, 3.1 / 4.6, 1.1 / 4.6, *[0.1 / 4.6] * 2]
    )


def test_kneser_ney_by_hand() -> None:
    """12 occurs three times, 01 twice, 21, 13, 30, 22, 24, 40, 04, 41 and 20 once: D = 9 / (9 + 2).
    As unigrams, 0 follows three words, 1 three, 2 two, 3 one and 4 two."""
    model = fitted("kneser_ney", order=2)
    pairs = Counter(gram for text in TEXTS for gram in pairwise(text))
    once, twice = (sum(count == n for count in pairs.values()) for n in (1, 2))
    assert (once, twice, pairs[1, 2]) == (9, 1, 3)
    discount = 9 / 11
    assert float(model.a.detach()[1].sigmoid()) == pytest.approx(discount)
    first = float(model.a.detach()[0].sigmoid())
    unigram = (2 - first) / 11 + first * 5 / 11 / V
    expected = (3 - discount) / 4 + discount * 2 / 4 * unigram
    p_PV = model.readout(torch.tensor([[1.0]]).double()).detach().exp()
    assert p_PV[0, 2].item() == pytest.approx(expected)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_against_plain_loops(smoothing: str, order: int) -> None:
    model, seen = fitted(smoothing, order), events(order)
    with torch.no_grad():
        model.a.add_(torch.linspace(-0.5, 0.5, len(model.a)))
    contexts = sorted({context for context, _ in seen} | {(*[5] * (order - 1),)})
    width = max(1, order - 1)
    read = torch.tensor([context or (0,) for context in contexts]).view(-1, width)
    p_PV = model.readout(read.double()).detach().exp()
    assert p_PV.sum(1).tolist() == pytest.approx([1.0] * len(contexts))
    for row, (context, word) in enumerate(product(contexts, range(V))):
        expected = plain_p(model, seen, context, word)
        assert float(p_PV[row // V, word]) == pytest.approx(expected, rel=1e-6)
        one = model.probabilities(read[row // V][None], torch.tensor([word]))
        assert float(one) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [2, 3])
def test_a_token_left_out_was_not_counted(smoothing: str, order: int) -> None:
    """Against the same equations over all other tokens."""
    model, seen = fitted(smoothing, order), events(order)
    for place, (context, word) in enumerate(seen):
        others = [*seen[:place], *seen[place + 1 :]]
        p = model.probabilities(torch.tensor([context]), torch.tensor([word]), leave_one_out=True)
        assert float(p) == pytest.approx(plain_p(model, others, context, word), rel=1e-6)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_loss_is_the_sum_of_the_tokens(smoothing: str) -> None:
    model, seen = fitted(smoothing), events(3)
    expected = -sum(log(plain_p(model, seen, *event)) for event in seen)
    loss = LeavingOneOut(model).eval()(text_batch(TEXTS))
    assert loss.tolist() == pytest.approx([expected] * 2, rel=1e-6)


def test_too_many_n_grams_to_number() -> None:
    with pytest.raises(ConfigError, match=r"model\.order: n-grams of 5 tokens out of 50,000"):
        NgramLanguageModel(NgramConfig(order=5), 50_000)
