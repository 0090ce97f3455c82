"""The command line: each command parses its options, calls the function of api.py and prints what it returns.

Torch is imported by the verbs that need it, not by `--help`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

import regard
from regard.commands.compare import compare
from regard.commands.diagnose import diagnose
from regard.commands.explain import explain
from regard.commands.inputs import STORY_HINT, asks, not_standard_input, read_inputs, read_story
from regard.commands.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    NewRunOption,
    OverridesArgument,
    PairsOption,
    PenaltyOption,
    RecipeArgument,
    RunArgument,
    SetOption,
    SplitOption,
    StoryOption,
)
from regard.commands.output import bar, complain, show
from regard.errors import DecodeError, InputError, Problem, RegardError

if TYPE_CHECKING:
    from regard.tasks.inputs import Note
    from regard.training.check import Check

PATIENCE = 20.0
"""Seconds that other processes give the first one to report an error: once one ends, a launcher kills the others."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show it.")] = False,
) -> None:
    """Your data -> a trained, measured, explained attention model."""


# ------------------------------------------------------------------------------------------------------ check, train


@app.command()
def check(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A .yaml file, a recipe that ships, or data.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it, or a second, parallel file.")
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Write the recipe that is proposed for data.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Validate a recipe and its data: all problems at once, sizes, samples, memory and time.

    For a file of data, two parallel ones or a folder of texts, a recipe is proposed, and checked in the same way.
    """
    result = regard.check(recipe, overrides or [], out=out, quiet=as_json)
    if as_json:
        show(result.to_json())
    else:
        _print_check(result, out)
    if not result.ok:
        raise typer.Exit(2)


def _print_check(result: Check, out: Path | None) -> None:
    """Standard output has the result; or, if a recipe is proposed, the recipe alone, so that `>` saves it."""
    from regard.training.display import check_sentences

    if result.proposal is not None:
        print(result.proposal if out is None else f"written: {out}", end="\n" if out else "", flush=True)
    complain(result.problems)
    if result.ok:
        stream = sys.stdout if result.proposal is None else sys.stderr
        lines = [*check_sentences(result.to_json()), *(f"next       {command}" for command in result.commands)]
        print("\n".join(lines), file=stream)


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    *,
    out: NewRunOption,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a training that was interrupted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train what a recipe describes into a run folder."""
    first_process = os.environ.get("RANK", "0") == "0"  # as torchrun and accelerate number them
    try:
        _train(recipe, overrides or [], out, resume, as_json)
    except KeyboardInterrupt:  # before the first step, or for the second time
        if first_process:
            kept = "the checkpoints are complete, and the same command with --resume continues from the last"
            nothing = "nothing was trained yet, so nothing is lost: the same command starts again"
            print(f"interrupted; {kept if (out / 'last').exists() else nothing}", file=sys.stderr)
        raise typer.Exit(130) from None
    except RegardError as error:
        if first_process or getattr(error, "__notes__", None):
            raise
        time.sleep(PATIENCE)  # the first process reports the same error
        raise typer.Exit(2) from None


def _train(recipe: str, overrides: list[str], out: Path, resume: bool, as_json: bool) -> None:
    from accelerate import PartialState

    from regard.runs.checkpoints import load_facts
    from regard.training.loop import Interrupted

    try:
        run = regard.train(recipe, overrides, out=out, resume=resume, quiet=as_json)
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        show({"run": str(out), **load_facts(run.checkpoint("best"))})


# ----------------------------------------------------------------------------------------------------------- predict


InputsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INPUT]...", help="Texts. Default: standard input, unless the file of --story has a question."
    ),
]
InputFileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="A file with one input a line; or a table (.csv, .tsv, .jsonl, .parquet) with the columns that the "
        "run was trained on, with or without what is predicted, such as the label.",
    ),
]
NBestOption = Annotated[
    int | None,
    typer.Option(
        "--nbest",
        help="Outputs for each input, best first by the search's objective. Each is printed with its log P, by "
        "which they need not be sorted: the objective also weighs the length.",
    ),
]
PrefixOption = Annotated[list[str] | None, typer.Option("--prefix", help="What every output begins with.")]
PrefixesOption = Annotated[
    Path | None,
    typer.Option("--prefixes", metavar="FILE", help="One line for each input: what its output begins with."),
]
RecordOption = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Write the whole search as JSON: every step, and why."),
]
SkipBadOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Skip lines of --file or standard input that cannot be read: the output of each is an empty line, in "
        "JSON null with the reason.",
    ),
]
FeaturesOption = Annotated[
    Path | None,
    typer.Option(
        "--features", metavar="FILE", help="Write a pre-trained model's vectors of the inputs as .npz instead."
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option("--layer", help="The layer that --features takes: 0 the embeddings, -1 the last (default)."),
]
PoolingOption = Annotated[
    str | None,
    typer.Option("--pooling", help="One vector a text for --features: mean, first or last. Default: one a token."),
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print JSON Lines: one object a line for each input.")]


def predict(
    run: RunArgument,
    inputs: InputsArgument = None,
    *,
    file: InputFileOption = None,
    story: StoryOption = None,
    beam: BeamOption = None,
    nbest: NBestOption = None,
    length_penalty: PenaltyOption = None,
    prefix: PrefixOption = None,
    prefixes: PrefixesOption = None,
    record: RecordOption = None,
    skip_bad: SkipBadOption = False,
    features: FeaturesOption = None,
    layer: LayerOption = None,
    pooling: PoolingOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonLinesOption = False,
) -> None:
    """Do the run's task on texts given as arguments, in a file, or on standard input. The order is kept.

    Translate or summarise them, caption the images whose files they name, continue them (language models), fill each
    [MASK] in them, answer the questions among them about the story in the lines before, predict their label or number,
    tag their words, or answer a question from the text that follows it. Two texts, a text and its choices, or a
    question and its text are separated by tabs.
    """
    typed = bool(inputs) and inputs != ["-"]
    _check_options(typed, file, story, prefix or [], skip_bad, features, layer, pooling)
    texts, places = inputs, None
    if (
        file is None
        and not typed
        and (story is None or inputs or not asks(read_story(run, story, skip_bad=skip_bad)[0]))
    ):
        texts, places = read_inputs(inputs, skip_bad=skip_bad, needed=story is None)
    if features is not None:
        _write_features(run, texts, places, file, features, layer, pooling, checkpoint, device, as_json)
        return
    options: dict[str, Any] = {
        "file": file, "story": story, "beam": beam, "nbest": nbest, "length_penalty": length_penalty,
        "prefix": prefix[0] if prefix else None, "prefixes": prefixes, "record": record, "skip_bad": skip_bad,
        "overrides": settings or [], "checkpoint": checkpoint, "device": device, "places": places,
    }  # fmt: skip
    try:
        _predict(run, texts, options, as_json)
    except InputError as error:
        if typed:
            raise
        more = Problem("", "nothing was written", "--skip-bad leaves such lines out, with an empty output for each")
        raise DecodeError(problems=[*error.problems, more]) from None


app.command("predict")(predict)
app.command("translate", help="The same as predict.")(predict)


def _predict(run: Path, texts: list[str] | None, options: dict[str, Any], as_json: bool) -> None:
    """Print the predictions chunk by chunk; then how many inputs were skipped, and the notes."""
    from regard.api import predict_chunks

    count, skipped, notes = 0, list[Problem](), list["Note"]()
    with bar("writing", shown=options["file"] is not None and not sys.stdout.isatty()) as move:
        for chunk in predict_chunks(run, texts, progress=partial(move, "writing"), **options):
            for prediction in chunk:
                if as_json:
                    show(prediction.to_json())
                    continue
                for line in prediction.lines(chunk.nbest):
                    print(line, flush=True)
            count, skipped, notes = count + len(chunk), skipped + chunk.skipped, notes + chunk.notes
    if skipped:
        print(f"skipped {len(skipped):,} of {count:,} inputs; the first: {skipped[0]}", file=sys.stderr)
    _show_notes(notes)


def _show_notes(notes: Iterable[Note]) -> None:
    """The first note of each kind, and how many more there are."""
    for kind in ("unknown", "length"):
        texts = [note.text for note in notes if note.kind == kind]
        if texts:
            more = f", and so for {len(texts) - 1:,} more" if len(texts) > 1 else ""
            print(f"note: {texts[0]}{more}", file=sys.stderr)


def _check_options(
    typed: bool, file: Path | None, story: Path | None, prefix: list[str], skip_bad: bool, features: Path | None,
    layer: int | None, pooling: str | None,
) -> None:  # fmt: skip
    """Refuse options that do not go together."""
    not_standard_input(file, "--file", "it is where neither texts nor --file are given")
    not_standard_input(story, "--story", STORY_HINT)
    if typed and file is not None:
        raise DecodeError("give texts or --file, not both", where="--file")
    if skip_bad and (typed or features):
        what = "it is for the lines of --file or standard input" if typed else "every input needs its vectors"
        raise DecodeError(what, where="--skip-bad", hint="leave it out")
    if features is not None and story is not None:
        raise DecodeError("a story has no vectors", where="--story", hint="leave it out")
    for option, value in (("--layer", layer), ("--pooling", pooling)):
        if features is None and value is not None:
            what = "it chooses the vectors that --features writes"
            raise DecodeError(what, where=option, hint="give --features FILE, too")
    if pooling not in (None, "mean", "first", "last"):
        raise DecodeError(f"there is no pooling {pooling!r}", where="--pooling", hint="allowed: mean, first, last")
    if len(prefix) > 1:
        hint = "give one, or --prefixes with a line for each input"
        raise DecodeError(f"{len(prefix)} prefixes are given for every output", where="--prefix", hint=hint)


def _write_features(
    run: Path, texts: list[str] | None, places: list[str] | None, file: Path | None, out: Path, layer: int | None,
    pooling: str | None, checkpoint: str, device: str, as_json: bool,
) -> None:  # fmt: skip
    vectors = regard.features(
        run, texts, file=file, layer=-1 if layer is None else layer, pooling=cast("Any", pooling), out=out,
        checkpoint=checkpoint, device=device, places=places,
    )  # fmt: skip
    rows, width = vectors.vectors.shape
    if as_json:
        show({"features": str(out), "vectors": rows, "width": width, "inputs": len(vectors.inputs)})
    else:
        print(f"written: {out}, {rows} vectors of {width} numbers")
    _show_notes(vectors.notes)


# --------------------------------------------------------------------------------------------------- evaluate, score


@app.command()
def evaluate(
    run: RunArgument,
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            help="A file of JSON Lines for the labels or answers of all examples, with the wrong ones in another file "
            "beside it. Default: predictions.jsonl and errors.jsonl in the run folder.",
        ),
    ] = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """The task's metrics, on a split or a file: BLEU, ROUGE, perplexity, accuracy, F1, correlations."""
    with bar("writing", shown=not as_json) as move:
        metrics = regard.evaluate(
            run, split=cast("Split | None", split), files=file or [], beam=beam, length_penalty=length_penalty,
            overrides=settings or [], checkpoint=checkpoint, device=device, predictions=predictions,
            progress=partial(move, "writing"),
        )  # fmt: skip
    if as_json:
        show(metrics)
        return
    from regard.views.labels import metric_lines

    if "files" in metrics:
        metrics["files"] = ", ".join(metrics["files"])
    for name, value in metrics.items():
        if name == "confusion":
            print("rows are true labels, columns are predicted labels:")
        for line in metric_lines(name, value):
            print(line)


Split = Literal["train", "validation", "test"]


@app.command()
def score(
    run: RunArgument,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="What the model reads; for a language model a text's beginning.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The output to score, with its end; or the text's continuation.")
    ],
    *,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="TARGET is exact tokens: a JSON list, or separated by spaces.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """log P(target | source), whole and token by token.

    For a language model: log P of the continuation of a text, given its beginning. A space is put between the two,
    except with --tokens.
    """
    exact = _tokens_in(target) if tokens else target
    result = regard.score(run, source, exact, checkpoint=checkpoint, device=device)
    if as_json:
        show(result)
        return
    for token, log_p in zip(result["tokens"], result["token_scores"], strict=True):
        print(f"{log_p:10.4f}  {token}")
    print(f"{result['score']:10.4f}  log P of all {len(result['tokens'])} tokens")


def _tokens_in(target: str) -> list[str]:
    if not target.lstrip().startswith("["):
        return target.split()
    try:
        tokens = json.loads(target)
    except ValueError:
        tokens = None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DecodeError("not a JSON list of strings", where="--tokens", hint='for example ["▁a", "</s>"]')
    return tokens


app.command("explain")(explain)
app.command("diagnose")(diagnose)
app.command("compare")(compare)


# -------------------------------------------------------------------------------------------- import, export, recipes


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="PATH_OR_NAME", help="A transformers folder, or a name on the Hub.")],
    *,
    out: NewRunOption,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What the folder does not tell, such as head.no_answer=true."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a run of a model of transformers: BERT, GPT-2, Marian or Pegasus."""
    from regard.exchange.folder import open_folder

    if Path(source).exists():
        open_folder(source)  # reports a wrong folder before torch is loaded
    from regard.exchange.exchange import import_note

    run = regard.import_run(source, out=out, overrides=settings or [])
    result = {"run": str(out), "task": run.recipe.task, "model": run.recipe.model.model_dump()}
    _report(result, f"imported: {out}, a {run.recipe.model.kind} for {run.recipe.task}", import_note(run), as_json)


@app.command()
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
    """Write a run in the format of transformers or CTranslate2."""
    from regard.exchange.exchange import export_note

    regard.export_run(run, to=to, out=out, quantize=quantize, checkpoint=checkpoint)
    _report({"run": str(run), "to": to, "out": str(out)}, f"exported: {out}", export_note(out), as_json)


def _report(result: dict[str, object], sentence: str, note: str | None, as_json: bool) -> None:
    if as_json:
        show(result | ({"note": note} if note else {}))
    else:
        print(sentence)
        if note:
            print(note)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.")] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Copy it to a new file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that ship, show one, or copy one to start from."""
    from regard.recipes.shipped import shipped_recipes

    texts = shipped_recipes(name, out=out)
    if as_json:
        show(texts if name is None else {"name": name, "recipe": texts[name]})
    elif name is not None:
        print(f"copied: {out}" if out else texts[name].rstrip("\n"))
    else:
        width = max(map(len, texts))
        print("\n".join(f"{recipe:{width}}  {summary}" for recipe, summary in texts.items()))


# -------------------------------------------------------------------------------------------------------------- main


def main() -> None:
    """Run a command. A user's mistake gives one clear sentence and exit code 2; Ctrl-C gives 130."""
    _set_up_streams()
    regard.wait_quietly()
    try:
        app()
    except RegardError as error:
        _fail(*error.problems)
    except OSError as error:  # a folder without write permission, a full disk
        _fail(Problem(str(error.filename or ""), error.strerror or str(error)))


def _fail(*problems: Problem) -> None:
    complain(problems)
    sys.exit(2)


def _set_up_streams() -> None:
    """Text is UTF-8, whatever the locale; only a console keeps its own encoding, with `?` for what that lacks.

    Bytes on standard input that are not UTF-8 are let through: `read_inputs` reports their line.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        encoding = None if sys.stdin.isatty() else "utf-8-sig"
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape", newline="\n")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


if __name__ == "__main__":
    main()
