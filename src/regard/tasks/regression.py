"""Regression: a text, or two, in; a number out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import LabelledBatch
from regard.data.dataset import Dataset
from regard.data.framing import Arrangement
from regard.data.labelled import LabelledData
from regard.errors import Problem
from regard.models import config_of
from regard.models.headed import ApartHead, Headed, TextHead
from regard.objectives.labels import SquaredError, by_example
from regard.tasks.classification import arrangement_of
from regard.tasks.labelling import Scores, TextHeadConfig, TextLabelling, joined_text, refuse_labels
from regard.tasks.metrics import pearson, spearman
from regard.tasks.task import Done

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
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        tree = super().complete(tree)
        causal = isinstance(tree.get("model"), dict) and config_of(tree["model"].get("kind")).causal
        both_orders = causal and _has_pairs(tree) and not tree["head"].get("apart")
        return tree | {"head": {"both_orders": both_orders} | tree["head"]}

    def arrange(self, texts: int) -> Arrangement:
        return arrangement_of(texts, self.recipe)

    def numbers(self, labels: Sequence[str], where: Callable[[int], str]) -> NDArray[np.float32]:
        numbers = [_number(label) for label in labels]
        refuse_labels(
            [
                Problem(where(row), f"the label {label!r} is not a number")
                for row, (label, number) in enumerate(zip(labels, numbers, strict=True))
                if not math.isfinite(number)
            ]
        )
        return np.array(numbers, dtype=np.float32)

    def head_scores(self, model: Headed, batch: LabelledBatch) -> Tensor:
        return by_example(model(batch), batch)

    def first_weights(self, model: Headed, train: Dataset) -> None:  # type: ignore[override]
        """Start from the mean of the numbers; where two texts are compared, from a cosine of 0 for the lowest and of 1
        for the highest."""
        targets, head = self.targets(train), model.head
        assert isinstance(head, TextHead | ApartHead)
        apart = self.arrangement_of(train) == "apart"
        with torch.no_grad():
            head.linear.bias.fill_(float(targets.min() if apart else targets.mean()))
            if apart:
                head.linear.weight.fill_(float(np.ptp(targets)))

    def objective(self, model: Headed) -> SquaredError:
        return SquaredError(model, auxiliary=self.recipe.head.auxiliary)

    def validate(self, model: Headed, examples: Dataset) -> dict[str, Any]:
        return self.measured(examples, self.scores(model, examples)[:, 0])

    def evaluate(self, model: Headed, examples: Dataset, progress: Done) -> dict[str, Any]:
        found_X = self.scores(model, examples, progress)[:, 0]
        lines = [_line(examples, row, float(found_X[row])) for row in range(len(examples))]
        worst = sorted(lines, key=lambda line: -line["error"])[: math.ceil(WORST * len(lines))]
        metrics = {"examples": len(examples), **self.measured(examples, found_X)}
        return metrics | {"predictions": lines, "errors": worst}

    def measured(self, examples: Dataset, found_X: NDArray[np.float32]) -> dict[str, Any]:
        true, found = self.targets(examples).astype(np.float64), found_X.astype(np.float64)
        return {
            "loss": float(((found - true) ** 2).mean()),
            "pearson": pearson(true, found),
            "spearman": spearman(true, found),
        }

    def prediction(self, text: str, scores_Y: Scores) -> Estimated:
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


def _line(examples: Dataset, row: int, found: float) -> dict[str, Any]:
    """A line of the file of predictions."""
    true = float(examples.texts["label"][row])
    place, text = examples.where(row), joined_text(examples, row)
    return {"where": place, "input": text, "label": true, "output": found, "error": abs(found - true)}
