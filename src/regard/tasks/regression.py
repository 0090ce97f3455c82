"""Regression: a text, or two, in; a number out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.data.dataset import Dataset
from regard.data.labelled import LabelledData
from regard.data.labelled_examples import Arrangement, LabelledExamples
from regard.data.prepare import Prepared
from regard.errors import Problem
from regard.models import config_of
from regard.models.headed import Headed
from regard.objectives.labels import SquaredError, by_example
from regard.tasks.classification import arrangement_of
from regard.tasks.labelling import Scores, TextHeadConfig, TextLabelling, refuse_labels, scores_of
from regard.tasks.metrics import pearson, spearman
from regard.text.tokenizers import Tokenizers

WORST = 0.1
"""The share of the predictions that are told as errors: those that are farthest off."""


class NumberHeadConfig(TextHeadConfig):
    """A head that gives a number."""

    both_orders: bool = False
    """Read two texts in both orders and take the mean: GPT's way for texts that are compared as equals. Default: true
    for two texts with lstm_lm and gpt, which see only what stands before."""
    apart: bool = False
    """Read two texts each by itself and compare their vectors, as Sentence-BERT does: the cosine between them,
    stretched to the labels, is the number. Their `pooling` is then mean unless it is said."""


class Regression(TextLabelling):
    """Texts with numbers, measured by Pearson's and Spearman's correlation."""

    name = "regression"
    data = LabelledData
    head = NumberHeadConfig
    higher_is_better: ClassVar[Mapping[str, bool]] = {"loss": False, "pearson": True, "spearman": True}
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0, "best": "pearson"}}

    @classmethod
    def filled(cls, tree: dict[str, Any]) -> dict[str, Any]:
        tree = super().filled(tree)
        causal = isinstance(tree.get("model"), dict) and config_of(tree["model"].get("kind")).causal
        both_orders = causal and _has_pairs(tree) and not tree["head"].get("apart")
        return tree | {"head": {"both_orders": both_orders} | tree["head"]}

    @classmethod
    def arrangement(cls, recipe: Any, columns: Sequence[str]) -> Arrangement:
        return arrangement_of(columns, recipe)

    @classmethod
    def names_in(cls, recipe: Any, train: Dataset) -> tuple[str, ...]:
        return ()

    @classmethod
    def numbers(cls, dataset: Dataset, names: Sequence[str]) -> NDArray[np.float32]:
        numbers = [_number(label) for label in dataset.texts["label"]]
        refuse_labels(
            [
                Problem(dataset.where(row), f"the label {dataset.texts['label'][row]!r} is not a number")
                for row, number in enumerate(numbers)
                if not math.isfinite(number)
            ]
        )
        return np.array(numbers, dtype=np.float32)

    @classmethod
    def scores(cls, model: Headed, batch: Any) -> Tensor:
        return by_example(model(batch), batch)

    @classmethod
    def objective(cls, model: Headed, recipe: Any) -> SquaredError:
        return SquaredError(model, recipe.head.auxiliary)

    @classmethod
    def validate(cls, model: Headed, recipe: Any, data: Prepared[LabelledExamples]) -> dict[str, Any]:
        return _measured(data.validation, scores_of(cls, model, data.validation)[:, 0])

    @classmethod
    def evaluate(
        cls,
        model: Headed,
        recipe: Any,
        examples: LabelledExamples,
        tokenizers: Tokenizers,
        progress: Callable[[int], None],
    ) -> dict[str, Any]:
        found_X = scores_of(cls, model, examples, progress)[:, 0]
        told = [_told(examples, row, float(found_X[row])) for row in range(len(examples))]
        worst = sorted(told, key=lambda one: -one["error"])[: math.ceil(WORST * len(told))]
        metrics = {"examples": len(examples), **_measured(examples, found_X)}
        return metrics | {"predictions": told, "errors": worst}

    @classmethod
    def prediction(cls, model: Headed, text: str, scores_Y: Scores) -> Estimated:
        return Estimated(text, float(scores_Y[0]))


@dataclass(frozen=True)
class Estimated:
    """A text and the number that the model has for it."""

    input: str
    output: float
    search: None = None

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output}

    def lines(self, nbest: int) -> Iterator[str]:
        yield f"{self.output:.4f}"


def _has_pairs(tree: Mapping[str, Any]) -> bool:
    """Whether the corpora of a recipe that is not checked yet name two texts."""
    data = tree.get("data")
    train = data.get("train") if isinstance(data, dict) else None
    first = train[0] if isinstance(train, list) and train else train
    return isinstance(first, dict) and first.get("first") is not None


def _number(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        return math.nan


def _measured(examples: LabelledExamples, found_X: NDArray[np.float32]) -> dict[str, Any]:
    true, found = examples.labels.astype(np.float64), found_X.astype(np.float64)
    return {
        "loss": float(((found - true) ** 2).mean()),
        "pearson": pearson(true, found),
        "spearman": spearman(true, found),
    }


def _told(examples: LabelledExamples, row: int, found: float) -> dict[str, Any]:
    """A line of the file of predictions."""
    true = float(examples.label(row))
    place, text = examples.where(row), examples.text(row)
    return {"where": place, "input": text, "label": true, "output": found, "error": abs(found - true)}
