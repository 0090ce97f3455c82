"""Metrics of labels and numbers against scikit-learn and SciPy, and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.class_labels import balanced
from regard.tasks.class_metrics import classification_metrics, probabilities
from regard.tasks.regression import pearson, spearman
from regard.text.normalise import natural
from regard.views.labels import Metrics
from regard.views.terminal import as_text

sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)
NUMBERS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=40)


@given(PAIRS)
def test_classes_against_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    true, found = np.array(pairs).T
    metrics = classification_metrics(true, found, list("abcd"))
    matrix = [list(row.values()) for row in metrics["confusion"].values()]
    assert matrix == sklearn.confusion_matrix(true, found, labels=range(4)).tolist()
    assert metrics["accuracy"] == pytest.approx(sklearn.accuracy_score(true, found))
    for average in ("macro", "micro"):
        expected = sklearn.f1_score(true, found, average=average, zero_division=0)
        assert metrics[f"f1_{average}"] == pytest.approx(expected)
    if len(set(true) | set(found)) > 1:  # scikit-learn warns where there is nothing to correlate
        assert metrics["matthews"] == pytest.approx(
            sklearn.matthews_corrcoef(true, found), abs=1e-12
        )
    expected = sklearn.precision_recall_fscore_support(
        true, found, labels=range(4), zero_division=0
    )
    rows = zip(*(column.tolist() for column in expected), strict=True)
    for one, row in zip(metrics["classes"].values(), rows, strict=True):
        assert list(one.values()) == pytest.approx(list(row))


@given(NUMBERS)
def test_numbers_against_scipy(pairs: list[tuple[int, int]]) -> None:
    true, found = np.array(pairs, dtype=float).T
    if len(set(true)) > 1 and len(set(found)) > 1:
        assert pearson(true, found) == pytest.approx(
            stats.pearsonr(true, found).statistic, abs=1e-9
        )
        assert spearman(true, found) == pytest.approx(
            stats.spearmanr(true, found).statistic, abs=1e-9
        )
    else:
        assert pearson(true, found) == spearman(true, found) == 0.0


def test_labels_are_sorted_as_people_would() -> None:
    assert sorted(["10", "9", "b", "a10", "a2", "-1", "B"], key=natural) == [
        "-1",
        "9",
        "10",
        "B",
        "a2",
        "a10",
        "b",
    ]


def test_balanced_weights_by_hand() -> None:
    """Three a, one b: 4 / (2 * 3) and 4 / (2 * 1); a class of which there is none counts as if
    there were one."""
    assert balanced(["a", "b"], ["a", "a", "b", "a"]) == {"a": pytest.approx(2 / 3), "b": 2.0}
    assert balanced(["a", "b"], ["a", "a"]) == {"a": 0.5, "b": 1.0}


def test_probabilities_do_not_overflow() -> None:
    assert probabilities(np.array([[1e4, 1e4], [0.0, -1e4]], dtype=np.float32)).tolist() == [
        [0.5, 0.5],
        [1.0, 0.0],
    ]


def test_metrics_for_people() -> None:
    classes = {"부정": {"f1": 0.5, "examples": 3}, "a": {"f1": 1.0, "examples": 12}}
    many = {str(row): {str(column): int(row == column) for column in range(20)} for row in range(2)}
    tasks = {"one": 0.5, "bits_per_character": 2}
    metrics = {
        "files": ["a", "b"],
        "accuracy": 0.25,
        "classes": classes,
        "tasks": tasks,
        "confusion": many,
    }
    printed = [line.split() for line in as_text(Metrics(metrics).report()).splitlines()]
    assert [words for words in printed if words and not words[0].startswith("─")] == [
        ["metric", "value"],
        ["files", "a,", "b"],
        ["accuracy", "0.2500"],
        ["classes", "f1", "examples"],
        ["부정", "0.5000", "3"],
        ["a", "1.0000", "12"],
        ["tasks", "value"],
        ["one", "0.5000"],
        ["bits_per_character", "2"],
        ["confusion", "predicted", "count"],
        ["0", "0", "1"],
        ["1", "1", "1"],
    ]
