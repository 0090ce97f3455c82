"""Inputs of the command line: arguments, standard input as it comes, and a story.

Torch is imported where it is needed, not by `--help`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

from regard.cli.console import note, say
from regard.errors import DecodeError, refuse

if TYPE_CHECKING:
    from regard.data.example import Example
    from regard.data.inputs import Inputs
    from regard.data.standard_input import PlacedLine
    from regard.tasks.task import Task

NOT_READ = "standard input is not read here"
STORY_HINT = "give a file; without --story a story may stand there before its questions"


def standard_input(*, needed: bool = True, skip_bad: bool = False) -> Iterator[list[PlacedLine]]:
    """The lines of standard input, in parts as they come."""
    from regard.data.standard_input import lines_as_they_come

    if sys.stdin.isatty():
        say("one input a line, end with Ctrl-D:", sys.stderr)
    for part in lines_as_they_come(cast("BufferedIOBase", sys.stdin.buffer), skip_bad=skip_bad):
        needed = False
        yield part
    if needed:
        raise DecodeError(
            "there is no input", where="standard input", hint="give texts as arguments, or --file"
        )


def examples_in(inputs: Inputs, lines: Iterable[PlacedLine]) -> Iterator[Example]:
    """Lines as the task reads them; some of them may be JSON objects."""
    return (inputs.typed(text, place) for text, place in lines)


def gather_inputs(
    task: Task, texts: Iterable[str] | None, story: Sequence[Example], skip_bad: bool
) -> list[Example]:
    """The inputs in texts that were typed, or in all of standard input.

    A problem of a question about a story may be in either.
    """
    begin = f"{story[-1].place}, " if story else ""
    if texts is None:
        lines = chain.from_iterable(standard_input(needed=not story, skip_bad=skip_bad))
        return list(task.inputs.gathered(examples_in(task.inputs, lines), story))
    texts = [*texts]
    for text in filter(os.path.isfile, texts if task.recipe.model.reads != "image" else ()):
        note(f"{text} is read as a text, but is the name of a file, too: --file {text} reads that")
    placed = [(text, f"{begin}input {number}") for number, text in enumerate(texts, 1)]
    return list(task.inputs.gathered(examples_in(task.inputs, placed), story))


def read_story(
    task: Task, story: Path | None, *, skip_bad: bool = False
) -> tuple[list[Example], bool]:
    """The lines of a story, and whether there is a question among them."""
    refuse({"--story": str(story) == "-"}, NOT_READ, STORY_HINT)
    from regard.data.example import without_faults
    from regard.data.stories import Question, questions_among

    lines = [] if story is None else task.inputs.story(story, skip_bad=skip_bad)
    lines = lines if skip_bad else without_faults(lines)
    return lines, any(isinstance(question, Question) for question in questions_among(lines))
