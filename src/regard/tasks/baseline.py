"""Linear models of scikit-learn to compare a network with: `evaluate --baseline` and
benchmarks/proposals.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import import_extra
from regard.tasks.task import Metrics

Texts = Sequence[str]
TAG_ITERATIONS = 100
"""Iterations of L-BFGS for tags."""
PREFERRED_METRICS = ("f1",)
"""Metrics that choose the strongest model, if the task has them; otherwise its first one does."""
NGRAM_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "words": {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "characters": {"analyzer": "char_wb", "ngram_range": (1, 3)},
}
"""The n-grams that TF-IDF counts: one or two words, and one to three characters within a word."""


def sklearn_module(name: str) -> Any:
    return import_extra(f"sklearn.{name}", extra="baseline", where="--baseline", doing="computing")


def text_features(counted: str, train: Sequence[Texts], test: Sequence[Texts]) -> tuple[Any, Any]:
    """The TF-IDF vectors of a text; of two texts, with the vectors u and v: |u - v|, u * v and the
    cosine.

    `train` and `test` hold one or two columns of texts.
    """
    vectorizer = sklearn_module("feature_extraction.text").TfidfVectorizer(**NGRAM_OPTIONS[counted])
    vectorizer.fit([text for column in train for text in column])
    return _vectors(vectorizer, train), _vectors(vectorizer, test)


def _vectors(vectorizer: Any, columns: Sequence[Texts]) -> Any:
    if len(columns) == 1:
        return vectorizer.transform(columns[0])
    sparse = import_extra("scipy.sparse", extra="baseline", where="--baseline", doing="computing")
    u, v = map(vectorizer.transform, columns)
    product = u.multiply(v)
    return sparse.hstack([abs(u - v), product, sparse.csr_matrix(product.sum(1))]).tocsr()


def classes(
    train: Sequence[Texts], targets: NDArray[Any], test: Sequence[Texts], count: int
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """log P of each of so many classes for the test rows, by logistic regression on words and on
    characters."""
    regression = sklearn_module("linear_model").LogisticRegression
    for counted in NGRAM_OPTIONS:
        train_XF, test_XF = text_features(counted, train, test)
        model = regression(C=5, max_iter=1000).fit(train_XF, targets)
        log_p_XY = np.full((len(test[0]), count), -100.0, dtype=np.float32)
        log_p_XY[:, model.classes_] = np.maximum(model.predict_log_proba(test_XF), -100.0)
        yield f"TF-IDF of {counted}, logistic regression", log_p_XY


def numbers(
    train: Sequence[Texts], targets: NDArray[Any], test: Sequence[Texts]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The number of each test row, [X, 1], by ridge regression on words and on characters."""
    ridge = sklearn_module("linear_model").Ridge
    for counted in NGRAM_OPTIONS:
        train_XF, test_XF = text_features(counted, train, test)
        numbers_X = ridge(alpha=3).fit(train_XF, targets).predict(test_XF)
        yield f"TF-IDF of {counted}, ridge regression", numbers_X[:, None].astype(np.float32)


def tags(
    train: Sequence[Texts], labels: Sequence[NDArray[Any]], test: Sequence[Texts], count: int
) -> Iterator[tuple[str, list[NDArray[np.float32]]]]:
    """log P of each of so many tags for every word of the test sentences, by logistic regression on
    windows."""
    vectorizer = sklearn_module("feature_extraction").DictVectorizer()
    train_XF = vectorizer.fit_transform(
        [features for words in train for features in word_windows(words)]
    )
    test_XF = vectorizer.transform([features for words in test for features in word_windows(words)])
    model = sklearn_module("linear_model").LogisticRegression(C=5, max_iter=TAG_ITERATIONS)
    model.fit(train_XF, np.concatenate([*labels]))
    log_p_XY = np.full((test_XF.shape[0], count), -100.0, dtype=np.float32)
    log_p_XY[:, model.classes_] = np.maximum(model.predict_log_proba(test_XF), -100.0)
    yield (
        "windows of words and affixes, logistic regression",
        np.split(log_p_XY, np.cumsum([*map(len, test)])[:-1]),
    )


def word_windows(words: Texts) -> Iterator[dict[str, int]]:
    """For each word the words around it, pairs and triples of neighbours, its affixes and the shape
    of its letters."""
    padded = [*[""] * 3, *words, *[""] * 3]
    lower = [word.lower() for word in padded]
    shapes = [shape(word) for word in padded]
    for place in range(3, 3 + len(words)):
        features = {f"{offset} {lower[place + offset]}": 1 for offset in range(-3, 4)}
        features |= {
            f"{offset} {' '.join(lower[place + offset : place + offset + 2])}": 1
            for offset in range(-2, 2)
        }
        features |= {
            f"{offset} {' '.join(lower[place + offset : place + offset + 3])}": 1
            for offset in range(-2, 1)
        }
        features |= {f"shape:{offset}:{shapes[place + offset]}": 1 for offset in (-1, 0, 1)}
        features[f"word {padded[place]}"] = 1
        for size in range(1, 5) if len(padded[place]) > 1 else ():
            features[f"begins {lower[place][:size]}"] = 1
            features[f"ends {lower[place][-size:]}"] = 1
        yield features


def shape(word: str) -> str:
    """`Xx-d` for `Apollo-11`: upper and lower case, digits and other signs, each repeated one
    once."""
    kinds = [
        "X" if sign.isupper() else "x" if sign.isalpha() else "d" if sign.isdigit() else sign
        for sign in word
    ]
    return "".join(
        kind for number, kind in enumerate(kinds) if number == 0 or kinds[number - 1] != kind
    )


def strongest(
    metrics: Metrics, higher_is_better: Sequence[str], train: Any, examples: Any
) -> dict[str, Any]:
    """The metrics on the examples of the linear model that is best on them, and its name; empty if
    the task has none.

    The choice is to the advantage of the baseline: it has seen the answers.
    """
    best: dict[str, Any] = {}
    names = (*PREFERRED_METRICS, *higher_is_better[:1])
    metric = next((name for name in names if name in higher_is_better), "")
    for name, results in metrics.baselines(train, examples):
        scores = metrics.scores(examples, results)
        if not best or scores[metric] > best[metric]:
            kept = {key: value for key, value in scores.items() if key in higher_is_better}
            best = {"model": name} | kept
    return best
