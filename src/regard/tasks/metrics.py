"""How well labels and numbers are found. Shares are between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
