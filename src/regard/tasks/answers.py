"""What a model answers: predictions, and the part of a task that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from regard.data.example import Example
from regard.errors import InputError, Problem, RegardError
from regard.search.rules import Constraints

Row = TypeVar("Row")
Done = Callable[[int], None]
"""Called with how many more inputs or examples are finished."""


def ignore(done: int) -> None:
    """The default: no progress is shown."""


def summed(progress: Callable[[int, int], None], total: int) -> Done:
    """Add up how many more are done, and report the sum out of `total`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return add


# Inputs as a model reads them


@dataclass(frozen=True)
class EncodedInputs(Generic[Row]):
    """Inputs, and what the model reads of each, or why it cannot be read."""

    inputs: Sequence[Example]
    rows: Sequence[Row | RegardError]
    wording: Constraints = field(default_factory=Constraints)
    """How outputs begin and what they must not contain, for tasks that search."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unreadable(self) -> dict[int, Problem]:
        """The first problem of each input that cannot be read, by its number."""
        return {
            number: row.problems[0]
            for number, row in enumerate(self.rows)
            if isinstance(row, RegardError)
        }

    def take(self, numbers: Sequence[int]) -> EncodedInputs[Row]:
        inputs = [self.inputs[number] for number in numbers]
        rows = [self.rows[number] for number in numbers]
        return EncodedInputs(inputs, rows, self.wording.of(numbers))

    def readable(self) -> list[Row]:
        return readable(self.rows)


def readable(rows: Sequence[Row | RegardError]) -> list[Row]:
    """All rows, or one InputError with the problems of those that cannot be read."""
    if problems := [
        problem for row in rows if isinstance(row, RegardError) for problem in row.problems
    ]:
        InputError.raise_if(problems)
    return [row for row in rows if not isinstance(row, RegardError)]


# Predictions


@dataclass(frozen=True)
class Prediction:
    """One input and what the model predicts for it."""

    input: str
    search: dict[str, Any] | None = field(default=None, kw_only=True)
    """The record of the search, if one was asked for."""

    unknown: tuple[str, ...] = field(default=(), kw_only=True)
    """The words of the input that the vocabulary does not know."""

    def to_json(self) -> dict[str, Any]:
        """The prediction, and the unknown words if there are any."""
        return self.content() | ({"unknown": [*self.unknown]} if self.unknown else {})

    def content(self) -> dict[str, Any]:
        raise NotImplementedError

    def lines(self, nbest: int) -> Iterator[str]:
        """What the command line prints."""
        raise NotImplementedError


@dataclass(frozen=True)
class Note:
    """What a user should know about a prediction."""

    kind: Literal["unknown", "length", "image"]
    """Tokens that the model does not know, a text that is longer than what it was trained on or
    remembers, or the name of an image, which is read as a text."""
    text: str
    place: str = ""
    """The input that it is about."""
    words: tuple[str, ...] = ()
    """The words of the input that have unknown tokens, as they were typed."""

    def __str__(self) -> str:
        return self.text


class Answers(Protocol):
    """The part of a task that predicts."""

    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[Any]:
        """What the model reads of each input, or why it cannot be read. The outputs of a search can
        have a prefix each."""

    def predict_encoded(
        self,
        model: Any,
        encoded: EncodedInputs[Any],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> Sequence[Prediction]:
        """A prediction for each input, in their order; `record` keeps the whole search."""

    def notes(self, encoded: EncodedInputs[Any], predictions: Sequence[Any]) -> list[Note]:
        """What a user should know about these predictions."""

    def check(self, validation: Any) -> None:
        """Refuse settings with which the validation cannot be answered: it would abort the
        training."""
