"""Scores of classes -> probabilities, accuracy, F1 and Matthews' correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.tasks.labels import Scores


def probabilities(scores_XY: Scores) -> Scores:
    """softmax over the classes."""
    e_XY = np.exp(scores_XY.astype(np.float64) - scores_XY.max(-1, keepdims=True))
    p_XY: Scores = e_XY / e_XY.sum(-1, keepdims=True)
    return p_XY


def classification_metrics(
    true: NDArray[np.int64], predicted: NDArray[np.int64], labels: Sequence[str]
) -> dict[str, Any]:
    """Accuracy, F1, Matthews' correlation, each class by itself, and what was taken for what.

    A class has 0 if it is never predicted, or never true. `f1_macro` is the mean over the
    classes that are true or predicted somewhere; with one class for each example `f1_micro`, over
    all decisions, is the accuracy.
    """
    classes = len(labels)
    matrix = np.bincount(true * classes + predicted, minlength=classes * classes).reshape(
        classes, classes
    )
    right = np.diag(matrix).astype(float)
    predicted_Y = matrix.sum(0)
    true_Y = matrix.sum(1)
    precision, recall, f1_Y = (
        np.divide(part, whole, out=np.zeros_like(right), where=whole > 0)
        for part, whole in (
            (right, predicted_Y),
            (right, true_Y),
            (2 * right, predicted_Y + true_Y),
        )
    )
    accuracy = float(right.sum() / matrix.sum())
    columns = zip(
        labels, precision.tolist(), recall.tolist(), f1_Y.tolist(), true_Y.tolist(), strict=True
    )
    return {
        "accuracy": accuracy,
        "f1_macro": float(f1_Y[predicted_Y + true_Y > 0].mean()),
        "f1_micro": accuracy,
        "matthews": matthews(matrix),
        "classes": {
            label: {"precision": p, "recall": r, "f1": f, "examples": n}
            for label, p, r, f, n in columns
        },
        "confusion": {
            label: dict(zip(labels, row, strict=True))
            for label, row in zip(labels, matrix.tolist(), strict=True)
        },
    }


def matthews(matrix: NDArray[np.int64]) -> float:
    """The correlation of true and predicted classes: 1 all right, 0 no better than chance. True
    classes are rows.

    Matthews 1975, for several classes Gorodkin 2004, with c right of s, t_k and p_k how often k is
    true and predicted:
        (c s - sum_k t_k p_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))
    """
    values = matrix.astype(float)
    total = values.sum()
    true = values.sum(1)
    predicted = values.sum(0)
    spread = np.sqrt((total**2 - predicted @ predicted) * (total**2 - true @ true))
    return float((np.trace(values) * total - true @ predicted) / spread) if spread else 0.0
