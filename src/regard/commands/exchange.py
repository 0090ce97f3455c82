"""regard import and regard export"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.options import CheckpointOption, JsonOption, NewRunOption, RunArgument
from regard.commands.output import show
from regard.exchange.model_folder import refuse_without_config

if TYPE_CHECKING:
    from regard.runs import Run

ToldOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="What the folder leaves open, such as head.no_answer=true."),
]


def import_(
    source: Annotated[str, typer.Argument(metavar="PATH_OR_NAME", help="A transformers folder, or a name on the Hub.")],
    *,
    out: NewRunOption,
    settings: ToldOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a run of a model of transformers: BERT, GPT-2, Marian or Pegasus."""
    if Path(source).is_dir():
        refuse_without_config(Path(source), source)
    from regard.exchange.exchange import import_run

    run = import_run(source, out=out, overrides=settings or [])
    note = _untold(run)
    if as_json:
        found = {"run": str(out), "task": run.recipe.task, "model": run.recipe.model.model_dump()}
        show(found | ({"note": note} if note else {}))
    else:
        print(f"imported: {out}, a {run.recipe.model.kind} for {run.recipe.task}")
        if note:
            print(note)


def _untold(run: Run) -> str | None:
    """What the run cannot do, or the folder does not tell: better said now than by `predict`."""
    recipe: Any = run.recipe
    if recipe.task == "masked_language_modeling" and not recipe.model.masked_head:  # as of a sentence encoder
        return (
            "it has no masked head, so it fills no gaps; it is good for features "
            f"(regard predict {run.folder} --features) and for fine-tuning (training.init={run.folder})"
        )
    if recipe.task == "question_answering" and recipe.head.no_answer is None:
        return (
            "it answers every question: its folder does not say whether it has learned that some have no answer, as in "
            "SQuAD 2.0; --set head.no_answer=true says so"
        )
    return None


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
    from regard.exchange.exchange import export_run

    export_run(run, to=to, out=out, quantize=quantize, checkpoint=checkpoint)
    note = _note(out) if to == "huggingface" else None
    if as_json:
        show({"run": str(run), "to": to, "out": str(out)} | ({"note": note} if note else {}))
    else:
        print(f"exported: {out}")
        if note:
            print(note)


def _note(out: Path) -> str | None:
    """What neither AutoModel nor AutoTokenizer would look for: better said now than by wrong words."""
    if not (out / "target").is_dir():
        return None
    return (
        "source and target have a vocabulary each: what the model writes is decoded by "
        f"AutoTokenizer.from_pretrained({str(out)!r}, subfolder='target'), as {out / 'README.md'} shows"
    )
