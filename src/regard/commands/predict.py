"""regard predict, and its other name, translate"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.inputs import asks, one_prefix, read_file, read_inputs, read_prefixes, read_story
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
from regard.errors import DecodeError, Problem

INPUTS = "Texts. None: standard input, unless the file of --story asks something itself."
FILE = (
    "A file with one input a line; or a table (.csv, .tsv, .jsonl, .parquet), of which it reads the columns that the "
    "run was trained on; what it is to find, such as a label, may be missing."
)

if TYPE_CHECKING:
    from regard.tasks.features import Features
    from regard.tasks.task import Prediction


def predict(
    run: RunArgument,
    inputs: Annotated[list[str] | None, typer.Argument(metavar="[INPUT]...", help=INPUTS)] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", help=FILE)] = None,
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
    prefix: Annotated[list[str] | None, typer.Option("--prefix", help="What every output begins with.")] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option("--prefixes", metavar="FILE", help="One line for each input: what its output begins with."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write the whole search as JSON: every step, and why."),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Go on where a line of --file or standard input cannot be read: its output is an empty line, in JSON "
            "null with the reason.",
        ),
    ] = False,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features", metavar="FILE", help="Write a pre-trained model's vectors of the inputs as .npz instead."
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", help="Of which layer --features takes them: 0 the embeddings, -1 the last (default)."),
    ] = None,
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
    texts, places, asked, faults = _inputs(run, inputs, file, story, skip_bad)
    if skip_bad and (inputs or features):
        what = "it is for the lines of --file or standard input" if inputs else "every input needs its vectors"
        raise DecodeError(what, where="--skip-bad", hint="leave it out")
    _check_vectors(features, layer, pooling)
    from regard.runs.unknown import unknown
    from regard.runs.unlearned import unlearned
    from regard.runs.verbs import opened

    if features is not None:
        from regard.runs.verbs import features as write_features
        from regard.tasks.inputs import refuse

        refuse([*faults.values()])
        found = write_features(
            run, texts, layer=-1 if layer is None else layer, pooling=pooling, out=features,  # type: ignore[arg-type]
            checkpoint=checkpoint, device=device, places=places,
        )  # fmt: skip
        _show_features(found, features, len(texts), as_json)
        _show_notes(unknown(opened(run), texts, places))
        _show_notes(unlearned(opened(run), texts, places))
        return
    begins = one_prefix(prefix or [])
    beginnings = None if prefixes is None else read_prefixes(prefixes, len(texts), begins)
    from regard.runs.progress import summed
    from regard.runs.skipped import Skipped
    from regard.runs.verbs import predict_chunks, with_search
    from regard.tasks.story_answering import Answer

    opened_run = opened(run)
    texts, places = _asked(zip(*opened_run.task.gather(texts, places), strict=True), asked)
    recipe = with_search(opened_run.recipe, beam, nbest, length_penalty, settings or [], prefix=begins)
    skipped: list[Problem] = []
    notes: list[str] = []
    lacking: list[str] = []
    left = iter(places)
    with (
        bar("writing", shown=file is not None and not sys.stdout.isatty(), total=len(texts)) as move,
        _way_out(places, offered=not inputs),
    ):
        for chunk in predict_chunks(
            opened_run, texts, recipe, prefixes=beginnings, record=record, skip_bad=skip_bad, checkpoint=checkpoint,
            device=device, places=places, faults=faults, progress=summed(partial(move, "writing"), len(texts)),
        ):  # fmt: skip
            whole = [str(prediction.to_json()["output"] or "") for prediction in chunk]
            where = list(islice(left, len(chunk)))
            notes += unlearned(opened_run, whole, where)
            read = ["" if isinstance(prediction, Skipped) else prediction.input for prediction in chunk]
            lacking += unknown(opened_run, read, where)
            for prediction in chunk:
                _show(prediction, recipe.search.nbest, as_json)
                skipped += [prediction.problem] if isinstance(prediction, Skipped) else []
                notes += [prediction.note] if isinstance(prediction, Answer) and prediction.note else []
    if skipped:
        print(f"skipped {len(skipped):,} of {len(texts):,} inputs; the first: {skipped[0]}", file=sys.stderr)
    _show_notes(lacking)
    _show_notes(notes)


def _inputs(
    run: Path, inputs: list[str] | None, file: Path | None, story: Path | None, skip_bad: bool
) -> tuple[list[str], list[str], frozenset[str], dict[str, Problem]]:
    """The texts and their places, the lines of a story first; the places of what is asked about; what is wrong with
    rows of a file that cannot be read, by their places."""
    from regard.runs.file_inputs import typed_rows
    from regard.runs.verbs import opened

    told, where, faults = ([], [], {}) if story is None else read_story(run, story, skip_bad=skip_bad)
    texts, places, more = list[str](), list[str](), dict[str, Problem]()
    if file is not None:
        texts, places, more = read_file(run, inputs, file, skip_bad=skip_bad)
    elif inputs or story is None or not asks(told):
        texts, places = read_inputs(inputs, skip_bad=skip_bad, needed=story is None)
        rows = typed_rows(opened(run), texts, places)
        texts, more = [row.text for row in rows], {row.place: row.fault for row in rows if row.fault is not None}
    if where and inputs:  # what is wrong may be in either
        places = [f"{where[-1]}, {place}" for place in places]
    return [*told, *texts], [*where, *places], frozenset(places or where), faults | more


def _asked(inputs: Iterable[tuple[str, str]], asked: frozenset[str]) -> tuple[list[str], list[str]]:
    """Without the questions that a story's own file has where others are asked about it."""
    from regard.tasks.story_inputs import Typed, typed_in

    found = [one for one in inputs if one[1] in asked or not isinstance(typed_in(*one), Typed)]
    if not found:
        raise DecodeError("there is no question", where=min(asked), hint="a question ends in '?'")
    return [text for text, _ in found], [place for _, place in found]


@contextmanager
def _way_out(places: list[str], *, offered: bool) -> Iterator[None]:
    """Where an input is refused, one more line that says how to go on without it."""
    from regard.runs.skipped import blames

    try:
        yield
    except DecodeError as error:
        if not (offered and blames(error, places)):
            raise
        more = Problem("", "nothing was written", "--skip-bad leaves such lines out, with an empty output for each")
        raise DecodeError(problems=[*error.problems, more]) from None


def _show(prediction: Prediction, nbest: int, as_json: bool) -> None:
    if as_json:
        show(prediction.to_json())
        return
    for line in prediction.lines(nbest):
        print(line, flush=True)


def _show_notes(notes: list[str]) -> None:
    """The first, and how many more there are."""
    if notes:
        more = f", and so for {len(notes) - 1:,} more" if len(notes) > 1 else ""
        print(f"note: {notes[0]}{more}", file=sys.stderr)


def _check_vectors(features: Path | None, layer: int | None, pooling: str | None) -> None:
    """Refuse what only --features reads, and a pooling that there is not."""
    for option, value in (("--layer", layer), ("--pooling", pooling)):
        if features is None and value is not None:
            raise DecodeError("it says which vectors --features writes", where=option, hint="give --features FILE, too")
    if pooling not in (None, "mean", "first", "last"):
        raise DecodeError(f"there is no pooling {pooling!r}", where="--pooling", hint="allowed: mean, first, last")


def _show_features(found: Features, file: Path, inputs: int, as_json: bool) -> None:
    rows, width = found.vectors.shape
    if as_json:
        show({"features": str(file), "vectors": rows, "width": width, "inputs": inputs})
    else:
        print(f"written: {file}, {rows} vectors of {width} numbers")
