"""The inputs in a file that a run is to predict for: its lines, or the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.data.file_inputs import FileInput, HeldFile, TolerantFile, is_table
from regard.data.formats import object_in
from regard.errors import ColumnError, DataError, Problem
from regard.runs.run import Run
from regard.tasks.inputs import numbered, refuse
from regard.tasks.labelling import TextLabelling
from regard.tasks.tagging import Tagging
from regard.text.files import open_text


def file_inputs(run: str | Path | Run, file: Path, *, skip_bad: bool = False) -> Sequence[FileInput]:
    """A line each, or of a table that the run's task knows the columns of, a row; in their order.

    With `skip_bad` lines pass that are not UTF-8, to be refused one by one.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    opened = open_text(str(file), Path())
    if skip_bad:
        opened = TolerantFile(opened.name, opened.path)
    try:
        rows = run.task.inputs_in(opened)
        if rows is not None:
            return list(rows)
    except ColumnError as error:
        if not is_table(opened):
            raise
        what = "of a table the run's own columns are read, or 'text', or 'first' and 'second' where it has none"
        problems = [*error.problems, Problem("", what, "a .txt has one input a line, tabs between its texts")]
        raise DataError(problems=problems) from None
    return [FileInput(text, opened.where(line)) for line, text in enumerate(opened.lines(), 1)]


def typed_inputs(run: Run, texts: Sequence[str]) -> list[str]:
    """The texts that were typed; see `typed_rows`."""
    rows = typed_rows(run, texts, numbered(texts))
    refuse([row.fault for row in rows])
    return [row.text for row in rows]


def typed_rows(run: Run, texts: Sequence[str], places: Sequence[str]) -> list[FileInput]:
    """What was typed: of a run that labels or tags texts, an object with its columns stands for a row of a .jsonl.

    Without them it is a text, unless the run reads several of them. What is no object is always a text.
    """
    typed = [FileInput(text, place) for text, place in zip(texts, places, strict=True)]
    if not isinstance(run.task, TextLabelling | Tagging):  # questions about texts and stories read objects themselves
        return typed
    return [_typed_row(run, one) for one in typed]


def _typed_row(run: Run, typed: FileInput) -> FileInput:
    """The texts of an object, as one; where it has not the run's columns, the object itself or why it is refused."""
    if (line := _object_in(typed.text)) is None:
        return typed
    try:
        [row] = run.task.inputs_in(file := HeldFile("typed.jsonl", content=line))
        found: FileInput = row
    except DataError as error:
        found = FileInput("", "", error.problems[0])
    if found.fault is None:
        return typed._replace(text=found.text)
    if not isinstance(run.task, TextLabelling) or run.task.arrangement in (None, "single"):
        return typed
    hint = found.fault.hint
    if run.recipe.data.train:  # else the hint has the names already
        columns, _ = run.task.table_columns(file)
        hint = "; ".join(filter(None, [hint, f"wanted are {', '.join(map(str, columns.values()))}"]))
    return typed._replace(fault=replace(found.fault, where=typed.place, hint=hint))


def _object_in(text: str) -> bytes | None:
    """An object as a line of .jsonl; None where the text is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        object_in(line := text.replace("\n", " "), "")
        return line.encode()
    except (DataError, UnicodeEncodeError):
        return None
