"""regard compare"""

from __future__ import annotations

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
    ReportOption,
    SetOption,
    SplitOption,
)
from regard.commands.output import bar, show_result


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; the first is the baseline.")],
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    hypotheses: Annotated[
        list[str] | None,
        typer.Option("--hypotheses", metavar="NAME=FILE", help="Outputs of another system, one a line."),
    ] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="Test the others against this one.")] = None,
    out: ReportOption = None,
    tables: Annotated[Path | None, typer.Option("--csv", metavar="FOLDER", help="Write the tables as CSV.")] = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare runs of one task: significance tests, quality by length, speed, errors, attention on one page.

    Language models by perplexity a word and bits a character, masked models by what they find, classifiers by accuracy,
    F1 and McNemar's test.
    """
    from regard.views.compare import check_csv
    from regard.views.compare import compare as compare_runs
    from regard.views.files import check_output
    from regard.views.systems import named_files

    check_output(out)
    check_csv(tables)
    with bar("reading", shown=not as_json) as move:
        comparison = compare_runs(
            runs, split=split, files=file or [], hypotheses=named_files(hypotheses or []),  # type: ignore[arg-type]
            baseline=baseline, beam=beam, length_penalty=length_penalty, overrides=settings or [],
            checkpoint=checkpoint, device=device, progress=move,
        )  # fmt: skip
    if tables is not None:
        comparison.write_csv(tables)
    show_result(comparison, out, as_json=as_json)
    if tables is not None and not as_json:
        print(f"written: {tables}")
