"""An example that a user gives: its texts by column, and the place where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from regard.errors import InputError, Problem


@dataclass(frozen=True)
class Example:
    """The texts of one input by the task's names for its columns, and where they stand.

    It is made by `Inputs` (data/inputs.py) from what is typed, read from a file or posted, and lives
    until it is encoded.
    """

    columns: Mapping[str, str | tuple[str, ...]]
    """A column such as `choices` may have several texts. Empty if the input cannot be read."""
    place: str
    """What messages call it: `train.tsv:17`, `input 3`."""
    fault: Problem | None = None
    """Why it cannot be read, if so."""
    typed: str | None = None
    """What a prediction shows as its input. None: the texts, with tabs between them."""

    @classmethod
    def of_text(cls, text: str, place: str) -> Example:
        return cls({"text": text}, place)

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, in the order of the columns."""
        texts: list[str] = []
        for column in self.columns.values():
            if isinstance(column, str):
                texts.append(column)
            else:
                texts.extend(column)
        return tuple(texts)

    def several(self, name: str) -> tuple[str, ...]:
        """The texts of a column; none if the example does not have it."""
        column = self.columns.get(name, ())
        return (column,) if isinstance(column, str) else column

    @cached_property
    def text(self) -> str:
        """The input as one text: as it was typed, or its texts with tabs between them."""
        return "\t".join(self.texts) if self.typed is None else self.typed

    def with_text(self, text: str) -> Example:
        """An example with one text, at the same place."""
        return Example({"text": text}, self.place, self.fault)


def without_faults(examples: list[Example]) -> list[Example]:
    """The examples, or one InputError that names all that cannot be read."""
    if faults := [example.fault for example in examples if example.fault]:
        InputError.raise_if(faults)
    return examples
