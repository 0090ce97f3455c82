"""Multiple choice: a text and a few ways to go on with it in, the right one out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.data.dataset import Dataset, Where
from regard.data.example import Example
from regard.data.labelled import MAX_CHOICES, ChoiceInputs, Choices, LabelledData
from regard.data.readers import Reader
from regard.errors import ConfigError
from regard.models.headed import Headed
from regard.objectives.labels import ClassCrossEntropy
from regard.tasks.answers import Prediction
from regard.tasks.class_labels import first_names, label_numbers
from regard.tasks.class_metrics import probabilities
from regard.tasks.classification import (
    CLASS_LOSS,
    ClassMeasure,
    class_loss,
)
from regard.tasks.headed import (
    SCALES,
    TEXT_MODELS,
    HeadedMetrics,
    HeadedNetwork,
    HeadedRecipe,
    LabelNames,
    Line,
    Measure,
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
    learn_joint_tokenizer,
    text_columns,
    with_pooling,
)
from regard.tasks.occlusion import occlude_words
from regard.tasks.task import Start, Task
from regard.tasks.views import Views
from regard.text.tokenizers import Tokenizers


class ChoiceHeadConfig(TextHeadConfig):
    """A head that scores each choice by itself."""

    labels: LabelNames = None
    """The names of the choices in the data, in their order: [A, B, C, D]. Default: their numbers
    from 0."""


class MultipleChoice(Task):
    """Texts with choices, measured by accuracy.

    Each choice is read after the text and scored alone; softmax over the scores (Radford et al.
    2018, section 3.3; Devlin et al. 2019, arXiv:1810.04805, section 4.4).
    """

    name = "multiple_choice"
    data = LabelledData[Choices]
    head = ChoiceHeadConfig
    models = TEXT_MODELS
    start = Start(completes_model=True)
    vocabularies = ("text",)
    higher_is_better = ("accuracy",)
    unit = "examples"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0, "best": "accuracy"}
    }

    learn_tokenizers = staticmethod(learn_joint_tokenizer)

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        encoding = self.make_encoding(recipe, tokenizers)
        inputs = ChoiceInputs(
            self.name,
            self.corpora,
            recipe.data.encoding,
            ("text", "choices"),
            arrangement="choices",
            imported=not recipe.data.train,
        )
        heads = LabelHeads(encoding, 1, CLASS_LOSS, are_classes=False)
        measure = ChoiceMeasure(encoding)
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
            classes=encoding.labels.names,
        )

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        return with_pooling(complete_headed(tree, cls.data))

    @classmethod
    def settle(cls, recipe: Any, train: Mapping[str, Sequence[str]], where: Where) -> Any:
        """The recipe with a name for each choice."""
        names = ChoiceNames(recipe).names
        choices = len(text_columns(recipe)) - 1
        if len(names) != choices:
            what = f"{len(names)} names for {choices} choices"
            raise ConfigError(what, where="head.labels", hint="one for each")
        return with_head(recipe, labels=list(names))

    @classmethod
    def make_encoding(cls, recipe: Any, tokenizers: Tokenizers) -> LabelEncoding:
        return LabelEncoding(recipe, tokenizers, ChoiceNames(recipe), "choices")

    def objective(self, model: Headed) -> ClassCrossEntropy:
        return class_loss(model, self.recipe)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        return "\t".join(row[name] for name in text_columns(self.recipe))


class ChoiceNames(Labels):
    """Labels that say which choice is right."""

    def __init__(self, recipe: HeadedRecipe) -> None:
        """Choices are named by the recipe, or numbered. An imported run has no names."""
        names = recipe.head.labels
        if names is None and recipe.data.train:
            names = map(str, range(len(text_columns(recipe)) - 1))
        self.names = tuple(names or ())

    def class_names(self, count: int) -> list[str]:
        """Choices beyond those of the training data are numbered, without repeating a name."""
        numbers = map(str, range(len(self.names), 2 * count))
        others = (name for name in numbers if name not in self.names)
        return [*self.names[:count], *islice(others, count - len(self.names[:count]))]

    def numbers(self, labels: Sequence[str], where: Where) -> NDArray[np.int64]:
        names = self.names or tuple(map(str, range(MAX_CHOICES)))
        hint = f"the choices are {first_names(names)}; head.labels names them otherwise"
        return label_numbers(labels, names, where, "is not one of the choices", hint)


class ChoiceMeasure(Measure):
    """How often the right choice has the highest score."""

    def __init__(self, encoding: LabelEncoding) -> None:
        self.classes = ClassMeasure(encoding)
        self.names = encoding.labels

    def scores(self, examples: Dataset, results: Sequence[Scores]) -> dict[str, Any]:
        metrics = self.classes.scores(examples, results)
        return {name: metrics[name] for name in ("loss", "accuracy")}

    def line(self, examples: Dataset, row: int, result: Scores) -> Line:
        return self.classes.line(examples, row, result)

    def prediction(self, given: Example, scores: Scores) -> Chosen:
        choices = given.several("choices")
        names = self.names.class_names(len(choices))
        named = dict(zip(names, choices, strict=True))
        return Chosen(given.text, self.classes.ranked(probabilities(scores)), named)


@dataclass(frozen=True)
class Chosen(Prediction):
    """A text and how probable each of its choices is, by their names, best first."""

    probabilities: dict[str, float]
    choices: dict[str, str]

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def content(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "output": self.output,
            "choice": self.choices[self.output],
            "probabilities": self.probabilities,
        }

    def lines(self, nbest: int) -> Iterator[str]:
        for name, p in list(self.probabilities.items())[:nbest]:
            yield f"{name}\t{p:.4f}\t{self.choices[name]}"
