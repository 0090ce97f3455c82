"""Answers of the command line: predictions printed as they come, and a prompt at a terminal.

Torch is imported where it is needed, not by `--help`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.console import complain, note, problem_shown, say, show_json
from regard.cli.typed_inputs import examples_in, standard_input
from regard.errors import DecodeError, InputError, Problem

if TYPE_CHECKING:
    from regard.api import Loaded, Predictions
    from regard.data.example import Example
    from regard.data.standard_input import PlacedLine
    from regard.tasks.answers import Note
    from regard.views.vectors import Features


class Answers:
    """Prints predictions as they come, then how many inputs were skipped, and the notes."""

    def __init__(self, as_json: bool, prompt: str = "> ", begin: str = "") -> None:
        self.prompt = prompt
        self.count = 0
        """Inputs that were answered."""
        self._begin = begin
        self._as_json = as_json
        self._counts = Counter[str]()
        """How many remarks of each kind there were: "skipped", or the kind of a note."""
        self._first = dict[str, Any]()
        """The first remark of each kind."""

    def show(self, chunk: Predictions) -> None:
        """Print predictions."""
        for line in chunk.lines(as_json=self._as_json):
            print(("" if self._as_json else self._begin) + line, flush=True)
        self.add(len(chunk), chunk.skipped, chunk.notes)

    def add(self, count: int, skipped: Sequence[Problem], notes: Sequence[Note]) -> None:
        """Count inputs that were answered, and what is to be said of them."""
        self.count += count
        for problem in skipped:
            self._add_remark("skipped", problem)
        for remark in notes:
            self._add_remark(remark.kind, remark)

    def _add_remark(self, kind: str, remark: Problem | Note) -> None:
        self._counts[kind] += 1
        self._first.setdefault(kind, remark)

    def show_features(self, vectors: Features, out: Path) -> None:
        """Say which vectors were written."""
        rows, width = vectors.vectors.shape
        self.add(len(vectors.inputs), vectors.skipped, vectors.notes)
        if self._as_json:
            show_json({"features": str(out), "vectors": rows, "width": width, "inputs": self.count})
        else:
            say(f"written: {out}, {rows} vectors of {width} numbers")

    @contextmanager
    def explaining(self, typed: bool) -> Iterator[None]:
        """Conclude at the end; or add to the error about lines that cannot be read how many outputs
        were written before them."""
        try:
            yield
        except InputError as error:
            if typed:
                raise
            what = "nothing was written"
            if self.count:
                what = f"{self.count:,} outputs were written before"
            hint = "--skip-bad leaves such lines out, with an empty output for each"
            raise DecodeError(problems=[*error.problems, Problem("", what, hint)]) from None
        self.conclude()

    def conclude(self) -> None:
        """Say how many inputs were skipped, and the notes; then begin anew."""
        if skipped := self._counts["skipped"]:
            first = problem_shown(self._first["skipped"])
            say(f"skipped {skipped:,} of {self.count:,} inputs; the first: {first}", sys.stderr)
        for kind in ("image", "unknown", "length"):
            if count := self._counts[kind]:
                more = f", and so for {count - 1:,} more" if count > 1 else ""
                note(f"{self._first[kind]}{more}")
        self._counts.clear()
        self._first.clear()


def answer_lines(
    run: Loaded, answers: Answers, story: Sequence[Example] = (), *, skip_bad: bool = False
) -> None:
    """Answer the lines of standard input as they come, at a terminal with a prompt."""
    task = run.task
    at_prompt = sys.stdin.isatty()
    if at_prompt:
        parts = _prompted_lines(answers.prompt, with_empty=task.views.stories is not None)
    else:
        parts = standard_input(needed=not story, skip_bad=skip_bad)
    inputs: list[Example] = []

    def answer_inputs() -> None:
        if inputs and at_prompt:
            _answer_at_prompt(run, inputs, answers)
        elif inputs:
            run.predict(inputs, each=answers.show, skip_bad=skip_bad)
        inputs.clear()

    def lines() -> Iterator[Example]:
        for part in parts:
            yield from examples_in(task.inputs, part)
            answer_inputs()

    with suppress(EOFError):  # Ctrl-D
        for item in task.inputs.gathered(lines(), story):
            inputs.append(item)
        answer_inputs()


def converse(run: Loaded, answers: Answers, turns: int) -> None:
    """Answer each line with the turns before in view; an empty line begins a new conversation."""
    from regard.inference.conversation import Conversation

    conversation = Conversation(run, turns)
    at_prompt = sys.stdin.isatty()
    parts = _prompted_lines(answers.prompt, with_empty=True) if at_prompt else standard_input()
    with suppress(EOFError):  # Ctrl-D
        for line, _ in chain.from_iterable(parts):
            if not line.strip():
                conversation.forget()
                continue
            try:
                answers.show(conversation.answer(line))
            except InputError as error:
                complain(error.problems)
            answers.conclude()


def _prompted_lines(prompt: str, *, with_empty: bool) -> Iterator[list[PlacedLine]]:
    """The lines typed at a prompt; an empty one may separate stories, else it is left out."""
    for line in _typed_lines(prompt):
        if line.strip() or with_empty:
            yield [(line, "input")]


def _answer_at_prompt(run: Loaded, inputs: list[Example], answers: Answers) -> None:
    """Answer inputs and say what is wrong with them; the prompt stays."""
    try:
        run.predict(inputs, each=answers.show)
    except InputError as error:
        complain(error.problems)
    except KeyboardInterrupt:
        complain([Problem("", "stopped")])
    answers.conclude()


def _typed_lines(prompt: str) -> Iterator[str]:
    """The lines typed at a prompt, with editing and history; Ctrl-C drops a line, Ctrl-D is an
    EOFError."""
    with suppress(ImportError):  # the console of Windows has both
        import readline  # noqa: F401
    while True:
        try:
            line = input(prompt if sys.stdout.isatty() else "")
        except KeyboardInterrupt:
            print()
            continue
        except EOFError:
            print()
            raise
        yield line
