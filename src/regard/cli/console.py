"""What commands print and read: results, notes and problems; standard input as it comes, and a
prompt at a terminal.

Torch is imported where it is needed, not by `--help`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedIOBase, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from regard.errors import DecodeError, InputError, Problem, RegardError, printable, refuse
from regard.language import shown

if TYPE_CHECKING:
    from regard.api import Loaded, Predictions
    from regard.data.example import Example
    from regard.data.inputs import Inputs
    from regard.data.standard_input import PlacedLine
    from regard.runs.examples import Progress
    from regard.tasks.task import Note, Task
    from regard.views.report import Result
    from regard.views.vectors import Features

NOT_READ = "standard input is not read here"
STORY_HINT = "give a file; without --story a story may stand there before its questions"


def set_up_streams() -> None:
    """Text is UTF-8, whatever the locale; only a console keeps its own encoding, with `?` for what
    that lacks.

    Bytes of standard input that are not UTF-8 are let through, to be reported with their line.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


@contextmanager
def written_out(stream: TextIO) -> Iterator[None]:
    """Standard output is written before the end, where Python could only say that it ignores what
    went wrong."""
    try:
        yield
    finally:
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            # as with `| head -1`: end as other tools do
            if isinstance(error, BrokenPipeError) and os.name != "nt":
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                signal.raise_signal(signal.SIGPIPE)
            raise RegardError(
                f"cannot be written: {error.strerror}", where="standard output"
            ) from None


def show_json(result: Any) -> None:
    print(json.dumps(result, ensure_ascii=False), flush=True)


def say(text: str, file: TextIO | None = None) -> None:
    """What is for people, in their language; names in it may have control characters."""
    print(printable(shown(text)), file=file)


def note(text: str) -> None:
    say(f"note: {shown(text)}", sys.stderr)


def complain(problems: Iterable[Problem]) -> None:
    for problem in problems:
        print(f"regard: {_shown_problem(problem)}", file=sys.stderr)


def _shown_problem(problem: Problem) -> Problem:
    """A problem in the user's language; a single word that says where it is may be a key of a
    recipe."""
    where = shown(problem.where) if " " in problem.where else problem.where
    return Problem(where, shown(problem.what), shown(problem.hint))


@contextmanager
def bar(what: str, *, visible: bool) -> Iterator[Progress]:
    """A bar on standard error if that is a terminal; it is moved with what is done now, how much of
    it, and of all."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        console=console, transient=True, disable=not (visible and console.is_terminal)
    ) as drawn:
        task = drawn.add_task(shown(what), total=None)

        def move(now: str, done: int, total: int) -> None:
            # the next of several steps: the time left is not that of the last one
            if done < drawn.tasks[0].completed:
                drawn.reset(task)
            drawn.update(task, description=shown(now), completed=done, total=total or None)

        yield move


def show_report(result: Result, out: Path | None, *, as_json: bool, drawn: bool = False) -> None:
    """A result as JSON or for people; and as a file, if one is asked for. What is only `drawn` goes
    into that alone."""
    from regard.views.render import json_line, write_result
    from regard.views.terminal import print_report

    if as_json:
        sys.stdout.writelines(json_line(result))
    elif out is None or not drawn:
        print_report(result.report())
    if out is not None:
        write_result(result, out)
        if not as_json:
            say(f"written: {out}")


def check_output(
    out: Path | None,
    allowed: Sequence[str] = (".html",),
    inputs: Iterable[object] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Refuse, before any work is done, a file that could or may not be written."""
    from regard.views.render import check_output as check

    check(out, allowed, inputs, overwrite=overwrite)


# What is typed


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


def typed(inputs: Inputs, lines: Iterable[PlacedLine]) -> Iterator[Example]:
    """Lines as the task reads them, of which some may be JSON objects."""
    return (inputs.typed(text, place) for text, place in lines)


def gathered(
    task: Task, texts: Iterable[str] | None, story: Sequence[Example], skip_bad: bool
) -> list[Example]:
    """The inputs in texts as they were typed, or in all of standard input.

    A problem of a question about a story may be in either.
    """
    begin = f"{story[-1].place}, " if story else ""
    if texts is None:
        lines = chain.from_iterable(standard_input(needed=not story, skip_bad=skip_bad))
        return list(task.inputs.gathered(typed(task.inputs, lines), story))
    texts = [*texts]
    for text in filter(os.path.isfile, texts if task.recipe.model.reads != "image" else ()):
        note(f"{text} is read as a text, but is the name of a file, too: --file {text} reads that")
    placed = [(text, f"{begin}input {number}") for number, text in enumerate(texts, 1)]
    return list(task.inputs.gathered(typed(task.inputs, placed), story))


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


def _typed_lines(prompt: str) -> Iterator[str]:
    """What is typed at a prompt, with editing and history; Ctrl-C drops a line, Ctrl-D is an
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


# Predictions


class Answers:
    """Prints predictions as they come, then how many inputs were skipped, and the notes."""

    def __init__(self, as_json: bool, prompt: str = "> ", begin: str = "") -> None:
        self.prompt, self._begin, self._as_json = prompt, begin, as_json
        self.count = 0
        self._counts, self._first = Counter[str](), dict[str, Any]()
        """How many of each kind there were, and the first: "skipped", or the kind of a note."""

    def show(self, chunk: Predictions) -> None:
        for line in chunk.lines(as_json=self._as_json):
            print(("" if self._as_json else self._begin) + line, flush=True)
        self.add(len(chunk), chunk.skipped, chunk.notes)

    def add(self, count: int, skipped: Sequence[Problem], notes: Sequence[Note]) -> None:
        self.count += count
        for kind, remark in (
            *(("skipped", problem) for problem in skipped),
            *((note.kind, note) for note in notes),
        ):
            self._counts[kind] += 1
            self._first.setdefault(kind, remark)

    def show_features(self, vectors: Features, out: Path) -> None:
        rows, width = vectors.vectors.shape
        self.add(len(vectors.inputs), vectors.skipped, vectors.notes)
        if self._as_json:
            show_json({"features": str(out), "vectors": rows, "width": width, "inputs": self.count})
        else:
            say(f"written: {out}, {rows} vectors of {width} numbers")

    @contextmanager
    def explaining(self, typed: bool) -> Iterator[None]:
        """Conclude, or say of lines that cannot be read what was written before them."""
        try:
            yield
        except InputError as error:
            if typed:
                raise
            what = (
                f"{self.count:,} outputs were written before"
                if self.count
                else "nothing was written"
            )
            more = Problem(
                "", what, "--skip-bad leaves such lines out, with an empty output for each"
            )
            raise DecodeError(problems=[*error.problems, more]) from None
        self.conclude()

    def conclude(self) -> None:
        if skipped := self._counts["skipped"]:
            first = _shown_problem(self._first["skipped"])
            say(f"skipped {skipped:,} of {self.count:,} inputs; the first: {first}", sys.stderr)
        for kind in ("image", "unknown", "length"):
            if count := self._counts[kind]:
                note(
                    f"{self._first[kind]}"
                    + (f", and so for {count - 1:,} more" if count > 1 else "")
                )
        self._counts.clear()
        self._first.clear()


def answer_lines(
    run: Loaded, answers: Answers, story: Sequence[Example] = (), *, skip_bad: bool = False
) -> None:
    """Answer the lines of standard input as they come, at a terminal with a prompt."""
    task = run.task
    at_prompt = sys.stdin.isatty()
    if at_prompt:
        parts = _prompted_lines(answers.prompt, with_empty=task.reads_stories)
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
            yield from typed(task.inputs, part)
            answer_inputs()

    with suppress(EOFError):  # Ctrl-D
        for item in task.inputs.gathered(lines(), story):
            inputs.append(item)
        answer_inputs()


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
