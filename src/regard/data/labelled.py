"""Texts with labels: where they come from, and which columns they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from regard.data import reviews
from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import Part
from regard.data.framing import Long
from regard.data.readers import Reader, open_corpus
from regard.data.rows import Row


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
    corpus: reviews.Reviews | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Short reviews that the package writes, in English or Korean, positive or negative."""

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


class LabelledReader(Reader):
    """The rows of a labelled corpus: text or texts, then label."""

    corpus: Labelled

    def _rows(self) -> Iterator[Row]:
        corpus = self.corpus
        if corpus.corpus is None:
            return super()._rows()
        drawn = reviews.generate(corpus.corpus, corpus.size, corpus.seed, self.part)
        return (Row(line, review) for line, review in enumerate(drawn, 1))

    def fingerprint(self) -> str:
        return super().fingerprint() if self.corpus.corpus is None else f"{super().fingerprint()}-{reviews.VERSION}"


def open_labelled(corpus: Corpus, base: Path, part: Part = "train") -> Reader:
    """A reader of the corpus; names of files are relative to `base`."""
    if isinstance(corpus, Labelled) and corpus.corpus is not None:
        return LabelledReader(corpus, base, part)
    return open_corpus(corpus, base, part)
