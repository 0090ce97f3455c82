"""What commands print: results, notes and problems, in the language of the user.

Torch is imported where it is needed, not by `--help`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from regard.errors import Problem, RegardError, printable
from regard.language import shown

if TYPE_CHECKING:
    from regard.runs.examples import ReportProgress
    from regard.views.report import Result


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
    """Write out standard output before the program ends: Python would only say that it ignores what
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
    """Print a result as one line of JSON."""
    print(json.dumps(result, ensure_ascii=False), flush=True)


def say(text: str, file: TextIO | None = None) -> None:
    """Print a text in the user's language; names in it may have control characters."""
    print(printable(shown(text)), file=file)


def note(text: str) -> None:
    """Print a remark on standard error."""
    say(f"note: {shown(text)}", sys.stderr)


def note_unknown(words: Sequence[str]) -> None:
    """Name the words of an input that the vocabulary does not know, if there are any."""
    if words:
        named = ", ".join(map(repr, words))
        note(f"not in the vocabulary, so that the model does not know them: {named}")


def complain(problems: Iterable[Problem]) -> None:
    """Print each problem as one line on standard error."""
    for problem in problems:
        print(f"regard: {problem_shown(problem)}", file=sys.stderr)


def problem_shown(problem: Problem) -> Problem:
    """A problem in the user's language. Its place is left alone if it is a single word, which may be
    a key of a recipe."""
    where = shown(problem.where) if " " in problem.where else problem.where
    return Problem(where, shown(problem.what), shown(problem.hint))


@contextmanager
def bar(what: str, *, visible: bool) -> Iterator[ReportProgress]:
    """A progress bar on standard error if that is a terminal. It is moved with what is done now, how
    much of it is done, and how much there is."""
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
    """Print a result as JSON or for people, and write it to a file if one is asked for. A result
    that is only `drawn` goes into the file alone."""
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
