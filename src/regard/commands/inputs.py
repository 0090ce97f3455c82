"""The texts that a command is given: as arguments, in files, or on standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from regard.errors import DecodeError, Problem


def read_inputs(
    inputs: list[str] | None, *, skip_bad: bool = False, needed: bool = True
) -> tuple[list[str], list[str]]:
    """The texts that are given as arguments or, where none or a single - is, on standard input; and what to call each
    of them in a message.

    With `skip_bad` lines pass that are not UTF-8, to be refused one by one. That there are none is refused if one is
    `needed`.
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


def read_file(
    run: Path, inputs: list[str] | None, file: Path, *, skip_bad: bool = False
) -> tuple[list[str], list[str], dict[str, Problem]]:
    """The texts in a file of lines or a table, their places, and what is wrong with those that cannot be read."""
    if inputs:
        raise DecodeError("give texts or --file, not both", where="--file")
    if str(file) == "-":
        hint = "it is where neither texts nor --file are given"
        raise DecodeError("standard input is not read here", where="--file", hint=hint)
    from regard.runs.file_inputs import file_inputs

    found = file_inputs(run, file, skip_bad=skip_bad)
    faults = {one.place: one.fault for one in found if one.fault is not None}
    return [one.text for one in found], [one.place for one in found], faults


def read_story(run: Path, story: Path, *, skip_bad: bool = False) -> tuple[list[str], list[str], dict[str, Problem]]:
    """The lines of a story for a run that reads stories, or its objects by the keys of the run's recipe; their places,
    and what is wrong with those that cannot be read."""
    from regard.runs import Run

    if str(story) == "-":
        hint = "give a file; without --story a story may stand there before its questions"
        raise DecodeError("standard input is not read here", where="--story", hint=hint)
    task = Run.open(run).recipe.task
    if task != "story_answering":
        raise DecodeError(f"a run of {task} reads no story", where="--story", hint="runs of story_answering do")
    return read_file(run, None, story, skip_bad=skip_bad)


def asks(story: list[str]) -> bool:
    """Whether a story comes with a question of its own."""
    from regard.tasks.story_inputs import Typed, asked_in

    return any(isinstance(one, Typed) for one in asked_in((line, "") for line in story))


def one_prefix(given: list[str]) -> str | None:
    """What all outputs begin with; of several, which one would it be?"""
    if len(given) > 1:
        hint = "give one, or --prefixes with a line for each input"
        raise DecodeError(f"{len(given)} prefixes are given for every output", where="--prefix", hint=hint)
    return given[0] if given else None


def read_prefixes(file: Path, inputs: int, for_all: str | None) -> list[str]:
    """The lines of a file of prefixes, as many as there are inputs."""
    if for_all is not None:
        raise DecodeError("give --prefix or --prefixes, not both", where="--prefixes")
    lines, _ = _lines_of(file)
    if len(lines) != inputs:
        what = f"{_counted(len(lines), 'prefix', 'prefixes')} for {_counted(inputs, 'input', 'inputs')}"
        raise DecodeError(what, where=str(file), hint="one line for each input, empty where it may begin as it likes")
    return lines


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _lines_of(file: Path) -> tuple[list[str], list[str]]:
    from regard.text.files import open_text

    opened = open_text(str(file), Path())
    lines = list(opened.lines())
    return lines, [opened.where(line) for line in range(1, len(lines) + 1)]
