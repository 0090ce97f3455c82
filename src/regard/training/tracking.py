"""What goes on around the loop: where its lines are written, and how a user stops it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from regard.runs import Run
from regard.runs.run import MetricsLog
from regard.text.files import writing

Write = Callable[[dict[str, Any]], None]


@contextmanager
def tracker(run: Run, step: int, log: MetricsLog | None) -> Iterator[Write]:
    """Where lines go from `step` on: metrics.jsonl, and TensorBoard when it is installed."""
    board: Any = _tensorboard(run, step) if log else None

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


def _tensorboard(run: Run, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run.folder / "tensorboard"), purge_step=step + 1)


@contextmanager
def asked_to_stop() -> Iterator[list[bool]]:
    """A list that is no longer empty once the user has pressed Ctrl-C, or a scheduler has asked the process to end;
    a second time interrupts at once."""
    stop: list[bool] = []

    def heard(number: int, frame: Any) -> None:
        if stop:
            raise KeyboardInterrupt
        stop.append(True)

    try:
        before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there handles them
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
