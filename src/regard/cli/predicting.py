"""The commands `predict` (and `translate`) and `chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.answers import Answers, answer_lines, converse
from regard.cli.options import (
    AcceptRecipeOption,
    AddressOption,
    BeamOption,
    CheckpointOption,
    DeviceOption,
    EngineOption,
    LengthPenaltyOption,
    ModelOptions,
    OverwriteOption,
    PrecisionOption,
    RunArgument,
    SettingsOption,
    SourceLanguageOption,
    StoryOption,
    TargetLanguageOption,
)
from regard.cli.typed_inputs import NOT_READ, STORY_HINT, gather_inputs, read_story
from regard.errors import DataError, DecodeError, InputError, Problem, refuse
from regard.inference.sharing import prepare_processes
from regard.language import shown

if TYPE_CHECKING:
    from regard.data.example import Example
    from regard.data.parallel import Engine
    from regard.inference.loaded_model import Precision
    from regard.inference.whole_file import PieceOutput
    from regard.models.base import Pooling
    from regard.runs import Run
    from regard.views.vectors import Features


@dataclass(frozen=True)
class InputOptions:
    """The inputs of `predict`: texts, a file, a story."""

    texts: list[str]
    file: Path | None
    story: Path | None
    skip_bad: bool

    @property
    def are_typed(self) -> bool:
        return bool(self.texts) and self.texts != ["-"]

    def check(self) -> None:
        """Refuse options that do not go together with the inputs."""
        refuse(
            {"--file": str(self.file) == "-"},
            NOT_READ,
            "it is where neither texts nor --file are given",
        )
        refuse({"--story": str(self.story) == "-"}, NOT_READ, STORY_HINT)
        refuse(
            {"--skip-bad": self.skip_bad and self.are_typed},
            "it is for the lines of --file or standard input",
        )


@dataclass(frozen=True)
class VectorOptions:
    """The vectors that `predict --features` writes."""

    out: Path | None
    layer: int | None
    pooling: str | None
    normalize: bool

    def check(self, story: Path | None) -> None:
        """Refuse options that do not go together with --features, or only with it."""
        if self.out is None:
            refuse(
                {
                    "--layer": self.layer,
                    "--pooling": self.pooling,
                    "--normalize": self.normalize,
                },
                "it chooses the vectors that --features writes",
                "give --features FILE, too",
            )
            return
        refuse({"--story": story}, "a story has no vectors")
        if self.pooling not in (None, "mean", "first", "last"):
            what = f"there is no pooling {self.pooling!r}"
            raise DecodeError(what, where="--pooling", hint="allowed: mean, first, last")


@dataclass(frozen=True)
class OutputOptions:
    """How the outputs of `predict` begin and are printed, and the record of their search."""

    prefix: str | None
    prefixes: Path | None
    record: Path | None
    overwrite: bool
    as_json: bool

    @property
    def is_record_printed(self) -> bool:
        return str(self.record) == "-"

    @property
    def needs_all_inputs(self) -> bool:
        return self.record is not None or self.prefixes is not None


@dataclass(frozen=True)
class FileOptions:
    """The file that `predict --out` writes, and the processes that predict for it."""

    out: Path | None
    resume: bool
    workers: str
    engine: str
    address: str | None

    def check(self, source: InputOptions, vectors: VectorOptions, output: OutputOptions) -> None:
        """Refuse options that do not go together with --out, or only with it."""
        if self.out is None:
            file_options = {
                "--resume": self.resume,
                "--workers": self.workers,
                "--engine": self.engine,
                "--address": self.address,
            }
            refuse(file_options, "needs --file and --out", "")
            return
        if source.file is None:
            raise DecodeError("needs --file", where="--out", hint="or use > FILE")
        whole_options = {
            "--features": vectors.out,
            "--record": output.record,
            "--prefixes": output.prefixes,
            "--story": source.story,
        }
        refuse(whole_options, "it needs all inputs at once", "leave out it or --out")


def predict(  # noqa: PLR0913  (one parameter per option)
    *,
    run: RunArgument,
    inputs: Annotated[
        list[str],
        Argument(
            metavar="[INPUT]...",
            help="Texts. Default: standard input, unless the file of --story has questions.",
            default_factory=list,
            show_default=False,
        ),
    ],
    file: Annotated[
        Path | None,
        Option(
            help="A file with one input per line; or a table, such as .csv or .jsonl, "
            "with the columns that the run was trained on, with or without what is predicted, such "
            "as the label."
        ),
    ] = None,
    story: StoryOption = None,
    beam: BeamOption = None,
    nbest: Annotated[
        int | None,
        Option(
            help="Number of outputs per input, sorted by the objective of the search. Their log P "
            "may be in another order, since the objective also counts the length."
        ),
    ] = None,
    length_penalty: LengthPenaltyOption = None,
    prefix: Annotated[
        list[str],
        Option(
            help="Text that every output begins with.", default_factory=list, show_default=False
        ),
    ],
    prefixes: Annotated[
        Path | None, Option(metavar="FILE", help="The same, with one line for each input.")
    ] = None,
    record: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Write every step of the search, what was kept and why: .json; a tree: .html, "
            ".svg, .png; - prints it.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    skip_bad: Annotated[
        bool,
        Option(
            "--skip-bad",
            help="Skip lines of --file or standard input that cannot be read: the output of each "
            "is an empty line, in JSON null with the reason.",
        ),
    ] = False,
    features: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Write the hidden states of the inputs as .npz instead (pre-trained models).",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        Option(
            help="The layer that --features writes: 0 is the embeddings, -1 the last (default)."
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        Option(help="One vector per text for --features: mean, first or last. Default: per token."),
    ] = None,
    normalize: Annotated[
        bool, Option("--normalize", help="Scale each vector of --features to length 1.")
    ] = False,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    accept_recipe: AcceptRecipeOption = False,
    out: Annotated[
        Path | None,
        Option(
            help="Write the outputs for --file to this file, in their order: JSON Lines if it ends "
            "in .jsonl, or with --json. For files of any length; while it grows it is called "
            "NAME.partial."
        ),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue an --out that was interrupted.")
    ] = False,
    workers: Annotated[
        str,
        Option(
            help="Processes that predict for --out: auto (one per core, or some per GPU) or a number."
        ),
    ] = "auto",
    engine: EngineOption = "local",
    address: AddressOption = None,
    as_json: Annotated[
        bool, Option("--json", help="Print JSON Lines: one object per input.")
    ] = False,
) -> None:
    """Apply a run to texts: given as arguments, in a file, or on standard input. The order is kept.

    The run's task decides what is done: translate, summarise, caption (inputs are paths of images),
    continue a text, fill each [MASK], answer questions about a story or a text, predict a label or
    a number, or tag words. Two texts, a text and its choices, or a question and its text are
    separated by tabs.
    """
    if len(prefix) > 1:
        hint = "give one, or --prefixes with a line for each input"
        raise DecodeError(
            f"{len(prefix)} prefixes are given for every output", where="--prefix", hint=hint
        )
    every_prefix = prefix[0] if prefix else None
    source = InputOptions(inputs, file, story, skip_bad)
    vectors = VectorOptions(features, layer, pooling, normalize)
    output = OutputOptions(every_prefix, prefixes, record, overwrite, as_json)
    target = FileOptions(out, resume, workers, engine, address)
    source.check()
    vectors.check(story)
    target.check(source, vectors, output)
    if file is not None and target.out is not None:
        prepare_processes(file, device, workers, cast("Engine", engine))

    from regard.recipes.search_options import SearchOptions, language_overrides, with_search

    languages = language_overrides(source_language, target_language)
    search = SearchOptions(beam, nbest, length_penalty, every_prefix, (*overrides, *languages))
    model = ModelOptions(checkpoint, device, precision, accept_recipe)
    if target.out is None:
        opened = model.open(run)
        opened = opened.under(with_search(opened.recipe, search))
        _predict_inputs(opened, model, source, vectors, output)
    else:
        opened = regard.Run.open(run, accept_recipe)
        opened = opened.under(with_search(opened.recipe, search))
        _predict_file(opened, model, source, output, target)


def _predict_inputs(
    run: Run,
    model: ModelOptions,
    source: InputOptions,
    vectors: VectorOptions,
    output: OutputOptions,
) -> None:
    """Predict for typed inputs, a file or standard input, and print each output as it comes."""
    answers = Answers(output.as_json)
    story_lines: list[Example] = []
    story_asks = True
    if source.file is None:
        story_lines, story_asks = read_story(run.task, source.story, skip_bad=source.skip_bad)
    reads_lines = not source.are_typed and (bool(source.texts) or not story_asks)
    needs_all = vectors.out is not None or output.needs_all_inputs
    given = None
    if source.are_typed or (reads_lines and needs_all):
        texts = source.texts if source.are_typed else None
        given = gather_inputs(run.task, texts, story_lines, source.skip_bad)
    is_bar_visible = source.file is not None and not sys.stdout.isatty()
    with (
        answers.explaining(source.are_typed),
        console.bar("writing", visible=is_bar_visible) as move,
    ):
        if vectors.out is not None:
            features = _write_features(
                run, given, model, source, vectors, overwrite=output.overwrite
            )
            answers.show_features(features, vectors.out)
        elif reads_lines and not needs_all:
            answer_lines(model.load(run), answers, story_lines, skip_bad=source.skip_bad)
        else:
            predictions = regard.predict(
                run,
                given,
                file=source.file,
                story=source.story if given is None else None,
                prefix=output.prefix,
                prefixes=output.prefixes,
                record=output.is_record_printed or output.record or False,
                overwrite=output.overwrite,
                skip_bad=source.skip_bad,
                checkpoint=model.checkpoint,
                device=model.device,
                accept_recipe=model.accept_recipe,
                progress=partial(move, "writing"),
                each=answers.show,
            )
            if output.is_record_printed and predictions.record is not None:
                console.show_report(predictions.record, None, as_json=False)


def _write_features(
    run: Run,
    given: list[Example] | None,
    model: ModelOptions,
    source: InputOptions,
    vectors: VectorOptions,
    *,
    overwrite: bool,
) -> Features:
    return regard.features(
        run,
        given,
        file=source.file,
        layer=-1 if vectors.layer is None else vectors.layer,
        pooling=cast("Pooling | None", vectors.pooling),
        normalize=vectors.normalize,
        out=vectors.out,
        overwrite=overwrite,
        skip_bad=source.skip_bad,
        checkpoint=model.checkpoint,
        device=model.device,
        accept_recipe=model.accept_recipe,
    )


def _predict_file(
    run: Run,
    model: ModelOptions,
    source: InputOptions,
    output: OutputOptions,
    target: FileOptions,
) -> None:
    """Predict for a file of any length, and say how many outputs were written."""
    assert source.file is not None
    assert target.out is not None
    answers = Answers(output.as_json)
    with _counted(answers, target.out) as each:
        count = regard.predict_file(
            run,
            source.file,
            target.out,
            as_json=output.as_json,
            resume=target.resume,
            overwrite=output.overwrite,
            workers=target.workers,
            engine=cast("Engine", target.engine),
            address=target.address,
            skip_bad=source.skip_bad,
            checkpoint=model.checkpoint,
            device=model.device,
            precision=cast("Precision", model.precision),
            accept_recipe=model.accept_recipe,
            each=each,
        )
    answers.conclude()
    console.say(
        f"written: {target.out}, {count:,} outputs"
        if count
        else f"{target.out} is complete: nothing is left to do"
    )


@contextmanager
def _counted(answers: Answers, out: Path) -> Iterator[Callable[[PieceOutput], None]]:
    """Show how many outputs are written to a file. If that ends early, say that `--resume`
    continues it."""
    with console.bar("writing", visible=True) as move:

        def each(output: PieceOutput) -> None:
            answers.add(output.inputs, output.skipped, output.notes)
            move(f"{answers.count:,} written", 0, 0)

        try:
            yield each
        except (KeyboardInterrupt, InputError, DataError) as error:
            progress_so_far = Problem(
                f"{out}.partial",
                f"{answers.count:,} outputs were written by now",
                "--resume continues it",
            )
            if isinstance(error, KeyboardInterrupt):
                console.complain([progress_so_far])
                raise typer.Exit(130) from None
            remarks = [progress_so_far] if answers.count else []
            if isinstance(error, InputError):
                hint = "--skip-bad leaves such lines out, with an empty output for each"
                remarks = [Problem("", hint), progress_so_far]
            raise DecodeError(problems=[*error.problems, *remarks]) from None


def chat(
    *,
    run: RunArgument,
    turns: Annotated[
        int,
        Option(
            min=0,
            help="Earlier exchanges that the model reads before each line, for runs that were "
            "trained on conversations: 'hello. | hello, Ben. | who am i?'. An empty line begins "
            "a new conversation.",
        ),
    ] = 0,
    beam: BeamOption = None,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
) -> None:
    """Talk to a run at a prompt. Each line is answered by itself, or with --turns together with what
    was said before. Ctrl-D ends."""
    from regard.recipes.search_options import SearchOptions, with_search

    search = SearchOptions(beam, overrides=tuple(overrides))
    opened = regard.Run.open(run, accept_recipe)
    answers = Answers(as_json=False, prompt=shown("you: "), begin=shown("run: "))
    with answers.explaining(typed=False):
        opened = opened.under(with_search(opened.recipe, search))
        loaded = regard.load(
            opened, checkpoint=checkpoint, device=device, accept_recipe=accept_recipe
        )
        if turns:
            converse(loaded, answers, turns)
        else:
            answer_lines(loaded, answers)
