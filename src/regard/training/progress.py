"""The progress of a training, all that a checkpoint needs for an exact resume, and the loop's log
and stop signal."""

from __future__ import annotations

import math
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import rich.progress
import torch
from pydantic import TypeAdapter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from regard.data.epochs import START, Position
from regard.errors import printable
from regard.language import shown
from regard.runs import Run
from regard.runs.run import MetricsLog
from regard.text.writing import writing

Write = Callable[[dict[str, Any]], None]
PACES = 10
"""Lines of the log whose pace tells how long the rest of a training may take: from the fastest to
the slowest."""


@dataclass(frozen=True)
class Ranked:
    """A checkpoint among the best."""

    value: float  # the metric `training.best`
    step: int
    loss: float = -math.inf
    """The validation loss: the lower one wins a tie. Old runs did not store it; then the earlier
    checkpoint wins."""


@dataclass
class Progress:
    """Without weights and optimiser."""

    step: int = 0
    position: Position = START
    best: list[Ranked] = field(default_factory=list)  # the best checkpoints, best first
    recent: list[int] = field(default_factory=list)
    """Steps of the last regular checkpoints, to average at the end; not those that Ctrl-C saved."""
    waited: int = 0  # validations since the last improvement
    stopped: bool = False
    seconds: float = 0.0
    loss_sum: float = 0.0
    plain_sum: float = 0.0
    tokens: int = 0  # sums since the last line of the log
    logged_step: int = 0
    log_length: int = 0  # size of metrics.jsonl in bytes
    planned_steps: int = 0
    """How many steps `training.minutes` was found to hold; 0 without it."""
    planned_every: int = 0
    """After how many steps a training with `training.minutes` validates, unless the recipe says
    so."""
    spent: float = 0.0
    """Seconds of `training.minutes` that were used so far."""
    validation_seconds: float = 0.0
    """What a validation took last in such a training, with its checkpoint."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Progress:
        """The inverse of `asdict`."""
        best = [entry if isinstance(entry, dict) else Ranked(*entry) for entry in stored["best"]]
        return TypeAdapter(cls).validate_python({**stored, "best": best})


def total_steps(steps: int | None, epochs: int | None, epoch_batches: int, group: int) -> int:
    by_epochs = math.inf if epochs is None else math.ceil(epochs * epoch_batches / group)
    return int(min(math.inf if steps is None else steps, by_epochs))


def random_state() -> dict[str, Tensor]:
    on_gpu = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {"cpu": torch.get_rng_state(), **on_gpu}


def restore_random_state(
    stored: Sequence[dict[str, Tensor]] | dict[str, Tensor], rank: int
) -> None:
    """Continue with the generators that the process of this rank had; a process more gets new
    ones."""
    states = (
        [stored] if isinstance(stored, dict) else stored
    )  # old runs have those of the first process only
    state = states[rank if rank < len(states) else 0]
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
    if rank >= len(states):
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)


@contextmanager
def metrics_writer(run: Run, step: int, log: MetricsLog | None) -> Iterator[Write]:
    """Writes lines from `step` on to metrics.jsonl, and to TensorBoard if it is installed."""
    board: Any = None
    with suppress(ImportError):
        from torch.utils.tensorboard import SummaryWriter

        board = SummaryWriter(str(run.folder / "tensorboard"), purge_step=step + 1) if log else None

    def write(line: dict[str, Any]) -> None:
        if log:
            log.write(line)
        with writing(run.folder / "tensorboard"):
            for name, value in line.items() if board else ():
                if isinstance(value, (int, float)) and name != "step":
                    board.add_scalar(f"{line['event']}/{name}", value, line["step"])

    try:
        yield write
    finally:
        if log:
            log.close()
        if board:
            with suppress(OSError):
                board.close()


@contextmanager
def stop_requests() -> Iterator[list[bool]]:
    """A list that gets an entry when the user presses Ctrl-C, a scheduler sends SIGTERM, or the
    terminal is closed; the second time interrupts at once. A closed terminal sends SIGHUP once or
    twice and can no longer be written to; `nohup` lets it pass."""
    requests: list[bool] = []
    interrupting = numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers = [*interrupting, signal.SIGHUP]
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def handle(number: int, frame: FrameType | None) -> None:
        if requests and number in interrupting:
            raise KeyboardInterrupt
        requests.append(True)
        for stream in terminals:
            if not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    try:
        before = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not in the main thread: the caller handles signals
        yield requests
        return
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
        self._paces = deque[float](maxlen=PACES)

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

    def logged(self, line: dict[str, Any], steps: int) -> None:
        """Show a line of the training log."""
        facts = f"loss {line['loss']:.3f}  {line['tokens_per_second']:,.0f} {line['unit']}/s"
        self._paces.append(line["seconds_per_step"])
        left = steps - line["step"]
        remaining = duration_range(left * min(self._paces), left * max(self._paces))
        self.doing(
            "training", line["step"], steps, f"{shown(facts)}  {shown(f'about {remaining} left')}"
        )
        if not self.console.is_terminal:
            self.say(
                f"step {line['step']:,}/{steps:,}  epoch {line['epoch']}  {facts}  about "
                f"{remaining} left"
            )

    def validated(self, line: dict[str, Any], verdict: str) -> None:
        """Show a validation: its metrics, whether it is the best so far, and a few outputs."""
        shown = {name: value for name, value in line.items() if isinstance(value, float)}
        metrics = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
        self.say(
            f"validation at step {line['step']:,}: {metrics}{f'  ({verdict})' if verdict else ''}"
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
