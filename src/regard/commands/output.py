"""What commands write besides their result: JSON, a bar, the problems of a user's input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import Problem

if TYPE_CHECKING:
    from regard.runs.settings import Progress
    from regard.views.report import Result


def show(result: Any) -> None:
    """One line of JSON."""
    print(json.dumps(result, ensure_ascii=False), flush=True)


def show_result(result: Result, out: Path | None, *, as_json: bool) -> None:
    """A result as JSON or for people; and as a file, if one is asked for."""
    from regard.views.files import write_result
    from regard.views.terminal import show as show_report

    if out is not None:
        write_result(result, out)
    if as_json:
        show(result.to_json())
        return
    show_report(result.report())
    if out is not None:
        print(f"written: {out}")


def complain(problems: Iterable[Problem]) -> None:
    """A line for each problem, on standard error."""
    for problem in problems:
        print(f"regard: {problem}", file=sys.stderr)


@contextmanager
def bar(what: str, *, shown: bool, total: int | None = None) -> Iterator[Progress]:
    """A bar on standard error where that is a terminal. It is moved by what is done now, how much of it, and of all."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not (shown and console.is_terminal)) as drawn:
        task = drawn.add_task(what, total=total)
        yield lambda now, done, total: drawn.update(task, description=now, completed=done, total=total)
