"""Multiple choice: a text and a few ways to go on with it in, the right one out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.data.dataset import Dataset, Where
from regard.data.example import Example
from regard.data.framing import Arrangement
from regard.data.labelled import MAX_CHOICES, ChoiceInputs, Choices, LabelledData
from regard.data.prepare import Prepared
from regard.errors import ConfigError
from regard.tasks.classification import Classification, Classified, class_numbers, listed
from regard.tasks.headed import Labels, Scores, TextHeadConfig


class ChoiceHeadConfig(TextHeadConfig):
    """A head that scores each choice by itself."""

    labels: Labels = None
    """How the right choice is named in the data, first choice first: [A, B, C, D]. Default: its
    number from 0."""


class MultipleChoice(Classification):
    """Texts with choices, measured by accuracy.

    Each choice is read after the text and scored alone; softmax over the scores (Radford et al.
    2018, section 3.3; Devlin et al. 2019, arXiv:1810.04805, section 4.4).
    """

    name = "multiple_choice"
    data = LabelledData[Choices]
    head = ChoiceHeadConfig
    outputs = 1
    arrangement: Arrangement = "choices"
    higher_is_better = ("accuracy",)

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        return iter(())

    @property
    def labels(self) -> tuple[str, ...]:
        if self.recipe.head.labels is not None or not self.recipe.data.train:
            return super().labels
        return tuple(str(number) for number in range(len(self.text_columns) - 1))

    def class_names(self, count: int) -> list[str]:
        """Choices beyond those of the training data have numbers that are no names of others. An
        imported run has no names."""
        others = (
            name for name in map(str, range(len(self.labels), 2 * count)) if name not in self.labels
        )
        return [*self.labels[:count], *islice(others, count - len(self.labels[:count]))]

    @cached_property
    def inputs(self) -> ChoiceInputs:
        return ChoiceInputs(
            self.name,
            self.corpora,
            self.recipe.data.encoding,
            ("text", "choices"),
            arrangement=self.arrangement,
            imported=not self.recipe.data.train,
        )

    def check(self, data: Prepared[Dataset]) -> None:
        super().check(data)
        if self.recipe.data.long == "windows":
            what = "a choice is read with its text at once"
            raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")

    def settled(self, train: Mapping[str, Sequence[str]], where: Where) -> Self:
        names, choices = self.labels, len(self.text_columns) - 1
        if len(names) != choices:
            raise ConfigError(
                f"{len(names)} names for {choices} choices",
                where="head.labels",
                hint="one for each",
            )
        return self.with_head(labels=list(names))

    def numbers(self, labels: Sequence[str], where: Where) -> NDArray[np.int64]:
        names = self.labels or tuple(map(str, range(MAX_CHOICES)))
        hint = f"the choices are {listed(names)}; head.labels names them otherwise"
        return class_numbers(labels, names, where, "is not one of the choices", hint)

    def scores(self, examples: Dataset, results: Sequence[Scores]) -> dict[str, Any]:
        metrics = super().scores(examples, results)
        return {name: metrics[name] for name in ("loss", *self.higher_is_better)}

    def prediction(self, given: Example, examples: Dataset, row: int, result: Scores) -> Chosen:
        choices = given.several("choices")
        named = dict(zip(self.class_names(len(choices)), choices, strict=True))
        return Chosen(given.text, self.ranked(result), choices=named)


@dataclass(frozen=True, kw_only=True)
class Chosen(Classified):
    """A text and how probable each of its choices is, by their names, best first."""

    choices: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        chosen = {"input": self.input, "output": self.output, "choice": self.choices[self.output]}
        return chosen | super().to_json()

    def lines(self, nbest: int) -> Iterator[str]:
        for name, p in list(self.probabilities.items())[:nbest]:
            yield f"{name}\t{p:.4f}\t{self.choices[name]}"
