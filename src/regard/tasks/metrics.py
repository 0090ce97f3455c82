"""How well labels, numbers and answers are predicted. Shares are between 0 and 1."""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.text.normalise import fold_white_space

Numbers = NDArray[np.float64]
Classes = NDArray[np.int64]


def classification_metrics(true: Classes, predicted: Classes, labels: Sequence[str]) -> dict[str, Any]:
    """Accuracy, F1, Matthews' correlation, each class by itself, and what was taken for what.

    A class has 0 where it is never predicted, or never true. `f1_macro` is the mean over the classes that are true or
    predicted somewhere; with one class for each example `f1_micro`, over all decisions, is the accuracy.
    """
    classes = len(labels)
    matrix = np.bincount(true * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    right, predicted_Y, true_Y = np.diag(matrix).astype(float), matrix.sum(0), matrix.sum(1)
    precision, recall, f1_Y = (
        np.divide(part, whole, out=np.zeros_like(right), where=whole > 0)
        for part, whole in ((right, predicted_Y), (right, true_Y), (2 * right, predicted_Y + true_Y))
    )
    accuracy = float(right.sum() / matrix.sum())
    columns = zip(labels, precision.tolist(), recall.tolist(), f1_Y.tolist(), true_Y.tolist(), strict=True)
    return {
        "accuracy": accuracy,
        "f1_macro": float(f1_Y[predicted_Y + true_Y > 0].mean()),
        "f1_micro": accuracy,
        "matthews": matthews(matrix),
        "classes": {label: {"precision": p, "recall": r, "f1": f, "examples": n} for label, p, r, f, n in columns},
        "confusion": {
            label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, matrix.tolist(), strict=True)
        },
    }


def matthews(matrix: Classes) -> float:
    """The correlation of true and predicted classes: 1 all right, 0 no better than chance. True classes are rows.

    Matthews 1975, for several classes Gorodkin 2004, with c right of s, t_k and p_k how often k is true and predicted:
        (c s - sum_k t_k p_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))
    """
    values = matrix.astype(float)
    total, true, predicted = values.sum(), values.sum(1), values.sum(0)
    spread = np.sqrt((total**2 - predicted @ predicted) * (total**2 - true @ true))
    return float((np.trace(values) * total - true @ predicted) / spread) if spread else 0.0


def pearson(true: Numbers, predicted: Numbers) -> float:
    """The linear correlation; 0 where one of the two does not vary."""
    x, y = true - true.mean(), predicted - predicted.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


def spearman(true: Numbers, predicted: Numbers) -> float:
    """The linear correlation of the ranks; equals share the mean of theirs."""

    def ranks(values: Numbers) -> Numbers:
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[places]

    return pearson(ranks(true), ranks(predicted))


Script = Literal["squad", "korquad"]
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_BRACKETS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalised(text: str, script: Script) -> str:
    """Lower case, without punctuation and more than one space; English without articles."""
    if script == "korquad":
        return fold_white_space(text.translate(_BRACKETS).lower().translate(_PUNCTUATION))
    return fold_white_space(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)))


def exact_match(answer: str, expected: Sequence[str], script: Script = "squad") -> float:
    """1 if the answer is one of those expected."""
    return _best(lambda ours, theirs: float(ours == theirs), answer, expected, script)


def f1(answer: str, expected: Sequence[str], script: Script = "squad") -> float:
    """2 P R / (P + R) of the words, or characters, each counted as often as both have it."""

    def overlap(ours: str, theirs: str) -> float:
        parts = [Counter(side.replace(" ", "") if script == "korquad" else side.split()) for side in (ours, theirs)]
        if not all(parts):  # where one side is no answer, only equals agree
            return float(ours == theirs)
        return 2 * (parts[0] & parts[1]).total() / (parts[0].total() + parts[1].total())

    return _best(overlap, answer, expected, script)


def _best(compare: Callable[[str, str], float], answer: str, expected: Sequence[str], script: Script) -> float:
    """As in the script of SQuAD 2.0, an expected answer of which nothing is left does not count."""
    there = list(filter(None, (normalised(text, script) for text in expected))) or [""]
    ours = normalised(answer, script)
    return max(compare(ours, theirs) for theirs in there)


def best_threshold(
    no_answer: Sequence[float], scores: Sequence[float], unanswered: Sequence[bool]
) -> tuple[float, float]:
    """The threshold above which not to answer that gives the highest mean score, and that mean.

    `scores` are of the answers, `no_answer` says how much likelier none is; as find_best_thresh of SQuAD 2.0 does it,
    but half-way to the next question.
    """
    gains = defaultdict[float, float](float)
    for value, score, none in zip(no_answer, scores, unanswered, strict=True):
        gains[value] += score - none
    values = sorted(gains)
    total = best = float(sum(unanswered))
    threshold = values[0] - 1.0
    for value, above in zip(values, [*values[1:], values[-1] + 2.0], strict=True):
        total += gains[value]
        if total > best:
            best, threshold = total, (value + above) / 2
    return threshold, best / len(scores)
