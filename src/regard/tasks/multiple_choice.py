"""Multiple choice: a text and a few ways to go on with it in, the right one out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator
from torch import Tensor

from regard.data.choices import ChoiceData, Choices, list_of
from regard.data.config import Corpus
from regard.data.dataset import Dataset
from regard.data.file_inputs import FileInput, listed_rows
from regard.data.labelled_examples import Arrangement, LabelledExamples
from regard.data.prepare import Prepared
from regard.errors import ConfigError, Problem
from regard.models.headed import Headed
from regard.objectives.labels import ChoiceCrossEntropy, by_choice
from regard.tasks.classification import as_texts, listed, measured, probabilities, told
from regard.tasks.inputs import only_file
from regard.tasks.labelling import Scores, TextHeadConfig, TextLabelling, class_numbers, scores_of, with_tabs
from regard.tasks.named_columns import choices_in
from regard.text.files import TextFile, open_text
from regard.text.tokenizers import Tokenizers


class ChoiceHeadConfig(TextHeadConfig):
    """A head that scores each choice by itself."""

    labels: Annotated[list[str] | None, BeforeValidator(as_texts)] = None
    """How the right choice is named in the data, first choice first: [A, B, C, D]. Default: its number from 0."""


class MultipleChoice(TextLabelling):
    """Texts with choices, measured by accuracy.

    Each choice is read after the text and scored alone; softmax over the scores (Radford et al. 2018, section 3.3;
    Devlin et al. 2019, arXiv:1810.04805, section 4.4).
    """

    name = "multiple_choice"
    data = ChoiceData
    head = ChoiceHeadConfig
    higher_is_better: ClassVar[Mapping[str, bool]] = {"loss": False, "accuracy": True}
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0, "best": "accuracy"}}

    @classmethod
    def labels_of(cls, recipe: Any) -> tuple[str, ...]:
        if recipe.head.labels is not None or not recipe.data.train:
            return tuple(recipe.head.labels or ())
        return tuple(str(number) for number in range(len(cls.text_columns(recipe)) - 1))

    @classmethod
    def arrangement(cls, recipe: Any, columns: Sequence[str]) -> Arrangement:
        return "choices"

    @classmethod
    def arranged(cls, recipe: Any) -> Arrangement:
        return "choices"  # there is no other, also where no data says so

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput] | None:
        """Of a list of choices all, however many the run was trained on."""
        if file.suffixes[0] == ".jsonl":
            columns, _ = cls.table_columns(recipe, file, own)
            listed = list_of([*columns.values()][1:])
            if listed is not None:
                rows = listed_rows(file, columns, listed)
                return (FileInput(with_tabs(row.values), file.where(row.line), row.fault) for row in rows)
        return super().inputs_in(recipe, own, file)

    @classmethod
    def named_table(cls, file: TextFile) -> Choices:
        return choices_in(file)

    @classmethod
    def named_files(cls, files: Sequence[str]) -> Choices:
        return choices_in(open_text(files[0], Path()))

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
        return super().corpus_of([only_file(files)], own)

    @classmethod
    def examples(
        cls, dataset: Dataset, recipe: Any, names: tuple[str, ...], columns: Sequence[str]
    ) -> LabelledExamples:
        return super().examples(dataset, recipe, tuple(_names(names, len(columns) - 1)), columns)

    @classmethod
    def check(cls, recipe: Any, data: Prepared[LabelledExamples]) -> None:
        super().check(recipe, data)
        if recipe.data.long == "windows":
            what = "a choice is read with its text at once"
            raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")

    @classmethod
    def names_in(cls, recipe: Any, train: Dataset) -> tuple[str, ...]:
        names, choices = cls.labels_of(recipe), len(cls.text_columns(recipe)) - 1
        if len(names) != choices:
            raise ConfigError(f"{len(names)} names for {choices} choices", where="head.labels", hint="one for each")
        return names

    @classmethod
    def numbers(cls, dataset: Dataset, names: Sequence[str]) -> NDArray[np.int64]:
        hint = f"the choices are {listed(names)}; head.labels names them otherwise"
        return class_numbers(dataset, names, "is not one of the choices", hint)

    @classmethod
    def settled(cls, tree: dict[str, Any], data: Prepared[LabelledExamples]) -> dict[str, Any]:
        return tree | {"head": tree["head"] | {"labels": list(data.train.names)}}

    @classmethod
    def scores(cls, model: Headed, batch: Any) -> Tensor:
        return by_choice(model(batch), batch)

    @classmethod
    def objective(cls, model: Headed, recipe: Any) -> ChoiceCrossEntropy:
        return ChoiceCrossEntropy(model, None, recipe.training.label_smoothing, recipe.head.auxiliary)

    @classmethod
    def validate(cls, model: Headed, recipe: Any, data: Prepared[LabelledExamples]) -> dict[str, Any]:
        found = measured(data.validation, probabilities(scores_of(cls, model, data.validation)))
        return {name: found[name] for name in cls.higher_is_better}

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
        found = measured(examples, p_XY)
        metrics = {"examples": len(examples), **{name: found[name] for name in cls.higher_is_better}}
        return metrics | {"predictions": [told(examples, row, p_XY[row]) for row in range(len(examples))]}

    @classmethod
    def wrong_number(cls, model: Headed, fields: Sequence[str], place: str) -> Problem | None:
        if len(fields) > 2:
            return None
        return Problem(
            place,
            f"there are {len(fields) - 1} choices",
            "a text and two choices or more, tabs between them; or a JSON object with the run's columns",
        )

    @classmethod
    def prediction(cls, model: Headed, text: str, scores_Y: Scores) -> Chosen:
        return _chosen(model.labels, text, scores_Y)


@dataclass(frozen=True)
class Chosen:
    """A text and how probable each of its choices is, best first."""

    input: str
    probabilities: dict[str, float]
    """By the choices' names."""
    choices: dict[str, str]
    search: None = None

    @property
    def output(self) -> str:
        return next(iter(self.probabilities))

    def to_json(self) -> dict[str, Any]:
        chosen = self.choices[self.output]
        return {
            "input": self.input, "output": self.output, "choice": chosen, "probabilities": self.probabilities,
        }  # fmt: skip

    def lines(self, nbest: int) -> Iterator[str]:
        for name, p in list(self.probabilities.items())[:nbest]:
            yield f"{name}\t{p:.4f}\t{self.choices[name]}"


def _names(labels: Sequence[str], count: int) -> list[str]:
    """What choices are called: those beyond the training data's, of which an imported run has none, by number."""
    return [*labels[:count], *map(str, range(len(labels), count))]


def _chosen(labels: Sequence[str], text: str, scores_Y: Scores) -> Chosen:
    choices = text.split("\t")[1:]
    names = _names(labels, len(choices))
    p_Y = probabilities(scores_Y)
    ranked = {names[number]: float(p_Y[number]) for number in np.argsort(-p_Y, kind="stable")}
    return Chosen(text, ranked, dict(zip(names, choices, strict=True)))
