"""The linear models beside a network: their features by hand, and their weights against
scikit-learn's."""

from collections import Counter
from functools import partial
from math import log, sqrt

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch.nn import functional as F

from regard.data.batches import NO_TAG, LabelledBatch, Padded
from regard.models.ngrams import (
    LinearModel,
    NgramModel,
    WindowModel,
    WordSeparators,
    affixes,
    lower,
    shapes,
)
from regard.text.spelling import letters_of

SPACE, END = 1, 2
WORDS = WordSeparators(SPACE, frozenset({0, END}))
ROWS = 2**20  # so many that no two n-grams share a row


def batch_of(*texts: list[int]) -> LabelledBatch:
    rows = [[END, *text, END] for text in texts]
    longest = max(map(len, rows))
    ids_BL = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    text = Padded.of(ids_BL, torch.tensor([len(row) for row in rows]))
    return LabelledBatch(
        text, ids_BL * 0, torch.arange(len(rows)), torch.zeros(len(rows)), tokens=len(rows)
    )


def grams_within_words(text: list[int]) -> Counter[tuple[int, ...]]:
    row = [SPACE, *text, SPACE]
    grams = [tuple(row[place : place + n]) for n in (1, 2, 3) for place in range(len(row) - n + 1)]
    return Counter(gram for gram in grams if SPACE not in gram[1:-1])


def test_the_vector_of_a_text_is_tf_idf_within_words() -> None:
    texts = [[5, 6, 5, SPACE, 7], [5, 5], [7, 6]]
    counts = [*map(grams_within_words, texts)]
    model = NgramModel(ROWS, 2, WORDS, None)
    model.fit(
        [batch_of(*texts)], torch.tensor([0, 1, 1]), partial(F.cross_entropy, reduction="sum"), 1.0
    )
    _, values_BK = model.features(batch_of(*texts))
    for own, values_K in zip(counts, values_BK, strict=True):
        idf = {gram: 1 + log(4 / (1 + sum(gram in other for other in counts))) for gram in own}
        weights = [(1 + log(count)) * idf[gram] for gram, count in own.items()]
        norm = sqrt(sum(weight**2 for weight in weights))
        assert sorted(values_K[values_K > 0].tolist()) == pytest.approx(
            sorted(weight / norm for weight in weights)
        )


def test_texts_do_not_depend_on_padding() -> None:
    model = NgramModel(ROWS, 2, WORDS, None)
    torch.nn.init.normal_(model.W)
    alone, beside = model(batch_of([5, 6])), model(batch_of([5, 6], [7, 5, SPACE, 6, 6, 7, 5]))[:1]
    assert torch.allclose(alone, beside, atol=1e-6)


def test_two_texts_are_compared_by_difference_product_and_cosines() -> None:
    first, second = [5, 6], [5, SPACE, 6]
    model = NgramModel(ROWS, 1, WORDS, "similarity")
    places_XK, values_XK = model.features(batch_of(first, second))
    dense = values_XK[0][places_XK[0] >= 2 * ROWS].tolist()
    # without idf, u is 1 where the first has the n-gram: [_ 5 6], [_5 56 6_], [_56 56_], the word
    # 56, no pair v: [_ 5 6], with _ three times; [_5 5_ _6 6_], [_5_ _6_], the words 5 and 6, the
    # pair 5 6
    space = 1 + log(2), 1 + log(3)
    one = (space[0] * space[1] + 2) / sqrt((space[0] ** 2 + 2) * (space[1] ** 2 + 2))
    cosines = [one, 2 / sqrt(3 * 4), 0, 0, 0]
    assert dense == pytest.approx([*cosines, *(cosine**2 for cosine in cosines)], abs=1e-6)
    blocks = [
        values_XK[0][(places_XK[0] // ROWS == block) & (places_XK[0] < 2 * ROWS)]
        for block in (0, 1)
    ]
    u = model.normalised(*model.weighted(batch_of(first).text))
    v = model.normalised(*model.weighted(batch_of(second).text))
    assert 2 * blocks[0].sum().item() + (blocks[1] ** 2).sum().item() == pytest.approx(
        (u**2).sum().item() + (v**2).sum().item(), abs=1e-5
    )  # |u - v|^2 + 2 u v = u^2 + v^2


class Plain(LinearModel):
    """A linear model whose features are the numbers of the text."""

    def features(self, batch: LabelledBatch) -> tuple[torch.Tensor, torch.Tensor]:
        values_BK = batch.segments_BL.float()
        return torch.arange(values_BK.shape[1]).expand_as(values_BK), values_BK


def test_the_fit_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 5)), random.integers(0, 3, 60)
    text = Padded.of(torch.zeros(60, 5, dtype=torch.long), torch.full((60,), 5))
    batch = LabelledBatch(text, torch.tensor(x), torch.arange(60), torch.tensor(y), tokens=60)
    model = Plain(5, 3)
    model.fit([batch], torch.tensor(y), partial(F.cross_entropy, reduction="sum"), 0.5)
    expected = LogisticRegression(C=2).fit(x, y)
    found = model(batch).log_softmax(-1).numpy()
    assert np.allclose(found, expected.predict_log_proba(x), atol=2e-3)
    model = Plain(5, 1)
    numbers = torch.tensor(x @ [1.0, 2, 3, 4, 5] + 7 + y).float()
    model.fit([batch], numbers, lambda o_B1, y_B: ((o_B1[:, 0] - y_B) ** 2).sum() / 2, 3.0)
    assert np.allclose(
        model(batch)[:, 0].numpy(), Ridge(alpha=3).fit(x, numbers).predict(x), atol=2e-3
    )


def spelt(*words: str) -> torch.Tensor:
    letters = [letters_of(word, 20) for word in words]
    return torch.tensor([[*own, *[0] * (20 - len(own))] for own in letters])


def test_shapes_affixes_and_case() -> None:
    same = shapes(spelt("Apollo-11", "Soyuz-9", "SOYUZ-9"))
    assert torch.equal(*[row[row > 0] for row in same[:2]])
    assert not torch.equal(same[1][same[1] > 0], same[2][same[2] > 0])
    assert torch.equal(lower(spelt("ZebrA")), spelt("zebra"))
    begins, ends = affixes(spelt("walking", "talking", "walks"))[4:6]  # of three bytes
    assert begins[0] == begins[2] != begins[1]
    assert ends[0] == ends[1] != ends[2]
    assert [part.tolist() for part in affixes(spelt("a"))] == [
        [0]
    ] * 10  # no more letters than the affix


def test_words_are_seen_three_places_away_and_no_farther() -> None:
    characters_VC = spelt("<pad>", "</s>", "a", "b", "c")
    model = WindowModel(2**16, 2, characters_VC)
    torch.nn.init.normal_(model.W)

    def scores(*ids: int) -> torch.Tensor:
        ids_BL = torch.tensor([ids])
        text = Padded.of(ids_BL, torch.tensor([len(ids)]))
        return model(
            LabelledBatch(
                text, ids_BL * 0, torch.zeros(1), torch.full_like(ids_BL, NO_TAG), tokens=1
            )
        )[0]

    one, other = scores(2, 2, 2, 2, 2, 2), scores(2, 2, 2, 2, 2, 3)
    assert [bool(same) for same in (one == other).all(-1)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
