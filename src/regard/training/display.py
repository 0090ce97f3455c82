"""What `train` and `check` show in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """A progress bar on a terminal, plain lines elsewhere, nothing if quiet. It writes to standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, facts="", visible=False)

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False)

    def doing(self, what: str, done: int, total: int | None = None, facts: str = "") -> None:
        """Update the progress bar."""
        self._bar.update(self._task, description=what, completed=done, total=total, facts=facts, visible=True)

    def logged(self, line: dict[str, Any], steps: int, unit: str = "tokens") -> None:
        """Show a line of the training log; `unit` is what the loss is a mean over."""
        facts = f"loss {line['loss']:.3f}  {line['tokens_per_second']:,.0f} {unit}/s"
        self.doing("training", line["step"], steps, facts)
        if not self.console.is_terminal:
            left = (steps - line["step"]) * line["seconds_per_step"]
            self.say(f"step {line['step']:,}/{steps:,}  epoch {line['epoch']}  {facts}  about {duration(left)} left")

    def validated(self, line: dict[str, Any], verdict: str) -> None:
        """Show a validation: its metrics, whether it is the best so far, and a few outputs."""
        shown = {name: value for name, value in line.items() if isinstance(value, float)}
        metrics = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
        self.say(f"validation at step {line['step']:,}: {metrics}{f'  ({verdict})' if verdict else ''}")
        for sample in line.get("samples", ()):
            self.say(f"    {sample['source']}\n     -> {sample['output']}\n      = {sample['target']}")


def duration(seconds: float) -> str:
    """Seconds as text: 45 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def check_sentences(result: dict[str, Any]) -> Iterator[str]:
    """The result of `check` as lines of text."""
    model, data, training = result["model"], result["data"], result["training"]
    counts = {name: f"{count:,}" for name, count in model["parts"].items()}
    tied = {name: f"{counts.get(name, 0)} and what {owner} has" for name, owner in model.get("tied", {}).items()}
    parts = ", ".join(f"{name} {count}" for name, count in (counts | tied).items())
    yield f"model      {model['kind']}, {model['parameters']:,} parameters ({parts})"
    for split, facts in data["splits"].items():
        tokens = ", ".join(
            f"{name} {column['tokens']:,} tokens ({100 * column['unknown']:.2f} % unknown)"
            for name, column in facts["columns"].items()
        )
        yield f"{split:10} {facts['kept']:,} of {facts['read']:,} {data['unit']}; {tokens}"
    yield f"vocabulary {', '.join(f'{name} {size:,}' for name, size in data['vocabulary'].items())}"
    for split, counts in data.get("labels", {}).items():
        yield f"labels     {split}: {_counted(counts)}"
    yield from (f"note       {finding}" for finding in data["findings"])
    for name, column in data["splits"]["train"]["columns"].items():
        lengths = column["lengths"]
        yield f"\n{name} lengths in tokens (mean {lengths['mean']:.1f}, longest {lengths['longest']})"
        yield from _histogram(lengths)
    yield "\nsamples"
    for sample in data["samples"]:
        yield f"  {sample['where']}"
        yield from (f"    {name:7} {' '.join(pieces)}" for name, pieces in sample.items() if name != "where")
    yield f"\nbatches    {_batches(training)}"
    yield f"memory     about {training['memory_bytes'] / 2**30:.2f} GiB on {training['device']}"
    yield (
        f"time       about {duration(training['seconds'])} for {training['steps']:,} steps, "
        f"{training['seconds_per_step']:.3f} s each as measured here"
    )


def _batches(training: dict[str, Any]) -> str:
    """Batches per epoch, their largest size, and the shape of the first one."""
    shapes = {name: shape for name, shape in training["sample_batch"].items() if isinstance(shape, list)}
    padded = ", ".join(f"{name} padded to {longest}" for name, (_, longest) in shapes.items())
    rows, _ = next(iter(shapes.values()))
    budget = training["batch_tokens"]
    single = ", or one example" if any(longest > budget for _, longest in shapes.values()) else ""
    return (
        f"{training['batches_per_epoch']:,} an epoch of at most {budget:,} tokens{single}; "
        f"the first: {rows} example{'s' if rows > 1 else ''}, {padded}"
    )


def _counted(counts: dict[str, int], most: int = 12) -> str:
    """The most frequent labels with counts and shares."""
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    total = max(1, sum(counts.values()))
    shown = [f"{label} {count:,} ({100 * count / total:.1f} %)" for label, count in ranked[:most]]
    return ", ".join([*shown, *([f"and {len(ranked) - most:,} more"] if len(ranked) > most else [])])


def _histogram(lengths: dict[str, Any]) -> Iterator[str]:
    width, counts = lengths["width"], lengths["counts"]
    for number, count in enumerate(counts):
        bar = "█" * round(40 * count / max(counts)) or ("▏" if count else "")
        yield f"  {number * width:5}-{(number + 1) * width - 1:<5} {bar} {count:,}"
