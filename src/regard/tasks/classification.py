"""Classification: a text, or two, in; one of a few labels out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from regard.errors import ConfigError, DataError, did_you_mean
from regard.models.base import device_of
from regard.models.headed import Headed
from regard.models.ngrams import Loss
from regard.objectives.labels import ClassCrossEntropy
from regard.tasks import baseline
from regard.tasks.answers import Prediction
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
    with_head,
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
from regard.text.normalise import fold_white_space, natural, nfc
from regard.text.tokenizers import Tokenizers

FRACTION = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(\.\d*)?[eE][-+]?\d+)")
"""A number that is written with a fraction or an exponent."""
WHOLE = re.compile(
    r"([-+]?\d+)(\.0*)?"
)  # a whole number: pandas writes 1 as 1.0 in a column that has gaps
MAX_LISTED = 10
"""Labels that a message names."""
MANY_CLASSES = 20
"""Labels are refused as classes if there are more of them than this, and more than half as many as
examples."""
CLASS_LOSS: tuple[Loss, float] = (partial(F.cross_entropy, reduction="sum"), 0.2)
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
        answers = LabelAnswers(encoding, inputs, measure.prediction)
        names = (*self.lower_is_better, *self.higher_is_better)
        self.inputs = inputs
        self.encoding = encoding
        self.network = HeadedNetwork(recipe, tokenizers, heads)
        self.answers = answers
        self.metrics = HeadedMetrics(recipe, answers, measure, names, SCALES)
        self.views = Views(
            vectors=head_vectors(recipe, tokenizers),
            occlude_words=partial(occlude_words, answers, inputs),
            classes=classes,
        )

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        return with_pooling(complete_headed(tree, cls.data))

    @classmethod
    def settle(cls, recipe: Any, train: Mapping[str, Sequence[str]], where: Where) -> Any:
        return with_classes(recipe, train, where)

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
    auxiliary = recipe.head.auxiliary
    return ClassCrossEntropy(model, weights_Y, smoothing=smoothing, auxiliary=auxiliary)


# Labels


class Classes(Labels):
    """Labels that are classes."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = tuple(names or ())

    def numbers(self, labels: Sequence[str], where: Where) -> NDArray[np.int64]:
        hint = "the training data has " + first_names(self.names)
        return class_numbers(labels, self.names, where, "is not in the training data", hint)


def with_classes(recipe: HeadedRecipe, train: Mapping[str, Sequence[str]], where: Where) -> Any:
    """The recipe with the labels, and with the weights that `balanced` stands for."""
    head = recipe.head
    labels = list(train["label"])
    names = list(head.labels or _classes_in(recipe, train, where))
    hint = f"head.labels has {first_names(names)}; leave it out to take all labels"
    classes = [class_of(label, names) for label in labels]
    refuse_labels(
        classes,
        lambda label: "" if label in names else "is not one of head.labels",
        where,
        hint,
    )
    weights = balanced(names, classes) if head.class_weights == "balanced" else head.class_weights
    for label in weights or ():
        if label not in names:
            hint = did_you_mean(label, names)
            what = f"there is no label {label!r}"
            raise ConfigError(what, where="head.class_weights", hint=hint)
    return with_head(recipe, labels=names, class_weights=weights)


def _classes_in(
    recipe: HeadedRecipe, train: Mapping[str, Sequence[str]], where: Where
) -> list[str]:
    """The labels of the training data as they are written there, sorted as people would."""
    labels = list(train["label"])
    classes = list(dict.fromkeys(labels))
    if all(map(WHOLE.fullmatch, classes)):
        classes = list(dict.fromkeys(class_of(label, ()) for label in classes))
    fraction = next((label for label in classes if FRACTION.fullmatch(label)), None)
    if fraction is not None:
        what = f"the label {fraction!r} is a number with a fraction, not a class"
        hint = "task: regression learns numbers; a class is a word or a whole number"
        raise DataError(what, where=where(labels.index(fraction)), hint=hint)
    if len(classes) < 2:
        what = f"every label is {classes[0]!r}"
        raise DataError(what, where="data.train", hint="two labels at the least")
    if len(classes) > max(MANY_CLASSES, len(labels) / 2):
        raise _not_classes(recipe, train, labels, classes)
    _refuse_look_alikes(labels, classes, where)
    return sorted(classes, key=natural)


def _not_classes(
    recipe: HeadedRecipe,
    train: Mapping[str, Sequence[str]],
    labels: Sequence[str],
    classes: Sequence[str],
) -> DataError:
    """Nearly every example has a label of its own."""
    corpus = recipe.data.train[0]
    text = corpus.texts[0]
    what = (
        f"{len(classes):,} different labels in {len(labels):,} examples, such as {labels[0][:60]!r}"
    )
    hint = "is it the right column? task: regression learns numbers, task: translation writes texts"
    if len(set(train[text])) < len(classes) / 2:
        hint = f"are the columns swapped? {text}: {corpus.label}, label: {corpus.columns[text]}"
    return DataError(what, where=f"data.train.label: {corpus.label}", hint=hint)


def _refuse_look_alikes(labels: Sequence[str], classes: Sequence[str], where: Where) -> None:
    """Labels that look the same would silently be two classes."""
    seen: dict[str, str] = {}
    for label in classes:
        other = seen.setdefault(fold_white_space(nfc(label)), label)
        if other == label:
            continue
        same_words = label.split() == other.split()
        how = "white space" if same_words else "their Unicode form (NFC)"
        what = f"the labels {other!r} and {label!r} differ only in {how}"
        hint = (
            "write them in the same way: a space between a comma and a label belongs to the label"
        )
        raise DataError(what, where=where(labels.index(label)), hint=hint)


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
        label = class_of(examples.texts["label"][row], names)
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

    def prediction(self, given: Example, scores_Y: Scores) -> Classified:
        return Classified(given.text, self.ranked(scores_Y))

    def ranked(self, scores_Y: Scores) -> dict[str, float]:
        """The classes with their probabilities, best first; among equals in their own order."""
        names = self.labels.class_names(len(scores_Y))
        p_Y = probabilities(scores_Y)
        return {names[number]: float(p_Y[number]) for number in np.argsort(-p_Y, kind="stable")}


@dataclass(frozen=True)
class Classified(Prediction):
    """A text and how probable each label is for it, best first."""

    probabilities: dict[str, float]

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, "probabilities": self.probabilities}

    def lines(self, nbest: int) -> Iterator[str]:
        yield from (f"{label}\t{p:.4f}" for label, p in list(self.probabilities.items())[:nbest])


def first_names(names: Sequence[str]) -> str:
    """The first few names."""
    return ", ".join(
        [
            *names[:MAX_LISTED],
            *([f"and {len(names) - MAX_LISTED:,} more"] if len(names) > MAX_LISTED else []),
        ]
    )


def class_numbers(
    labels: Sequence[str], names: Sequence[str], where: Where, what: str, hint: str
) -> NDArray[np.int64]:
    """The number of each label among `names`; one DataError with `what` for those that are not
    among them."""
    known = {name: number for number, name in enumerate(names)}
    classes = [class_of(label, known) for label in labels]
    refuse_labels(classes, lambda label: "" if label in known else what, where, hint)
    return np.array([known[label] for label in classes], dtype=np.int64)


def class_of(label: str, names: Container[str]) -> str:
    """The class among `names` that a label stands for: 1.0 is 1, unless it is itself a class."""
    whole = None if label in names else WHOLE.fullmatch(label)
    return label if whole is None else whole[1]


def balanced(names: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """N / (Y n_y) for each class y: classes of the same size all have 1."""
    counts = Counter(labels)
    return {name: len(labels) / (len(names) * max(1, counts[name])) for name in names}


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
