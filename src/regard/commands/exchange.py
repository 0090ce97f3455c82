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
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What the folder leaves open, such as head.no_answer=true."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a run of a model of transformers: BERT, GPT-2, Marian or Pegasus."""
    from regard.exchange.folder import open_folder

    if Path(source).exists():
        open_folder(source)  # reports a wrong folder before torch is loaded
    from regard.exchange.exchange import import_note, import_run

    run = import_run(source, out=out, overrides=settings or [])
    result = {"run": str(out), "task": run.recipe.task, "model": run.recipe.model.model_dump()}
    _report(result, f"imported: {out}, a {run.recipe.model.kind} for {run.recipe.task}", import_note(run), as_json)


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
    from regard.exchange.exchange import export_note, export_run

    export_run(run, to=to, out=out, quantize=quantize, checkpoint=checkpoint)
    _report({"run": str(run), "to": to, "out": str(out)}, f"exported: {out}", export_note(out), as_json)


def _report(result: dict[str, object], sentence: str, note: str | None, as_json: bool) -> None:
    if as_json:
        show(result | ({"note": note} if note else {}))
    else:
        print(sentence)
        if note:
            print(note)
