"""The log of a training: metrics.jsonl, and TensorBoard if it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from regard.runs import Run
from regard.runs.metrics_log import MetricsLog
from regard.text.writing import writing

Event = dict[str, Any]
"""A line of metrics.jsonl: `event`, `step`, and what belongs to that kind of event."""
Write = Callable[[Event], None]


@contextmanager
def metrics_writer(run: Run, step: int, log: MetricsLog | None) -> Iterator[Write]:
    """Writes lines from `step` on to metrics.jsonl, and to TensorBoard if it is installed."""
    board: Any = None
    with suppress(ImportError):
        from torch.utils.tensorboard import SummaryWriter

        board = SummaryWriter(str(run.folder / "tensorboard"), purge_step=step + 1) if log else None

    def write(line: Event) -> None:
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
