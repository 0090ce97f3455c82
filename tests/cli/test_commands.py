"""What the commands share: their order, the bar, the sums that move it."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest
import typer

from regard.cli import app, bar
from regard.runs.settings import summed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_help_lists_the_verbs_in_the_order_of_the_work() -> None:
    verbs = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert verbs == [
        "check", "train", "predict", "translate", "evaluate", "score", "explain", "diagnose", "compare", "import",
        "export", "recipes",
    ]  # fmt: skip


def test_parts_are_added_up() -> None:
    told: list[tuple[int, int]] = []
    moved = summed(lambda done, total: told.append((done, total)), 7)
    for more in (2, 1, 4):
        moved(more)
    assert told == [(2, 7), (3, 7), (7, 7)]


def drawn(stream: io.StringIO, *, shown: bool) -> str:
    with redirect_stderr(stream), bar("reading", shown=shown) as move:
        move("testing", 1, 4)
    return stream.getvalue()


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = drawn(Terminal(), shown=True)
    assert "testing" in seen
    assert "25%" in seen


def test_nobody_else_sees_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert drawn(Terminal(), shown=False) == ""
    assert drawn(io.StringIO(), shown=True) == ""
