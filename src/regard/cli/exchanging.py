"""The commands `import` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.options import (
    AcceptRecipeOption,
    CheckpointOption,
    JsonOption,
    NewRunOption,
    RunArgument,
    SourceLanguageOption,
    TargetLanguageOption,
)


def import_(
    source: Annotated[
        str,
        Argument(metavar="PATH_OR_NAME", help="A transformers folder, or a name on the Hub."),
    ],
    out: NewRunOption,
    overrides: Annotated[
        list[str],
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="What the folder does not contain, such as head.no_answer=true.",
            default_factory=list,
            show_default=False,
        ),
    ],
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a model of transformers as a run: BERT and other encoders, GPT-2, Marian, Pegasus, BART,
    M2M-100 and NLLB."""
    from regard.exchange.folder import open_folder

    if Path(source).exists():
        open_folder(source)  # reports a wrong folder before torch is loaded
    from regard.exchange.exchange import import_note

    run = regard.import_run(
        source,
        out=out,
        overrides=overrides,
        source_language=source_language,
        target_language=target_language,
    )
    result = {"run": str(out), "task": run.recipe.task, "model": run.recipe.model.model_dump()}
    _show_result(
        result,
        f"imported: {out}, a {run.recipe.model.kind} for {run.recipe.task}",
        import_note(run),
        as_json=as_json,
    )


def export(
    run: RunArgument,
    to: Annotated[
        str, Option(help="huggingface, ctranslate2, or word2vec (word vectors as text).")
    ],
    out: Annotated[Path, Option(metavar="FOLDER", help="The folder to make.")],
    quantize: Annotated[
        str | None,
        Option(
            help="For ctranslate2: int8, int8_float32, int8_float16, int16, float16 and others."
        ),
    ] = None,
    checkpoint: CheckpointOption = "best",
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a run in the format of transformers or CTranslate2, or its word vectors in that of
    word2vec."""
    from regard.exchange.exchange import export_note

    regard.export_run(
        run, to=to, out=out, quantize=quantize, checkpoint=checkpoint, accept_recipe=accept_recipe
    )
    _show_result(
        {"run": str(run), "to": to, "out": str(out)},
        f"exported: {out}",
        export_note(out),
        as_json=as_json,
    )


def _show_result(
    result: dict[str, object], sentence: str, note: str | None, *, as_json: bool
) -> None:
    if as_json:
        console.show_json(result | ({"note": note} if note else {}))
    else:
        console.say("\n".join(filter(None, (sentence, note))))
