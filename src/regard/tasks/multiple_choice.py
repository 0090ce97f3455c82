"""Multiple choice: a text and a few ways to go on with it in, the right one out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator
from torch import Tensor

from regard.data.batches import LabelledBatch
from regard.data.config import Corpus
from regard.data.dataset import Dataset
from regard.data.file_inputs import FileInput, listed_rows
from regard.data.framing import Arrangement
from regard.data.labelled import ChoiceData, Choices, list_of
from regard.data.prepare import Prepared
from regard.errors import ConfigError, Problem
from regard.models.headed import Headed
from regard.objectives.labels import ChoiceCrossEntropy, by_choice
from regard.tasks.classification import as_texts, class_metrics, listed, prediction_lines, probabilities, ranked
from regard.tasks.columns import MOST, choices_in
from regard.tasks.labelling import Scores, TextHeadConfig, TextLabelling, class_numbers, with_tabs
from regard.tasks.task import Done, only_file
from regard.text.files import TextFile, open_text


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

    @property
    def labels(self) -> tuple[str, ...]:
        if self.recipe.head.labels is not None or not self.recipe.data.train:
            return tuple(self.recipe.head.labels or ())
        return tuple(str(number) for number in range(len(self.text_columns) - 1))

    @property
    def arrangement(self) -> Arrangement:
        return "choices"

    def inputs_in(self, file: TextFile) -> Iterator[FileInput] | None:
        """Of a list of choices all, however many the run was trained on."""
        if file.suffixes[0] == ".jsonl":
            columns, _ = self.table_columns(file)
            listed = list_of([*columns.values()][1:])
            if listed is not None:
                rows = listed_rows(file, columns, listed)
                return (FileInput(with_tabs(row.values), file.where(row.line), row.fault) for row in rows)
        return super().inputs_in(file)

    def named_table(self, file: TextFile) -> Choices:
        return choices_in(file)

    def named_files(self, files: Sequence[str]) -> Choices:
        return choices_in(open_text(files[0], Path()))

    def corpus_of(self, files: Sequence[str]) -> Corpus:
        return super().corpus_of([only_file(files)])

    def check(self, data: Prepared[Dataset]) -> None:
        super().check(data)
        if self.recipe.data.long == "windows":
            what = "a choice is read with its text at once"
            raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")

    def settled(self, train: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Self:
        names, choices = self.labels, len(self.text_columns) - 1
        if len(names) != choices:
            raise ConfigError(f"{len(names)} names for {choices} choices", where="head.labels", hint="one for each")
        return self.with_head(labels=list(names))

    def numbers(self, labels: Sequence[str], where: Callable[[int], str]) -> NDArray[np.int64]:
        names = self.labels or tuple(map(str, range(MOST)))
        hint = f"the choices are {listed(names)}; head.labels names them otherwise"
        return class_numbers(labels, names, where, "is not one of the choices", hint)

    def head_scores(self, model: Headed, batch: LabelledBatch) -> Tensor:
        return by_choice(model(batch), batch)

    def objective(self, model: Headed) -> ChoiceCrossEntropy:
        smoothing, auxiliary = self.recipe.training.label_smoothing, self.recipe.head.auxiliary
        return ChoiceCrossEntropy(model, smoothing=smoothing, auxiliary=auxiliary)

    def validate(self, model: Headed, examples: Dataset) -> dict[str, Any]:
        return self.measured(examples, probabilities(self.scores(model, examples)))

    def evaluate(self, model: Headed, examples: Dataset, progress: Done) -> dict[str, Any]:
        p_XY = probabilities(self.scores(model, examples, progress))
        lines = prediction_lines(examples, choice_names(self.labels, p_XY.shape[1]), p_XY)
        return {"examples": len(examples), **self.measured(examples, p_XY), "predictions": lines}

    def measured(self, examples: Dataset, p_XY: Scores) -> dict[str, Any]:
        targets = self.targets(examples).astype(np.int64)
        metrics = class_metrics(targets, p_XY, choice_names(self.labels, p_XY.shape[1]))
        return {name: metrics[name] for name in self.higher_is_better}

    def wrong_number(self, fields: Sequence[str], place: str) -> Problem | None:
        if len(fields) > 2:
            return None
        return Problem(
            place,
            f"there are {len(fields) - 1} choices",
            "a text and two choices or more, tabs between them; or a JSON object with the run's columns",
        )

    def prediction(self, text: str, scores_Y: Scores) -> Chosen:
        choices = text.split("\t")[1:]
        names = choice_names(self.labels, len(choices))
        return Chosen(text, ranked(names, scores_Y), dict(zip(names, choices, strict=True)))


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


def choice_names(labels: Sequence[str], count: int) -> list[str]:
    """The names of choices; those beyond the training data's are numbers. An imported run has no names."""
    return [*labels[:count], *map(str, range(len(labels), count))]
