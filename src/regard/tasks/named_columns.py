"""The columns of a table for a run that has none of its own, as an imported one: by the names that its task has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from regard.data.choices import Choices
from regard.data.columns import header_of
from regard.data.file_inputs import column_problem, has_columns, is_table
from regard.data.labelled import Labelled
from regard.errors import DataError, Problem
from regard.tasks.pairs import corpus_of
from regard.text.files import TextFile, open_text

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
