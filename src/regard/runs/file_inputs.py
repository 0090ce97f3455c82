"""The inputs in a file that a run is to predict for: its lines, or the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.file_inputs import FileInput, HeldFile, TolerantFile
from regard.data.files import open_text
from regard.errors import ColumnError, DataError, Problem
from regard.runs.run import Run
from regard.runs.splits import own_corpora
from regard.tasks.labelling import TextLabelling
from regard.tasks.tagging import Tagging


def file_inputs(run: str | Path | Run, file: Path, *, skip_bad: bool = False) -> Sequence[FileInput]:
    """A line each, or of a table that the run's task knows the columns of, a row; in their order.

    With `skip_bad` lines pass that are not UTF-8, to be refused one by one.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    opened = open_text(str(file), Path())
    if skip_bad:
        opened = TolerantFile(opened.name, opened.path)
    try:
        rows = run.task.inputs_in(run.recipe, own_corpora(run.recipe.data), opened)
        if rows is not None:
            return list(rows)
    except ColumnError as error:
        what = "of a table the run's own columns are read, or 'text', or 'first' and 'second' where it has none"
        problems = [*error.problems, Problem("", what, "a .txt has one input a line, tabs between its texts")]
        raise DataError(problems=problems) from None
    return [FileInput(text, opened.where(line)) for line, text in enumerate(opened.lines(), 1)]


def typed_inputs(run: Run, texts: Sequence[str]) -> list[str]:
    """What was typed: of a run that labels or tags texts, an object with its columns stands for a row of a .jsonl.

    All else is text, however much it looks like an object.
    """
    if not issubclass(run.task, TextLabelling | Tagging):  # questions about texts and stories read objects themselves
        return list(texts)
    own = own_corpora(run.recipe.data)
    return [_typed_row(run, own, text) or text if text.lstrip().startswith("{") else text for text in texts]


def _typed_row(run: Run, own: Sequence[Any], text: str) -> str | None:
    """The texts of an object; None where it is not one with the run's columns."""
    try:
        file = HeldFile("typed.jsonl", content=text.replace("\n", " ").encode())
        [row] = run.task.inputs_in(run.recipe, own, file)
    except (DataError, UnicodeEncodeError):
        return None
    found: FileInput = row
    return found.text if found.fault is None else None
