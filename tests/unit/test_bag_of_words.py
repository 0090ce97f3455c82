"""Bags of words: vectors by hand and against scikit-learn, and the head's logistic regression."""

from math import log, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from labelled_cases import labelled_batch_of
from model_cases import tokens_of
from regard.models.bag_of_words import BagOfWords, BagOfWordsConfig
from regard.models.headed import HeadConfig, Headed, TextHead

TEXTS = [[3, 4, 5, 4, 3], [3, 5, 3], [3, 6, 7, 4, 3]]
"""The token 3 stands in each of them."""
V = 9


def fitted(**fields: Any) -> BagOfWords:
    model = BagOfWords(BagOfWordsConfig.model_validate(fields), V)
    model.count(iter([tokens_of(TEXTS[:2]), tokens_of(TEXTS[2:])]))
    return model


def vectors(model: BagOfWords, texts: list[list[int]]) -> Tensor:
    return model.states(labelled_batch_of(texts, [0] * len(texts), extra=2, filler=8))[:, 0]


def test_one_hot_and_counts_by_hand() -> None:
    """4 twice, 5 once; 3 is in every text and left out, padding is not read."""
    one_hot, counts = (
        vectors(fitted(weights=name), TEXTS[:1])[0] for name in ("one_hot", "counts")
    )
    assert one_hot.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert counts.tolist() == [0, 0, 0, 0, 2, 1, 0, 0, 0]


def test_tf_idf_by_hand() -> None:
    """Of three texts, two have 4 and two have 5; one has 6."""
    idf = {4: 1 + log(4 / 3), 5: 1 + log(4 / 3), 6: 1 + log(4 / 2)}
    x = vectors(fitted(), [[3, 4, 4, 6]])[0]
    length = sqrt((2 * idf[4]) ** 2 + idf[6] ** 2)
    assert x[4].item() == pytest.approx(2 * idf[4] / length)
    assert x[6].item() == pytest.approx(idf[6] / length)
    assert x.count_nonzero() == 2


def test_stop_words_are_the_words_of_most_texts() -> None:
    x = vectors(fitted(weights="counts", stop_words=2), TEXTS)
    assert x.nonzero().tolist() == [[2, 6], [2, 7]]
    everything = vectors(fitted(weights="counts", stop_words=100), TEXTS)
    assert not everything.any()


def test_tf_idf_against_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.feature_extraction.text")
    words = [[f"w{token}" for token in text if token != 3] for text in TEXTS]
    vectorizer = sklearn.TfidfVectorizer(analyzer=list)
    expected = torch.from_numpy(vectorizer.fit_transform(words).toarray()).float()
    columns = [int(name[1:]) for name in vectorizer.get_feature_names_out()]
    torch.testing.assert_close(vectors(fitted(), TEXTS)[:, columns], expected)


def test_the_head_is_scikit_learns_logistic_regression() -> None:
    """With its weights, its probabilities; and trained to the end, its loss."""
    linear = pytest.importorskip("sklearn.linear_model")
    torch.manual_seed(1)
    base = fitted(weights="counts")
    texts = [torch.randint(4, V, (7,)).tolist() for _ in range(60)]
    labels = [text[0] % 3 for text in texts]
    x = vectors(base, texts)
    found = linear.LogisticRegression(C=2.0, tol=1e-8, max_iter=5000).fit(x.numpy(), labels)
    head = TextHead(V, 3, pooling="first", pooler=None, dropout=0.0)
    model = Headed(base, HeadConfig(), lambda width: head)
    batch = labelled_batch_of(texts, labels)
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(found.coef_))
        head.linear.bias.copy_(torch.from_numpy(found.intercept_))
        p_XY = model(batch).softmax(-1)
    theirs_XY = torch.from_numpy(found.predict_proba(x.numpy()))
    torch.testing.assert_close(p_XY, theirs_XY.float())

    def loss() -> Tensor:
        plain = torch.nn.functional.cross_entropy(model(batch), batch.labels, reduction="sum")
        return plain + head.linear.weight.square().sum() / 4

    theirs = float(loss().detach())
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.zero_()
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        total = loss()
        total.backward()
        return total

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    assert float(loss().detach()) == pytest.approx(theirs, rel=1e-4)
