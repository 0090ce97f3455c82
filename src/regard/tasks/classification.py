"""Classification: a text, or two, in; one of a few labels out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from torch.nn import functional as F

from regard.data.dataset import Dataset, Where
from regard.data.example import Example
from regard.data.labelled import Labelled, LabelledData
from regard.data.readers import Reader
from regard.models.base import device_of
from regard.models.headed import Headed
from regard.models.ngrams import Loss
from regard.objectives.labels import ClassCrossEntropy
from regard.tasks import baseline
from regard.tasks.answers import Prediction
from regard.tasks.class_labels import (
    canonical_label,
    first_names,
    label_numbers,
    settle_labels,
)
from regard.tasks.class_metrics import classification_metrics, probabilities
from regard.tasks.headed import (
    SCALES,
    TEXT_MODELS,
    HeadedMetrics,
    HeadedNetwork,
    HeadedRecipe,
    LabelNames,
    Line,
    Measure,
    as_texts,
    complete_headed,
    head_vectors,
    loss_options,
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
    text_columns,
    text_of,
    with_pooling,
    word_weights,
)
from regard.tasks.occlusion import occlude_words
from regard.tasks.task import Start, Task
from regard.tasks.views import Views
from regard.text.tokenizers import Tokenizers

WEIGHT_PENALTY = 0.2
"""The strength of the L2 penalty on the weights of a linear model."""
CLASS_LOSS: tuple[Loss, float] = (partial(F.cross_entropy, reduction="sum"), WEIGHT_PENALTY)
"""How a linear model is fitted to classes."""


class ClassHeadConfig(TextHeadConfig):
    """A head that chooses one of several classes."""

    labels: LabelNames = None
    """The classes in their order. Default: the labels of the training data, sorted; the run keeps
    them."""
    class_weights: Annotated[
        Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]] | None,
        BeforeValidator(as_texts),
    ] = None
    """Factors of the loss of an example, by class; 1 for classes that are not named. `balanced`: N
    / (classes * n) for a class with n of N examples, so rare classes count more."""
    both_orders: bool = False
    """Read two texts in both orders and take the mean, as GPT does for texts without an order."""
    apart: bool = False
    """Read the two texts separately and compare their vectors, as Sentence-BERT does: the class is
    predicted from [u; v; |u - v|]. The default `pooling` is then mean."""


class Classification(Task):
    """Labelled texts, measured by accuracy, F1 and Matthews' correlation."""

    name = "classification"
    data = LabelledData[Labelled]
    head = ClassHeadConfig
    models = TEXT_MODELS
    start = Start(completes_model=True)
    vocabularies = ("text",)
    higher_is_better = ("accuracy", "f1_macro", "f1_micro", "matthews")
    unit = "examples"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0, "best": "accuracy"}
    }

    learn_tokenizers = staticmethod(learn_joint_tokenizer)

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        encoding = self.make_encoding(recipe, tokenizers)
        classes = encoding.labels.names
        heads = LabelHeads(encoding, len(classes), CLASS_LOSS, are_classes=True)
        inputs = labelled_inputs(self.name, encoding, self.corpora)
        measure = ClassMeasure(encoding)
        answers = LabelAnswers(encoding, inputs, measure.prediction, probabilities)
        names = (*self.lower_is_better, *self.higher_is_better)
        self.inputs = inputs
        self.encoding = encoding
        self.network = HeadedNetwork(recipe, tokenizers, heads)
        self.answers = answers
        self.metrics = HeadedMetrics(recipe, answers, measure, names, SCALES)
        self.views = Views(
            vectors=head_vectors(recipe, tokenizers),
            occlude_words=partial(occlude_words, answers, inputs),
            word_weights=(
                partial(word_weights, encoding, answers)
                if recipe.model.represents == "texts" and not recipe.head.apart
                else None
            ),
            classes=classes,
        )

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        return with_pooling(complete_headed(tree, cls.data))

    @classmethod
    def settle(cls, recipe: Any, train: Mapping[str, Sequence[str]], where: Where) -> Any:
        return settle_labels(recipe, train, where)

    @classmethod
    def make_encoding(cls, recipe: Any, tokenizers: Tokenizers) -> LabelEncoding:
        return LabelEncoding(recipe, tokenizers, Classes(recipe.head.labels))

    def objective(self, model: Headed) -> ClassCrossEntropy:
        return class_loss(model, self.recipe, self.recipe.head.class_weights)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        return "\t".join(row[name] for name in text_columns(self.recipe))


def class_loss(
    model: Headed, recipe: HeadedRecipe, weights: Mapping[str, float] | str | None = None
) -> ClassCrossEntropy:
    """Cross-entropy over the classes, whose examples may have weights."""
    weights_Y = None
    if isinstance(weights, Mapping):
        values = [weights.get(label, 1.0) for label in recipe.head.labels]
        weights_Y = torch.tensor(values, device=device_of(model))
    smoothing = recipe.training.label_smoothing
    return ClassCrossEntropy(model, weights_Y, smoothing=smoothing, **loss_options(recipe))


# Labels


class Classes(Labels):
    """Labels that are classes."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = tuple(names or ())

    def numbers(self, labels: Sequence[str], where: Where) -> NDArray[np.int64]:
        hint = "the training data has " + first_names(self.names)
        return label_numbers(labels, self.names, where, "is not in the training data", hint)


# Answers and their metrics


class ClassMeasure(Measure):
    """Accuracy, F1 and correlation of classes, from the scores of each."""

    def __init__(self, encoding: LabelEncoding) -> None:
        self.encoding = encoding
        self.labels = encoding.labels

    def scores(self, examples: Dataset, results: Sequence[Scores]) -> dict[str, Any]:
        true_X = self.encoding.targets(examples).astype(np.int64)
        p_XY = probabilities(np.stack(results))
        losses = -np.log(np.maximum(p_XY[np.arange(len(true_X)), true_X], 1e-45))
        names = self.labels.class_names(p_XY.shape[1])
        return {
            "loss": float(losses.mean()),
            **classification_metrics(true_X, p_XY.argmax(-1), names),
        }

    def line(self, examples: Dataset, row: int, result: Scores) -> Line:
        names = self.labels.class_names(len(result))
        p_Y = probabilities(result)
        output = names[int(p_Y.argmax())]
        label = canonical_label(examples.texts["label"][row], names)
        return {
            "input": text_of(examples, row),
            "label": label,
            "output": output,
            "right": output == label,
            "probabilities": dict(zip(names, p_Y.tolist(), strict=True)),
        }

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        texts = [train.texts[name] for name in train.columns]
        others = [examples.texts[name] for name in examples.columns]
        classes = len(self.encoding.labels.names)
        return baseline.classes(texts, self.encoding.targets(train), others, classes)

    def prediction(self, given: Example, p_Y: Scores) -> Classified:
        return Classified(given.text, self.ranked(p_Y))

    def ranked(self, p_Y: Scores) -> dict[str, float]:
        """The classes with their probabilities, best first; among equals in their own order."""
        names = self.labels.class_names(len(p_Y))
        best_first = sorted(zip(names, p_Y.tolist(), strict=True), key=itemgetter(1), reverse=True)
        return dict(best_first)


@dataclass(frozen=True)
class Classified(Prediction):
    """A text and how probable each label is for it, best first."""

    probabilities: dict[str, float]

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def content(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, "probabilities": self.probabilities}

    def lines(self, nbest: int) -> Iterator[str]:
        yield from (f"{label}\t{p:.4f}" for label, p in islice(self.probabilities.items(), nbest))
