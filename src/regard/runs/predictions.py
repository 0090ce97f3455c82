"""What a model said of each example that it was measured on, as files: all of it, and what was wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, DecodeError
from regard.runs.splits import noted
from regard.text.files import write_file


def with_predictions_written(found: dict[str, Any], file: Path, *, asked: bool) -> dict[str, Any]:
    """The metrics with the names of two files of JSON lines instead of the `predictions` (and `errors`) among them.

    Errors are the predictions that are not `right`, unless the task has chosen them itself. `asked` says whether the
    user has named the file, which a task without predictions then refuses.
    """
    if "predictions" not in found:
        if asked:
            what = "this task has no answer for each example to write"
            raise DecodeError(what, where="--predictions", hint="leave it out")
        return found
    metrics = {name: value for name, value in found.items() if name not in ("predictions", "errors")}
    wrong = found["errors"] if "errors" in found else [one for one in found["predictions"] if not one["right"]]
    errors = file.with_name("errors.jsonl" if file.stem == "predictions" else f"{file.stem}.errors.jsonl")
    try:
        write_lines(file, found["predictions"])
        write_lines(errors, wrong)
    except CheckpointError:
        if asked:
            raise
        note = f"{file.parent} cannot be written to: --predictions FILE keeps what was said of each example elsewhere"
        return noted(metrics, {"note": note})  # the metrics are what was asked for
    return metrics | {"predictions": str(file), "errors": str(errors)}


def write_lines(file: Path, objects: Iterable[dict[str, Any]]) -> None:
    """One object a line, the file whole or not at all."""
    write_file(file, "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in objects))
