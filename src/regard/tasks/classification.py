"""Classification: a text, or two, in; one of a few labels out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from torch import Tensor

from regard.data.batches import LabelledBatch
from regard.data.dataset import Dataset
from regard.data.framing import Arrangement
from regard.data.labelled import Labelled, LabelledData
from regard.errors import ConfigError, DataError, Problem, did_you_mean
from regard.models.headed import Headed
from regard.objectives.labels import ClassCrossEntropy, by_example
from regard.tasks.headed import HeadedRecipe
from regard.tasks.labelling import Scores, TextHeadConfig, TextLabelling, class_numbers, joined_text, refuse_labels
from regard.tasks.metrics import classification_metrics
from regard.tasks.task import Done
from regard.text.normalise import fold_white_space, nfc

FRACTION = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(\.\d*)?[eE][-+]?\d+)")
"""A number that is written with a fraction or an exponent."""
MANY = 20
"""Labels that there may be, however few the examples."""
SHOWN = 10
"""Labels that a message names."""


def as_texts(value: Any) -> Any:
    """Labels as they stand in a table, where YAML takes `0` for a number; each stands once."""
    if isinstance(value, list):
        twice = [name for name, count in Counter(map(str, value)).items() if count > 1]
        if twice:
            raise ValueError(f"the label {twice[0]!r} stands twice")
        return [str(one) if isinstance(one, int) else one for one in value]
    if isinstance(value, dict):
        return {str(key) if isinstance(key, int) else key: weight for key, weight in value.items()}
    return value


class ClassHeadConfig(TextHeadConfig):
    """A head that chooses one of several classes."""

    labels: Annotated[list[str] | None, BeforeValidator(as_texts)] = None
    """The classes in their order. Default: the labels of the training data, sorted; the run keeps them."""
    class_weights: Annotated[
        Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]] | None, BeforeValidator(as_texts)
    ] = None
    """What the loss of an example is multiplied by, class by class; 1 for those that are not named. `balanced`: the
    rarer a class, the more, N / (classes * n) for a class of n of N examples."""
    both_orders: bool = False
    """Read two texts in both orders and take the mean: GPT's way for texts that are compared as equals."""
    apart: bool = False
    """Read two texts each by itself and compare their vectors, as Sentence-BERT does: [u; v; |u - v|] says the class.
    Their `pooling` is then mean unless it is said."""


class Classification(TextLabelling):
    """Labelled texts, measured by accuracy, F1 and Matthews' correlation."""

    name = "classification"
    data = LabelledData
    head = ClassHeadConfig
    outputs = None
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False, "accuracy": True, "f1_macro": True, "f1_micro": True, "matthews": True,
    }  # fmt: skip
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0, "best": "accuracy"}}

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.recipe.head.labels or ())

    def arrange(self, texts: int) -> Arrangement:
        return arrangement_of(texts, self.recipe)

    def settled(self, train: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Self:
        """With the labels, and with the weights that `balanced` stands for."""
        labels, head = list(train["label"]), self.recipe.head
        if head.labels:
            _refuse_unlisted(labels, head.labels, where)
        names = list(head.labels or self.classes_in(train, where))
        weights = balanced(names, labels) if head.class_weights == "balanced" else head.class_weights
        for label in weights or ():
            if label not in names:
                hint = did_you_mean(label, names)
                raise ConfigError(f"there is no label {label!r}", where="head.class_weights", hint=hint)
        return self.with_head(labels=names, class_weights=weights)

    def numbers(self, labels: Sequence[str], where: Callable[[int], str]) -> NDArray[np.int64]:
        hint = "the training data has " + listed(self.labels)
        return class_numbers(labels, self.labels, where, "does not stand in the training data", hint)

    def head_scores(self, model: Headed, batch: LabelledBatch) -> Tensor:
        return by_example(model(batch), batch)

    def objective(self, model: Headed) -> ClassCrossEntropy:
        head, weights_Y = self.recipe.head, None
        if isinstance(head.class_weights, dict):
            weights_Y = torch.tensor([head.class_weights.get(label, 1.0) for label in self.labels])
            weights_Y = weights_Y.to(next(model.parameters()).device)
        smoothing = self.recipe.training.label_smoothing
        return ClassCrossEntropy(model, weights_Y, smoothing=smoothing, auxiliary=head.auxiliary)

    def validate(self, model: Headed, examples: Dataset) -> dict[str, Any]:
        metrics = self.measured(examples, probabilities(self.scores(model, examples)))
        return {name: metrics[name] for name in self.higher_is_better if name in metrics}

    def evaluate(self, model: Headed, examples: Dataset, progress: Done) -> dict[str, Any]:
        p_XY = probabilities(self.scores(model, examples, progress))
        metrics = {"examples": len(examples), **self.measured(examples, p_XY)}
        return metrics | {"predictions": prediction_lines(examples, self.labels, p_XY)}

    def measured(self, examples: Dataset, p_XY: Scores) -> dict[str, Any]:
        """The mean loss and all metrics."""
        return class_metrics(self.targets(examples).astype(np.int64), p_XY, self.labels)

    def prediction(self, text: str, scores_Y: Scores) -> Classified:
        return Classified(text, ranked(self.labels, scores_Y))

    def classes_in(self, train: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> list[str]:
        """The labels of the training data as they are written there, sorted as people would."""
        labels = list(train["label"])
        for row, label in enumerate(labels):
            if FRACTION.fullmatch(label):
                what = f"the label {label!r} is a number with a fraction, not a class"
                hint = "task: regression learns numbers; a class is a word or a whole number"
                raise DataError(what, where=where(row), hint=hint)
        classes = list(dict.fromkeys(labels))
        if len(classes) < 2:
            raise DataError(f"every label is {classes[0]!r}", where="data.train", hint="two labels at the least")
        if len(classes) > max(MANY, len(labels) / 2):
            raise _no_labels(train, self.recipe.data.train[0], len(classes))
        _refuse_lookalikes(labels, classes, where)
        return sorted(classes, key=natural)


@dataclass(frozen=True)
class Classified:
    """A text and how probable each label is for it, best first."""

    input: str
    probabilities: dict[str, float]
    search: None = None

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, "probabilities": self.probabilities}

    def lines(self, nbest: int) -> Iterator[str]:
        """The best labels, each with its probability."""
        yield from (f"{label}\t{p:.4f}" for label, p in list(self.probabilities.items())[:nbest])


def arrangement_of(texts: int, recipe: HeadedRecipe) -> Arrangement:
    """How one text or two become rows, as the section `head` says."""
    asked: list[Literal["both_orders", "apart"]] = [
        name for name in ("both_orders", "apart") if getattr(recipe.head, name)
    ]
    if len(asked) > 1:
        raise ConfigError(
            "two texts that are read apart have no order", where="head.both_orders", hint="set it to false"
        )
    if asked and texts < 2:
        raise ConfigError("there is only one text", where=f"head.{asked[0]}", hint="set it to false")
    if asked == ["apart"] and recipe.data.long == "windows":
        what = "a text that is compared has one vector"
        raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")
    return asked[0] if asked else "single" if texts == 1 else "pair"


def _refuse_unlisted(labels: Sequence[str], names: Sequence[str], where: Callable[[int], str]) -> None:
    """Labels of the training data that head.labels leaves out, each where it first stands."""
    unlisted = sorted(set(labels).difference(names), key=labels.index)
    hint = f"head.labels has {listed(names)}; leave it out to take all labels"
    refuse_labels(
        [
            Problem(where(labels.index(label)), f"the label {label!r} is not one of head.labels", hint)
            for label in unlisted
        ]
    )


def _refuse_lookalikes(labels: Sequence[str], classes: Sequence[str], where: Callable[[int], str]) -> None:
    """Labels that look the same would silently be two classes."""
    seen: dict[str, str] = {}
    for label in classes:
        other = seen.setdefault(fold_white_space(nfc(label)), label)
        if other != label:
            how = "white space" if label.split() == other.split() else "their Unicode form (NFC)"
            what = f"the labels {other!r} and {label!r} differ only in {how}"
            hint = "write them alike: what stands between a comma and a label belongs to it"
            raise DataError(what, where=where(labels.index(label)), hint=hint)


def _no_labels(train: Mapping[str, Sequence[str]], corpus: Labelled, labels: int) -> DataError:
    """Most examples have a label of their own: texts, names or numbers were taken for labels."""
    count, name = len(train["label"]), corpus.texts[0]
    what = f"{labels:,} different labels in {count:,} examples, such as {train['label'][0][:60]!r}"
    if len(set(train[name])) < labels / 2:
        hint = f"are the columns swapped? {name}: {corpus.label}, label: {corpus.columns[name]}"
    else:
        hint = "is it the right column? task: regression learns numbers, task: translation writes texts"
    return DataError(what, where=f"data.train.label: {corpus.label}", hint=hint)


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sorts -1 before 2 before 10, and a2 before a10."""
    if re.fullmatch(r"[-+]?\d+", text):
        return [(0, int(text), "")]
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text)]


def listed(names: Iterable[str]) -> str:
    """The first few names."""
    names = list(names)
    return ", ".join([*names[:SHOWN], *([f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else [])])


def balanced(names: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """N / (Y n_y) for each class y: classes of the same size all have 1."""
    counts = Counter(labels)
    return {name: len(labels) / (len(names) * max(1, counts[name])) for name in names}


def probabilities(scores_XY: Scores) -> Scores:
    """softmax over the classes."""
    e_XY = np.exp(scores_XY.astype(np.float64) - scores_XY.max(-1, keepdims=True))
    p_XY: Scores = e_XY / e_XY.sum(-1, keepdims=True)
    return p_XY


def ranked(labels: Sequence[str], scores_Y: Scores) -> dict[str, float]:
    """Labels with their probabilities, best first; among equals in their own order."""
    p_Y = probabilities(scores_Y)
    return {labels[number]: float(p_Y[number]) for number in np.argsort(-p_Y, kind="stable")}


def class_metrics(true_X: NDArray[np.int64], p_XY: Scores, names: Sequence[str]) -> dict[str, Any]:
    """The mean loss and all metrics of predicted classes."""
    losses = -np.log(np.maximum(p_XY[np.arange(len(true_X)), true_X], 1e-45))
    return {"loss": float(losses.mean()), **classification_metrics(true_X, p_XY.argmax(-1), names)}


def prediction_lines(examples: Dataset, names: Sequence[str], p_XY: Scores) -> list[dict[str, Any]]:
    """The lines of the file of predictions."""
    lines = []
    for row, p_Y in enumerate(p_XY):
        output, label = names[int(p_Y.argmax())], examples.texts["label"][row]
        lines.append(
            {
                "where": examples.where(row),
                "input": joined_text(examples, row),
                "label": label,
                "output": output,
                "right": output == label,
                "probabilities": dict(zip(names, p_Y.tolist(), strict=True)),
            }
        )
    return lines
