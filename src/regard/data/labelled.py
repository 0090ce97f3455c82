"""Texts with labels: where they come from, and which columns they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.framing import Long


class Labelled(Corpus):
    """Texts, or pairs of texts, each with a label."""

    NUMBERS: ClassVar[frozenset[str]] = frozenset({"label"})

    text: str | int | None = None
    """The column of the text, by name or number; or a file of texts, a line each."""
    first: str | int | None = None
    """Instead of `text`: the column of the first of two texts."""
    second: str | int | None = None
    """The column of the second."""
    label: str | int | None = None
    """The column of the label: a class as it is written there, or a number."""
    corpus: Literal["reviews-en", "reviews-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Short reviews of the package, in English or Korean, positive or negative."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {name: getattr(self, name) for name in (*self.texts, "label")}

    @property
    def inputs(self) -> int:
        return len(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that are read, in their order."""
        return ("text",) if self.first is None and self.second is None else ("first", "second")

    @model_validator(mode="after")
    def _one_text_or_two(self) -> Labelled:
        if self.text is not None and len(self.texts) == 2:
            raise ValueError("give 'text', or 'first' and 'second', not both")
        return self


class LabelledData(Splits[Labelled]):
    """The labelled texts of a run."""

    UNIT: ClassVar[str] = "examples"

    train: Annotated[list[Labelled], BeforeValidator(as_list)]
    """One corpus, or a list of them that are mixed by weight."""
    validation: HeldOut[Labelled] = Split(split=0.1)
    """Examples to choose the best checkpoint with."""
    test: HeldOut[Labelled] | None = None
    """Examples to measure with at the end."""
    max_length: int = Field(128, ge=8)
    """Most tokens that are read at once, special ones included."""
    long: Long = "head"
    """What is read of a longer text: its head, its tail, a quarter of head with three quarters of tail, or windows one
    after the other, whose logits are averaged. Of two texts the longer is cut; windows go over the second."""
    stride: int | None = Field(None, ge=1)
    """For `windows`: tokens from the beginning of one to that of the next. Default: half a window."""

    @model_validator(mode="after")
    def _one_kind_of_text(self) -> LabelledData:
        parts = [part for part in (self.train, self.validation, self.test) if isinstance(part, list)]
        if len({corpus.texts for part in parts for corpus in part}) > 1:
            raise ValueError("all corpora have one text, or all have 'first' and 'second'")
        return self


def list_of(choices: Sequence[str | int]) -> str | None:
    """`endings` where choices are endings.0, endings.1 and so on; None where they are not the items of a list."""
    name = str(choices[0]).removesuffix(".0") if choices else ""
    return name if list(choices) == [f"{name}.{number}" for number in range(len(choices))] else None


class Choices(Corpus):
    """A text and its choices in each row of a table."""

    NUMBERS: ClassVar[frozenset[str]] = frozenset({"label"})

    text: str | int | None = None
    """The column of what the choices go on with or answer, by name or number."""
    choices: list[str | int] | None = Field(None, min_length=2)
    """The columns of the choices in their order, by name or number. In .jsonl `endings.0` is the first of the list
    `endings`."""
    label: str | int | None = None
    """The column that says which choice is right: its number from 0, or one of the names in head.labels."""
    corpus: None = None  # there is none of choices
    """There is no built-in corpus of choices."""

    @property
    def inputs(self) -> int:
        return len(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that are read, in their order."""
        return ("text", *(f"choice {number}" for number in range(len(self.choices or ()))))

    @property
    def columns(self) -> dict[str, str | int | None]:
        named = dict(zip(self.texts[1:], self.choices or (), strict=True))
        return {"text": self.text, **named, "label": self.label}

    @property
    def listed(self) -> str | None:
        return list_of(self.choices or ())

    @model_validator(mode="after")
    def _one_table(self) -> Choices:
        if self.choices is None:
            raise ValueError("name the columns of the choices: choices: [ending0, ending1, ...]")
        if self.file is None and self.dataset is None:
            raise ValueError("a text and its choices stand in one table: name it as 'file: ...'")
        return self


class ChoiceData(Splits[Choices]):
    """The questions of a run, with their choices."""

    UNIT: ClassVar[str] = "examples"

    train: Annotated[list[Choices], BeforeValidator(as_list)]
    """One corpus, or a list of them that are mixed by weight."""
    validation: HeldOut[Choices] = Split(split=0.1)
    """Examples to choose the best checkpoint with."""
    test: HeldOut[Choices] | None = None
    """Examples to measure with at the end."""
    max_length: int = Field(128, ge=8)
    """Most tokens of a text with one of its choices, special ones included."""
    long: Long = "head"
    """What is read of longer ones: the head, the tail, or a quarter of head with three quarters of tail of whichever is
    the longer. Of `windows` only the first is read."""
    stride: int | None = Field(None, ge=1)
    """Only for `windows`."""

    @model_validator(mode="after")
    def _as_many_choices(self) -> ChoiceData:
        parts = [part for part in (self.train, self.validation, self.test) if isinstance(part, list)]
        if len({len(corpus.texts) for part in parts for corpus in part}) > 1:
            raise ValueError("all corpora have the same number of choices")
        return self
