"""The commands `evaluate` and `score`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.options import (
    AcceptRecipeOption,
    AddressOption,
    BeamOption,
    CheckpointOption,
    DeviceOption,
    EngineOption,
    FilesOption,
    JsonOption,
    LengthPenaltyOption,
    ModelOptions,
    OverwriteOption,
    PrecisionOption,
    RunArgument,
    SettingsOption,
    SourceLanguageOption,
    SplitOption,
    TargetLanguageOption,
)
from regard.errors import DecodeError

if TYPE_CHECKING:
    from regard.data.parallel import Engine


def evaluate(  # noqa: PLR0913  (one parameter per option)
    *,
    run: RunArgument,
    split: SplitOption = None,
    files: FilesOption,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    predictions: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Write the labels or answers of all examples to this file, as JSON Lines, and the "
            "wrong ones to another file beside it. Default: predictions.jsonl and errors.jsonl in "
            "the run folder, or with --file NAME.csv predictions.NAME.jsonl and "
            "predictions.NAME.errors.jsonl.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    engine: EngineOption = "local",
    address: AddressOption = None,
    accept_recipe: AcceptRecipeOption = False,
    baseline: Annotated[
        bool,
        Option(
            "--baseline",
            help="Print beside the result what a linear model of scikit-learn reaches, trained on "
            "the same rows.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the task's metrics on a split or a file: BLEU, ROUGE, perplexity, accuracy, F1,
    correlations."""
    model = ModelOptions(checkpoint, device, precision, accept_recipe)
    with console.bar("writing", visible=not as_json) as move:
        metrics = regard.evaluate(
            model.open(run),
            split=split,
            files=files,
            beam=beam,
            length_penalty=length_penalty,
            overrides=overrides,
            checkpoint=checkpoint,
            device=device,
            predictions=predictions,
            overwrite=overwrite,
            engine=cast("Engine", engine),
            address=address,
            accept_recipe=accept_recipe,
            baseline=baseline,
            progress=partial(move, "writing"),
        )
    console.show_report(metrics, None, as_json=as_json)


def score(  # noqa: PLR0913  (one parameter per option)
    run: RunArgument,
    source: Annotated[
        str,
        Argument(metavar="SOURCE", help="The input; for a language model the beginning of a text."),
    ],
    target: Annotated[
        str,
        Argument(metavar="TARGET", help="The output to score; or the continuation of the text."),
    ],
    tokens: Annotated[
        bool,
        Option("--tokens", help="TARGET is a list of tokens: JSON, or separated by spaces."),
    ] = False,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute log P(target | source), in total and token by token.

    For a language model: log P of the continuation of a text, given its beginning. A space is put
    between the two, except with --tokens.
    """
    from regard.recipes.search_options import language_overrides

    result = regard.score(
        run,
        source,
        _tokens_in(target) if tokens else target,
        overrides=language_overrides(source_language, target_language),
        checkpoint=checkpoint,
        device=device,
        accept_recipe=accept_recipe,
    )
    if as_json:
        console.show_json(result)
        return
    for token, log_p in zip(result["tokens"], result["token_scores"], strict=True):
        console.say(f"{log_p:10.4f}  {token}")
    console.say(f"{result['score']:10.4f}  log P of all {len(result['tokens'])} tokens")
    console.note_unknown(result.get("unknown", ()))


def _tokens_in(target: str) -> list[str]:
    from pydantic import TypeAdapter

    if not target.lstrip().startswith("["):
        return target.split()
    try:
        return TypeAdapter(list[str]).validate_json(target)
    except ValueError:
        what = "not a JSON list of strings"
        hint = 'for example ["▁a", "</s>"]'
        raise DecodeError(what, where="--tokens", hint=hint) from None
