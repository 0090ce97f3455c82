"""What `--file` names, as a corpus with the columns of the recipe's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from regard.data.columns import first_rows, header_of
from regard.data.config import TABLES, Corpus
from regard.data.file_inputs import column_problem, has_columns, is_table
from regard.data.labelled import Choices, Labelled
from regard.errors import DataError, Problem
from regard.text.files import TextFile, open_text


def corpus_of(files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
    """What `--file` names: one file a column, or one with all columns.

    Those are found as in the recipe's own file of the same format, or of another one with the same names; else by
    number, and in .jsonl, or where the first line says so, by name. A first line that names columns is no row.
    """
    kind, columns = type(own[0]), list(own[0].columns)
    if len(files) == len(columns):
        named_files: dict[str, Any] = dict(zip(columns, files, strict=True))
        return kind(**named_files)
    if len(files) != 1:
        hint = f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    suffix = suffix_of(files[0])
    if suffix not in TABLES and Path(files[0]).is_file():
        hint = f"{' '.join(f'--file {name.upper()}' for name in columns)}, or one table: {', '.join(TABLES)}"
        raise DataError(f"{files[0]} is no table, so it can hold only one of the columns", where="--file", hint=hint)
    file = TextFile(files[0], Path(files[0]))
    names = header_of(file) if suffix in (".tsv", ".csv") else []
    tables = [corpus for corpus in own if corpus.file is not None]
    alike = [corpus for corpus in tables if suffix_of(str(corpus.file)) == suffix]
    for corpus in [*alike, *(corpus for corpus in tables if _has_names_of(corpus, file))]:
        return kind(file=files[0], header=header_in(files[0], corpus), **corpus.columns)  # type: ignore[arg-type]
    named = suffix == ".jsonl" or set(columns) <= set(names)
    if not named and suffix in (".tsv", ".csv"):
        _refuse_more(file, columns)
    keys: dict[str, Any] = {name: name if named else number for number, name in enumerate(columns)}
    return kind(file=files[0], header=True if names and not named else None, **keys)


def _refuse_more(file: TextFile, columns: Sequence[str]) -> None:
    """Refuse a table with more columns than are read, where nothing says which of them those are."""
    filled = Counter(max((place for place, cell in enumerate(row, 1) if cell), default=0) for row in first_rows(file))
    [(width, _)] = filled.most_common(1) or [(0, 0)]
    if width > len(columns):
        what = f"it has {width} columns, and nothing says which is the {' and which the '.join(columns)}"
        hint = f"name them {', '.join(columns)} in a first line, or leave the others out"
        raise DataError(what, where=file.name, hint=hint)


def _has_names_of(corpus: Corpus, file: TextFile) -> bool:
    """Whether a file has a corpus's columns, of which the first is enough: what is to be found may be missing."""
    first, *others = corpus.columns.values()
    return isinstance(first, str) and all(isinstance(key, str) for key in others) and has_columns(file, {first: first})


def header_in(file: str, like: Corpus) -> bool | None:
    """The setting `header` for a file that is read as another corpus: a first line that names columns is no row, also
    where they are asked for by number."""
    by_number = like.header is None and all(isinstance(key, int) for key in like.columns.values())
    named = by_number and suffix_of(file) in (".tsv", ".csv") and header_of(TextFile(file, Path(file)))
    return True if named else like.header


def suffix_of(file: str) -> str:
    """What a file is, however it is compressed."""
    return TextFile(file, Path(file)).suffixes[0]


LABELLED = "wanted are text, or first and second; what is to be found is called label"
CHOSEN = (
    "wanted are text, choice0, choice1 and so on, or in .jsonl a list of two choices or more; label says which is right"
)
CHOICES = (("text", "choices."), ("text", "choice"), ("startphrase", "ending"))
"""What a text is called and how the names of its choices begin: in .jsonl, in another table, in SWAG."""
MOST = 26
"""Choices that are looked for."""


def labelled_of(files: Sequence[str]) -> Labelled:
    """A table, which may have no header if its two columns are a text and its label; or a file for each column."""
    if len(files) == 3:
        return Labelled(first=files[0], second=files[1], label=files[2])
    if len(files) == 1 and is_table(file := open_text(files[0], Path())):
        has_two = file.suffixes[0] in (".tsv", ".csv") and not has_columns(file, {"2": 2})
        if not has_two or header_of(file):
            return labelled_in(file)
    corpus = corpus_of(files, [Labelled.model_construct()])
    assert isinstance(corpus, Labelled)
    return corpus


def labelled_in(file: TextFile) -> Labelled:
    """A table of texts, or of pairs of them, and their labels."""
    if has_columns(file, {"first": "first", "second": "second"}):
        return Labelled(file=file.name, first="first", second="second", label="label")
    problem = column_problem(file, {"text": "text"})
    if problem is None:
        return Labelled(file=file.name, text="text", label="label")
    raise _refused(problem, LABELLED)


def choices_in(file: TextFile) -> Choices:
    """A table of texts with choices, and which of them is right."""
    for text, begin in CHOICES:
        choices = list(_choices(file, begin))
        if len(choices) > 1 and has_columns(file, {text: text}):
            return Choices(file=file.name, text=text, choices=choices, label="label")
    problems = (column_problem(file, {name: name}) for name in ("text", "choice0", "choice1"))
    raise _refused(next(problem for problem in problems if problem is not None), CHOSEN)


def _choices(file: TextFile, begin: str) -> Iterator[str | int]:
    names = (f"{begin}{number}" for number in range(MOST))
    return takewhile(lambda name: has_columns(file, {name: name}), names)


def _refused(problem: Problem, wanted: str) -> DataError:
    return DataError(problems=[replace(problem, hint=f"{problem.hint}; {wanted}")])
