"""Labelled data: base classes of its corpora and splits, and tables of texts with labels or
choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator

from regard.data.config import C, Corpus, HeldOut, Split, Splits
from regard.data.example import Example
from regard.data.framing import Arrangement, Long
from regard.data.inputs import Inputs, UserTable, has_column, only_file
from regard.errors import DataError, Problem
from regard.text.files import TextFile

MAX_CHOICES = 26  # choices that are looked for in a table


class LabelledSplits(Splits[C]):
    """Labelled data is scarce: a tenth of it is held out unless the recipe says otherwise."""

    UNIT: ClassVar[str] = "examples"

    validation: HeldOut[C] = Split(split=0.1)
    """Examples to choose the best checkpoint with. A share is drawn by whole texts or stories."""


class OneFile(Corpus):
    """Examples in a format of their own, each with all its columns in one file."""

    EXAMPLES: ClassVar[str]
    """What messages call the examples."""
    SUFFIXES: ClassVar[Mapping[str, str]]
    """The keys of FORMATS (data/readers.py) by suffix."""
    ALLOWED: ClassVar[str]
    """What messages say of the files that can be read."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {}

    def format(self, file: TextFile) -> str:
        suffix = file.suffixes[0]
        if suffix not in self.SUFFIXES:
            what = f"{self.EXAMPLES} cannot be read from a {suffix or 'file without suffix'}"
            raise DataError(what, where=file.name, hint=self.ALLOWED)
        return self.SUFFIXES[suffix]

    @classmethod
    def of_files(cls, files: Sequence[str], own: Sequence[Self], hint: str = "give one") -> Self:
        """The corpus of the files that `--file` names, with the keys of the recipe's first file."""
        file = only_file(files, hint)
        like = next((corpus for corpus in own if corpus.file is not None), cls(file=file))
        return like.model_copy(update={"file": file, "size": None})

    @model_validator(mode="after")
    def _file_or_corpus(self) -> Self:
        for name in ("header", "dataset", "prefix"):
            if getattr(self, name):
                raise ValueError(f"{self.EXAMPLES} have no {name!r}: give 'file' or 'corpus'")
        if self.file is None and self.corpus is None:
            raise ValueError(f"name the {self.EXAMPLES}: 'file' or 'corpus' ({self.ALLOWED})")
        return self


class LabelledTable(Corpus):
    """Rows of texts, each row with a label."""

    NUMBERS: ClassVar[frozenset[str]] = frozenset({"label"})

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that are read, in their order."""
        raise NotImplementedError

    @property
    def inputs(self) -> int:
        return len(self.texts)


LabelledCorpus = Literal[
    "reviews-en", "reviews-ko", "opinions-ko", "order", "inference-en", "inference-ko"
]
"""The built-in corpora of labelled texts."""
PAIRS = ("inference-en", "inference-ko")
"""Those of two texts."""


class Labelled(LabelledTable):
    """Texts, or pairs of texts, each with a label."""

    text: str | int | None = None
    """The column of the text, by name or number; or a file of texts, a line each."""
    first: str | int | None = None
    """Instead of `text`: the column of the first of two texts."""
    second: str | int | None = None
    """The column of the second."""
    label: str | int | None = None
    """The column of the label: a class as it is written there, or a number."""
    corpus: LabelledCorpus | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """A corpus of the package: short reviews in English or Korean, positive or negative; opinions in
    Korean, good or bad; sentences in which two people act, and who does so first; or pairs of
    sentences in English or Korean of which the second follows from the first, may be true, or
    contradicts it."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {name: getattr(self, name) for name in (*self.texts, "label")}

    @property
    def texts(self) -> tuple[str, ...]:
        is_pair = self.first is not None or self.second is not None or self.corpus in PAIRS
        return ("first", "second") if is_pair else ("text",)

    @model_validator(mode="after")
    def _one_text_or_two(self) -> Labelled:
        if self.text is not None and len(self.texts) == 2:
            raise ValueError("give 'text', or 'first' and 'second', not both")
        return self


class Choices(LabelledTable):
    """A text and its choices in each row of a table."""

    text: str | int | None = None
    """The column of what the choices go on with or answer, by name or number."""
    choices: list[str | int] | None = Field(None, min_length=2)
    """The columns of the choices in their order, by name or number. Of objects `endings.0` is the
    first of the list `endings`."""
    label: str | int | None = None
    """The column that says which choice is right: its number from 0, or one of the names in
    head.labels."""
    corpus: None = None  # there is none of choices
    """There is no built-in corpus of choices."""

    @property
    def texts(self) -> tuple[str, ...]:
        return ("text", *(f"choice {number}" for number in range(len(self.choices or ()))))

    @property
    def columns(self) -> dict[str, str | int | None]:
        return dict(
            zip((*self.texts, "label"), (self.text, *(self.choices or ()), self.label), strict=True)
        )

    def named(self) -> Self:
        choices = [f"choices.{number}" for number in range(len(self.choices or ()))]
        return self.model_copy(update={"text": "text", "choices": choices, "label": "label"})

    @property
    def listed(self) -> str | None:
        """`endings` where choices are endings.0, endings.1 and so on."""
        choices = self.choices or [""]
        name = str(choices[0]).removesuffix(".0")
        return name if choices == [f"{name}.{number}" for number in range(len(choices))] else None

    @model_validator(mode="after")
    def _one_table(self) -> Choices:
        if self.choices is None:
            raise ValueError("name the columns of the choices: choices: [ending0, ending1, ...]")
        if self.file is None and self.dataset is None:
            raise ValueError("a text and its choices must be in one table: name it as 'file: ...'")
        return self


T = TypeVar("T", bound=LabelledTable)


class LabelledData(LabelledSplits[T]):
    """The labelled texts of a run."""

    max_length: int = Field(128, ge=8)
    """Most tokens that are read at once, special ones included; of a text with choices, with one of
    them."""
    long: Long = "head"
    """What is read of a longer text: its head, its tail, a quarter of head with three quarters of
    tail, or windows one after the other, whose logits are averaged. Of two texts the longer is cut;
    windows go over the second. A text with choices has no windows."""
    stride: int | None = Field(None, ge=1)
    """For `windows`: tokens from the beginning of one to that of the next. Default: half a
    window."""
    stratify: bool = True
    """Set a share aside label by label: each part has every label in its proportion, and every
    label stays in the training data. Default: true; false for regression."""

    @property
    def by_label(self) -> bool:
        return self.stratify

    @model_validator(mode="after")
    def _as_many_texts(self) -> Self:
        if len({corpus.texts for corpus in self.corpora}) > 1:
            raise ValueError(
                "all corpora have one text, or all have 'first' and 'second', or as many choices"
            )
        return self


# What a user gives


@dataclass(frozen=True)
class LabelledInputs(Inputs):
    """One text, or two. An imported run may read either."""

    TABS = -1
    TYPED_OBJECTS = "rows or texts"

    arrangement: Arrangement | None = None
    """How the texts are read; None for an imported run, which reads one or two."""
    imported: bool = False

    def of_line(self, text: str, place: str) -> Example:
        """A single text may have tabs."""
        texts = [text] if self.arrangement == "single" else text.split("\t")
        return self.of_texts(texts, place)

    @property
    def takes_tuples(self) -> bool:
        return self.arrangement != "single"

    @property
    def objects_may_be_texts(self) -> bool:
        return self.arrangement in (None, "single")

    def of_cells(self, cells: Sequence[str], place: str, fault: Problem | None = None) -> Example:
        """Predictions show several texts with tabs between them, so there is no tab within one."""
        if self.arrangement != "single":
            cells = [cell.replace("\t", " ") for cell in cells]
        return self.of_texts(cells, place, fault)

    def wrong_number(self, given: Example) -> Problem | None:
        if self.arrangement == "single":
            return None
        texts = given.texts
        if len(texts) in ((1, 2) if self.arrangement is None else (2,)):
            return None
        hint = (
            r"put a tab between first and second, in bash $'FIRST\tSECOND', or in Python "
            r"give a tuple"
        )
        return Problem(given.place, f"two texts are expected, not {len(texts)}", hint)

    def table(self, table: UserTable) -> Corpus:
        corpus = super().table(table)
        if self.imported and has_column(table, "first"):
            return Labelled.model_construct(
                file=corpus.file, first="first", second="second", label="label"
            )
        return corpus

    def corpus_of(self, files: Sequence[str]) -> Any:
        if len(files) == 3 and self.imported:
            return Labelled(first=files[0], second=files[1], label=files[2])
        return super().corpus_of(files)


@dataclass(frozen=True)
class ChoiceInputs(LabelledInputs):
    """A text and its choices."""

    def by_column(self, texts: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
        return {"text": texts[0], "choices": tuple(texts[1:])}

    def wrong_number(self, given: Example) -> Problem | None:
        texts = given.texts
        if len(texts) > 2:
            return None
        hint = (
            "a text and two choices or more, tabs between them; or an object with the run's columns"
        )
        return Problem(given.place, f"there are {len(texts) - 1} choices", hint)

    def table(self, table: UserTable) -> Corpus:
        """For an imported run, the choices are choice0, choice1 and so on, or in objects a list
        `choices`."""
        if not self.imported:
            return super().table(table)
        begin = "choices." if has_column(table, "choices.0") else "choice"
        names = [f"{begin}{number}" for number in range(MAX_CHOICES)]
        choices: list[str | int] = [*takewhile(partial(has_column, table), names)]
        choices = choices if len(choices) > 1 else [*names[:2]]
        file = table.name if isinstance(table, TextFile) else None
        return Choices.model_construct(file=file, text="text", choices=choices, label="label")

    def corpus_of(self, files: Sequence[str]) -> Any:
        return super().corpus_of([only_file(files)])
