"""regard evaluate"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    PairsOption,
    PenaltyOption,
    RunArgument,
    SetOption,
    SplitOption,
)
from regard.commands.output import bar, show


def evaluate(
    run: RunArgument,
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            help="Where labels or answers for all examples go, as JSON Lines, the wrong ones beside them. Default: "
            "predictions.jsonl and errors.jsonl in the run folder.",
        ),
    ] = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """The task's metrics, on a split or a file: BLEU, ROUGE, perplexity, accuracy, F1, correlations."""
    from regard.runs.verbs import evaluate as evaluate_run
    from regard.views.metrics import metric_lines

    with bar("writing", shown=not as_json) as move:
        found = evaluate_run(
            run, split=split, files=file or [], beam=beam, length_penalty=length_penalty,  # type: ignore[arg-type]
            overrides=settings or [], checkpoint=checkpoint, device=device, predictions=predictions,
            progress=partial(move, "writing"),
        )  # fmt: skip
    if as_json:
        show(found)
        return
    if "files" in found:
        found["files"] = ", ".join(found["files"])
    for name, value in found.items():
        if name == "confusion":
            print("the true label stands on the left; the counts are of what the model said:")
        for line in metric_lines(name, value):
            print(line)
