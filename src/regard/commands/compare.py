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
from regard.commands.output import bar, show


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
    from regard.views.compare import can_write_csv, named_files
    from regard.views.compare import compare as compare_runs
    from regard.views.compare_page import report
    from regard.views.compare_terminal import show as show_comparison
    from regard.views.compare_units import UnitComparison
    from regard.views.compare_units_page import units_report
    from regard.views.old_page import can_write_page, write_page

    can_write_page(out)
    can_write_csv(tables)
    with bar("reading", shown=not as_json) as move:
        found = compare_runs(
            runs, split=split, files=file or [], hypotheses=named_files(hypotheses or []),  # type: ignore[arg-type]
            baseline=baseline, beam=beam, length_penalty=length_penalty, overrides=settings or [],
            checkpoint=checkpoint, device=device, progress=move,
        )  # fmt: skip
    if tables is not None:
        found.write_csv(tables)
    if out is not None:
        write_page(out, units_report(found) if isinstance(found, UnitComparison) else report(found))
    if as_json:
        show(found.to_json())
        return
    show_comparison(found)
    for path in (out, tables):
        if path is not None:
            print(f"written: {path}")
