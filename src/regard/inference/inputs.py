"""The inputs that a program gives: texts, a file, a story; and the prefixes of their outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from regard.data.example import Example, without_faults
from regard.data.inputs import Given
from regard.errors import DecodeError, Problem
from regard.tasks.task import Task

MAX_CHARACTERS = 1 << 24
"""Longest input: a tokenizer needs some 50 bytes of memory for each character."""


def read_inputs(
    task: Task,
    inputs: Given | Iterable[Given] | None = None,
    file: str | Path | None = None,
    story: str | Path | None = None,
    *,
    skip_bad: bool = False,
) -> list[Example]:
    """The inputs as a program gives them, lines of a file or rows of a table; of a task that reads
    stories, its questions. Inputs that were gathered already stay as they are."""
    if inputs is None and file is None and story is None:
        raise DecodeError("there is no input", where="inputs", hint="give texts, or a file")
    given = [] if inputs is None else task.inputs.given(inputs)
    if given and file is not None:
        raise DecodeError("give texts or --file, not both", where="--file")
    lines = [] if story is None else task.inputs.story(story, skip_bad=skip_bad)
    if file is not None:
        given = list(task.inputs.in_file(file, skip_bad=skip_bad))
    elif lines:  # a problem of a question about a story may be in either
        given = [replace(one, place=f"{lines[-1].place}, {one.place}") for one in given]
    given = mark_long_inputs(list(task.inputs.gathered(given, lines)))
    return given if skip_bad else without_faults(given)


def mark_long_inputs(inputs: list[Example]) -> list[Example]:
    """Give an input that is too long a fault, and leave out its text."""
    return [item if len(item.text) <= MAX_CHARACTERS else _marked(item) for item in inputs]


def _marked(item: Example) -> Example:
    count = len(item.text)
    fault = Problem(item.place, f"it has {count:,} characters", f"at most {MAX_CHARACTERS:,}")
    return Example({}, item.place, fault, typed="")


def read_prefixes(task: Task, file: Path, inputs: int, prefix: str | None) -> list[str]:
    """The lines of a file of prefixes, as many as there are inputs."""
    if prefix is not None:
        raise DecodeError("give --prefix or --prefixes, not both", where="--prefixes")
    lines = list(task.inputs.open(file).lines())
    if len(lines) != inputs:
        what = (
            f"{len(lines):,} prefix{'es'[: 2 * (len(lines) != 1)]} for {inputs:,} "
            f"input{'s'[: inputs != 1]}"
        )
        raise DecodeError(
            what,
            where=str(file),
            hint="one line for each input, empty where any beginning is allowed",
        )
    return lines
