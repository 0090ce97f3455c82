"""Evaluation of a run: shared among processes of a cluster, beside a classical baseline, and with the
predictions written to files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.data.dataset import Dataset
from regard.data.parallel import over_cluster
from regard.errors import CheckpointError, DecodeError
from regard.inference.loaded_model import LoadedModel, PlacedModel
from regard.runs.examples import SPLITS, examples_of, noted
from regard.runs.packaged import PACKAGED_RUNS
from regard.runs.run import Run
from regard.tasks.answers import Done, ignore
from regard.tasks.baseline import strongest
from regard.text.writing import check_writable, write_file

EXAMPLES_PER_PIECE = 250
"""Examples of an evaluation that a node of a cluster is given at once."""


@dataclass(frozen=True)
class ExampleScorer(PlacedModel):
    """Scores some of the examples of an evaluation."""

    def __call__(self, piece: Dataset) -> tuple[int, Any]:
        return len(piece), self.run.task.metrics.results(self.loaded.model, piece, ignore)


def evaluate_over_cluster(
    run: Run, loaded: LoadedModel, device: str, examples: Any, address: str | None, progress: Done
) -> dict[str, Any]:
    """The metrics, by the nodes of a Ray cluster."""
    pieces = (
        examples.apart(range(len(examples))[row : row + EXAMPLES_PER_PIECE])
        for row in range(0, len(examples), EXAMPLES_PER_PIECE)
    )
    parts = []
    for count, part in over_cluster(ExampleScorer(run, loaded, device), pieces, address, None):
        parts.append(part)
        progress(count)
    metrics: dict[str, Any] = run.task.metrics.combine(examples, parts)
    return metrics


def baseline_metrics(run: Run, examples: Any) -> dict[str, Any]:
    """The metrics of the strongest linear model on the same examples, or a note that there is none
    for the task."""
    if not run.recipe.data.train:
        what = "the run was imported, so there are no training rows for a baseline"
        raise DecodeError(what, where="--baseline", hint="leave it out")
    task = run.task
    train = examples_of(run, "train")
    metrics = strongest(task.metrics, task.higher_is_better, train, examples)
    if metrics:
        return {"baseline": metrics}
    return {"note": f"there is no classical baseline for {run.recipe.task}"}


# Files of predictions


@dataclass(frozen=True)
class PredictionFiles:
    """The file with the prediction for each example, and the file with the wrong ones beside it."""

    predictions: Path
    is_named: bool
    """Whether the user has named the file."""

    @property
    def in_package(self) -> bool:
        """Whether the run is an example of the package, into whose folder nothing is written."""
        return not self.is_named and self.predictions.is_relative_to(PACKAGED_RUNS)

    @property
    def errors(self) -> Path:
        stem = self.predictions.stem
        name = "errors.jsonl" if stem == "predictions" else f"{stem}.errors.jsonl"
        return self.predictions.with_name(name)

    def check(self, inputs: Sequence[object], *, overwrite: bool) -> None:
        """Refuse, before any work is done, files that could or may not be written."""
        for path in () if self.in_package else (self.predictions, self.errors):
            check_writable(path, "--predictions", inputs, overwrite=overwrite or not self.is_named)

    def write(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Write two files of JSON lines instead of the `predictions` (and `errors`) among the
        metrics, and return the metrics with the names of the files.

        Errors are the predictions that are not `right`, unless the task has chosen them itself. A
        file that the user has named is refused for a task without predictions.
        """
        if "predictions" not in metrics:
            if self.is_named:
                hint = "'regard predict RUN --file IN --out OUT' writes texts"
                raise DecodeError(
                    "this task has no answer for each example", where="--predictions", hint=hint
                )
            return metrics
        others = {
            name: value for name, value in metrics.items() if name not in ("predictions", "errors")
        }
        if self.in_package:
            return others
        try:
            write_json_lines(self.predictions, metrics["predictions"])
            write_json_lines(self.errors, _errors_in(metrics))
        except CheckpointError:
            if self.is_named:
                raise
            note = (
                f"{self.predictions.parent} cannot be written to: --predictions FILE writes the "
                "predictions elsewhere"
            )
            return noted(others, {"note": note})
        return others | {"predictions": str(self.predictions), "errors": str(self.errors)}


def prediction_files(
    run: Run, name: str | Path | Literal[False] | None, split: str | None, files: Sequence[str]
) -> PredictionFiles | None:
    """The files that are named, or those in the run folder; None if nothing is to be written."""
    if name is False:
        return None
    path = Path(name or run.folder / f"predictions{_examples_suffix(run, split, files)}.jsonl")
    return PredictionFiles(path, is_named=name is not None)


def _examples_suffix(run: Run, split: str | None, files: Sequence[str]) -> str:
    """The part of a file's name that says which examples it has; empty for the examples that
    `evaluate` chooses by itself."""
    if files:
        name = Path(files[0]).name.partition(".")[0]
        return f".{name}.file" if name in SPLITS else f".{name}"
    usual = "validation" if run.recipe.data.test is None else "test"
    return "" if split in (None, usual) else f".{split}"


def _errors_in(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    if "errors" in metrics:
        errors: list[dict[str, Any]] = metrics["errors"]
        return errors
    return [line for line in metrics["predictions"] if not line["right"]]


def write_json_lines(file: Path, lines: Sequence[dict[str, Any]]) -> None:
    write_file(file, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
