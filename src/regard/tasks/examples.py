"""Answers to inputs that are encoded like the examples of the data, and answered one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from regard.data.dataset import Dataset, Encoding
from regard.data.example import Example
from regard.errors import DecodeError, InputError, Problem, RegardError
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore

E = TypeVar("E", bound=Encoding)


class EncodedExample(NamedTuple):
    """An input that was encoded as one row of a dataset."""

    examples: Dataset
    row: int


class ExampleAnswers(ABC, Generic[E]):
    """An answer for each example."""

    def __init__(self, encoding: E) -> None:
        self.encoding = encoding

    @abstractmethod
    def encoded_texts(self, given: Example) -> Mapping[str, str]:
        """The texts to encode of an input, by the columns of the dataset; or a DecodeError."""

    @abstractmethod
    def results(self, model: Any, examples: Dataset, progress: Done = ignore) -> Iterable[Any]:
        """What the model answers for each example."""

    def finished(self, results: Iterable[Any]) -> Iterable[Any]:
        """What `prediction` gets for each of these results, which are those of several inputs."""
        return results

    @abstractmethod
    def prediction(self, given: Example, examples: Dataset, row: int, result: Any) -> Prediction:
        """The answer to an input, which was encoded as this example, from its result."""

    @abstractmethod
    def notes(
        self, encoded: EncodedInputs[EncodedExample], predictions: Sequence[Any]
    ) -> list[Note]:
        """What a user should know about these predictions."""

    def encoded_problems(self, examples: Dataset, row: int) -> Sequence[Problem]:
        """Why an input that was encoded cannot be read after all."""
        return ()

    def check(self, validation: Any) -> None:
        """Every validation can be answered."""

    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[EncodedExample]:
        """Inputs with the same columns are encoded in one dataset."""
        rows: dict[int, EncodedExample | RegardError] = {}
        alike: dict[tuple[str, ...], dict[int, Mapping[str, str]]] = defaultdict(dict)
        for number, given in enumerate(inputs):
            try:
                if given.fault:
                    InputError.raise_if([given.fault])
                texts = self.encoded_texts(given)
                alike[tuple(texts)][number] = texts
            except DecodeError as error:
                rows[number] = error
        for names, by_number in alike.items():
            columns = {name: [texts[name] for texts in by_number.values()] for name in names}
            places = [inputs[number].place for number in by_number]
            examples = Dataset.of(self.encoding, columns, places.__getitem__)
            for row, number in enumerate(by_number):
                problems = self.encoded_problems(examples, row)
                rows[number] = (
                    InputError(problems=problems) if problems else EncodedExample(examples, row)
                )
        return EncodedInputs(inputs, [rows[number] for number in range(len(inputs))])

    def predict_encoded(
        self,
        model: Any,
        encoded: EncodedInputs[EncodedExample],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Prediction]:
        """Inputs that were encoded in one dataset are batched together."""
        rows = encoded.readable()
        predictions = dict[int, Prediction]()
        groups = defaultdict[int, list[int]](list)
        for number, example in enumerate(rows):
            groups[id(example.examples)].append(number)
        for numbers in groups.values():
            examples = rows[numbers[0]].examples
            chosen = [rows[number].row for number in numbers]
            if chosen != [*range(len(examples))]:
                examples = examples.select(np.array(chosen))
            results = self.finished(self.results(model, examples, progress))
            for row, (number, result) in enumerate(zip(numbers, results, strict=True)):
                given = encoded.inputs[number]
                predictions[number] = self.prediction(given, examples, row, result)
        return [predictions[number] for number in range(len(rows))]
