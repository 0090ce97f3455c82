"""regard diagnose"""

from __future__ import annotations

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
    RunArgument,
    SetOption,
    SplitOption,
)
from regard.commands.output import bar, show_result


def diagnose(
    run: RunArgument,
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    out: ReportOption = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first so many sentences.")] = None,
    sweep: Annotated[bool, typer.Option("--sweep/--no-sweep", help="Try beams of 1, 2, 3, 5, 10 and 20, too.")] = True,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Is each error the search's or the model's: by source length, for other beams, and what to do."""
    from regard.views.diagnose import BEAMS
    from regard.views.diagnose import diagnose as diagnose_run
    from regard.views.files import check_output

    check_output(out)
    with bar("scoring the references", shown=not as_json) as move:
        diagnosis = diagnose_run(
            run, split=split, files=file or [], beam=beam, length_penalty=length_penalty,  # type: ignore[arg-type]
            overrides=settings or [], checkpoint=checkpoint, device=device, limit=limit, sweep=BEAMS if sweep else (),
            progress=move,
        )  # fmt: skip
    show_result(diagnosis, out, as_json=as_json)
