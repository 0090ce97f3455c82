"""What a text is written for: the sources of examples, and those that a user gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import Padded, Ragged
from regard.data.config import Recipe
from regard.data.dataset import Dataset
from regard.data.example import Example
from regard.data.prepare import Prepared
from regard.data.store import Integers
from regard.errors import InputError, RegardError
from regard.tasks.answers import Note
from regard.tasks.reading import encode_each, first_tokens, padded, unknown_notes
from regard.tasks.written import Source
from regard.text.tokenizers import Tokenizers

LengthsOf = Literal["source", "reference"]


class Sources(ABC):
    """The sources of a task."""

    lengths_of: ClassVar[LengthsOf]
    """Which of the two texts of an example has the length that quality is shown by."""

    are_alone: ClassVar[bool] = True
    """Whether each example has a source of its own, so that examples can be measured apart."""

    # Of examples

    @abstractmethod
    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The positions of each source, without its last one."""

    @abstractmethod
    def collate(self, examples: Dataset, rows: Integers) -> Ragged:
        """The sources of some examples as tensors."""

    @abstractmethod
    def of(self, examples: Dataset, row: int) -> Source:
        """The source of one example."""

    def groups(self, examples: Dataset) -> list[list[int]]:
        """The examples of each source: several if a source has several references."""
        return [[row] for row in range(len(examples))]

    def counts(self, examples: Dataset) -> dict[str, int]:
        """How many sources there are, if several examples can share one."""
        return {}

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        """A source that is not tokens, in words."""
        return {}

    def fingerprints(self, train: Any, validation: Any) -> dict[str, int]:
        """Checksums of sources that are not tokens."""
        return {}

    @abstractmethod
    def check(self, data: Prepared[Any]) -> None:
        """Refuse a model that cannot read the sources, or write the targets."""

    # That a user gives

    @abstractmethod
    def read(self, inputs: Sequence[Example]) -> Sequence[Source | RegardError]:
        """The source that each input stands for, or why it cannot be read."""

    def read_one(self, given: Example) -> Source:
        """The source of one input, or an error that says why it cannot be read."""
        [source] = self.read([given])
        if isinstance(source, RegardError):
            InputError.raise_if(source.problems)
            raise source
        return source

    @abstractmethod
    def batch(self, sources: Sequence[Source]) -> Ragged:
        """Sources as tensors."""

    @abstractmethod
    def tokens(self, source: Source) -> list[str]:
        """How the positions of a source are spelt."""

    def notes(self, inputs: Sequence[Example], sources: Sequence[Source]) -> list[Note]:
        """What a user should know about sources."""
        return []


class TextSources(Sources):
    """Texts, as tokens up to `</s>`, after the token of their language if the model has many."""

    lengths_of = "source"

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizers["source"]
        self.first = first_tokens(recipe, tokenizers, "source")

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        return examples.columns["source"].lengths

    def collate(self, examples: Dataset, rows: Integers) -> Padded:
        ids_BL, lengths_B = examples.columns["source"].padded(
            rows, begin=None, end=self.tokenizer.end, pad=self.tokenizer.pad
        )
        return Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))

    def of(self, examples: Dataset, row: int) -> Source:
        return [*examples.columns["source"][row].tolist(), self.tokenizer.end]

    def check(self, data: Prepared[Dataset]) -> None:
        """The validation, too: if it cannot be read, the training would be aborted."""
        splits = (data.train, data.validation)
        longest = [
            max(int(part.columns[name].lengths.max()) for part in splits) + 1
            for name in ("source", "target")
        ]
        self.recipe.model.check_data(*longest)

    def read(self, inputs: Sequence[Example]) -> Sequence[Source | RegardError]:
        encoded = encode_each(self.tokenizer, self._cleaned(inputs))
        end = self.tokenizer.end
        return [
            ids if isinstance(ids, RegardError) else [*self.first, *ids, end] for ids in encoded
        ]

    def _cleaned(self, inputs: Sequence[Example]) -> list[Example]:
        """The inputs with texts that are cleaned as those of the training were."""
        clean = self.recipe.data.cleaning("source")
        return [given.with_text(clean(given.text)) for given in inputs]

    def batch(self, sources: Sequence[Source]) -> Ragged:
        return padded([_text(source) for source in sources], self.tokenizer.pad)

    def tokens(self, source: Source) -> list[str]:
        return self.tokenizer.tokens(_text(source))

    def notes(self, inputs: Sequence[Example], sources: Sequence[Source]) -> list[Note]:
        """Which inputs have words that the tokenizer does not know."""
        unk = self.tokenizer.unk
        rows = {number: row for number, row in enumerate(map(_text, sources)) if unk in row}
        given = self._cleaned([inputs[number] for number in rows])
        return unknown_notes(self.tokenizer, given, [*rows.values()])


def _text(source: Source) -> list[int]:
    assert isinstance(source, list)
    return source
