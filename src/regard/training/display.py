"""A training as the terminal shows it: a progress bar, or plain lines."""

from __future__ import annotations

from collections import deque

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from regard.errors import printable
from regard.language import shown
from regard.training.log import Event

SHOWN_PACES = 10
"""The remaining time is estimated from the paces of this many log lines, from the fastest to the
slowest."""


class Display:
    """A progress bar on a terminal, plain lines elsewhere, nothing if quiet. It writes to standard
    error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        what, facts = TextColumn("{task.description}"), TextColumn("{task.fields[facts]}")
        columns = (what, BarColumn(), MofNCompleteColumn(), facts, TimeElapsedColumn())
        disable = quiet or not self.console.is_terminal
        self._bar = rich.progress.Progress(
            *columns, console=self.console, transient=True, disable=disable
        )
        self._task = self._bar.add_task("", total=None, facts="", visible=False)
        self._paces = deque[float](maxlen=SHOWN_PACES)

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def say(self, *texts: str) -> None:
        for text in texts if not self.console.quiet else ():
            self.console.print(printable(shown(text)), markup=False)

    def doing(self, what: str, done: int, total: int | None = None, facts: str = "") -> None:
        if not self._bar.disable:
            what, facts = shown(what), shown(facts)
            self._bar.update(
                self._task, description=what, completed=done, total=total, facts=facts, visible=True
            )

    def logged(self, line: Event, steps: int, validations: float | None) -> None:
        """Show a line of the training log. The time left is that of the steps and `validations`;
        None if it is not known how long these take."""
        facts = f"loss {line['loss']:.3f}  {line['tokens_per_second']:,.0f} {line['unit']}/s"
        self._paces.append(line["seconds_per_step"])
        left = steps - line["step"]
        also = validations or 0.0
        remaining = duration_range(left * min(self._paces) + also, left * max(self._paces) + also)
        left_out = ", not counting validations" if validations is None else ""
        until_end = shown(f"about {remaining} left{left_out}")
        self.doing("training", line["step"], steps, f"{shown(facts)}  {until_end}")
        if not self.console.is_terminal:
            self.say(
                f"step {line['step']:,}/{steps:,}  epoch {line['epoch']}  {facts}  about "
                f"{remaining} left{left_out}"
            )

    def validated(self, line: Event, verdict: str, seconds: float) -> None:
        """Show a validation: its time and metrics, whether it is the best so far, and a few
        outputs."""
        shown = {name: value for name, value in line.items() if isinstance(value, float)}
        metrics = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
        self.say(
            f"validation at step {line['step']:,} in {seconds:.1f} s: "
            f"{metrics}{f'  ({verdict})' if verdict else ''}"
        )
        for sample in line.get("samples", ()):
            self.say(
                f"    {sample['source']}\n     -> {sample['output']}\n      = {sample['target']}"
            )


def duration_range(low: float, high: float) -> str:
    """A range of seconds as text: 45 s, 3 to 4 min, 80 s to 2 min."""
    first, last = duration(low), duration(high)
    if first == last:
        return first
    number, unit = first.split()
    return f"{number} to {last}" if last.endswith(f" {unit}") else f"{first} to {last}"


def duration(seconds: float) -> str:
    """Seconds as text: 45 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
