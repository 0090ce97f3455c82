"""The command line: each command parses its options, calls the function of api.py and prints what it returns.

Torch is imported by the verbs that need it, not by `--help`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Argument, Option
from typer.core import TyperGroup

import regard
from regard.console import (
    STORY_HINT,
    Answers,
    answer_lines,
    bar,
    complain,
    gathered,
    note,
    read_story,
    refuse_standard_input,
    say,
    set_up_streams,
    show_json,
    show_report,
    standard_input,
    typed_by,
    warnings_as_notes,
    written_out,
)
from regard.errors import TEXT, DecodeError, InputError, Problem, RegardError, import_extra, printable, short
from regard.language import default_language, shown, shown_comments

if TYPE_CHECKING:
    from regard.api import Answered, Loaded
    from regard.runs import Run
    from regard.tasks.task import Task
    from regard.text.files import FileInput

PATIENCE = 20.0
"""Seconds that other processes give the first one to report an error: once one ends, a launcher kills the others."""
STANDARD_INPUT = (None, "-")
"""The values of an INPUT that read standard input."""


HELP = ["-h", "--help"]


class Commands(TyperGroup):
    """Help and typer's own messages in the user's language; of what was typed, they repeat long words shortened."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if default_language() == "en":
            return
        from typer import rich_utils

        for name in [name for name in vars(rich_utils) if name.endswith(("_STRING", "_TITLE", "_TEXT", "_HELP"))]:
            setattr(rich_utils, name, shown(getattr(rich_utils, name)))
        for command in (self, *self.commands.values()):
            command.help = "\n\n".join(shown(" ".join(part.split())) for part in (command.help or "").split("\n\n"))
            help_option = command.get_help_option(typer.Context(command, help_option_names=HELP))
            for parameter in (*command.params, help_option):
                parameter.help = shown(parameter.help or "")  # type: ignore[union-attr]

    def make_context(self, *given: Any, **others: Any) -> Any:
        with _shortened():
            return super().make_context(*given, **others)

    def invoke(self, ctx: Any) -> Any:
        with _shortened():
            return super().invoke(ctx)


@contextmanager
def _shortened() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = short(" ".join(map(short, message.split(" "))), TEXT)  # type: ignore[attr-defined]
            in_language = shown(error.format_message())  # type: ignore[attr-defined]
            error.format_message = lambda: in_language  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP},
)

# ------------------------------------------------------------------------ arguments and options that commands share

RecipeArgument = Annotated[str, Argument(metavar="RECIPE", help="A .yaml file, or a recipe that ships.")]
OverridesArgument = Annotated[list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Settings to change.")]
RunArgument = Annotated[Path, Argument(metavar="RUN", help="A run folder.")]
NewRunOption = Annotated[Path, Option("--out", metavar="RUN", help="The run folder to make.")]
ReportOption = Annotated[Path | None, Option("--out", help="A .html file to write the report to.")]
SplitOption = Annotated[str | None, Option("--split", help="train, validation or test. Default: test.")]
PairsOption = Annotated[list[str] | None, Option("--file", help="One file; or twice: source and target.")]
StoryOption = Annotated[
    Path | None, Option("--story", metavar="FILE", help="The story that the questions are about, line by line.")
]
OverwriteOption = Annotated[bool, Option("--overwrite", help="Replace output files that exist; never an input.")]
BeamOption = Annotated[int | None, Option("--beam", help="Beam size; 1 is greedy search.")]
PenaltyOption = Annotated[
    float | None,
    Option("--length-penalty", help="alpha in log P / length^alpha; search.normalisation has other formulas."),
]
SetOption = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change the run's recipe.")]
CheckpointOption = Annotated[str, Option("--checkpoint", help="best, last, average, or a step.")]
DeviceOption = Annotated[str, Option("--device", help="auto, cpu, cuda or mps.")]
PrecisionOption = Annotated[str, Option("--precision", help="fp32, bf16 or fp16; int8 on a CPU.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, Option("--version", is_eager=True, callback=_show_version, help="Show it.")] = False,
) -> None:
    """Your data -> a trained, measured, explained attention model."""


# -------------------------------------------------------------------------------------------------------- check, train


@app.command()
def check(
    recipe: Annotated[str, Argument(metavar="RECIPE", help="A .yaml file, a recipe that ships, or data.")],
    overrides: Annotated[
        list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Changes; or a second, parallel file.")
    ] = None,
    *,
    out: Annotated[Path | None, Option("--out", help="Write the proposed recipe to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Validate a recipe and its data: all problems at once, sizes, samples, memory and time.

    If data is given instead (a file, two parallel files or a folder of texts), a recipe is proposed and checked.
    """
    result = regard.check(recipe, overrides or [], out=out, quiet=as_json)
    if as_json:
        show_json(result.to_json())
    else:
        if result.proposal is not None:  # standard output has the recipe alone, so that `>` saves it
            say(f"written: {out}" if out else shown_comments(result.proposal).rstrip("\n"))
        complain(result.problems)
        if result.ok:
            lines = [*result.sentences(), *(f"next       {command}" for command in result.commands)]
            say("\n".join(lines), sys.stdout if result.proposal is None else sys.stderr)
    if not result.ok:
        raise typer.Exit(2)


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    *,
    out: NewRunOption,
    resume: Annotated[bool, Option("--resume", help="Continue a training that was interrupted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train the model of a recipe into a run folder."""
    first_process = os.environ.get("RANK", "0") == "0"  # as torchrun and accelerate number them
    try:
        _train(recipe, overrides or [], out, resume, as_json)
    except KeyboardInterrupt:  # before the first step, or for the second time
        if first_process:
            kept = "the checkpoints are complete, and the same command with --resume continues from the last"
            nothing = "nothing was trained yet, so nothing is lost: the same command starts again"
            say(f"interrupted; {kept if (out / 'last').exists() else nothing}", sys.stderr)
        raise typer.Exit(130) from None
    except RegardError as error:
        if first_process or getattr(error, "__notes__", None):
            raise
        time.sleep(PATIENCE)  # in this time the first process reports the same error and ends all; else it has none
        where = f"process {os.environ['RANK']} ({platform.node()})"
        raise RegardError(problems=[Problem(where, "has an error of its own"), *error.problems]) from None


def _train(recipe: str, overrides: list[str], out: Path, resume: bool, as_json: bool) -> None:
    from accelerate import PartialState

    from regard.runs.run import load_facts
    from regard.training.loop import Interrupted

    try:
        run = regard.train(recipe, overrides, out=out, resume=resume, quiet=as_json)
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        facts = load_facts(run.checkpoint("best"))
        show_json({"run": str(out), **{name: facts.get(name) for name in ("step", "best", "tokenizer")}})


# ------------------------------------------------------------------------------------------------------------- predict

InputsArgument = Annotated[
    list[str] | None,
    Argument(metavar="[INPUT]...", help="Texts. Default: standard input, unless the file of --story has questions."),
]
InputFileOption = Annotated[
    Path | None,
    Option(
        "--file",
        help="A file with one input per line; or a table (.csv, .tsv, .jsonl, .json, .parquet) with the columns that "
        "the run was trained on, with or without what is predicted, such as the label.",
    ),
]
NBestOption = Annotated[
    int | None,
    Option(
        "--nbest",
        help="Number of outputs per input, sorted by the objective of the search. Their log P may be in another "
        "order, since the objective also counts the length.",
    ),
]
PrefixOption = Annotated[list[str] | None, Option("--prefix", help="Text that every output begins with.")]
PrefixesOption = Annotated[
    Path | None, Option("--prefixes", metavar="FILE", help="The same, with one line for each input.")
]
RecordOption = Annotated[
    Path | None,
    Option(
        "--record",
        metavar="FILE",
        help="Write every step of the search, what was kept and why: .json; a tree: .html, .svg, .png; - prints it.",
    ),
]
SkipBadOption = Annotated[
    bool,
    Option(
        "--skip-bad",
        help="Skip lines of --file or standard input that cannot be read: the output of each is an empty line, in "
        "JSON null with the reason.",
    ),
]
FeaturesOption = Annotated[
    Path | None,
    Option(
        "--features", metavar="FILE", help="Write the hidden states of the inputs as .npz instead (pre-trained models)."
    ),
]
LayerOption = Annotated[
    int | None, Option("--layer", help="The layer that --features writes: 0 is the embeddings, -1 the last (default).")
]
PoolingOption = Annotated[
    str | None, Option("--pooling", help="One vector per text for --features: mean, first or last. Default: per token.")
]
NormalizeOption = Annotated[bool, Option("--normalize", help="Scale each vector of --features to length 1.")]
OutputOption = Annotated[
    Path | None,
    Option(
        "--out",
        help="Write the outputs for --file to this file, in their order: JSON Lines if it ends in .jsonl, or with "
        "--json. For files of any length; while it grows it is called NAME.partial.",
    ),
]
ResumeOption = Annotated[bool, Option("--resume", help="Continue an --out that was interrupted.")]
WorkersOption = Annotated[
    str, Option("--workers", help="Processes that predict for --out: auto (one a core or GPU) or a number.")
]
EngineOption = Annotated[str, Option("--engine", help="local (this machine), or ray: every node of a Ray cluster.")]
AddressOption = Annotated[
    str | None, Option("--address", help="The cluster: HOST:PORT, or auto. Default: a new one on this machine.")
]
JsonLinesOption = Annotated[bool, Option("--json", help="Print JSON Lines: one object per input.")]


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
    overwrite: OverwriteOption = False,
    skip_bad: SkipBadOption = False,
    features: FeaturesOption = None,
    layer: LayerOption = None,
    pooling: PoolingOption = None,
    normalize: NormalizeOption = False,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    out: OutputOption = None,
    resume: ResumeOption = False,
    workers: WorkersOption = "auto",
    engine: EngineOption = "local",
    address: AddressOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Apply a run to texts: given as arguments, in a file, or on standard input. The order is kept.

    The run's task decides what is done: translate, summarise, caption (inputs are paths of images), continue a text,
    fill each [MASK], answer questions about a story or a text, predict a label or a number, or tag words. Two texts, a
    text and its choices, or a question and its text are separated by tabs.
    """
    typed = bool(inputs) and inputs != ["-"]
    _check_inputs(typed, file, story, prefix, skip_bad)
    vectors = {"layer": layer, "pooling": pooling, "normalize": normalize or None}
    chosen: dict[str, Any] = {name: value for name, value in vectors.items() if value is not None}
    _check_features(features, chosen, story)
    source = dict[str, Any](file=file, overwrite=overwrite, skip_bad=skip_bad, checkpoint=checkpoint, device=device)
    search = dict[str, Any](beam=beam, nbest=nbest, length_penalty=length_penalty, overrides=settings or [])
    search["prefix"] = prefix[0] if prefix else None
    parallel = {"resume": resume, "workers": workers, "engine": engine, "address": address}
    _check_out(out, file, {"features": features, "record": record, "prefixes": prefixes, "story": story}, parallel)
    if out is not None:
        _predict_file(run, out, as_json, precision=precision, **source, **search, **parallel)
        return
    opened, answers = _opened(run, checkpoint, device, precision), Answers(as_json)
    told, asks = ([], True) if file else read_story(opened.task, story, skip_bad=skip_bad)
    reads, whole = not typed and (bool(inputs) or not asks), any((features, prefixes, record))
    given = gathered(opened.task, inputs if typed else None, told, skip_bad) if typed or (reads and whole) else None
    with answers.explaining(typed), bar("writing", visible=file is not None and not sys.stdout.isatty()) as move:
        if features is not None:
            answers.show_features(regard.features(opened, given, out=features, **source, **chosen), features)
        elif reads and not whole:
            answer_lines(_loaded(opened, checkpoint, device, search), answers, told, skip_bad=skip_bad)
        else:
            moved, told_of = partial(move, "writing"), {"story": story, "prefixes": prefixes}
            _predict(opened, given, record, progress=moved, each=answers.show, **told_of, **source, **search)


def _predict(run: Run, given: list[FileInput] | None, record: Path | None, **options: Any) -> None:
    """Write predictions as they come, and show the search where it is asked for with -."""
    shown = str(record) == "-"
    found = regard.predict(run, given, record=shown or record or False, **options)
    if shown and found.record is not None:
        show_report(found.record, None, as_json=False)


def _predict_file(run: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Say how many outputs were written, also where it ends early: `--resume` continues then."""
    answers, written = Answers(as_json), 0
    with bar("writing", visible=True) as move:

        def each(answered: Answered) -> None:
            nonlocal written
            written += len(answered)
            answers.add(answered)
            move(f"{written:,} written", 0, 0)

        try:
            inputs = regard.predict_file(run, out=out, as_json=as_json, each=each, **options)
        except (KeyboardInterrupt, InputError) as error:
            kept = Problem(f"{out}.partial", f"{written:,} outputs were written by now", "--resume continues it")
            if isinstance(error, KeyboardInterrupt):
                complain([kept])
                raise typer.Exit(130) from None
            skip = Problem("", "--skip-bad leaves such lines out, with an empty output for each")
            raise DecodeError(problems=[*error.problems, skip, kept]) from None
    answers.conclude()
    say(f"written: {out}, {inputs:,} outputs")


def _check_out(
    out: Path | None, file: Path | None, at_once: Mapping[str, object], parallel: Mapping[str, object]
) -> None:
    """Refuse options that do not go together with --out, or only with it."""
    if out is None:
        for option in (option for option, value in parallel.items() if value not in (None, False, "auto", "local")):
            what, hint = "it is for the outputs of a file", "give --file and --out, too"
            raise DecodeError(what, where=f"--{option}", hint=hint)
        return
    if file is None:
        raise DecodeError("it holds the outputs of a file", where="--out", hint="give --file; or use > FILE")
    for option in (option for option, value in at_once.items() if value is not None):
        raise DecodeError("it needs all inputs at once", where=f"--{option}", hint="leave out it or --out")


app.command("predict")(predict)
app.command("translate", help="The same as predict.")(predict)


@app.command()
def chat(
    run: RunArgument,
    *,
    beam: BeamOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Talk to a run at a prompt: each line is answered by itself, as the run was trained. Ctrl-D ends."""
    search = {"beam": beam, "nbest": None, "length_penalty": None, "overrides": settings or []}
    with (answers := Answers(False, "you: ", "run: ")).explaining(False):
        answer_lines(_loaded(regard.Run.open(run), checkpoint, device, search), answers)


def _opened(run: Path, checkpoint: str, device: str, precision: str) -> Run:
    """A run, with its model where the precision is not that of the training."""
    if precision == "fp32":
        return regard.Run.open(run)
    return regard.load(run, checkpoint=checkpoint, device=device, precision=cast("Any", precision))


def _loaded(run: Run, checkpoint: str, device: str, search: dict[str, Any]) -> Loaded:
    """A run with its model, under the search that is asked for."""
    from regard.recipes.recipe import with_search

    return regard.load(run.under(with_search(run.recipe, **search)), checkpoint=checkpoint, device=device)


def _check_inputs(typed: bool, file: Path | None, story: Path | None, prefix: list[str] | None, skip_bad: bool) -> None:
    """Refuse options that do not go together with the inputs."""
    refuse_standard_input(file, "--file", "it is where neither texts nor --file are given")
    refuse_standard_input(story, "--story", STORY_HINT)
    if skip_bad and typed:
        raise DecodeError("it is for the lines of --file or standard input", where="--skip-bad", hint="leave it out")
    if prefix and len(prefix) > 1:
        hint = "give one, or --prefixes with a line for each input"
        raise DecodeError(f"{len(prefix)} prefixes are given for every output", where="--prefix", hint=hint)


def _check_features(features: Path | None, chosen: Mapping[str, object], story: Path | None) -> None:
    """Refuse options that do not go together with --features, or only with it."""
    if features is None:
        for option in chosen:
            what = "it chooses the vectors that --features writes"
            raise DecodeError(what, where=f"--{option}", hint="give --features FILE, too")
        return
    if story is not None:
        raise DecodeError("a story has no vectors", where="--story", hint="leave it out")
    if chosen.get("pooling") not in (None, "mean", "first", "last"):
        what = f"there is no pooling {chosen['pooling']!r}"
        raise DecodeError(what, where="--pooling", hint="allowed: mean, first, last")


# ----------------------------------------------------------------------------------------------------- evaluate, score


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
        Option(
            "--predictions",
            metavar="FILE",
            help="Write the labels or answers of all examples to this file, as JSON Lines, and the wrong ones to "
            "another file beside it. Default: predictions.jsonl and errors.jsonl in the run folder, or with --file "
            "NAME.csv predictions.NAME.jsonl and predictions.NAME.errors.jsonl.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    engine: EngineOption = "local",
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the task's metrics on a split or a file: BLEU, ROUGE, perplexity, accuracy, F1, correlations."""
    with bar("writing", visible=not as_json) as move:
        metrics = regard.evaluate(
            _opened(run, checkpoint, device, precision), split=split, files=file or [], beam=beam,
            length_penalty=length_penalty, overrides=settings or [], checkpoint=checkpoint, device=device,
            predictions=predictions, overwrite=overwrite, engine=cast("Any", engine), address=address,
            progress=partial(move, "writing"),
        )  # fmt: skip
    if as_json:
        show_json(metrics)
        return
    from regard.views.labels import metric_lines

    print(printable("\n".join(metric_lines(metrics))))


@app.command()
def score(
    run: RunArgument,
    source: Annotated[str, Argument(metavar="SOURCE", help="The input; for a language model the beginning of a text.")],
    target: Annotated[str, Argument(metavar="TARGET", help="The output to score; or the continuation of the text.")],
    *,
    tokens: Annotated[
        bool, Option("--tokens", help="TARGET is a list of tokens: JSON, or separated by spaces.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compute log P(target | source), in total and token by token.

    For a language model: log P of the continuation of a text, given its beginning. A space is put between the two,
    except with --tokens.
    """
    exact = _tokens_in(target) if tokens else target
    result = regard.score(run, source, exact, checkpoint=checkpoint, device=device)
    if as_json:
        show_json(result)
        return
    for token, log_p in zip(result["tokens"], result["token_scores"], strict=True):
        say(f"{log_p:10.4f}  {token}")
    say(f"{result['score']:10.4f}  log P of all {len(result['tokens'])} tokens")


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


# ------------------------------------------------------------------------------------------------------------- explain

ExplainedArgument = Annotated[
    str | None, Argument(metavar="INPUT", help="Default, or -: standard input. Not needed if --story has questions.")
]
QuestionOption = Annotated[
    int | None, Option("--question", help="The number of the question about a story, from 1. Default: the last.")
]
TargetOption = Annotated[str | None, Option("--target", help="Explain this output instead of the model's own.")]
DrawingOption = Annotated[
    Path | None,
    Option(
        "--out", help="A file to write: .svg, .png, .html (all views) or .json (all numbers, or those of --numbers)."
    ),
]
ViewOption = Annotated[
    str | None,
    Option(
        "--view",
        help="alignment (attention over the source), encoder or decoder (self-attention), heads (of one token, "
        "--step), hops (over a story), mix (of layers), probabilities, masks or positions; occlusion (how much the "
        "label, tag or answer depends on each word). Default: the first that the model has.",
    ),
]
LayersOption = Annotated[
    str, Option("--layer", help="A layer (from 1), mean, or all: one figure each. With --numbers also a hop.")
]
HeadsOption = Annotated[str, Option("--head", help="A head (from 1), mean, or all: one figure each.")]
RolloutOption = Annotated[bool, Option("--rollout", help="Attention rollout through all layers, or up to --layer.")]
WordsOption = Annotated[
    bool,
    Option(
        "--words", help="Merge tokens into words: the sum over the tokens of a key, the mean over those of a query."
    ),
]
NumbersOption = Annotated[
    bool, Option("--numbers", help="Show how one attention is computed, with the numbers of the run.")
]
StepOption = Annotated[
    int | None,
    Option(
        "--step",
        help="The token that --numbers or --view heads shows, from 1. Default: the first; for heads, the one that "
        "represents the whole text ([CLS], or the last token of a language model).",
    ),
]
PaddingOption = Annotated[
    int | None,
    Option("--padding", help="Add this many <pad> to both texts, as in a batch. Default: 3 for --view masks, else 0."),
]


@app.command()
def explain(
    run: RunArgument,
    text: ExplainedArgument = None,
    *,
    story: StoryOption = None,
    question: QuestionOption = None,
    target: TargetOption = None,
    out: DrawingOption = None,
    overwrite: OverwriteOption = False,
    view: ViewOption = None,
    layer: LayersOption = "mean",
    head: HeadsOption = "mean",
    rollout: RolloutOption = False,
    words: WordsOption = False,
    numbers: NumbersOption = False,
    step: StepOption = None,
    padding: PaddingOption = None,
    beam: BeamOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show what the model attended to, and which other tokens were probable.

    In the terminal, or with --out as a figure, as a page with all views, or as JSON. For a question about a story: the
    sentences that each hop attended to.
    """
    from regard.views.explanation import Options, View
    from regard.views.files import check_output, json_line, write_result
    from regard.views.terminal import show

    options = Options(cast("View | None", view), layer, head, rollout, words, step)
    opened = regard.Run.open(run)
    read = [text, story, *opened.recipe_values]
    check_output(out, (".svg", ".png", ".html", ".json"), read, overwrite=overwrite)
    explanation = regard.explain(
        opened, _explained(opened.task, text, story, question), target=target, beam=beam, view=options.view,
        padding=padding, question=question, overrides=settings or [], checkpoint=checkpoint, device=device,
    )  # fmt: skip
    explanation = explanation.select(options)
    explanation.refuse_without_effect(padding=padding, numbers=numbers)
    count = explanation.story.questions if explanation.story else 1
    if question is None and count > 1 and (text in STANDARD_INPUT or story is None):
        note(f"the last of {count:,} questions is explained (--question 1 to {count:,} chooses)")
    result = explanation.worked() if numbers else explanation
    if as_json:
        explanation.heat_maps()  # refuses a layer or head that is not there
        sys.stdout.writelines(json_line(result))
    else:
        show(result.report())
    if out is not None:
        # Only JSON has the numbers: a picture shows the attention that they belong to.
        write_result(result if out.suffix.lower() == ".json" else explanation, out)
        if not as_json:
            say(f"drawn: {out}")


def _explained(task: Task, text: str | None, story: Path | None, question: int | None) -> list[FileInput]:
    """What to explain: a text; or the lines of a story, and the question given beside it."""
    told, asks = read_story(task, story)
    if text not in STANDARD_INPUT:
        if story is not None and question is not None:
            what = "it chooses one of the story's own questions"
            raise DecodeError(what, where="--question", hint="give it or INPUT, not both")
        begin = f"{told[-1].place}, " if told else ""
        lines = text.split("\n") if task.reads_stories else [text]
        return [*told, *(task.typed_input(line, f"{begin}input") for line in lines)]
    if asks and text is None:
        return told
    piped = list(chain.from_iterable(standard_input(needed=False)))
    if not told and not any(line.text.strip() for line in piped):
        hint = "give a text, or --story; standard input is empty, too"
        raise DecodeError("there is nothing to explain", where="INPUT", hint=hint)
    if len(piped) > 1 and not task.reads_stories:
        what = f"one text is explained, and these are {len(piped):,} lines"
        raise DecodeError(what, where="standard input", hint="give one of them")
    return [*told, *typed_by(task, piped)]


# --------------------------------------------------------------------------------------------------- diagnose, compare


@app.command()
def diagnose(
    run: RunArgument,
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    out: ReportOption = None,
    overwrite: OverwriteOption = False,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    limit: Annotated[int | None, Option("--limit", help="Use only the first N sentences.")] = None,
    sweep: Annotated[bool, Option("--sweep/--no-sweep", help="Also try beams of 1, 2, 3, 5, 10 and 20.")] = True,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Tell search errors from model errors: by source length and beam size, with advice."""
    from regard.views.diagnose import BEAMS
    from regard.views.files import check_output

    check_output(out, inputs=[*(file or []), *regard.Run.open(run).recipe_values], overwrite=overwrite)
    with bar("scoring the references", visible=not as_json) as move:
        diagnosis = regard.diagnose(
            run, split=split, files=file or [], beam=beam, length_penalty=length_penalty, overrides=settings or [],
            checkpoint=checkpoint, device=device, limit=limit, sweep=BEAMS if sweep else (), progress=move,
        )  # fmt: skip
    show_report(diagnosis, out, as_json=as_json)


@app.command()
def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders; the first is the baseline.")],
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    hypotheses: Annotated[
        list[str] | None, Option("--hypotheses", metavar="NAME=FILE", help="Outputs of another system, one per line.")
    ] = None,
    baseline: Annotated[str | None, Option("--baseline", help="Test the other runs against this one.")] = None,
    out: ReportOption = None,
    tables: Annotated[Path | None, Option("--csv", metavar="FOLDER", help="Write the tables as CSV.")] = None,
    overwrite: OverwriteOption = False,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare runs of one task: significance tests, quality by length, speed, errors, attention on one page.

    Language models are compared by perplexity per word and bits per character, masked language models by their
    accuracy, classifiers by accuracy, F1 and McNemar's test.
    """
    from regard.views.compare import check_csv
    from regard.views.files import check_output
    from regard.views.systems import named_files

    outputs = named_files(hypotheses or [])
    read = [*(file or []), *outputs.values(), *(value for run in runs for value in regard.Run.open(run).recipe_values)]
    check_output(out, inputs=read, overwrite=overwrite)
    if tables is not None:
        check_csv(tables, read, overwrite=overwrite)
    with bar("reading", visible=not as_json) as move:
        comparison = regard.compare(
            runs, split=split, files=file or [], hypotheses=outputs, baseline=baseline, beam=beam,
            length_penalty=length_penalty, overrides=settings or [], checkpoint=checkpoint, device=device,
            progress=move,
        )  # fmt: skip
    if tables is not None:
        comparison.write_csv(tables, overwrite=overwrite)
    show_report(comparison, out, as_json=as_json)
    if tables is not None and not as_json:
        say(f"written: {tables}")


@app.command()
def vectors(
    run: RunArgument,
    texts: Annotated[list[str], Argument(metavar="TEXT...", help="Sentences with the word.")],
    *,
    word: Annotated[str, Option("--word", help="The word, or its beginning: 배 is found in 배를.")],
    file: Annotated[
        Path | None, Option("--file", help="More sentences, one per line, whose words can be neighbours.")
    ] = None,
    layer: Annotated[
        int, Option("--layer", help="The layer of the neighbours: 0 is the embeddings, -1 the last.")
    ] = -1,
    out: Annotated[Path | None, Option("--out", help="A .svg, .png, .html or .json file to write.")] = None,
    overwrite: OverwriteOption = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare the vectors of one word in several sentences, layer by layer, and show the nearest words.

    Static vectors are the same in every sentence, contextual ones are not.
    """
    from regard.views.files import check_output

    check_output(
        out, (".svg", ".png", ".html", ".json"), [file, *regard.Run.open(run).recipe_values], overwrite=overwrite
    )
    found = regard.vectors(run, texts, word=word, file=file, layer=layer, checkpoint=checkpoint, device=device)
    show_report(found, out, as_json=as_json)


# ------------------------------------------------------------------------------------------------ corpora, show, course


@app.command()
def corpora(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="The corpus. Default: list them.")] = None,
    *,
    out: Annotated[Path | None, Option("--out", help="A .jsonl file. Default: print a few lines.")] = None,
    size: Annotated[int | None, Option("--size", min=1, help="How many rows. Default: all, or 20,000.")] = None,
    part: Annotated[str, Option("--part", help="train, validation or test.")] = "train",
    overwrite: OverwriteOption = False,
) -> None:
    """Write a built-in corpus as a file, as your own could look; images go into a folder beside it."""
    from regard.data.corpora import names, objects, write_corpus
    from regard.views.files import check_output

    if name is None:
        say("\n".join(names()))
    elif out is None:
        for row in objects(name, size or 5, part):
            show_json(row)
    else:
        check_output(out, (".jsonl",), overwrite=overwrite)
        say(f"written: {out}, {write_corpus(name, out, size, part):,} rows")


@app.command()
def show(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="The picture. Default: list them.")] = None,
    overrides: OverridesArgument = None,
    *,
    out: Annotated[Path | None, Option("--out", help="A .svg, .png, .html or .json file to write.")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show an equation at work, without training: positions, masks, softmax, schedules and others."""
    from regard.views.files import check_output
    from regard.views.show import PICTURES

    if name is None:
        summaries = {key: str(picture.__doc__) for key, picture in PICTURES.items()}
        if as_json:
            show_json(summaries)
        else:
            print("\n".join(f"{key:16}  {shown(summary)}" for key, summary in summaries.items()))
        return
    check_output(out, (".svg", ".png", ".html", ".json"), overwrite=overwrite)
    show_report(regard.show(name, overrides or []), out, as_json=as_json)


@app.command()
def course(
    chapter: Annotated[str | None, Argument(metavar="[CHAPTER]", help="Number or name. Default: list them.")] = None,
    *,
    out: Annotated[
        Path | None, Option("--out", help="The page or notebook (.ipynb) to write. Default: course/CHAPTER.html.")
    ] = None,
    overwrite: OverwriteOption = False,
    language: Annotated[
        str | None, Option("--lang", help="en or ko. Default: REGARD_LANG, or the locale's language.")
    ] = None,
    full: Annotated[
        Path | None, Option("--full", metavar="DATA", help="A folder with real data, for a GPU; see docs/course.md.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="A few steps only, to see that it works.")] = False,
    seed: Annotated[int, Option("--seed", min=0, help="Seed of all trainings.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Run a chapter of the course: its experiments, and a page with text, figures and questions.

    Trained runs are kept beside the page, in the folder runs, and used again.
    """
    from regard.course import chapters, find_chapter

    language = language or default_language()
    if chapter is None:
        found = chapters(language)
        if as_json:
            show_json([{"chapter": one.number, "name": one.name, "title": one.title} for one in found])
        else:
            print("\n".join(f"{one.number}  {one.title}" for one in found))
        return
    chosen = find_chapter(chapter, language)
    page = out or Path("course") / f"{chosen.number}.html"
    from regard.course.lab import run as run_chapter
    from regard.training.loop import Interrupted
    from regard.views.files import check_output, write

    if out is None:
        page.parent.mkdir(exist_ok=True)
    check_output(page, (".html", ".ipynb"), overwrite=overwrite or out is None)
    try:
        lesson = run_chapter(
            chosen.number, runs=page.parent / "runs", language=language, seed=seed, quick=quick, full=full,
            say=lambda text: say(text, sys.stderr),
        )  # fmt: skip
    except (Interrupted, KeyboardInterrupt):
        say("interrupted; the same command continues, with the runs that are trained already", sys.stderr)
        raise typer.Exit(130) from None
    if page.suffix.lower() != ".ipynb":
        show_report(lesson, page, as_json=as_json)
        return
    write(page, [lesson.notebook(page.parent).encode()])
    show_report(lesson, None, as_json=as_json)
    if not as_json:
        say(f"written: {page}")


# --------------------------------------------------------------------------------------------------------------- serve


HostOption = Annotated[str, Option("--host", help="The address to listen on; others than this need a token.")]
PortOption = Annotated[int, Option("--port", min=0, max=65535, help="0: a free one.")]
TokenOption = Annotated[
    str | None, Option("--token", envvar="REGARD_TOKEN", help="Requests need it: Authorization: Bearer TOKEN.")
]


@app.command()
def serve(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders, called by their names.")],
    *,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    window: Annotated[float, Option("--window", min=0, help="Milliseconds that a request waits for others.")] = 3,
    batch: Annotated[int, Option("--batch", min=1, help="Most inputs that are computed at once.")] = 64,
    queue: Annotated[int, Option("--queue", min=1, help="Most inputs that may wait; then the answer is 503.")] = 1024,
    timeout: Annotated[float, Option("--timeout", min=0.01, help="Seconds until a request is given up.")] = 60,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Serve runs over HTTP: one route for each verb, requests of all clients computed together."""
    _expect_server("regard serve")
    from regard.studio.served import Settings
    from regard.studio.server import serve as answer

    how = Settings(host, port, token or None, window / 1000, batch, queue, timeout)
    loaded = {
        name: regard.load(folder, settings or [], checkpoint=checkpoint, device=device)
        for name, folder in _named(runs).items()
    }
    answer(loaded, how)


@app.command()
def studio(
    runs: Annotated[
        list[Path] | None, Argument(metavar="[RUN]...", help="Run folders, or a folder of runs. Default: runs.")
    ] = None,
    *,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Whether to open the page.")] = True,
    device: DeviceOption = "auto",
) -> None:
    """See, try, compare and train runs in the browser; the HTTP API of `serve` beside it."""
    _expect_server("regard studio")
    from regard.studio.runs import Runs
    from regard.studio.served import Settings
    from regard.studio.server import serve as answer

    how, root = Settings(host, port, token or None), Path("runs")
    if runs and len(runs) == 1 and _run_folders(runs[0]):
        root, runs = runs[0], None
    given = _named([regard.Run.open(run).folder for run in runs or []])
    folders = partial(dict, given) if runs else partial(_run_folders, root)
    if not folders():
        note(f"there is no run in the folder {root} yet: train one in the page, or with 'regard train'")
    answer(Runs(how, folders=folders, device=device), how, root=root, browse=browser)


def _expect_server(command: str) -> None:
    for library in ("fastapi", "uvicorn"):
        import_extra(library, extra="studio", where=command, doing="serving")


def _named(folders: list[Path]) -> dict[str, Path]:
    """Run folders by their names."""
    named: dict[str, Path] = {}
    for folder in folders:
        if (name := folder.resolve().name) in named:
            raise DecodeError(f"two runs are called {name!r}", where=str(folder), hint="rename one of the folders")
        named[name] = folder
    return named


def _run_folders(root: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(root.glob("*/recipe.yaml"))}


# -------------------------------------------------------------------------------------- import, export, recipes, cache


@app.command("import")
def import_(
    source: Annotated[str, Argument(metavar="PATH_OR_NAME", help="A transformers folder, or a name on the Hub.")],
    *,
    out: NewRunOption,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="What the folder does not contain, such as head.no_answer=true."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Import a model of transformers as a run: BERT, GPT-2, Marian or Pegasus."""
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
    to: Annotated[str, Option("--to", help="huggingface, ctranslate2, or word2vec (word vectors as text).")],
    out: Annotated[Path, Option("--out", metavar="FOLDER", help="The folder to make.")],
    quantize: Annotated[
        str | None,
        Option("--quantize", help="For ctranslate2: int8, int8_float32, int8_float16, int16, float16 and others."),
    ] = None,
    checkpoint: CheckpointOption = "best",
    as_json: JsonOption = False,
) -> None:
    """Write a run in the format of transformers or CTranslate2, or its word vectors in that of word2vec."""
    from regard.exchange.exchange import export_note

    regard.export_run(run, to=to, out=out, quantize=quantize, checkpoint=checkpoint)
    _report({"run": str(run), "to": to, "out": str(out)}, f"exported: {out}", export_note(out), as_json)


def _report(result: dict[str, object], sentence: str, note: str | None, as_json: bool) -> None:
    if as_json:
        show_json(result | ({"note": note} if note else {}))
    else:
        say("\n".join(filter(None, (sentence, note))))


@app.command()
def recipes(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="The recipe to show.")] = None,
    *,
    out: Annotated[Path | None, Option("--out", help="Copy the recipe to a new file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that ship, show one, or copy one to start from."""
    from regard.recipes.shipped import shipped_recipes

    texts = shipped_recipes(name, out=out)
    if as_json:
        show_json(texts if name is None else {"name": name, "recipe": texts[name]})
    elif name is not None:
        say(f"copied: {out}" if out else shown_comments(texts[name]).rstrip("\n"))
    else:
        width = max(map(len, texts))
        print("\n".join(f"{recipe:{width}}  {shown(summary)}" for recipe, summary in texts.items()))


@app.command()
def cache(
    *,
    clear: Annotated[bool, Option("--clear", help="Remove everything that no process is using.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cache of prepared data: where it is, how large, and when each entry was last used."""
    from regard.data.store import cache_entries, cache_folder, cache_limit, trim_cache

    folder, limit = cache_folder().absolute(), cache_limit()
    if clear:
        trim_cache(0)
    entries = cache_entries()
    size = sum(entry.bytes for entry in entries)
    if as_json:
        names = [{"name": entry.folder.name, "bytes": entry.bytes, "used": entry.used} for entry in entries]
        show_json({"folder": str(folder), "bytes": size, "limit": int(limit), "entries": names})
        return
    say(f"{folder}: {size / 1e6:,.1f} MB, at most {limit / 1e6:,.0f} MB (REGARD_CACHE_LIMIT)")
    for entry in entries:
        used = datetime.fromtimestamp(min(entry.used, 2e11))  # a wrong clock may be past the last year of a datetime
        print(f"{entry.bytes / 1e6:12,.1f} MB  {used:%Y-%m-%d %H:%M}  {entry.folder.name}")
    if clear and entries:
        note("what is left is in use: a training or another command is running")


# ---------------------------------------------------------------------------------------------------------------- main


def main() -> None:
    """Run a command. A user's mistake gives one clear sentence and exit code 2; Ctrl-C gives 130."""
    set_up_streams()
    regard.wait_quietly()
    try:
        with written_out(sys.stdout), warnings_as_notes():
            app()
    except RegardError as error:
        complain(error.problems)
    except OSError as error:  # a folder without write permission, a full disk
        complain([Problem(str(error.filename or ""), error.strerror or str(error))])
    sys.exit(2)


if __name__ == "__main__":
    main()
