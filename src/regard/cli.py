"""The command line: one command a verb. Torch is imported by the verbs that need it, not by `--help`."""

from __future__ import annotations

import json
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import wait_quietly
from regard.errors import DecodeError, Problem, RegardError

if TYPE_CHECKING:
    from rich.progress import Progress

    from regard.training.check import Check
    from regard.views.hops import Hops

app = typer.Typer(
    help="Your data -> a trained, measured, explained attention model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help="A .yaml file, or a recipe that ships.")]
OverridesArgument = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SplitOption = Annotated[str | None, typer.Option("--split", help="train, validation or test. Default: test.")]
PairsOption = Annotated[list[str] | None, typer.Option("--file", help="Pairs in one file; twice: source and target.")]
BeamOption = Annotated[int | None, typer.Option("--beam", help="Hypotheses followed side by side; 1 is greedy.")]
PenaltyOption = Annotated[
    float | None,
    typer.Option("--length-penalty", help="alpha in log P / length^alpha, or what search.normalisation makes of it."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the run's recipe.")]
CheckpointOption = Annotated[str, typer.Option("--checkpoint", help="best, last, average, or a step.")]
StoryOption = Annotated[
    Path | None, typer.Option("--story", metavar="FILE", help="The story that the questions are about, line by line.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]


def main() -> None:
    """Run a command. A user's mistake is one clear sentence and exit code 2; Ctrl-C is 130."""
    _set_up_streams()
    wait_quietly()
    try:
        app()
    except RegardError as error:
        _fail(*error.problems)
    except OSError as error:  # a folder that may not be written to, a disk that is full: the system says which
        _fail(Problem(str(error.filename or ""), error.strerror or str(error)))


def _fail(*problems: Problem) -> None:
    for problem in problems:
        print(f"regard: {problem}", file=sys.stderr)
    sys.exit(2)


def _set_up_streams() -> None:
    """Text is UTF-8, whatever the locale; only a console keeps its own encoding, and `?` for what that lacks."""
    if isinstance(sys.stdin, TextIOWrapper) and not sys.stdin.isatty():
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def show(result: Any) -> None:
    print(json.dumps(result, ensure_ascii=False), flush=True)


@app.command()
def check(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A .yaml file, a recipe that ships, or a file of data.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it, or a second, parallel file.")
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Write the recipe that is proposed for data.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Validate a recipe and its data: all problems at once, sizes, samples, memory and time.

    For a file of data, or two parallel ones, a recipe is proposed, and checked in the same way.
    """
    from regard.training.check import check as check_recipe

    found = check_recipe(recipe, overrides or [], out=out, quiet=as_json)
    if as_json:
        show(found.to_json())
    else:
        _show_check(found, out)
    if not found.ok:
        raise typer.Exit(2)


def _show_check(found: Check, out: Path | None) -> None:
    """Standard output has what was found, or the recipe alone where one is proposed, so that `>` saves it."""
    from regard.training.display import check_sentences

    if found.proposal is not None:
        print(found.proposal if out is None else f"written: {out}", end="\n" if out else "", flush=True)
    for problem in found.problems:
        print(f"regard: {problem}", file=sys.stderr)
    if found.ok:
        stream = sys.stdout if found.proposal is None else sys.stderr
        print("\n".join(check_sentences(found.to_json())), file=stream)


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with it where it was left.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train what a recipe describes into a run folder."""
    from accelerate import PartialState

    from regard.runs.checkpoints import load_facts
    from regard.training.loop import Interrupted
    from regard.training.train import train as train_recipe

    try:
        run = train_recipe(recipe, overrides or [], out=out, resume=resume, quiet=as_json)
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        show({"run": str(out), **load_facts(run.checkpoint("best"))})


@app.command()
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
    [MASK] in them, or answer the questions among them about the story that the lines before tell.
    """
    texts, places = _inputs(inputs, file) if story is None else _inputs_about(run, story, inputs, file)
    if features is not None:
        _write_features(run, texts, places, features, layer, pooling, checkpoint, device, as_json)
        return
    beginnings = None if prefixes is None else _prefixes(prefixes, len(texts), prefix)
    from regard.runs.verbs import opened, predict_chunks, with_search

    opened_run = opened(run)
    texts, places = opened_run.task.gather(texts, places)
    recipe = with_search(opened_run.recipe, beam, nbest, length_penalty, settings or [], prefix=prefix)
    with _bar(shown=file is not None and not sys.stdout.isatty()) as bar:
        task = bar.add_task("writing", total=len(texts))
        for chunk in predict_chunks(
            opened_run, texts, recipe, prefixes=beginnings, record=record, checkpoint=checkpoint, device=device,
            places=places, progress=lambda done: bar.advance(task, done),
        ):  # fmt: skip
            for prediction in chunk:
                if as_json:
                    show(prediction.to_json())
                    continue
                for line in prediction.lines(recipe.search.nbest):
                    print(line, flush=True)


app.command("translate", help="The same as predict.")(predict)


def _write_features(
    run: Path,
    texts: list[str],
    places: list[str],
    file: Path,
    layer: int,
    pooling: str | None,
    checkpoint: str,
    device: str,
    as_json: bool,
) -> None:
    from regard.runs.verbs import features

    if pooling not in (None, "mean", "first", "last"):
        raise DecodeError(f"there is no pooling {pooling!r}", where="--pooling", hint="allowed: mean, first, last")
    found = features(
        run, texts, layer=layer, pooling=pooling, out=file, checkpoint=checkpoint, device=device,  # type: ignore[arg-type]
        places=places,
    )  # fmt: skip
    rows, width = found.vectors.shape
    if as_json:
        show({"features": str(file), "vectors": rows, "width": width, "inputs": len(texts)})
    else:
        print(f"written: {file}, {rows} vectors of {width} numbers")


def _prefixes(file: Path, inputs: int, for_all: str | None) -> list[str]:
    """The lines of a file of prefixes, as many as there are inputs."""
    from regard.data.files import open_text

    if for_all is not None:
        raise DecodeError("give --prefix or --prefixes, not both", where="--prefixes")
    lines = list(open_text(str(file), Path()).lines())
    if len(lines) != inputs:
        what = f"{len(lines):,} prefixes for {inputs:,} inputs"
        raise DecodeError(what, where=str(file), hint="one line for each input, empty where it may begin as it likes")
    return lines


def _inputs(inputs: list[str] | None, file: Path | None) -> tuple[list[str], list[str]]:
    """The texts, and what to call each of them in a message."""
    if file is not None:
        from regard.data.files import TextFile, open_text

        if inputs:
            raise DecodeError("give texts or --file, not both", where="--file")
        opened: TextFile = open_text(str(file), Path())
        texts = list(opened.lines())
        return texts, [opened.where(line) for line in range(1, len(texts) + 1)]
    if inputs:
        return inputs, [f"input {number}" for number in range(1, len(inputs) + 1)]
    if sys.stdin.isatty():
        print("one input a line, end with Ctrl-D:", file=sys.stderr)
    try:
        texts = [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError:
        raise DecodeError("the text is not UTF-8", where="standard input") from None
    if not texts:
        raise DecodeError("there is no input", where="standard input", hint="give texts as arguments, or --file")
    return texts, [f"standard input:{line}" for line in range(1, len(texts) + 1)]


def _inputs_about(run: Path, story: Path, inputs: list[str] | None, file: Path | None) -> tuple[list[str], list[str]]:
    """The lines of a story, and what is asked about it besides the questions that stand there."""
    _refuse_story(run)
    told, where = _inputs(None, story)
    texts, places = _inputs(inputs, file) if inputs or file else ([], [])
    return [*told, *texts], [*where, *places]


def _refuse_story(run: Path) -> None:
    from regard.runs import Run

    task = Run.open(run).recipe.task
    if task != "story_answering":
        raise DecodeError(f"a run of {task} reads no story", where="--story", hint="runs of story_answering do")


def _bar(shown: bool) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not (shown and console.is_terminal))


@app.command()
def evaluate(
    run: RunArgument,
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """The task's metrics and perplexity, on a split or a file: BLEU, chrF and exact match, or ROUGE."""
    from regard.runs.verbs import evaluate as evaluate_run

    with _bar(shown=not as_json) as bar:
        task = bar.add_task("writing", total=None)
        found = evaluate_run(
            run, split=split, files=file or [], beam=beam, length_penalty=length_penalty,  # type: ignore[arg-type]
            overrides=settings or [], checkpoint=checkpoint, device=device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if as_json:
        show(found)
    else:
        for name, value in found.items():
            for line in _metric_lines(name, value):
                print(line)


def _metric_lines(name: str, value: Any) -> list[str]:
    """A metric; or several of one name, as of the tasks of a run, each below the other."""
    if isinstance(value, dict):
        return [name, *(f"  {line}" for part, one in value.items() for line in _metric_lines(part, one))]
    return [f"{name:15} {value:.4f}" if isinstance(value, float) else f"{name:15} {value}"]


@app.command()
def score(
    run: RunArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    *,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="TARGET is exact tokens: a JSON list, or separated by spaces.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """log P(target | source), whole and token by token."""
    from regard.runs.verbs import score as score_pair

    found = score_pair(run, source, _exact(target) if tokens else target, checkpoint=checkpoint, device=device)
    if as_json:
        show(found)
        return
    for token, log_p in zip(found["tokens"], found["token_scores"], strict=True):
        print(f"{log_p:10.4f}  {token}")
    print(f"{found['score']:10.4f}  log P of all {len(found['tokens'])} tokens")


def _exact(target: str) -> list[str]:
    if not target.lstrip().startswith("["):
        return target.split()
    try:
        tokens = json.loads(target)
    except ValueError:
        tokens = None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DecodeError("not a JSON list of strings", where="--tokens", hint='for example ["▁a", "</s>"]')
    return tokens


@app.command()
def explain(
    run: RunArgument,
    text: Annotated[str | None, typer.Argument(metavar="INPUT", help="Not needed with --story.")] = None,
    *,
    story: StoryOption = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Explain this output instead of the model's own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A file to draw: .svg, .png, .html (all views) or .json (all numbers).")
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            help="alignment (attention over the source), encoder or decoder (self-attention), probabilities, masks or "
            "positions. Default: alignment, where the model has one.",
        ),
    ] = None,
    layer: Annotated[str, typer.Option("--layer", help="A layer from 1, their mean, or all: a picture each.")] = "mean",
    head: Annotated[str, typer.Option("--head", help="A head from 1, their mean, or all: a picture each.")] = "mean",
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Follow the words through all layers, or up to --layer.")
    ] = False,
    words: Annotated[
        bool,
        typer.Option(
            "--words", help="Merge pieces into words: the sum over pieces looked at, the mean over those that look."
        ),
    ] = False,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Work one attention out step by step, with the run's own numbers.")
    ] = False,
    step: Annotated[int, typer.Option("--step", help="The token of the target that --numbers is about, from 1.")] = 1,
    padding: Annotated[
        int | None,
        typer.Option(
            "--padding", help="Put so many <pad> behind both texts, as in a batch. Default: 3 for --view masks, else 0."
        ),
    ] = None,
    beam: BeamOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Where the model looked while it wrote, and what else it might have written.

    In the terminal, as a picture, as a page with everything, or as numbers. Of a question about a story: at which
    sentences each hop looked.
    """
    from regard.views.draw import check_output, one_of, to_text, wish_of, write_explanation
    from regard.views.explain import explain as explain_run
    from regard.views.hops import Hops
    from regard.views.numbers import work_out

    wish = wish_of(view, layer, head, rollout)
    if out is not None:
        check_output(out)
    if padding is None:
        padding = 3 if view == "masks" else 0
    text = _told(run, text, story)
    found = explain_run(run, text, target=target, beam=beam, padding=padding, checkpoint=checkpoint, device=device)
    if isinstance(found, Hops):
        _show_hops(found, out, as_json)
        return
    worked = None
    if numbers:
        named = one_of(wish.layer, "--layer"), one_of(wish.head, "--head")
        worked = work_out(found, wish.view, layer=named[0], head=named[1] or 1, step=step)
    if words:
        found = found.words()
    printed = to_text(found, wish) if worked is None else worked.to_text()
    if as_json:
        show(found.to_json() if worked is None else worked.to_json())
    else:
        print(printed, end="")
    if out is not None:
        write_explanation(found, out, wish)
        if not as_json:
            print(f"drawn: {out}")


def _told(run: Path, text: str | None, story: Path | None) -> str:
    """What to explain: a text, or the question about a story in a file, the last one there unless another is given."""
    if story is None and text is None:
        raise DecodeError("there is nothing to explain", where="INPUT", hint="give a text, or --story")
    told = [] if story is None else _inputs_about(run, story, None, None)[0]
    return "\n".join([*told, *([] if text is None else [text])])


def _show_hops(found: Hops, out: Path | None, as_json: bool) -> None:
    from regard.views.hops import write_hops

    if as_json:
        show(found.to_json())
    else:
        print(found.to_text(), end="")
    if out is not None:
        write_hops(found, out)
        if not as_json:
            print(f"drawn: {out}")


@app.command()
def diagnose(
    run: RunArgument,
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="A .html file to write the report to.")] = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first so many sentences.")] = None,
    sweep: Annotated[bool, typer.Option("--sweep/--no-sweep", help="Try beams of 1, 2, 3, 5, 10 and 20, too.")] = True,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Whose fault each error is, the search's or the model's; by source length, for other beams, and what to do."""
    from rich.console import Console

    from regard.views.diagnose import BEAMS
    from regard.views.diagnose import diagnose as diagnose_run
    from regard.views.diagnosis_page import diagnosis_page
    from regard.views.diagnosis_text import show as show_diagnosis
    from regard.views.page import can_write_page, write_page

    can_write_page(out)
    with _bar(shown=not as_json) as bar:
        task = bar.add_task("scoring the references", total=None)
        found = diagnose_run(
            run, split=split, files=file or [], beam=beam, length_penalty=length_penalty,  # type: ignore[arg-type]
            overrides=settings or [], checkpoint=checkpoint, device=device, limit=limit, sweep=BEAMS if sweep else (),
            progress=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )  # fmt: skip
    if as_json:
        show(found.to_json())
    else:
        show_diagnosis(found, Console(highlight=False, soft_wrap=True))
    if out is not None:
        write_page(out, diagnosis_page(found))
        if not as_json:
            print(f"written: {out}")


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; the first is the baseline.")],
    *,
    split: SplitOption = None,
    file: PairsOption = None,
    hypotheses: Annotated[
        list[str] | None,
        typer.Option("--hypotheses", metavar="NAME=FILE", help="Outputs of another system, one a line."),
    ] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="Test the others against this one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A .html file to write the report to.")] = None,
    tables: Annotated[Path | None, typer.Option("--csv", metavar="FOLDER", help="Write the tables as CSV.")] = None,
    beam: BeamOption = None,
    length_penalty: PenaltyOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare runs of one task: significance tests, quality by length, speed, errors, attention on one page."""
    from regard.views.compare import can_write_csv, named_files
    from regard.views.compare import compare as compare_runs
    from regard.views.compare_page import report
    from regard.views.compare_text import show as show_comparison
    from regard.views.page import can_write_page, write_page

    can_write_page(out)
    can_write_csv(tables)
    with _bar(shown=not as_json) as bar:
        task = bar.add_task("reading", total=None)
        found = compare_runs(
            runs, split=split, files=file or [], hypotheses=named_files(hypotheses or []),  # type: ignore[arg-type]
            baseline=baseline, beam=beam, length_penalty=length_penalty, overrides=settings or [],
            checkpoint=checkpoint, device=device,
            progress=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )  # fmt: skip
    if tables is not None:
        found.write_csv(tables)
    if out is not None:
        write_page(out, report(found))
    if as_json:
        show(found.to_json())
        return
    show_comparison(found)
    for path in (out, tables):
        if path is not None:
            print(f"written: {path}")


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.")] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Copy it to a file of yours.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that ship, show one, or copy one to start from."""
    from regard.recipes.shipped import shipped, shipped_text, summary

    if name is None and out is not None:
        raise RegardError("name the recipe to copy", where="--out", hint=f"allowed: {', '.join(shipped())}")
    if name is None:
        listed = {one: summary(one) for one in shipped()}
        if as_json:
            show(listed)
        else:
            for one, what in listed.items():
                print(f"{one:22} {what}")
        return
    text = shipped_text(name)
    if out is not None:
        if out.exists():
            raise RegardError("the file exists already", where=str(out), hint="give another --out")
        out.write_text(text, encoding="utf-8")
    if as_json:
        show({"name": name, "recipe": text})
    else:
        print(f"copied: {out}" if out else text.rstrip("\n"))


if __name__ == "__main__":
    main()
