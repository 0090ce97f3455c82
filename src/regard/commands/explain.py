"""regard explain"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.inputs import asks, read_inputs, read_story
from regard.commands.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    RunArgument,
    SetOption,
    StoryOption,
)
from regard.commands.output import show
from regard.errors import DecodeError

if TYPE_CHECKING:
    from regard.views.explanation import Explanation

STANDARD_INPUT = (None, "-")
"""The values of INPUT that read standard input."""
SUFFIXES = (".svg", ".png", ".html", ".json")


def explain(
    run: RunArgument,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT", help="Default, or -: standard input. Not needed where the file of --story asks."
        ),
    ] = None,
    *,
    story: StoryOption = None,
    question: Annotated[
        int | None,
        typer.Option("--question", help="Which of several questions about a story, from 1. Default: the last."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Explain this output instead of the model's own.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="A file to draw: .svg, .png, .html (all views) or .json (all numbers, or those of --numbers)."
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            help="alignment (attention over the source), encoder or decoder (self-attention), heads (of one token, "
            "--step), hops (over a story), mix (of layers), probabilities, masks or positions; occlusion (how much the "
            "label, tag or answer depends on each word). Default: the first that the model has.",
        ),
    ] = None,
    layer: Annotated[
        str,
        typer.Option("--layer", help="A layer from 1, their mean, or all: a picture each; with --numbers also a hop."),
    ] = "mean",
    head: Annotated[str, typer.Option("--head", help="A head from 1, their mean, or all: a picture each.")] = "mean",
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Attention rollout through all layers, or up to --layer.")
    ] = False,
    words: Annotated[
        bool,
        typer.Option(
            "--words", help="Merge tokens into words: the sum over the tokens of a key, the mean over those of a query."
        ),
    ] = False,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Compute one attention step by step, with the run's own numbers.")
    ] = False,
    step: Annotated[
        int | None,
        typer.Option(
            "--step",
            help="The token that --numbers or --view heads is about, from 1. Default: the first; for heads, the one "
            "that stands for a text as a whole ([CLS], or a language model's last).",
        ),
    ] = None,
    padding: Annotated[
        int | None,
        typer.Option(
            "--padding", help="Add so many <pad> to both texts, as in a batch. Default: 3 for --view masks, else 0."
        ),
    ] = None,
    beam: BeamOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Where the model looked while it wrote, and which other tokens it might have written.

    In the terminal, as a picture, as a page with everything, or as numbers. For a question about a story: at which
    sentences each hop looked.
    """
    from regard.views.explain import explain as explain_run
    from regard.views.explanation import Options
    from regard.views.files import check_output, write_result
    from regard.views.terminal import show as show_report

    options = Options.parse(view, layer, head, rollout=rollout, words=words, step=step)
    check_output(out, SUFFIXES)
    given, places = _input(run, text, story, question)
    explanation = explain_run(
        run, given, target=target, beam=beam, view=options.view, padding=padding, question=question, places=places,
        overrides=settings or [], checkpoint=checkpoint, device=device,
    )  # fmt: skip
    options.refuse_without_effect(options.view or explanation.views[0], padding=padding, numbers=numbers)
    explanation = explanation.select(options)
    if question is None and (text in STANDARD_INPUT or story is None):
        _note_last(explanation)
    result = explanation.worked() if numbers else explanation
    report = result.report()
    if as_json:
        show(result.to_json())
    else:
        show_report(report)
    if out is not None:
        # Only JSON has the numbers: a picture shows the attention that they belong to.
        write_result(result if out.suffix.lower() == ".json" else explanation, out)
        if not as_json:
            print(f"drawn: {out}")


def _note_last(explanation: Explanation) -> None:
    """Tell which of several questions about a story is explained."""
    if explanation.story is not None and (count := explanation.story.questions) > 1:
        note = f"the last of {count:,} questions is explained (--question 1 to {count:,} chooses)"
        print(f"note: {note}", file=sys.stderr)


def _input(run: Path, text: str | None, story: Path | None, question: int | None) -> tuple[str, list[str] | None]:
    """What to explain: a text; or the lines of a story with their places, and the question given beside it."""
    if story is None:
        return (_typed(run) if text in STANDARD_INPUT else text), None
    if text not in STANDARD_INPUT and question is not None:
        raise DecodeError(
            "it chooses one of the story's own questions", where="--question", hint="give it or INPUT, not both"
        )
    lines, places, faults = read_story(run, story)
    if faults:
        raise DecodeError(problems=list(faults.values()))
    questions, where = _questions(text, needed=not asks(lines))
    if places and text is not None:  # what is wrong may be in either
        where = [f"{places[-1]}, {place}" for place in where]
    return "\n".join([*lines, *questions]), [*places, *where]


def _questions(text: str | None, *, needed: bool) -> tuple[list[str], list[str]]:
    """The questions beside a story's file, line by line, with their places. Standard input is read where `text` is -,
    and without a text only where a question is `needed`."""
    if text in STANDARD_INPUT:
        return read_inputs(None, needed=False) if needed or text is not None else ([], [])
    lines = text.split("\n")
    return lines, ["input"] * len(lines)


def _typed(run: Path) -> str:
    """Standard input: one text, or a story with its questions, line by line."""
    from regard.runs import Run

    lines, _ = read_inputs(None, needed=False)
    if not "".join(lines).strip():
        hint = "give a text, or --story; standard input is empty, too"
        raise DecodeError("there is nothing to explain", where="INPUT", hint=hint)
    if len(lines) > 1 and Run.open(run).recipe.task != "story_answering":
        what = f"one text is explained, and these are {len(lines):,} lines"
        raise DecodeError(what, where="standard input", hint="give one of them")
    return "\n".join(lines)
