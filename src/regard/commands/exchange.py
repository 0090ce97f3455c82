"""regard import and regard export"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.options import CheckpointOption, JsonOption, NewRunOption, RunArgument
from regard.commands.output import show


def import_(
    source: Annotated[str, typer.Argument(metavar="PATH_OR_NAME", help="A transformers folder, or a name on the Hub.")],
    *,
    out: NewRunOption,
    as_json: JsonOption = False,
) -> None:
    """Make a run of a model of transformers: BERT, GPT-2 or Marian."""
    from regard.runs.exchange import import_run

    run = import_run(source, out=out)
    if as_json:
        show({"run": str(out), "task": run.recipe.task, "model": run.recipe.model.model_dump()})
    else:
        print(f"imported: {out}, a {run.recipe.model.kind} for {run.recipe.task}")


def export(
    run: RunArgument,
    *,
    to: Annotated[str, typer.Option("--to", help="huggingface or ctranslate2.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder to make.")],
    quantize: Annotated[
        str | None,
        typer.Option(
            "--quantize", help="For ctranslate2: int8, int8_float32, int8_float16, int16, float16 and others."
        ),
    ] = None,
    checkpoint: CheckpointOption = "best",
    as_json: JsonOption = False,
) -> None:
    """Write a run as transformers or CTranslate2 reads it."""
    from regard.runs.exchange import export_run

    export_run(run, to=to, out=out, quantize=quantize, checkpoint=checkpoint)
    if as_json:
        show({"run": str(run), "to": to, "out": str(out)})
    else:
        print(f"exported: {out}")
