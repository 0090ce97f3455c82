"""The command line: each command parses its options, calls the function of api.py and prints what
it returns.

Torch is imported by the verbs that need it, not by `--help`.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from inspect import Parameter, Signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

import regard
from regard import console
from regard.errors import (
    TEXT,
    DataError,
    DecodeError,
    InputError,
    Problem,
    RegardError,
    import_extra,
    refuse,
    short,
)
from regard.language import default_language, shown, shown_comments

if TYPE_CHECKING:
    from rich.text import Text

    from regard.api import Answered
    from regard.runs import Run
    from regard.tasks.task import Task
    from regard.text.files import FileInput

PATIENCE = 20.0
"""Seconds that other processes give the first one to report an error: once one ends, a launcher
kills the others."""
STANDARD_INPUT = (None, "-")
"""The values of an INPUT that read standard input."""
LARGE = 50e6
"""Bytes of JSON from which `explain` says how to ask for less."""
DRAWN = (".svg", ".png", ".html", ".json")
"""What a result can be written as."""
HELP = ["-h", "--help"]


class Commands(TyperGroup):
    """Help and typer's own messages in the user's language; of what was typed, they repeat long
    words shortened."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if default_language() == "en":
            return
        from rich.text import Text
        from typer import rich_utils

        Text.rstrip_end = _rstrip_end  # type: ignore[assignment]
        for name in [
            name
            for name in vars(rich_utils)
            if name.endswith(("_STRING", "_TITLE", "_TEXT", "_HELP"))
        ]:
            setattr(rich_utils, name, shown(getattr(rich_utils, name)))
        for command in (self, *self.commands.values()):
            command.help = "\n\n".join(
                shown(" ".join(part.split())) for part in (command.help or "").split("\n\n")
            )
            command.get_usage = _shown_usage(command.get_usage)  # type: ignore[assignment]
            help_option = command.get_help_option(typer.Context(command, help_option_names=HELP))
            for parameter in (*command.params, help_option):
                parameter.help = shown(parameter.help or "")  # type: ignore[union-attr]

    def make_context(self, *given: Any, **others: Any) -> Any:
        with _shortened():
            return super().make_context(*given, **others)

    def invoke(self, ctx: Any) -> Any:
        with _shortened():
            return super().invoke(ctx)


def _rstrip_end(text: Text, size: int) -> None:
    """As rich's own (15.0), which counts letters, not cells: of a full line of wide letters it
    keeps the space at its end, and then cuts the last word."""
    if text.cell_len > size:
        text.rstrip()


def _shown_usage(usage: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda ctx: usage(ctx).replace("Usage:", shown("Usage:"), 1)


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


def argument(name: str, kind: object, metavar: str, help: str, default: object = ...) -> Parameter:
    """An argument, which a command gets as `name`; it is needed unless there is a default."""
    default = Argument(default, metavar=metavar, help=help)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def option(
    name: str, kind: object, help: str, *flags: str, default: object = None, **more: Any
) -> Parameter:
    """An option, which a command gets as `name`; that is its flag, too, unless `flags` are
    given."""
    flags = flags or (f"--{name.replace('_', '-')}",)
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=Option(default, *flags, help=help, **more),
        annotation=kind,
    )


def switch(name: str, help: str, *flags: str, default: bool = False) -> Parameter:
    return option(name, bool, help, *flags, default=default)


Command = Callable[..., None]
Options = Mapping[str, object]
"""By name, as they were given."""


def command(*parameters: Parameter, name: str | None = None) -> Callable[[Command], Command]:
    """Make a function a command with these arguments and options; those that it only hands on are
    its `**options`."""

    def registered(function: Command) -> Command:
        function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        # Typer prefers a function's own annotations, and most of its versions refuse the Any of an
        # option handed on.
        function.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        return app.command(name)(function)

    return registered


# ------------------------------------------------------------------------ arguments and options that commands share

RUN = argument("run", Path, "RUN", "A run folder.")
OVERRIDES = argument("overrides", list[str], "[KEY=VALUE]...", "Settings to change.", [])
NEW_RUN = option("out", Path, "The run folder to make.", default=..., metavar="RUN")
REPORT = option("out", Path, "A .html file to write the report to.")
SPLIT = option("split", str, "train, validation or test. Default: test.")
PAIRS = option("files", list[str], "One file; or twice: source and target.", "--file", default=[])
STORY = option(
    "story", Path, "The story that the questions are about, line by line.", metavar="FILE"
)
OVERWRITE = switch("overwrite", "Replace output files that exist; never an input.")
BEAM = option("beam", int, "Beam size; 1 is greedy search.")
PENALTY = option(
    "length_penalty",
    float,
    "alpha in log P / length^alpha; search.normalisation has other formulas.",
)
SETTINGS = option(
    "overrides", list[str], "Change the run's recipe.", "--set", default=[], metavar="KEY=VALUE"
)
CHECKPOINT = option("checkpoint", str, "best, last, average, or a step.", default="best")
DEVICE = option("device", str, "auto, cpu, cuda or mps.", default="auto")
PRECISION = option(
    "precision", str, "fp32, bf16 or fp16; or int8 on a CPU, by CTranslate2.", default="fp32"
)
ENGINE = option(
    "engine", str, "local (this machine), or ray: every node of a Ray cluster.", default="local"
)
ADDRESS = option(
    "address", str, "The cluster: HOST:PORT, or auto. Default: a new one on this machine."
)
ACCEPT = switch("accept_recipe", "Use a recipe.yaml that was changed since the run was trained.")
JSON = switch("as_json", "Print JSON.", "--json")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = Option(
        False, "--version", is_eager=True, callback=_show_version, help="Show it."
    ),
) -> None:
    """Your data -> a trained, measured, explained attention model."""


# -------------------------------------------------------------------------------------------------------- check, train


@command(
    argument("recipe", str, "RECIPE", "A .yaml file, a recipe that ships, or data."),
    argument(
        "overrides",
        list[str],
        "[KEY=VALUE]...",
        "Changes; or more files: a parallel one, those for validation and test; or text=COLUMN "
        "label=COLUMN.",
        [],
    ),
    option(
        "validation",
        list[str],
        "Data to choose the best checkpoint with; twice for parallel files.",
        default=[],
    ),
    option(
        "test", list[str], "Data to measure with at the end; twice for parallel files.", default=[]
    ),
    option("out", Path, "Write the proposed recipe to this file."),
    JSON,
)
def check(
    recipe: str,
    overrides: list[str],
    validation: list[str],
    test: list[str],
    out: Path | None,
    as_json: bool,
) -> None:
    """Validate a recipe and its data: all problems at once, sizes, samples, memory and time.

    If data is given instead (a file, two parallel files or a folder of texts), a recipe is proposed
    and checked. Files whose names say train, dev and test are taken for these.
    """
    result = regard.check(
        recipe,
        overrides,
        validation=[*map(Path, validation)],
        test=[*map(Path, test)],
        out=out,
        quiet=as_json,
    )
    if as_json:
        console.show_json(result.to_json())
    else:
        # standard output has the recipe alone, so that `>` saves it
        if result.proposal is not None:
            if out is None:
                console.say(shown_comments(result.proposal).rstrip("\n"))
            elif result.ok:
                console.say(f"written: {out}")
        console.complain(result.problems)
        if result.ok:
            lines = [*result.sentences(), *(f"next       {command}" for command in result.commands)]
            console.say("\n".join(lines), sys.stdout if result.proposal is None else sys.stderr)
    if not result.ok:
        raise typer.Exit(2)


@command(
    argument("recipe", str, "RECIPE", "A .yaml file, or a recipe that ships."),
    OVERRIDES,
    NEW_RUN,
    switch("resume", "Continue a training that was interrupted."),
    ACCEPT,
    JSON,
)
def train(
    recipe: str, overrides: list[str], out: Path, resume: bool, accept_recipe: bool, as_json: bool
) -> None:
    """Train the model of a recipe into a run folder."""
    first_process = os.environ.get("RANK", "0") == "0"  # as torchrun and accelerate number them
    try:
        _train(recipe, overrides, out, as_json, resume=resume, accept_recipe=accept_recipe)
    except KeyboardInterrupt:  # before the first step, or for the second time
        if first_process:
            kept = (
                "the checkpoints are complete, and the same command with --resume continues "
                "from the last"
            )
            nothing = "nothing was trained yet, so nothing is lost: the same command starts again"
            console.say(f"interrupted; {kept if (out / 'last').exists() else nothing}", sys.stderr)
        raise typer.Exit(130) from None
    except RegardError as error:
        if first_process or getattr(error, "__notes__", None):
            raise
        time.sleep(
            PATIENCE
        )  # in this time the first process reports the same error and ends all; else it has none
        where = f"process {os.environ['RANK']} ({platform.node()})"
        raise RegardError(
            problems=[Problem(where, "has an error of its own"), *error.problems]
        ) from None


def _train(recipe: str, overrides: list[str], out: Path, as_json: bool, **options: bool) -> None:
    from accelerate import PartialState

    from regard.runs.run import load_facts
    from regard.training.loop import Interrupted

    try:
        run = regard.train(recipe, overrides, out=out, quiet=as_json, **options)
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        facts = load_facts(run.checkpoint("best"))
        console.show_json(
            {"run": str(out), **{name: facts.get(name) for name in ("step", "best", "tokenizer")}}
        )


# ------------------------------------------------------------------------------------------------------------- predict


@command(
    RUN,
    argument(
        "inputs",
        list[str],
        "[INPUT]...",
        "Texts. Default: standard input, unless the file of --story has questions.",
        [],
    ),
    option(
        "file",
        Path,
        "A file with one input per line; or a table (.csv, .tsv, .jsonl, .json, .parquet) with the "
        "columns that the "
        "run was trained on, with or without what is predicted, such as the label.",
    ),
    STORY,
    BEAM,
    option(
        "nbest",
        int,
        "Number of outputs per input, sorted by the objective of the search. Their log P may be in "
        "another order, "
        "since the objective also counts the length.",
    ),
    PENALTY,
    option("prefix", list[str], "Text that every output begins with.", default=[]),
    option("prefixes", Path, "The same, with one line for each input.", metavar="FILE"),
    option(
        "record",
        Path,
        "Write every step of the search, what was kept and why: .json; a tree: .html, .svg, .png; "
        "- prints it.",
        metavar="FILE",
    ),
    OVERWRITE,
    switch(
        "skip_bad",
        "Skip lines of --file or standard input that cannot be read: the output of each is an "
        "empty line, in JSON "
        "null with the reason.",
    ),
    option(
        "features",
        Path,
        "Write the hidden states of the inputs as .npz instead (pre-trained models).",
        metavar="FILE",
    ),
    option(
        "layer",
        int,
        "The layer that --features writes: 0 is the embeddings, -1 the last (default).",
    ),
    option(
        "pooling",
        str,
        "One vector per text for --features: mean, first or last. Default: per token.",
    ),
    switch("normalize", "Scale each vector of --features to length 1."),
    SETTINGS,
    CHECKPOINT,
    DEVICE,
    PRECISION,
    ACCEPT,
    option(
        "out",
        Path,
        "Write the outputs for --file to this file, in their order: JSON Lines if it ends in "
        ".jsonl, or with "
        "--json. For files of any length; while it grows it is called NAME.partial.",
    ),
    switch("resume", "Continue an --out that was interrupted."),
    option(
        "workers",
        str,
        "Processes that predict for --out: auto (one a core or GPU) or a number.",
        default="auto",
    ),
    ENGINE,
    ADDRESS,
    switch("as_json", "Print JSON Lines: one object per input.", "--json"),
)
def predict(
    run: Path,
    inputs: list[str],
    file: Path | None,
    story: Path | None,
    prefix: list[str],
    prefixes: Path | None,
    record: Path | None,
    features: Path | None,
    overwrite: bool,
    skip_bad: bool,
    precision: Any,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Apply a run to texts: given as arguments, in a file, or on standard input. The order is kept.

    The run's task decides what is done: translate, summarise, caption (inputs are paths of images),
    continue a text, fill each [MASK], answer questions about a story or a text, predict a label or
    a number, or tag words. Two texts, a text and its choices, or a question and its text are
    separated by tabs.
    """
    from regard.recipes.recipe import with_search

    parallel = {name: options.pop(name) for name in ("resume", "workers", "engine", "address")}
    vectors = {name: options.pop(name) for name in ("layer", "pooling", "normalize")}
    typed = bool(inputs) and inputs != ["-"]
    _check_inputs(typed, file, story, prefix, skip_bad)
    _check_features(features, vectors, story)
    at_once = {"--features": features, "--record": record, "--prefixes": prefixes, "--story": story}
    _check_out(out, file, at_once, {f"--{name}": value for name, value in parallel.items()})
    search = {name: options.pop(name) for name in ("beam", "nbest", "length_penalty", "overrides")}
    search["prefix"] = prefix[0] if prefix else None
    source = {"file": file, "skip_bad": skip_bad, "overwrite": overwrite, **options}
    if out is not None:
        _predict_file(run, out, as_json, precision=precision, **source, **search, **parallel)
        return
    opened, answers = _opened(run, precision, options), console.Answers(as_json)
    opened = opened.under(with_search(opened.recipe, **search))
    story_lines, asks = (
        ([], True) if file else console.read_story(opened.task, story, skip_bad=skip_bad)
    )
    reads, whole = not typed and (bool(inputs) or not asks), any((features, prefixes, record))
    texts = inputs if typed else None
    given = (
        console.gathered(opened.task, texts, story_lines, skip_bad)
        if typed or (reads and whole)
        else None
    )
    visible = file is not None and not sys.stdout.isatty()
    with answers.explaining(typed), console.bar("writing", visible=visible) as move:
        if features is not None:
            chosen = {name: value for name, value in vectors.items() if value is not None}
            answers.show_features(
                regard.features(opened, given, out=features, **source, **chosen), features
            )
        elif reads and not whole:
            loaded = regard.load(opened, precision=precision, **options)
            console.answer_lines(loaded, answers, story_lines, skip_bad=skip_bad)
        else:
            source |= {
                "story": story,
                "prefixes": prefixes,
                "progress": partial(move, "writing"),
                "each": answers.show,
            }
            printed = str(record) == "-"
            source["prefix"] = search["prefix"]  # which does not go together with prefixes
            predictions = regard.predict(opened, given, record=printed or record or False, **source)
            if printed and predictions.record is not None:
                console.show_report(predictions.record, None, as_json=False)


app.command("translate", help="The same as predict.")(predict)


def _predict_file(run: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Say how many outputs were written, also where it ends early: `--resume` continues then."""
    answers = console.Answers(as_json)
    with console.bar("writing", visible=True) as move:

        def each(answered: Answered) -> None:
            answers.add(answered.inputs, answered.skipped, answered.notes)
            move(f"{answers.count:,} written", 0, 0)

        try:
            inputs = regard.predict_file(run, out=out, as_json=as_json, each=each, **options)
        except (KeyboardInterrupt, InputError, DataError) as error:
            kept = Problem(
                f"{out}.partial",
                f"{answers.count:,} outputs were written by now",
                "--resume continues it",
            )
            if isinstance(error, KeyboardInterrupt):
                console.complain([kept])
                raise typer.Exit(130) from None
            skip = Problem("", "--skip-bad leaves such lines out, with an empty output for each")
            more = (
                [skip, kept] if isinstance(error, InputError) else [kept] if answers.count else []
            )
            raise DecodeError(problems=[*error.problems, *more]) from None
    answers.conclude()
    console.say(
        f"written: {out}, {inputs:,} outputs"
        if inputs
        else f"{out} is complete: nothing is left to do"
    )


def _check_out(out: Path | None, file: Path | None, at_once: Options, parallel: Options) -> None:
    """Refuse options that do not go together with --out, or only with it."""
    if out is None:
        refuse(parallel, "needs --file and --out", "")
        return
    if file is None:
        raise DecodeError("needs --file", where="--out", hint="or use > FILE")
    refuse(at_once, "it needs all inputs at once", "leave out it or --out")


@command(RUN, BEAM, SETTINGS, CHECKPOINT, DEVICE, ACCEPT)
def chat(run: Path, beam: int | None, overrides: list[str], **options: Any) -> None:
    """Talk to a run at a prompt: each line is answered by itself, as the run was trained. Ctrl-D
    ends."""
    from regard.recipes.recipe import with_search

    opened = regard.Run.open(run)
    with (answers := console.Answers(False, shown("you: "), shown("run: "))).explaining(False):
        searching = opened.under(with_search(opened.recipe, beam, None, None, overrides))
        console.answer_lines(regard.load(searching, **options), answers)


def _opened(run: Path, precision: Any, options: Mapping[str, Any]) -> Run:
    """A run, with its model where the precision is not that of the training."""
    opened = regard.Run.open(run, options["accept_recipe"])
    if precision == "fp32":
        return opened
    return regard.load(
        opened, checkpoint=options["checkpoint"], device=options["device"], precision=precision
    )


def _check_inputs(
    typed: bool, file: Path | None, story: Path | None, prefix: list[str], skip_bad: bool
) -> None:
    """Refuse options that do not go together with the inputs."""
    refuse(
        {"--file": str(file) == "-"},
        console.NOT_READ,
        "it is where neither texts nor --file are given",
    )
    refuse({"--story": str(story) == "-"}, console.NOT_READ, console.STORY_HINT)
    refuse({"--skip-bad": skip_bad and typed}, "it is for the lines of --file or standard input")
    if len(prefix) > 1:
        hint = "give one, or --prefixes with a line for each input"
        raise DecodeError(
            f"{len(prefix)} prefixes are given for every output", where="--prefix", hint=hint
        )


def _check_features(features: Path | None, chosen: Options, story: Path | None) -> None:
    """Refuse options that do not go together with --features, or only with it."""
    if features is None:
        given = {f"--{name}": value for name, value in chosen.items()}
        refuse(given, "it chooses the vectors that --features writes", "give --features FILE, too")
        return
    refuse({"--story": story}, "a story has no vectors")
    if chosen["pooling"] not in (None, "mean", "first", "last"):
        what = f"there is no pooling {chosen['pooling']!r}"
        raise DecodeError(what, where="--pooling", hint="allowed: mean, first, last")


# ----------------------------------------------------------------------------------------------------- evaluate, score

PREDICTIONS = option(
    "predictions",
    Path,
    "Write the labels or answers of all examples to this file, as JSON Lines, and the wrong ones "
    "to another file "
    "beside it. Default: predictions.jsonl and errors.jsonl in the run folder, or with --file "
    "NAME.csv "
    "predictions.NAME.jsonl and predictions.NAME.errors.jsonl.",
    metavar="FILE",
)


BASELINE = switch(
    "baseline",
    "Print beside the result what a linear model of scikit-learn reaches, trained on the same "
    "rows.",
)


@command(
    RUN,
    SPLIT,
    PAIRS,
    BEAM,
    PENALTY,
    PREDICTIONS,
    OVERWRITE,
    SETTINGS,
    CHECKPOINT,
    DEVICE,
    PRECISION,
    ENGINE,
    ADDRESS,
    ACCEPT,
    BASELINE,
    JSON,
)
def evaluate(run: Path, precision: str, as_json: bool, **options: Any) -> None:
    """Compute the task's metrics on a split or a file: BLEU, ROUGE, perplexity, accuracy, F1,
    correlations."""
    with console.bar("writing", visible=not as_json) as move:
        metrics = regard.evaluate(
            _opened(run, precision, options), progress=partial(move, "writing"), **options
        )
    console.show_report(metrics, None, as_json=as_json)


@command(
    RUN,
    argument("source", str, "SOURCE", "The input; for a language model the beginning of a text."),
    argument("target", str, "TARGET", "The output to score; or the continuation of the text."),
    switch("tokens", "TARGET is a list of tokens: JSON, or separated by spaces."),
    CHECKPOINT,
    DEVICE,
    ACCEPT,
    JSON,
)
def score(run: Path, source: str, target: str, tokens: bool, as_json: bool, **options: Any) -> None:
    """Compute log P(target | source), in total and token by token.

    For a language model: log P of the continuation of a text, given its beginning. A space is put
    between the two, except with --tokens.
    """
    result = regard.score(run, source, _tokens_in(target) if tokens else target, **options)
    if as_json:
        console.show_json(result)
        return
    for token, log_p in zip(result["tokens"], result["token_scores"], strict=True):
        console.say(f"{log_p:10.4f}  {token}")
    console.say(f"{result['score']:10.4f}  log P of all {len(result['tokens'])} tokens")


def _tokens_in(target: str) -> list[str]:
    from pydantic import TypeAdapter

    try:
        return (
            TypeAdapter(list[str]).validate_json(target)
            if target.lstrip().startswith("[")
            else target.split()
        )
    except ValueError:
        what, hint = "not a JSON list of strings", 'for example ["▁a", "</s>"]'
        raise DecodeError(what, where="--tokens", hint=hint) from None


# ------------------------------------------------------------------------------------------------------------- explain


@command(
    RUN,
    argument(
        "text",
        str,
        "INPUT",
        "Default, or -: standard input. Not needed if --story has questions.",
        None,
    ),
    STORY,
    option("question", int, "The number of the question about a story, from 1. Default: the last."),
    option("target", str, "Explain this output instead of the model's own."),
    option(
        "out",
        Path,
        "A file to write: .svg, .png, .html (all views) or .json (all numbers, or those of "
        "--numbers).",
    ),
    OVERWRITE,
    option(
        "view",
        str,
        "alignment (attention over the source), encoder or decoder (self-attention), heads (of one "
        "token, --step), "
        "hops (over a story), mix (of layers), probabilities, masks or positions; occlusion (how "
        "much the label, "
        "tag or answer depends on each word). Default: the first that the model has.",
    ),
    option(
        "layer",
        str,
        "A layer (from 1), mean, or all: one figure each. With --numbers also a hop.",
        default="mean",
    ),
    option("head", str, "A head (from 1), mean, or all: one figure each.", default="mean"),
    switch("rollout", "Attention rollout through all layers, or up to --layer."),
    switch(
        "words",
        "Merge tokens into words: the sum over the tokens of a key, the mean over those of a "
        "query.",
    ),
    switch("numbers", "Show how one attention is computed, with the numbers of the run."),
    option(
        "step",
        int,
        "The token that --numbers or --view heads shows, from 1. Default: the first; for heads, "
        "the one that "
        "represents the whole text ([CLS], or the last token of a language model).",
    ),
    option(
        "padding",
        int,
        "Add this many <pad> to both texts, as in a batch. Default: 3 for --view masks, else 0.",
    ),
    BEAM,
    SETTINGS,
    CHECKPOINT,
    DEVICE,
    ACCEPT,
    JSON,
)
def explain(
    run: Path,
    text: str | None,
    story: Path | None,
    question: int | None,
    out: Path | None,
    overwrite: bool,
    numbers: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what the model attended to, and which other tokens were probable.

    In the terminal, or with --out as a figure, as a page with all views, or as JSON. For a question
    about a story: the sentences that each hop attended to.
    """
    from regard.views.explanation import Options
    from regard.views.render import write_result

    chosen = {name: options.pop(name) for name in ("layer", "head", "rollout", "words", "step")}
    opened = regard.Run.open(run)
    console.check_output(out, DRAWN, [text, story, *opened.recipe_values], overwrite=overwrite)
    given = _explained(opened.task, text, story, question)
    explanation = regard.explain(opened, given, question=question, **options)
    explanation = explanation.select(Options(options["view"], **chosen))
    explanation.refuse_without_effect(padding=options["padding"], numbers=numbers)
    count = explanation.story.questions if explanation.story else 1
    if question is None and count > 1 and (text in STANDARD_INPUT or story is None):
        console.note(
            f"the last of {count:,} questions is explained (--question 1 to {count:,} chooses)"
        )
    result = explanation.worked() if numbers else explanation
    size = explanation.json_size() if as_json or (out and out.suffix.lower() == ".json") else 0
    if size > LARGE and not numbers:
        console.note(f"about {size / 1e6:,.0f} MB of JSON: --layer and --head choose one attention")
    if as_json:
        explanation.heat_maps()  # refuses a layer or head that is not there
    if out is None or as_json or (numbers and out.suffix.lower() != ".json"):
        console.show_report(result, None, as_json=as_json)
    elif explanation.opening:
        console.say(explanation.opening)
    if out is not None:
        # Only JSON has the numbers: a picture shows the attention that they belong to.
        write_result(result if out.suffix.lower() == ".json" else explanation, out)
        if not as_json:
            console.say(f"drawn: {out}")


def _explained(
    task: Task, text: str | None, story: Path | None, question: int | None
) -> list[FileInput]:
    """What to explain: a text; or the lines of a story, and the question given beside it."""
    story_lines, asks = console.read_story(task, story)
    if text not in STANDARD_INPUT:
        if story is not None and question is not None:
            what = "it chooses one of the story's own questions"
            raise DecodeError(what, where="--question", hint="give it or INPUT, not both")
        begin = f"{story_lines[-1].place}, " if story_lines else ""
        lines = text.split("\n") if task.reads_stories else [text]
        return [*story_lines, *(task.typed_input(line, f"{begin}input") for line in lines)]
    if asks and text is None:
        return story_lines
    piped = list(chain.from_iterable(console.standard_input(needed=False)))
    if not story_lines and not any(line.text.strip() for line in piped):
        hint = "give a text, or --story; standard input is empty, too"
        raise DecodeError("there is nothing to explain", where="INPUT", hint=hint)
    if len(piped) > 1 and not task.reads_stories:
        what = f"one text is explained, and these are {len(piped):,} lines"
        raise DecodeError(what, where="standard input", hint="give one of them")
    return [*story_lines, *console.typed_by(task, piped)]


# --------------------------------------------------------------------------------------------------- diagnose, compare


@command(
    RUN,
    SPLIT,
    PAIRS,
    REPORT,
    OVERWRITE,
    BEAM,
    PENALTY,
    option("limit", int, "Use only the first N sentences."),
    switch("sweep", "Also try beams of 1, 2, 3, 5, 10 and 20.", "--sweep/--no-sweep", default=True),
    SETTINGS,
    CHECKPOINT,
    DEVICE,
    ACCEPT,
    JSON,
)
def diagnose(
    run: Path, out: Path | None, overwrite: bool, sweep: bool, as_json: bool, **options: Any
) -> None:
    """Tell search errors from model errors: by source length and beam size, with advice."""
    from regard.views.diagnose import BEAMS

    console.check_output(
        out, inputs=[*options["files"], *regard.Run.open(run).recipe_values], overwrite=overwrite
    )
    with console.bar("scoring the references", visible=not as_json) as move:
        diagnosis = regard.diagnose(run, sweep=BEAMS if sweep else (), progress=move, **options)
    console.show_report(diagnosis, out, as_json=as_json)


@command(
    argument("runs", list[Path], "RUN...", "Run folders; the first is the baseline."),
    SPLIT,
    PAIRS,
    option(
        "hypotheses",
        list[str],
        "Outputs of another system, one per line.",
        default=[],
        metavar="NAME=FILE",
    ),
    option("baseline", str, "Test the other runs against this one."),
    REPORT,
    option("tables", Path, "Write the tables as CSV.", "--csv", metavar="FOLDER"),
    OVERWRITE,
    BEAM,
    PENALTY,
    SETTINGS,
    CHECKPOINT,
    DEVICE,
    ACCEPT,
    JSON,
)
def compare(
    runs: list[Path],
    files: list[str],
    hypotheses: list[str],
    out: Path | None,
    tables: Path | None,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare runs of one task: significance tests, quality by length, speed, errors, attention on
    one page.

    Language models are compared by perplexity per word and bits per character, masked language
    models by their accuracy, classifiers by accuracy, F1 and McNemar's test.
    """
    from regard.views.compare import check_csv
    from regard.views.systems import named_files

    outputs = named_files(hypotheses)
    read = [
        *files,
        *outputs.values(),
        *(value for run in runs for value in regard.Run.open(run).recipe_values),
    ]
    console.check_output(out, inputs=read, overwrite=overwrite)
    if tables is not None:
        check_csv(tables, read, overwrite=overwrite)
    with console.bar("reading", visible=not as_json) as move:
        comparison = regard.compare(runs, files=files, hypotheses=outputs, progress=move, **options)
    if tables is not None:
        comparison.write_csv(tables, overwrite=overwrite)
    console.show_report(comparison, out, as_json=as_json)
    if tables is not None and not as_json:
        console.say(f"written: {tables}")


@command(
    RUN,
    argument("texts", list[str], "TEXT...", "Sentences with the word."),
    option("word", str, "The word, or its beginning: 배 is found in 배를.", default=...),
    option("file", Path, "More sentences, one per line, whose words can be neighbours."),
    option(
        "layer", int, "The layer of the neighbours: 0 is the embeddings, -1 the last.", default=-1
    ),
    option("out", Path, "A .svg, .png, .html or .json file to write."),
    OVERWRITE,
    CHECKPOINT,
    DEVICE,
    ACCEPT,
    JSON,
)
def vectors(
    run: Path,
    texts: list[str],
    file: Path | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare the vectors of one word in several sentences, layer by layer, and show the nearest
    words.

    Static vectors are the same in every sentence, contextual ones are not.
    """
    console.check_output(
        out, DRAWN, [file, *regard.Run.open(run).recipe_values], overwrite=overwrite
    )
    console.show_report(regard.vectors(run, texts, file=file, **options), out, as_json=as_json)


# ------------------------------------------------------------------------------------------------ corpora, show, course


@command(
    argument("name", str, "[NAME]", "The corpus. Default: list them.", None),
    option("out", Path, "A .jsonl file. Default: print a few lines."),
    option("size", int, "How many rows. Default: all, or 20,000.", min=1),
    option("part", str, "train, validation or test.", default="train"),
    OVERWRITE,
)
def corpora(
    name: str | None, out: Path | None, size: int | None, part: str, overwrite: bool
) -> None:
    """Write a built-in corpus as a file, as your own could look; images go into a folder beside
    it."""
    from regard.data.corpora import names, objects, write_corpus

    if name is None:
        console.say("\n".join(names()))
    elif out is None:
        for row in objects(name, size or 5, part):
            console.show_json(row)
    else:
        console.check_output(out, (".jsonl",), overwrite=overwrite)
        console.say(f"written: {out}, {write_corpus(name, out, size, part):,} rows")


@command(
    argument("name", str, "[NAME]", "The picture. Default: list them.", None),
    OVERRIDES,
    option("out", Path, "A .svg, .png, .html or .json file to write."),
    OVERWRITE,
    JSON,
)
def show(
    name: str | None, overrides: list[str], out: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Show an equation at work, without training: positions, masks, softmax, schedules and
    others."""
    from regard.views.show import PICTURES

    if name is None:
        summaries = {
            key: " ".join(str(picture.__doc__).split()) for key, picture in PICTURES.items()
        }
        if as_json:
            console.show_json(summaries)
        else:
            print("\n".join(f"{key:16}  {shown(summary)}" for key, summary in summaries.items()))
        return
    console.check_output(out, DRAWN, overwrite=overwrite)
    console.show_report(regard.show(name, overrides), out, as_json=as_json, drawn=True)


@command(
    argument("chapter", str, "[CHAPTER]", "Number or name. Default: list them.", None),
    option("out", Path, "The page or notebook (.ipynb) to write. Default: course/CHAPTER.html."),
    OVERWRITE,
    option("language", str, "en or ko. Default: REGARD_LANG, or the locale's language.", "--lang"),
    option("full", Path, "A folder with real data, for a GPU; see docs/course.md.", metavar="DATA"),
    switch("quick", "A few steps only, to see that it works."),
    option("seed", int, "Seed of all trainings.", default=1, min=0),
    JSON,
)
def course(
    chapter: str | None,
    out: Path | None,
    overwrite: bool,
    language: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a chapter of the course: its experiments, and a page with text, figures and questions.

    Trained runs are kept beside the page, in the folder runs, and used again.
    """
    from regard.course import chapters, find_chapter

    language = language or default_language()
    if chapter is None:
        listed = chapters(language)
        if as_json:
            console.show_json(
                [
                    {"chapter": entry.number, "name": entry.name, "title": entry.title}
                    for entry in listed
                ]
            )
        else:
            print("\n".join(f"{entry.number}  {entry.title}" for entry in listed))
        return
    chosen = find_chapter(chapter, language)
    page = out or Path("course") / f"{chosen.number}.html"
    from regard.course.lab import run as run_chapter
    from regard.training.loop import Interrupted
    from regard.views.render import write

    with suppress(OSError):  # what cannot be made is refused below
        page.parent.mkdir(parents=True, exist_ok=True)
    console.check_output(page, (".html", ".ipynb"), overwrite=overwrite or out is None)
    try:
        runs, to_stderr = page.parent / "runs", partial(console.say, file=sys.stderr)
        lesson = run_chapter(chosen.number, runs=runs, language=language, say=to_stderr, **options)
    except (Interrupted, KeyboardInterrupt):
        console.say(
            "interrupted; the same command continues, with the runs that are trained already",
            sys.stderr,
        )
        raise typer.Exit(130) from None
    if page.suffix.lower() != ".ipynb":
        console.show_report(lesson, page, as_json=as_json)
        return
    write(page, [lesson.notebook(page.parent).encode()])
    console.show_report(lesson, None, as_json=as_json)
    if not as_json:
        console.say(f"written: {page}")


# --------------------------------------------------------------------------------------------------------------- serve

HOST = option(
    "host", str, "The address to listen on; others than this need a token.", default="127.0.0.1"
)
PORT = option("port", int, "0: a free one.", default=8000, min=0, max=65535)
TOKEN = option(
    "token", str, "Requests need it: Authorization: Bearer TOKEN.", envvar="REGARD_TOKEN"
)


@command(
    argument("runs", list[Path], "RUN...", "Run folders, called by their names."),
    HOST,
    PORT,
    TOKEN,
    option("window", float, "Milliseconds that a request waits for others.", default=3, min=0),
    option("batch", int, "Most inputs that are computed at once.", default=64, min=1),
    option("queue", int, "Most inputs that may wait; then the answer is 503.", default=1024, min=1),
    option("timeout", float, "Seconds until a request is given up.", default=60, min=0.01),
    option(
        "grace",
        float,
        "Seconds that requests have to be answered after SIGTERM or Ctrl-C.",
        default=5,
        min=0,
    ),
    SETTINGS,
    CHECKPOINT,
    DEVICE,
    PRECISION,
    ACCEPT,
)
def serve(
    runs: list[Path],
    host: str,
    port: int,
    token: str | None,
    window: float,
    batch: int,
    queue: int,
    timeout: float,
    grace: float,
    **options: Any,
) -> None:
    """Serve runs over HTTP: one route for each verb, requests of all clients computed together."""
    _expect_server("regard serve")
    from regard.studio.served import Settings
    from regard.studio.server import serve as answer

    how = Settings(host, port, token or None, window / 1000, batch, queue, timeout, grace=grace)
    answer({name: regard.load(folder, **options) for name, folder in _named(runs).items()}, how)


@command(
    argument(
        "runs", list[Path], "[RUN]...", "Run folders, or a folder of runs. Default: runs.", []
    ),
    HOST,
    PORT,
    TOKEN,
    switch("browser", "Whether to open the page.", "--browser/--no-browser", default=True),
    DEVICE,
    ACCEPT,
)
def studio(
    runs: list[Path],
    host: str,
    port: int,
    token: str | None,
    browser: bool,
    device: str,
    accept_recipe: bool,
) -> None:
    """See, try, compare and train runs in the browser; the HTTP API of `serve` beside it."""
    _expect_server("regard studio")
    from regard.studio.runs import Runs
    from regard.studio.served import Settings
    from regard.studio.server import serve as answer

    how, root = Settings(host, port, token or None), Path("runs")
    if len(runs) == 1 and _run_folders(runs[0]):
        root, runs = runs[0], []
    given = _named([regard.Run.open(run).folder for run in runs])
    folders = partial(dict, given) if runs else partial(_run_folders, root)
    if not folders():
        console.note(
            f"there is no run in the folder {root} yet: train one in the page, or with 'regard "
            "train'"
        )
    served = Runs(how, folders=folders, device=device, accept_recipe=accept_recipe)
    answer(served, how, root=root, browse=browser)


def _expect_server(command: str) -> None:
    for library in ("fastapi", "uvicorn"):
        import_extra(library, extra="studio", where=command, doing="serving")


def _named(folders: list[Path]) -> dict[str, Path]:
    """Run folders by their names."""
    named: dict[str, Path] = {}
    for folder in folders:
        if (name := folder.resolve().name) in named:
            raise DecodeError(
                f"two runs are called {name!r}", where=str(folder), hint="rename one of the folders"
            )
        named[name] = folder
    return named


def _run_folders(root: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(root.glob("*/recipe.yaml"))}


# -------------------------------------------------------------------------------------- import, export, recipes, cache


@command(
    argument("source", str, "PATH_OR_NAME", "A transformers folder, or a name on the Hub."),
    NEW_RUN,
    option(
        "overrides",
        list[str],
        "What the folder does not contain, such as head.no_answer=true.",
        "--set",
        default=[],
        metavar="KEY=VALUE",
    ),
    JSON,
    name="import",
)
def import_(source: str, out: Path, overrides: list[str], as_json: bool) -> None:
    """Import a model of transformers as a run: BERT, GPT-2, Marian or Pegasus."""
    from regard.exchange.folder import open_folder

    if Path(source).exists():
        open_folder(source)  # reports a wrong folder before torch is loaded
    from regard.exchange.exchange import import_note

    run = regard.import_run(source, out=out, overrides=overrides)
    result = {"run": str(out), "task": run.recipe.task, "model": run.recipe.model.model_dump()}
    _report(
        result,
        f"imported: {out}, a {run.recipe.model.kind} for {run.recipe.task}",
        import_note(run),
        as_json,
    )


@command(
    RUN,
    option("to", str, "huggingface, ctranslate2, or word2vec (word vectors as text).", default=...),
    option("out", Path, "The folder to make.", default=..., metavar="FOLDER"),
    option(
        "quantize",
        str,
        "For ctranslate2: int8, int8_float32, int8_float16, int16, float16 and others.",
    ),
    CHECKPOINT,
    ACCEPT,
    JSON,
)
def export(run: Path, to: str, out: Path, as_json: bool, **options: Any) -> None:
    """Write a run in the format of transformers or CTranslate2, or its word vectors in that of
    word2vec."""
    from regard.exchange.exchange import export_note

    regard.export_run(run, to=to, out=out, **options)
    _report(
        {"run": str(run), "to": to, "out": str(out)}, f"exported: {out}", export_note(out), as_json
    )


def _report(result: dict[str, object], sentence: str, note: str | None, as_json: bool) -> None:
    if as_json:
        console.show_json(result | ({"note": note} if note else {}))
    else:
        console.say("\n".join(filter(None, (sentence, note))))


@command(
    argument("name", str, "[NAME]", "The recipe to show.", None),
    option("out", Path, "Copy the recipe to a new file."),
    JSON,
)
def recipes(name: str | None, out: Path | None, as_json: bool) -> None:
    """List the recipes that ship, show one, or copy one to start from."""
    from regard.recipes.shipped import shipped_recipes

    texts = shipped_recipes(name, out=out)
    if as_json:
        console.show_json(texts if name is None else {"name": name, "recipe": texts[name]})
    elif name is not None:
        console.say(f"copied: {out}" if out else shown_comments(texts[name]).rstrip("\n"))
    else:
        width = max(map(len, texts))
        print("\n".join(f"{recipe:{width}}  {shown(summary)}" for recipe, summary in texts.items()))


@command(switch("clear", "Remove everything that no process is using."), JSON)
def cache(clear: bool, as_json: bool) -> None:
    """Show the cache of prepared data: where it is, how large, and when each entry was last
    used."""
    from regard.data.store import cache_entries, cache_folder, cache_limit, trim_cache

    folder, limit = cache_folder().absolute(), cache_limit()
    if clear:
        trim_cache(0)
    entries = cache_entries()
    size = sum(entry.bytes for entry in entries)
    if as_json:
        names = [
            {"name": entry.folder.name, "bytes": entry.bytes, "used": entry.used}
            for entry in entries
        ]
        console.show_json(
            {"folder": str(folder), "bytes": size, "limit": int(limit), "entries": names}
        )
        return
    console.say(
        f"{folder}: {size / 1e6:,.1f} MB, at most {limit / 1e6:,.0f} MB (REGARD_CACHE_LIMIT)"
    )
    for entry in entries:
        used = datetime.fromtimestamp(
            min(entry.used, 2e11)
        )  # a wrong clock may be past the last year of a datetime
        print(f"{entry.bytes / 1e6:12,.1f} MB  {used:%Y-%m-%d %H:%M}  {entry.folder.name}")
    if clear and entries:
        console.note("what is left is in use: a training or another command is running")


# ---------------------------------------------------------------------------------------------------------------- main


def main() -> None:
    """Run a command. A user's mistake gives one clear sentence and exit code 2; Ctrl-C gives
    130."""
    console.set_up_streams()
    regard.wait_quietly()
    try:
        with console.written_out(sys.stdout):
            app()
    except RegardError as error:
        console.complain(error.problems)
    except OSError as error:  # a folder without write permission, a full disk
        console.complain([Problem(str(error.filename or ""), error.strerror or str(error))])
    sys.exit(2)


if __name__ == "__main__":
    main()
