"""The commands `explain`, `diagnose`, `compare` and `vectors`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.options import (
    RESULT_SUFFIXES,
    AcceptRecipeOption,
    BeamOption,
    CheckpointOption,
    DeviceOption,
    FilesOption,
    JsonOption,
    LengthPenaltyOption,
    OverwriteOption,
    ReportOption,
    RunArgument,
    SettingsOption,
    SourceLanguageOption,
    SplitOption,
    StoryOption,
    TargetLanguageOption,
)
from regard.cli.typed_inputs import examples_in, read_story, standard_input
from regard.errors import DecodeError, refuse

if TYPE_CHECKING:
    from regard.data.example import Example
    from regard.tasks.task import Task
    from regard.views.explanation import Explanation, View

STANDARD_INPUT = (None, "-")
"""The values of an INPUT that read standard input."""
DRAWING_SUFFIXES = (".svg", ".html", ".htm")
"""Files that the drawing of a model can be written to."""
LARGE_JSON_BYTES = 50e6
"""Bytes of JSON from which `explain` says how to ask for less."""


def explain(  # noqa: PLR0913  (one parameter per option)
    *,
    run: RunArgument,
    text: Annotated[
        str | None,
        Argument(
            metavar="INPUT",
            help="Default, or -: standard input. Not needed if --story has questions.",
        ),
    ] = None,
    story: StoryOption = None,
    question: Annotated[
        int | None,
        Option(help="The number of the question about a story, from 1. Default: the last."),
    ] = None,
    target: Annotated[
        str | None, Option(help="Explain this output instead of the model's own.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="A file to write: .svg, .png, .html (all views) or .json (all numbers, or those "
            "of --numbers)."
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    view: Annotated[
        str | None,
        Option(
            help="alignment (attention over the source), encoder or decoder (self-attention), "
            "heads (of one token, --step), hops (over a story), mix (of layers), probabilities, "
            "masks or positions; occlusion (how much the label, tag or answer depends on each "
            "word); diagram (the whole model with the text in it, for --out FILE.svg or .html). "
            "Default: the first that the model has."
        ),
    ] = None,
    layer: Annotated[
        str,
        Option(help="A layer (from 1), mean, or all: one figure each. With --numbers also a hop."),
    ] = "mean",
    head: Annotated[str, Option(help="A head (from 1), mean, or all: one figure each.")] = "mean",
    rollout: Annotated[
        bool,
        Option("--rollout", help="Attention rollout through all layers, or up to --layer."),
    ] = False,
    words: Annotated[
        bool,
        Option(
            "--words",
            help="Merge tokens into words: the sum over the tokens of a key, the mean over those "
            "of a query.",
        ),
    ] = False,
    numbers: Annotated[
        bool,
        Option(
            "--numbers",
            help="Show how one attention is computed, with the numbers of the run.",
        ),
    ] = False,
    step: Annotated[
        int | None,
        Option(
            help="The token that --numbers or --view heads shows, from 1. Default: the first; for "
            "heads, the one that represents the whole text ([CLS], or the last token of a language "
            "model)."
        ),
    ] = None,
    padding: Annotated[
        int | None,
        Option(
            help="Add this many <pad> to both texts, as in a batch. Default: 3 for --view masks, "
            "else 0."
        ),
    ] = None,
    beam: BeamOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what the model attended to, and which other tokens were probable.

    In the terminal, or with --out as a figure, as a page with all views, or as JSON. For a question
    about a story: the sentences that each hop attended to.
    """
    from regard.recipes.search_options import language_overrides
    from regard.views.explanation import ViewOptions

    opened = regard.Run.open(run, accept_recipe)
    inputs = [text, story, *opened.recipe_values]
    console.check_output(out, RESULT_SUFFIXES, inputs, overwrite=overwrite)
    draws = view == "diagram"
    view = None if draws else view
    explanation = regard.explain(
        opened,
        _text_and_story(opened.task, text, story, question),
        question=question,
        target=target,
        beam=beam,
        view=cast("View | None", view),
        padding=padding,
        overrides=[*overrides, *language_overrides(source_language, target_language)],
        checkpoint=checkpoint,
        device=device,
        accept_recipe=accept_recipe,
    )
    if draws:
        _draw_model(explanation, out)
        return
    explanation = explanation.select(
        ViewOptions(cast("View | None", view), layer, head, rollout, words, step)
    )
    explanation.refuse_without_effect(padding=padding, numbers=numbers)
    count = explanation.story.questions if explanation.story else 1
    if question is None and count > 1 and (text in STANDARD_INPUT or story is None):
        console.note(
            f"the last of {count:,} questions is explained (--question 1 to {count:,} chooses)"
        )
    _show_explanation(explanation, out, numbers=numbers, as_json=as_json)


def _draw_model(explanation: Explanation, out: Path | None) -> None:
    """Write the model with its sentence as a picture, or as a page with a film."""
    from regard.views.diagrams import diagram
    from regard.views.diagrams.svg import svg_file
    from regard.views.page import page
    from regard.views.render import write_file
    from regard.views.report import Report, Section

    if out is None or out.suffix.lower() not in DRAWING_SUFFIXES:
        hint = "--out FILE.svg or --out FILE.html"
        raise DecodeError("a drawing needs a file", where="--view diagram", hint=hint)
    drawing = diagram(explanation)
    content = svg_file(drawing)
    if out.suffix.lower() != ".svg":
        content = page(Report(explanation.title, [Section("", [drawing])]))
    write_file(out, [content.encode()])
    console.say(f"drawn: {out}")


def _show_explanation(
    explanation: Explanation, out: Path | None, *, numbers: bool, as_json: bool
) -> None:
    """Print an explanation, or one attention with its `numbers`, and write it to a file."""
    from regard.views.render import write_result

    if not as_json:
        console.note_unknown(explanation.unknown)
    result = explanation.worked() if numbers else explanation
    is_json_file = out is not None and out.suffix.lower() == ".json"
    if (as_json or is_json_file) and not numbers:
        size = explanation.json_size()
        if size > LARGE_JSON_BYTES:
            console.note(
                f"about {size / 1e6:,.0f} MB of JSON: --layer and --head choose one attention"
            )
    if as_json:
        explanation.heat_maps()  # refuses a layer or head that is not there
    if out is None or as_json or (numbers and not is_json_file):
        console.show_report(result, None, as_json=as_json)
    elif explanation.opening:
        console.say(explanation.opening)
    if out is not None:
        # Only JSON has the numbers: a picture shows the attention that they belong to.
        write_result(result if is_json_file else explanation, out)
        if not as_json:
            console.say(f"drawn: {out}")


def _text_and_story(
    task: Task, text: str | None, story: Path | None, question: int | None
) -> list[Example]:
    """The input to explain: a text; or the lines of a story, and the question given beside it."""
    story_lines, asks = read_story(task, story)
    if text is not None and text not in STANDARD_INPUT:
        if story is not None and question is not None:
            what = "it chooses one of the story's own questions"
            raise DecodeError(what, where="--question", hint="give it or INPUT, not both")
        begin = f"{story_lines[-1].place}, " if story_lines else ""
        lines = text.split("\n") if task.views.stories else [text]
        return [*story_lines, *(task.inputs.typed(line, f"{begin}input") for line in lines)]
    if asks and text is None:
        return story_lines
    piped = list(chain.from_iterable(standard_input(needed=False)))
    if not story_lines and not any(text.strip() for text, _ in piped):
        hint = "give a text, or --story; standard input is empty, too"
        raise DecodeError("there is nothing to explain", where="INPUT", hint=hint)
    if len(piped) > 1 and not task.views.stories:
        what = f"explain takes one text, but there are {len(piped):,} lines"
        raise DecodeError(what, where="standard input", hint="give one of them")
    return [*story_lines, *examples_in(task.inputs, piped)]


def diagnose(  # noqa: PLR0913  (one parameter per option)
    *,
    run: RunArgument,
    split: SplitOption = None,
    files: FilesOption,
    out: ReportOption = None,
    overwrite: OverwriteOption = False,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    limit: Annotated[int | None, Option(help="Use only the first N sentences.")] = None,
    sweep: Annotated[
        bool,
        Option("--sweep/--no-sweep", help="Also try beams of 1, 2, 3, 5, 10 and 20."),
    ] = True,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell search errors from model errors: by source length and beam size, with advice."""
    from regard.views.diagnose import SWEPT_BEAMS

    inputs = [*files, *regard.Run.open(run).recipe_values]
    console.check_output(out, inputs=inputs, overwrite=overwrite)
    with console.bar("scoring the references", visible=not as_json) as move:
        diagnosis = regard.diagnose(
            run,
            split=split,
            files=files,
            beam=beam,
            length_penalty=length_penalty,
            overrides=overrides,
            checkpoint=checkpoint,
            device=device,
            limit=limit,
            sweep=SWEPT_BEAMS if sweep else (),
            accept_recipe=accept_recipe,
            progress=move,
        )
    console.show_report(diagnosis, out, as_json=as_json)


def compare(  # noqa: PLR0913  (one parameter per option)
    *,
    runs: Annotated[
        list[Path], Argument(metavar="RUN...", help="Run folders; the first is the baseline.")
    ],
    split: SplitOption = None,
    files: FilesOption,
    test_sets: Annotated[
        list[str],
        Option(
            "--test-set",
            metavar="NAME=FILE",
            help="Several test sets in one report, each with a name: NAME=FILE, or "
            "NAME=SOURCE,TARGET.",
            default_factory=list,
            show_default=False,
        ),
    ],
    hypotheses: Annotated[
        list[str],
        Option(
            metavar="NAME=FILE",
            help="Outputs of another system, one per line.",
            default_factory=list,
            show_default=False,
        ),
    ],
    baseline: Annotated[str | None, Option(help="Test the other runs against this one.")] = None,
    out: ReportOption = None,
    tables: Annotated[
        Path | None, Option("--csv", metavar="FOLDER", help="Write the tables as CSV.")
    ] = None,
    overwrite: OverwriteOption = False,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    overrides: SettingsOption,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare runs of one task: significance tests, quality by length, speed, errors, attention on
    one page.

    Language models are compared by perplexity per word and bits per character, masked language
    models by their accuracy, classifiers by accuracy, F1 and McNemar's test.
    """
    from regard.views.compare_sets import named_sets
    from regard.views.comparison import check_csv
    from regard.views.measuring import named_files

    outputs = named_files(hypotheses)
    sets = named_sets(test_sets)
    if sets:
        alone = {"--split": split, "--file": files, "--hypotheses": hypotheses, "--csv": tables}
        given = {option: value or None for option, value in alone.items()}
        refuse(given, "it is for one test set, and --test-set names several")
    inputs = [
        *files,
        *chain.from_iterable(sets.values()),
        *outputs.values(),
        *(value for run in runs for value in regard.Run.open(run).recipe_values),
    ]
    console.check_output(out, inputs=inputs, overwrite=overwrite)
    if tables is not None:
        check_csv(tables, inputs, overwrite=overwrite)
    if sets:
        with console.bar("reading", visible=not as_json) as move:
            on_sets = regard.compare_sets(
                runs,
                sets,
                baseline=baseline,
                beam=beam,
                length_penalty=length_penalty,
                overrides=overrides,
                checkpoint=checkpoint,
                device=device,
                accept_recipe=accept_recipe,
                progress=move,
            )
        console.show_report(on_sets, out, as_json=as_json)
        return
    with console.bar("reading", visible=not as_json) as move:
        comparison = regard.compare(
            runs,
            split=split,
            files=files,
            hypotheses=outputs,
            baseline=baseline,
            beam=beam,
            length_penalty=length_penalty,
            overrides=overrides,
            checkpoint=checkpoint,
            device=device,
            accept_recipe=accept_recipe,
            progress=move,
        )
    if tables is not None:
        comparison.write_csv(tables, overwrite=overwrite)
    console.show_report(comparison, out, as_json=as_json)
    if tables is not None and not as_json:
        console.say(f"written: {tables}")


def vectors(  # noqa: PLR0913  (one parameter per option)
    run: RunArgument,
    texts: Annotated[
        list[str],
        Argument(
            metavar="[TEXT]...",
            help="With --word sentences that have the word; without it single words.",
            default_factory=list,
            show_default=False,
        ),
    ],
    analogy: Annotated[
        list[str],
        Option(
            metavar="'A B C'",
            help="What is to C as B is to A? 'man king woman'",
            default_factory=list,
            show_default=False,
        ),
    ],
    word: Annotated[
        str | None,
        Option(help="Compare this word in the sentences, or its beginning: 배 is found in 배를."),
    ] = None,
    analogies: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Score a list of analogies, `a b c d` in each line; or facts-en, facts-ko.",
        ),
    ] = None,
    similarity: Annotated[
        Path | None,
        Option(help="Correlate cosines with judgements: two words and a number in each line."),
    ] = None,
    file: Annotated[
        Path | None,
        Option(help="With --word: more sentences, one per line, whose words can be neighbours."),
    ] = None,
    layer: Annotated[
        int | None,
        Option(
            help="With --word: the layer of the neighbours: 0 is the embeddings, -1 the last "
            "(default)."
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="A .svg, .png, .html or .json file to write.")] = None,
    overwrite: OverwriteOption = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the nearest words of words, analogies and a map; or compare the vectors of one --word in
    several sentences, layer by layer.

    Static vectors are the same in every sentence, contextual ones are not.
    """
    lists = [similarity, analogies if analogies and Path(analogies).exists() else None]
    inputs = [file, *lists, *regard.Run.open(run).recipe_values]
    console.check_output(out, RESULT_SUFFIXES, inputs, overwrite=overwrite)
    if word is None:
        refuse({"--file": file, "--layer": layer}, "it is for the sentences of a --word")
        found = regard.nearest_words(
            run,
            texts,
            analogies=analogy,
            analogy_list=analogies,
            similarity=similarity,
            checkpoint=checkpoint,
            device=device,
            accept_recipe=accept_recipe,
        )
        console.show_report(found, out, as_json=as_json)
        return
    alone = {
        "--analogy": analogy or None,
        "--analogies": analogies,
        "--similarity": similarity,
    }
    refuse(alone, "it is for single words, without --word")
    if not texts:
        hint = "give sentences with the word, or the word alone without --word"
        raise DecodeError("there is no sentence", where="TEXT", hint=hint)
    result = regard.vectors(
        run,
        texts,
        word=word,
        file=file,
        layer=-1 if layer is None else layer,
        checkpoint=checkpoint,
        device=device,
        accept_recipe=accept_recipe,
    )
    console.show_report(result, out, as_json=as_json)
