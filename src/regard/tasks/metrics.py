"""How well labels and numbers are found. Shares are between 0 and 1."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.text.normalise import comparable, fold_white_space

Numbers = NDArray[np.float64]
Classes = NDArray[np.int64]


def perplexity(loss: float) -> float:
    """e to the mean cross-entropy, as far as a float can tell."""
    return math.exp(min(loss, 700.0))


def confusion(true: Classes, found: Classes, classes: int) -> Classes:
    """How often each class was taken for each: true classes are rows, found ones are columns."""
    return np.bincount(true * classes + found, minlength=classes * classes).reshape(classes, classes)


def accuracy(matrix: Classes) -> float:
    return float(np.trace(matrix) / matrix.sum())


def by_class(matrix: Classes) -> tuple[Numbers, Numbers, Numbers]:
    """Precision, recall and F1 of each class; 0 where a class is never found, or never there."""
    right, found, there = np.diag(matrix).astype(float), matrix.sum(0), matrix.sum(1)
    precision = np.divide(right, found, out=np.zeros_like(right), where=found > 0)
    recall = np.divide(right, there, out=np.zeros_like(right), where=there > 0)
    f1 = np.divide(2 * right, found + there, out=np.zeros_like(right), where=found + there > 0)
    return precision, recall, f1


def f1_macro(matrix: Classes) -> float:
    """The mean of the classes' F1, of those that are there or are found."""
    there = (matrix.sum(0) + matrix.sum(1)) > 0
    return float(by_class(matrix)[2][there].mean())


def f1_micro(matrix: Classes) -> float:
    """F1 over all decisions; with one class for each example it is the accuracy."""
    return accuracy(matrix)


def matthews(matrix: Classes) -> float:
    """The correlation of true and found classes: 1 all right, 0 no better than chance.

    Matthews 1975, for several classes Gorodkin 2004, with c right of s, t_k and p_k how often k is true and found:
        (c s - sum_k t_k p_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))
    """
    values = matrix.astype(float)
    total, true, found = values.sum(), values.sum(1), values.sum(0)
    spread = np.sqrt((total**2 - found @ found) * (total**2 - true @ true))
    return float((np.trace(values) * total - true @ found) / spread) if spread else 0.0


def pearson(true: Numbers, found: Numbers) -> float:
    """The linear correlation; 0 where one of the two does not vary."""
    x, y = true - true.mean(), found - found.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


def spearman(true: Numbers, found: Numbers) -> float:
    """The linear correlation of the ranks, equals sharing theirs."""
    return pearson(ranks(true), ranks(found))


def ranks(values: Numbers) -> Numbers:
    """The rank of each value from 1; equals have the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def classification_metrics(true: Classes, found: Classes, labels: Sequence[str]) -> dict[str, Any]:
    """Accuracy, F1, Matthews' correlation, each class by itself, and what was taken for what."""
    matrix = confusion(true, found, len(labels))
    columns = zip(labels, *(one.tolist() for one in by_class(matrix)), matrix.sum(1).tolist(), strict=True)
    return {
        "accuracy": accuracy(matrix),
        "f1_macro": f1_macro(matrix),
        "f1_micro": f1_micro(matrix),
        "matthews": matthews(matrix),
        "classes": {label: {"precision": p, "recall": r, "f1": f, "examples": n} for label, p, r, f, n in columns},
        "confusion": {
            label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, matrix.tolist(), strict=True)
        },
    }


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
    there = [one for one in (normalised(text, script) for text in expected) if one] or [""]
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


def tokens_of(text: str, tokenize: Literal["words", "characters"], lowercase: bool) -> list[str]:
    """Words, or their characters (Korean syllables); signs that are neither letter nor digit only separate words."""
    signs = (sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in comparable(text, lowercase))
    words = "".join(signs).split()
    return words if tokenize == "words" else list("".join(words))


def rouge_n(output: Sequence[str], reference: Sequence[str], n: int) -> float:
    """F1 of the n-grams, each counted as often as both sides have it."""
    ours, theirs = _ngrams(output, n), _ngrams(reference, n)
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(output: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence."""
    return _f1(common_subsequence(output, reference), len(output), len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a row of its table at once in the bits of one number.

    Hyyro 2004, "Bit-Parallel LCS-length Computation Revisited": bit i of V is 0 where the row rises after first[i].
    """
    places: dict[str, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    every = V = (1 << len(first)) - 1
    for token in second:
        U = V & places.get(token, 0)
        V = (V + U | V - U) & every
    return len(first) - V.bit_count()


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))


def _f1(common: int, output: int, reference: int) -> float:
    """2 P R / (P + R) with P = common / output and R = common / reference."""
    return 2 * common / (output + reference) if common else 0.0
