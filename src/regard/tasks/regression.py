"""Regression: a text, or two, in; a number out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from regard.data.config import as_list
from regard.data.dataset import Dataset, Where
from regard.data.example import Example
from regard.data.labelled import Labelled, LabelledData
from regard.models import config_of
from regard.models.headed import ApartHead, Headed, TextHead
from regard.models.ngrams import Loss
from regard.objectives.labels import SquaredError
from regard.tasks import baseline
from regard.tasks.headed import Line, Scores, TextHeadConfig, TextLabelling, refuse_labels, section
from regard.tasks.task import Prediction


class NumberHeadConfig(TextHeadConfig):
    """A head that gives a number."""

    both_orders: bool = False
    """Read two texts in both orders and take the mean: GPT's way for texts that are compared as
    equals. Default: true for two texts with lstm_lm and gpt, which see only what stands before."""
    apart: bool = False
    """Read two texts each by itself and compare their vectors, as Sentence-BERT does: the cosine
    between them, stretched to the labels, is the number. Their `pooling` is then mean by
    default."""


class Regression(TextLabelling):
    """Texts with numbers, measured by Pearson's and Spearman's correlation, and by how far off the
    numbers are."""

    name = "regression"
    data = LabelledData[Labelled]
    head = NumberHeadConfig
    smooths = False
    scales = (1.0,)
    higher_is_better, lower_is_better = ("pearson", "spearman"), ("loss", "mae", "rmse")
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"stratify": False},
        "training": {"label_smoothing": 0.0, "best": "pearson"},
    }

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        tree = super().complete(tree)
        train = as_list(section(tree, "data").get("train"))
        first = train[0] if isinstance(train, list) and train else None
        has_pairs = isinstance(first, dict) and first.get("first") is not None
        causal = config_of(section(tree, "model").get("kind")).causal
        both_orders = causal and has_pairs and not tree["head"].get("apart")
        return tree | {"head": {"both_orders": both_orders} | tree["head"]}

    def numbers(self, labels: Sequence[str], where: Where) -> NDArray[np.float32]:
        refuse_labels(
            labels, lambda label: "" if math.isfinite(_number(label)) else "is not a number", where
        )
        return np.array([_number(label) for label in labels], dtype=np.float32)

    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        """Start from the mean of the numbers; where two texts are compared, from a cosine of 0 for
        the lowest and of 1 for the highest."""
        super().set_first_weights(model, train)
        targets, head = self.targets(train), model.head
        assert isinstance(head, TextHead | ApartHead)
        apart = self.arrangement_of(train) == "apart"
        with torch.no_grad():
            head.linear.bias.fill_(float(targets.min() if apart else targets.mean()))
            if apart:
                head.linear.weight.fill_(float(np.ptp(targets)))

    @property
    def linear_loss(self) -> tuple[Loss, float]:
        return lambda scores_X1, y_X: F.mse_loss(scores_X1[:, 0], y_X, reduction="sum") / 2, 3.0

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        texts, others = ([part.texts[name] for name in part.columns] for part in (train, examples))
        return baseline.numbers(texts, self.targets(train), others)

    def objective(self, model: Headed) -> SquaredError:
        return SquaredError(model, auxiliary=self.recipe.head.auxiliary)

    def combine(self, examples: Dataset, parts: Sequence[Sequence[Scores]]) -> dict[str, Any]:
        metrics = super().combine(examples, parts)
        worst = sorted(metrics["predictions"], key=lambda line: -line["error"])
        return metrics | {"errors": worst[: math.ceil(0.1 * len(worst))]}

    def scores(self, examples: Dataset, results: Sequence[Scores]) -> dict[str, Any]:
        true_X, output_X = (
            self.targets(examples).astype(np.float64),
            np.stack(results)[:, 0].astype(np.float64),
        )
        loss = float(((output_X - true_X) ** 2).mean())
        return {
            "loss": loss,
            "pearson": pearson(true_X, output_X),
            "spearman": spearman(true_X, output_X),
            "mae": float(np.abs(output_X - true_X).mean()),
            "rmse": math.sqrt(loss),
        }

    def line(self, examples: Dataset, row: int, result: Scores) -> Line:
        true, output = float(examples.texts["label"][row]), float(result[0])
        return {
            "input": self.input_of(examples, row),
            "label": true,
            "output": output,
            "error": abs(output - true),
        }

    def prediction(self, given: Example, examples: Dataset, row: int, result: Scores) -> Estimated:
        return Estimated(given.text, float(result[0]))


@dataclass(frozen=True)
class Estimated(Prediction):
    """A text and the number that the model has for it."""

    output: float

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output}

    def lines(self, nbest: int) -> Iterator[str]:
        yield f"{self.output:.4f}"


def _number(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        return math.nan


def pearson(true: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The linear correlation; 0 where one of the two does not vary."""
    x, y = true - true.mean(), predicted - predicted.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


def spearman(true: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The linear correlation of the ranks; equals share the mean of theirs."""

    def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[places]

    return pearson(ranks(true), ranks(predicted))
