"""Classification: a text, or two, in; one of a few labels out."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from torch import Tensor

from regard.data.dataset import Dataset
from regard.data.labelled import Labelled, LabelledData
from regard.data.labelled_examples import Arrangement, LabelledExamples
from regard.data.prepare import Prepared
from regard.errors import ConfigError, DataError, Problem, did_you_mean
from regard.models.headed import Headed
from regard.objectives.labels import ClassCrossEntropy, by_example
from regard.tasks.labelling import (
    Scores,
    TextHeadConfig,
    TextLabelling,
    class_numbers,
    refuse_labels,
    scores_of,
)
from regard.tasks.metrics import classification_metrics
from regard.text.tokenizers import Tokenizers

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

    @classmethod
    def labels_of(cls, recipe: Any) -> tuple[str, ...]:
        return tuple(recipe.head.labels or ())

    @classmethod
    def arrangement(cls, recipe: Any, columns: Sequence[str]) -> Arrangement:
        return arrangement_of(columns, recipe)

    @classmethod
    def names_in(cls, recipe: Any, train: Dataset) -> tuple[str, ...]:
        names = cls.labels_of(recipe)
        if names:
            _refuse_unlisted(train, names)
        return names or classes_in(train, recipe.data.train[0])

    @classmethod
    def numbers(cls, dataset: Dataset, names: Sequence[str]) -> NDArray[np.int64]:
        hint = "the training data has " + listed(names)
        return class_numbers(dataset, names, "does not stand in the training data", hint)

    @classmethod
    def settled(cls, tree: dict[str, Any], data: Prepared[LabelledExamples]) -> dict[str, Any]:
        """With the labels, and with the weights that `balanced` stands for."""
        names, head = data.train.names, tree["head"]
        weights = head["class_weights"]
        if weights == "balanced":
            weights = balanced(names, data.train.labels.tolist())
        for label in weights or ():
            if label not in names:
                raise ConfigError(
                    f"there is no label {label!r}", where="head.class_weights", hint=did_you_mean(label, names)
                )
        return tree | {"head": head | {"labels": list(names), "class_weights": weights}}

    @classmethod
    def scores(cls, model: Headed, batch: Any) -> Tensor:
        return by_example(model(batch), batch)

    @classmethod
    def objective(cls, model: Headed, recipe: Any) -> ClassCrossEntropy:
        weights_Y = None
        if isinstance(recipe.head.class_weights, dict):
            weights_Y = torch.tensor([recipe.head.class_weights.get(label, 1.0) for label in model.labels])
            weights_Y = weights_Y.to(next(model.parameters()).device)
        return ClassCrossEntropy(model, weights_Y, recipe.training.label_smoothing, recipe.head.auxiliary)

    @classmethod
    def validate(cls, model: Headed, recipe: Any, data: Prepared[LabelledExamples]) -> dict[str, Any]:
        found = measured(data.validation, probabilities(scores_of(cls, model, data.validation)))
        return {name: found[name] for name in cls.higher_is_better if name in found}

    @classmethod
    def evaluate(
        cls,
        model: Headed,
        recipe: Any,
        examples: LabelledExamples,
        tokenizers: Tokenizers,
        progress: Callable[[int], None],
    ) -> dict[str, Any]:
        p_XY = probabilities(scores_of(cls, model, examples, progress))
        found = {"examples": len(examples), **measured(examples, p_XY)}
        return found | {"predictions": [told(examples, row, p_XY[row]) for row in range(len(examples))]}

    @classmethod
    def prediction(cls, model: Headed, text: str, scores_Y: Scores) -> Classified:
        return Classified(text, ranked(model.labels, scores_Y))


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


def arrangement_of(columns: Sequence[str], recipe: Any) -> Arrangement:
    """How one text or two become rows, as the section `head` says."""
    asked: list[Literal["both_orders", "apart"]] = [
        name for name in ("both_orders", "apart") if getattr(recipe.head, name)
    ]
    if len(asked) > 1:
        raise ConfigError(
            "two texts that are read apart have no order", where="head.both_orders", hint="set it to false"
        )
    if asked and len(columns) < 2:
        raise ConfigError("there is only one text", where=f"head.{asked[0]}", hint="set it to false")
    if asked == ["apart"] and recipe.data.long == "windows":
        what = "a text that is compared has one vector"
        raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")
    return asked[0] if asked else "single" if len(columns) == 1 else "pair"


def classes_in(train: Dataset, corpus: Labelled) -> tuple[str, ...]:
    """The labels of the training data as they are written there, sorted as people would."""
    counts = Counter(train.texts["label"])
    for row, label in enumerate(train.texts["label"]):
        if FRACTION.fullmatch(label):
            hint = "task: regression learns numbers; a class is a word or a whole number"
            raise DataError(
                f"the label {label!r} is a number with a fraction, not a class", where=train.where(row), hint=hint
            )
    if len(counts) < 2:
        raise DataError(f"every label is {next(iter(counts))!r}", where="data.train", hint="two labels at the least")
    if len(counts) > max(MANY, len(train) / 2):
        raise _no_labels(train, corpus, len(counts))
    _refuse_lookalikes(train, list(counts))
    return tuple(sorted(counts, key=natural))


def _refuse_unlisted(train: Dataset, names: Sequence[str]) -> None:
    """Labels of the training data that head.labels leaves out, each where it first stands."""
    labels = list(train.texts["label"])
    unlisted = sorted(set(labels).difference(names), key=labels.index)
    hint = f"head.labels has {listed(names)}; leave it out to take all labels"
    refuse_labels(
        [
            Problem(train.where(labels.index(label)), f"the label {label!r} is not one of head.labels", hint)
            for label in unlisted
        ]
    )


def _refuse_lookalikes(train: Dataset, labels: Sequence[str]) -> None:
    """Labels that nobody can tell apart would silently be two classes."""
    seen: dict[str, str] = {}
    for label in labels:
        other = seen.setdefault(" ".join(unicodedata.normalize("NFC", label).split()), label)
        if other != label:
            where = train.where(list(train.texts["label"]).index(label))
            how = "white space" if label.split() == other.split() else "their Unicode form (NFC)"
            hint = "write them alike: what stands between a comma and a label belongs to it"
            raise DataError(f"the labels {other!r} and {label!r} differ only in {how}", where=where, hint=hint)


def _no_labels(train: Dataset, corpus: Labelled, labels: int) -> DataError:
    """Most examples have a label of their own: texts, names or numbers were taken for labels."""
    what = f"{labels:,} different labels in {len(train):,} examples, such as {train.texts['label'][0][:60]!r}"
    name = corpus.texts[0]
    if len(set(train.texts[name])) < labels / 2:
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


def balanced(names: Sequence[str], numbers: Sequence[int]) -> dict[str, float]:
    """N / (Y n_y) for each class y: classes of the same size all have 1."""
    counts = Counter(numbers)
    return {name: len(numbers) / (len(names) * max(1, counts[number])) for number, name in enumerate(names)}


def probabilities(scores_XY: Scores) -> Scores:
    """softmax over the classes."""
    e_XY = np.exp(scores_XY.astype(np.float64) - scores_XY.max(-1, keepdims=True))
    p_XY: Scores = e_XY / e_XY.sum(-1, keepdims=True)
    return p_XY


def ranked(labels: Sequence[str], scores_Y: Scores) -> dict[str, float]:
    """Labels with their probabilities, best first; among equals in their own order."""
    p_Y = probabilities(scores_Y)
    return {labels[number]: float(p_Y[number]) for number in np.argsort(-p_Y, kind="stable")}


def measured(examples: LabelledExamples, p_XY: Scores) -> dict[str, Any]:
    """The mean loss and all metrics."""
    true = examples.labels.astype(np.int64)
    losses = -np.log(np.maximum(p_XY[np.arange(len(true)), true], 1e-45))
    return {"loss": float(losses.mean()), **classification_metrics(true, p_XY.argmax(-1), examples.names)}


def told(examples: LabelledExamples, row: int, p_Y: Scores) -> dict[str, Any]:
    """A line of the file of predictions."""
    output, label = examples.names[int(p_Y.argmax())], examples.label(row)
    return {
        "where": examples.where(row),
        "input": examples.text(row),
        "label": label,
        "output": output,
        "right": output == label,
        "probabilities": dict(zip(examples.names, p_Y.tolist(), strict=True)),
    }
