"""regard predict, and its other name, translate"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.inputs import read_inputs, read_prefixes, read_story
from regard.commands.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    PenaltyOption,
    RunArgument,
    SetOption,
    StoryOption,
)
from regard.commands.output import bar, show
from regard.errors import DecodeError

if TYPE_CHECKING:
    from regard.tasks.features import Features
    from regard.tasks.task import Prediction


def predict(
    run: RunArgument,
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="[INPUT]...", help="Texts; none: standard input.")
    ] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", help="A file with one input a line.")] = None,
    story: StoryOption = None,
    beam: BeamOption = None,
    nbest: Annotated[
        int | None,
        typer.Option(
            "--nbest",
            help="Outputs for each input, best first by the search's objective. Each is printed with its log P, which "
            "need not fall: the objective sets it off against the length.",
        ),
    ] = None,
    length_penalty: PenaltyOption = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="What every output begins with.")] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option("--prefixes", metavar="FILE", help="One line for each input: what its output begins with."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write the whole search as JSON: every step, and why."),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features", metavar="FILE", help="Write a pre-trained model's vectors of the inputs as .npz instead."
        ),
    ] = None,
    layer: Annotated[
        int, typer.Option("--layer", help="Of which layer --features takes them: 0 the embeddings, -1 the last.")
    ] = -1,
    pooling: Annotated[
        str | None,
        typer.Option("--pooling", help="One vector a text for --features: mean, first or last. Default: one a token."),
    ] = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines: one object a line for each input.")
    ] = False,
) -> None:
    """Do the run's task on texts given as arguments, in a file, or on standard input. The order is kept.

    Translate or summarise them, caption the images whose files they name, go on with them (language models), fill each
    [MASK] in them, answer the questions among them about the story that the lines before tell, say which label or
    number they have, find the names in them, or answer a question from the text that follows it; two texts, a text and
    its choices, or a question and its text stand with tabs between them.
    """
    texts, places = _inputs(run, inputs, file, story)
    if features is not None:
        _check_pooling(pooling)
        from regard.runs.verbs import features as write_features

        found = write_features(
            run, texts, layer=layer, pooling=pooling, out=features,  # type: ignore[arg-type]
            checkpoint=checkpoint, device=device, places=places,
        )  # fmt: skip
        _show_features(found, features, len(texts), as_json)
        return
    beginnings = None if prefixes is None else read_prefixes(prefixes, len(texts), prefix)
    from regard.runs.progress import summed
    from regard.runs.verbs import opened, predict_chunks, with_search

    opened_run = opened(run)
    texts, places = opened_run.task.gather(texts, places)
    recipe = with_search(opened_run.recipe, beam, nbest, length_penalty, settings or [], prefix=prefix)
    with bar("writing", shown=file is not None and not sys.stdout.isatty(), total=len(texts)) as move:
        for chunk in predict_chunks(
            opened_run, texts, recipe, prefixes=beginnings, record=record, checkpoint=checkpoint, device=device,
            places=places, progress=summed(partial(move, "writing"), len(texts)),
        ):  # fmt: skip
            for prediction in chunk:
                _show(prediction, recipe.search.nbest, as_json)


def _inputs(run: Path, inputs: list[str] | None, file: Path | None, story: Path | None) -> tuple[list[str], list[str]]:
    """The texts and their places: the lines of a story first, and then what is asked about it besides."""
    if story is None:
        return read_inputs(inputs, file)
    told, where = read_story(run, story)
    texts, places = read_inputs(inputs, file) if inputs or file else ([], [])
    return [*told, *texts], [*where, *places]


def _show(prediction: Prediction, nbest: int, as_json: bool) -> None:
    if as_json:
        show(prediction.to_json())
        return
    for line in prediction.lines(nbest):
        print(line, flush=True)


def _check_pooling(pooling: str | None) -> None:
    if pooling not in (None, "mean", "first", "last"):
        raise DecodeError(f"there is no pooling {pooling!r}", where="--pooling", hint="allowed: mean, first, last")


def _show_features(found: Features, file: Path, inputs: int, as_json: bool) -> None:
    rows, width = found.vectors.shape
    if as_json:
        show({"features": str(file), "vectors": rows, "width": width, "inputs": inputs})
    else:
        print(f"written: {file}, {rows} vectors of {width} numbers")
