"""The texts that a command is given: as arguments, in files, or on standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from regard.errors import DecodeError, Problem

STORY_HINT = "give a file; without --story a story may stand there before its questions"


def read_inputs(
    inputs: list[str] | None, *, skip_bad: bool = False, needed: bool = True
) -> tuple[list[str], list[str]]:
    """The texts given as arguments or, if there are none or a single -, on standard input; and their names in messages.

    With `skip_bad`, lines that are not valid UTF-8 are returned as well, to be refused one by one. No input at all is
    refused if one is `needed`.
    """
    if inputs and inputs != ["-"]:
        from regard.tasks.inputs import numbered

        return inputs, numbered(inputs)
    if sys.stdin.isatty():
        print("one input a line, end with Ctrl-D:", file=sys.stderr)
    content = sys.stdin.read().encode("utf-8", "surrogateescape")
    if not content:
        if needed:
            raise DecodeError("there is no input", where="standard input", hint="give texts as arguments, or --file")
        return [], []
    from regard.data.file_inputs import HeldFile

    held = HeldFile("standard input", content=content)
    texts = list(held.lines(errors="surrogateescape" if skip_bad else "strict"))
    return texts, [held.where(line) for line in range(1, len(texts) + 1)]


def not_standard_input(file: Path | None, option: str, hint: str) -> None:
    """Refuse - as the name of a file."""
    if str(file) == "-":
        raise DecodeError("standard input is not read here", where=option, hint=hint)


def read_story(run: Path, story: Path, *, skip_bad: bool = False) -> tuple[list[str], list[str], dict[str, Problem]]:
    """The lines of a story, their places, and the problems of those that cannot be read."""
    not_standard_input(story, "--story", STORY_HINT)
    from regard.runs import Run
    from regard.tasks.inputs import read_story as read

    lines = read(Run.open(run).task, story, skip_bad=skip_bad)
    faults = {line.place: line.fault for line in lines if line.fault is not None}
    return [line.text for line in lines], [line.place for line in lines], faults


def asks(story: list[str]) -> bool:
    """Whether a story contains a question itself."""
    from regard.data.stories import Question, asked_in

    return any(isinstance(question, Question) for question in asked_in((line, "") for line in story))
