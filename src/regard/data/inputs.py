"""Typed lines, values of a program, objects and files that a user gives -> examples to predict for.

A task has one `Inputs`, which knows the columns of its examples and where tables have them.
Training reads tables with the same reader (data/formats.py); there the answers must be present.

    a line, as typed or on standard input   typed     -> of_typed_object, or of_line
    a line of a file                        of_line   -> of_texts, split at tabs
    values of a program, one or several     given     -> of_value, one by one
    an object with the run's columns        of_object -> read_object -> of_cells
    a row of a table                        rows      -> of_cells
    a file: a table, or lines               in_file   -> rows, or lines

All end in `of_texts`, which makes the `Example`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from regard.data.config import OBJECTS, TABLES, Corpus
from regard.data.example import Example
from regard.data.formats import (
    NamedColumns,
    NullError,
    Object,
    input_texts,
    table_rows,
    unanswered_keys,
)
from regard.errors import ColumnError, DataError, DecodeError, Problem, short
from regard.text.files import EncodingError, TextFile, open_text

UserTable = TextFile | Object  # a table of the user's, or an object that is one row of it
Given = str | tuple[str, ...] | list[str] | Mapping[str, object] | Example
"""An input of a program: a text, the texts that it consists of, or the run's columns with what is
in them."""
TypedObjects = Literal["texts", "rows", "rows or texts"]


@dataclass(frozen=True)
class Inputs:
    """The inputs of a task that reads one text; tasks that read something else have a subclass."""

    TABS: ClassVar[int] = 0
    """How many tabs of a typed line separate texts; -1: all of them. Others are part of a text."""
    TYPED_OBJECTS: ClassVar[TypedObjects] = "texts"
    """What a typed JSON object is: a text like any other, a row of a table, or a row if it has the
    columns and else a text."""

    task: str
    """The name of the task, for messages."""
    corpora: Sequence[Any]
    """The corpora of the run's recipe, whose keys say which column of a table is which."""
    encoding: str
    """How a user's files are encoded: as the recipe says."""
    names: tuple[str, ...]
    """The columns in the order in which they are typed."""

    # Texts

    def typed(self, text: str, place: str) -> Example:
        """A line as it is typed on the command line, at a prompt, or on standard input."""
        return self.of_typed_object(text, place) or self.of_line(text, place)

    def typed_lines(self, texts: Iterable[str]) -> list[Example]:
        """Typed lines, which messages call input 1, input 2 and so on."""
        return [self.typed(text, f"input {number}") for number, text in enumerate(texts, 1)]

    def of_line(self, text: str, place: str) -> Example:
        """A line of a file, or a typed line that is not an object."""
        return self.of_texts(text.split("\t", self.TABS) if self.TABS else [text], place)

    def of_texts(self, texts: Sequence[str], place: str, fault: Problem | None = None) -> Example:
        """The texts of an input, in the order of the columns."""
        return Example(self.by_column(texts), place, fault)

    def by_column(self, texts: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
        """Texts by the names of their columns; too many of them are one column."""
        if len(texts) > len(self.names):
            return {"texts": tuple(texts)}
        if len(texts) == 1:
            return {self.names[0]: texts[0]}
        return dict(zip(self.names, texts, strict=False))

    def wrong_number(self, given: Example) -> Problem | None:
        """Why there are too few or too many texts for the model's answer, if so."""
        return None

    # Values of a program, and what is posted

    def given(self, values: object) -> list[Example]:
        """The inputs that a program gives, one or several. Examples stay as they are."""
        # a table of pandas, which iterates over the names of its columns
        if hasattr(values, "iterrows"):
            values = cast("Any", values).to_dict("records")
        one = isinstance(values, str | bytes | tuple | Mapping | Example)
        several = isinstance(values, Iterable) and not one
        listed = cast("Iterable[object]", values if several else [values])
        return [self.of_value(value, f"input {number}") for number, value in enumerate(listed, 1)]

    def of_value(self, value: object, place: str) -> Example:
        """One value of a program; tabs in its texts separate nothing."""
        if isinstance(value, Example):
            return value
        if isinstance(value, str):
            return self.of_typed_object(value, place) or self.of_texts([value], place)
        if isinstance(value, Mapping):
            return self.of_object(value, place)
        are_texts = isinstance(value, tuple | list) and all(isinstance(text, str) for text in value)
        if not are_texts or not value:
            what = f"{short(repr(value))} is not a text"
            hint = "give a text, a dict with the run's columns, or a tuple of texts"
            return Example({}, place, Problem(place, what, hint), typed=str(value))
        texts = cast("Sequence[str]", value)
        if len(texts) > 1 and not self.takes_tuples:
            what = f"one text is expected, not {len(texts)}"
            fault = Problem(place, what, "several inputs are a list")
            return Example({}, place, fault, typed=str(value))
        return self.of_texts(texts, place)

    @property
    def takes_tuples(self) -> bool:
        """Whether an input consists of several texts."""
        return len(self.names) > 1

    def of_typed_object(self, text: str, place: str) -> Example | None:
        """A typed JSON object as a row of a table; None if the text is not one."""
        if self.TYPED_OBJECTS == "texts" or not text.lstrip().startswith("{"):
            return None
        try:
            values = json.loads(text.replace("\n", " "))
        except (ValueError, RecursionError):
            return None
        try:
            return self.read_object(values, place)
        except DataError as error:
            may_be_text = self.objects_may_be_texts and not isinstance(error, NullError)
            return None if may_be_text else Example({}, place, error.problems[0], typed=text)

    @property
    def objects_may_be_texts(self) -> bool:
        """Whether a typed object without the columns is a text."""
        return self.TYPED_OBJECTS == "rows or texts"

    def of_object(self, values: Object, place: str) -> Example:
        """An object with the run's columns, as a row of a table."""
        try:
            return self.read_object(values, place)
        except DataError as error:
            return Example({}, place, error.problems[0], typed="")

    def read_object(self, values: Object, place: str) -> Example:
        """An object by the keys of the recipe's tables, or by the task's names; or a DataError."""
        corpus = self.table(values)
        keys = unanswered_keys(corpus)
        has_names = all(name in values for name in self.names)
        if has_names and not has_column(values, str(keys[0])):
            keys = [*self.names]
        return self.of_cells(input_texts(values, keys, place, corpus.listed), place)

    # Files

    def open(self, name: str | Path) -> TextFile:
        """A user's file, which is encoded as those of the recipe."""
        return open_text(str(name), Path(), self.encoding)

    def in_file(self, name: str | Path, *, skip_bad: bool = False) -> Iterator[Example]:
        """The inputs in a file, as they are read: its lines, or the rows of a table with columns
        that the task knows.

        With `skip_bad`, lines that cannot be decoded are returned as well, to be refused one by
        one.
        """
        file = self.open(name)
        if skip_bad:
            file = replace(file, errors="surrogateescape")
        try:
            yield from self.rows(file)
        except ColumnError:
            if is_table(file):
                self._expect_encoding(name)  # in another one the columns have other names
            raise

    def _expect_encoding(self, name: str | Path) -> None:
        """Refuse a file whose first lines are in another encoding, if that can be told."""
        try:
            list(islice(self.open(name).lines(), 1000))
        except EncodingError as error:
            if error.encoding:  # else it has some bad lines
                raise

    def rows(self, file: TextFile) -> Iterator[Example]:
        """The rows of a table, whose answers may be missing, or the lines of another file."""
        if not is_table(file):
            return self.lines(file)
        rows = table_rows(file, self.table(file), answered=False)
        return (self.of_cells(row.values, file.row(row.line), row.fault) for row in rows)

    def lines(self, file: TextFile) -> Iterator[Example]:
        return (self.of_line(text, file.where(line)) for line, text in enumerate(file.lines(), 1))

    def of_cells(self, cells: Sequence[str], place: str, fault: Problem | None = None) -> Example:
        """The cells of a row that the model reads, in the order of the columns."""
        return self.of_texts(cells[: len(self.names)], place, fault)

    # Stories, whose lines are not inputs by themselves

    def story(self, file: str | Path, *, skip_bad: bool = False) -> list[Example]:
        """The lines of a story, or its objects, for a task that reads stories."""
        what = f"a run of {self.task} reads no story"
        raise DecodeError(what, where="--story", hint="runs of story_answering do")

    def gathered(
        self, examples: Iterable[Example], story: Sequence[Example] = ()
    ) -> Iterator[Example]:
        """Lines -> inputs: each line is one, except for a task that reads stories. `story` is what
        questions among the lines are about."""
        return iter(examples)

    # What `--file` names

    def table(self, table: UserTable) -> Corpus:
        """A table of the user's, or one object, as a corpus."""
        return table_corpus(table, self.corpora)

    def corpus_of(self, files: Sequence[str]) -> Any:
        """The corpus that `evaluate --file` names: a file for each column, or a table."""
        kind = type(self.corpora[0])
        columns = list(self.corpora[0].columns)
        if len(files) == len(columns):
            return kind(**dict(zip(columns, files, strict=True)))
        name = only_file(
            files, hint=f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        )
        file = TextFile(name, Path(name), encoding=self.encoding)
        if not is_table(file) and file.path.is_file():
            options = " ".join(f"--file {name.upper()}" for name in columns)
            raise DataError(
                f"{name} is not a table, so it can hold only one of the columns",
                where="--file",
                hint=f"{options}, or one table: {', '.join(TABLES)}",
            )
        return self.table(file)


def is_table(file: TextFile) -> bool:
    return file.suffixes[0] in TABLES


def only_file(files: Sequence[str], hint: str = "give one") -> str:
    """The one file that `--file` names, for tasks that have all of an example in it."""
    if len(files) != 1:
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    return files[0]


def has_column(table: UserTable, name: str) -> bool:
    """Whether the first row of a table has a text in a column of this name."""
    with suppress(DataError):
        if not isinstance(table, TextFile):
            return bool(input_texts(table, [name], ""))
        for row in table_rows(table, NamedColumns.of(name), answered=False):
            if row.fault is not None or any(row.values):
                return row.fault is None
    return False


def table_corpus(table: UserTable, own: Sequence[Corpus]) -> Corpus:
    """A table of the user's as a corpus with the keys of the recipe's first table, or without one
    the task's names.

    Objects and Parquet have no columns by number: there the task's names stand for them, too.
    """
    tables = [corpus for corpus in own if corpus.file is not None or corpus.dataset is not None]
    like = (tables or own)[0]
    file = table if isinstance(table, TextFile) else None
    by_name = file is None or file.suffixes[0] in (*OBJECTS, ".parquet")
    if not tables or (by_name and any(isinstance(key, int) for key in like.columns.values())):
        like = like.named()
    others = dict.fromkeys(("dataset", "subset", "split", "corpus", "size"))
    return like.model_copy(update={**others, "prefix": "", "file": file and file.name})
