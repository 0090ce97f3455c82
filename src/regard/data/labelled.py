"""Texts with labels: where they come from, and which columns they have."""

from __future__ import annotations

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
