"""Regression: a text, or two, in; a number out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.config import as_list
from regard.data.dataset import Dataset, Where
from regard.data.example import Example
from regard.data.labelled import Labelled, LabelledData
from regard.data.readers import Reader
from regard.models import config_of
from regard.models.headed import ApartHead, Headed, TextHead
from regard.models.ngrams import Loss
from regard.objectives.labels import SquaredError
from regard.tasks import baseline
from regard.tasks.answers import Prediction
from regard.tasks.headed import (
    TEXT_MODELS,
    HeadedMetrics,
    HeadedNetwork,
    HeadedRecipe,
    Line,
    Measure,
    complete_headed,
    head_vectors,
    section,
)
from regard.tasks.labels import (
    LabelAnswers,
    LabelEncoding,
    LabelHeads,
    Labels,
    Scores,
    TextHeadConfig,
    labelled_inputs,
    learn_joint_tokenizer,
    refuse_labels,
    text_columns,
    text_of,
    with_pooling,
)
from regard.tasks.occlusion import occlude_words
from regard.tasks.task import Start, Task
from regard.tasks.views import Views
from regard.text.tokenizers import Tokenizers

WORST_SHARE = 0.1
"""The share of the examples that `evaluate` shows as errors."""


def half_squared_error(scores_X1: Tensor, y_X: Tensor) -> Tensor:
    """The loss that a linear model minimises."""
    return F.mse_loss(scores_X1[:, 0], y_X, reduction="sum") / 2


NUMBER_LOSS: tuple[Loss, float] = (half_squared_error, 3.0)
"""How a linear model is fitted to numbers."""


class NumberHeadConfig(TextHeadConfig):
    """A head that gives a number."""

    both_orders: bool = False
    """Read two texts in both orders and take the mean, as GPT does for texts without an order.
    Default: true for two texts with lstm_lm and gpt, which read from left to right."""
    apart: bool = False
    """Read the two texts separately and compare their vectors, as Sentence-BERT does: their cosine,
    scaled to the labels, is the number. The default `pooling` is then mean."""


class Regression(Task):
    """Texts with numbers, measured by Pearson's and Spearman's correlation, and by how far off the
    numbers are."""

    name = "regression"
    data = LabelledData[Labelled]
    head = NumberHeadConfig
    models = TEXT_MODELS
    start = Start(completes_model=True)
    vocabularies = ("text",)
    lower_is_better = ("loss", "mae", "rmse")
    higher_is_better = ("pearson", "spearman")
    unit = "examples"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"stratify": False},
        "training": {"label_smoothing": 0.0, "best": "pearson"},
    }

    learn_tokenizers = staticmethod(learn_joint_tokenizer)

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        encoding = self.make_encoding(recipe, tokenizers)
        start = partial(start_from_mean, encoding)
        heads = LabelHeads(encoding, 1, NUMBER_LOSS, are_classes=False, smooths=False, start=start)
        inputs = labelled_inputs(self.name, encoding, self.corpora)
        answers = LabelAnswers(encoding, inputs, estimate)
        names = (*self.lower_is_better, *self.higher_is_better)
        self.inputs = inputs
        self.encoding = encoding
        self.network = HeadedNetwork(recipe, tokenizers, heads)
        self.answers = answers
        self.metrics = HeadedMetrics(recipe, answers, NumberMeasure(encoding), names, (1.0,))
        self.views = Views(
            vectors=head_vectors(recipe, tokenizers),
            occlude_words=partial(occlude_words, answers, inputs),
        )

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        tree = with_pooling(complete_headed(tree, cls.data))
        train = as_list(section(tree, "data").get("train"))
        first = train[0] if isinstance(train, list) and train else None
        has_pairs = isinstance(first, dict) and first.get("first") is not None
        causal = config_of(section(tree, "model").get("kind")).causal
        both_orders = causal and has_pairs and not tree["head"].get("apart")
        return tree | {"head": {"both_orders": both_orders} | tree["head"]}

    @classmethod
    def make_encoding(cls, recipe: Any, tokenizers: Tokenizers) -> LabelEncoding:
        return LabelEncoding(recipe, tokenizers, Numbers())

    def objective(self, model: Headed) -> SquaredError:
        return SquaredError(model, auxiliary=self.recipe.head.auxiliary)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        return "\t".join(row[name] for name in text_columns(self.recipe))


class Numbers(Labels):
    """Labels that are numbers."""

    def numbers(self, labels: Sequence[str], where: Where) -> NDArray[np.float32]:
        refuse_labels(
            labels, lambda label: "" if math.isfinite(_number(label)) else "is not a number", where
        )
        return np.array([_number(label) for label in labels], dtype=np.float32)


def _number(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        return math.nan


def start_from_mean(encoding: LabelEncoding, model: Headed, train: Dataset) -> None:
    """Start from the mean of the numbers; if two texts are compared, from a cosine of 0 for the
    lowest and of 1 for the highest."""
    targets = encoding.targets(train)
    head = model.head
    assert isinstance(head, TextHead | ApartHead)
    apart = encoding.arrangement_of(train) == "apart"
    with torch.no_grad():
        head.linear.bias.fill_(float(targets.min() if apart else targets.mean()))
        if apart:
            head.linear.weight.fill_(float(np.ptp(targets)))


class NumberMeasure(Measure):
    """Correlations and errors of numbers."""

    def __init__(self, encoding: LabelEncoding) -> None:
        self.encoding = encoding

    def scores(self, examples: Dataset, results: Sequence[Scores]) -> dict[str, Any]:
        true_X = self.encoding.targets(examples).astype(np.float64)
        output_X = np.stack(results)[:, 0].astype(np.float64)
        loss = float(((output_X - true_X) ** 2).mean())
        return {
            "loss": loss,
            "pearson": pearson(true_X, output_X),
            "spearman": spearman(true_X, output_X),
            "mae": float(np.abs(output_X - true_X).mean()),
            "rmse": math.sqrt(loss),
        }

    def line(self, examples: Dataset, row: int, result: Scores) -> Line:
        true = float(examples.texts["label"][row])
        output = float(result[0])
        return {
            "input": text_of(examples, row),
            "label": true,
            "output": output,
            "error": abs(output - true),
        }

    def summary(self, lines: list[Line]) -> dict[str, Any]:
        """The examples with the largest errors."""
        worst = sorted(lines, key=lambda line: -line["error"])
        return {"errors": worst[: math.ceil(WORST_SHARE * len(worst))]}

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        texts = [train.texts[name] for name in train.columns]
        others = [examples.texts[name] for name in examples.columns]
        return baseline.numbers(texts, self.encoding.targets(train), others)


def estimate(given: Example, scores: Scores) -> Estimated:
    return Estimated(given.text, float(scores[0]))


@dataclass(frozen=True)
class Estimated(Prediction):
    """A text and the number that the model has for it."""

    output: float

    def content(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output}

    def lines(self, nbest: int) -> Iterator[str]:
        yield f"{self.output:.4f}"


def pearson(true: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The linear correlation; 0 where one of the two does not vary."""
    x = true - true.mean()
    y = predicted - predicted.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm else 0.0


def spearman(true: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The linear correlation of the ranks; equals share the mean of theirs."""

    def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[places]

    return pearson(ranks(true), ranks(predicted))
