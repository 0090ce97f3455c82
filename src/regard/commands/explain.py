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
    from regard.views.hops import Hops
    from regard.views.wishes import Wish
    from regard.views.worked import Worked

TYPED = (None, "-")
"""The inputs that stand on standard input."""


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
            help="alignment (attention over the source), encoder or decoder (self-attention), memory (attention over "
            "past words), heads or hops (of one token, --step), mix (of layers), probabilities, masks or positions; "
            "occlusion (what the label, tag or answer loses without each word). "
            "Default: the first that the model has.",
        ),
    ] = None,
    layer: Annotated[
        str, typer.Option("--layer", help="A layer or hop from 1, their mean, or all: a picture each.")
    ] = "mean",
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
    step: Annotated[
        int | None,
        typer.Option(
            "--step",
            help="The token that --numbers or --view heads or hops is about, from 1. Default: the first; for heads and "
            "hops, the one that stands for a text as a whole ([CLS], or a language model's last).",
        ),
    ] = None,
    padding: Annotated[
        int | None,
        typer.Option(
            "--padding", help="Put so many <pad> behind both texts, as in a batch. Default: 3 for --view masks, else 0."
        ),
    ] = None,
    beam: BeamOption = None,
    settings: SetOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Where the model looked while it wrote, and what else it might have written.

    In the terminal, as a picture, as a page with everything, or as numbers. Of a question about a story: at which
    sentences each hop looked; of a memory network over words: at which past words.
    """
    from regard.views.draw import check_output, wish_of
    from regard.views.explain import explain as explain_run
    from regard.views.hops import Hops

    wish = wish_of(view, layer, head, rollout, step)
    if out is not None:
        check_output(out)
    told, places = _told(run, text, story, question)
    padded = padding if padding is not None else 3 if view == "masks" and not numbers else 0
    found = explain_run(
        run, told, target=target, beam=beam, padding=padded, occlusion=view == "occlusion", question=question,
        places=places, overrides=settings or [], checkpoint=checkpoint, device=device,
    )  # fmt: skip
    if isinstance(found, Hops):
        if found.questions > 1 and question is None and (text in TYPED or story is None):
            note = (
                f"the last of {found.questions:,} questions is explained (--question 1 to {found.questions:,} chooses)"
            )
            print(f"note: {note}", file=sys.stderr)
        shown: Hops | Explanation | Worked = _show_hops(found, wish, words, padding, numbers, as_json)
    else:
        shown = _show_explanation(found, wish, words, padding, numbers, as_json)
    if out is not None:
        _write(shown, found, out, wish)
        if not as_json:
            print(f"drawn: {out}")


def _write(shown: Hops | Explanation | Worked, found: Hops | Explanation, out: Path, wish: Wish) -> None:
    """What was shown; of numbers, which only JSON has, the picture of what they are about."""
    from regard.views.draw import write_explanation
    from regard.views.hops import Hops, write_hops
    from regard.views.old_files import write_json
    from regard.views.worked import Worked

    drawn = found if isinstance(shown, Worked) else shown
    if isinstance(shown, Worked) and out.suffix.lower() == ".json":
        write_json(shown.to_json(), out)
    elif isinstance(drawn, Hops):
        write_hops(drawn, out)
    else:
        write_explanation(drawn, out, wish)


def _told(run: Path, text: str | None, story: Path | None, question: int | None) -> tuple[str, list[str] | None]:
    """What to explain: a text, or the questions about a story in a file, of which one is chosen later; or the one that
    is given beside it. The lines of a story come with their places.
    """
    if story is None:
        return (_typed(run) if text in TYPED else text), None
    if text not in TYPED and question is not None:
        raise DecodeError(
            "it chooses one of the story's own questions", where="--question", hint="give it or INPUT, not both"
        )
    lines, places, faults = read_story(run, story)
    if faults:
        raise DecodeError(problems=list(faults.values()))
    asked, where = _asked(text, needed=not asks(lines))
    if places and text is not None:  # what is wrong may be in either
        where = [f"{places[-1]}, {place}" for place in where]
    return "\n".join([*lines, *asked]), [*places, *where]


def _asked(text: str | None, *, needed: bool) -> tuple[list[str], list[str]]:
    """What is asked about a story beside its file, line by line, with the places: without a text, standard input is
    read only where a question is `needed`."""
    if text in TYPED:
        return read_inputs(None, needed=False) if needed or text is not None else ([], [])
    lines = text.split("\n")
    return lines, ["input"] * len(lines)


def _typed(run: Path) -> str:
    """What stands on standard input: one text, or a story with its questions, line by line."""
    from regard.runs import Run

    lines, _ = read_inputs(None, needed=False)
    if not "".join(lines).strip():
        hint = "give a text, or --story; standard input is empty, too"
        raise DecodeError("there is nothing to explain", where="INPUT", hint=hint)
    if len(lines) > 1 and Run.open(run).recipe.task != "story_answering":
        what = f"one text is explained, and these are {len(lines):,} lines"
        raise DecodeError(what, where="standard input", hint="give one of them")
    return "\n".join(lines)


def _show_hops(
    found: Hops, wish: Wish, words: bool, padding: int | None, numbers: bool, as_json: bool
) -> Hops | Worked:
    """All hops over a story, or one of them in numbers; and what JSON is to have."""
    from regard.views.draw import one_of
    from regard.views.wishes import refuse_for_stories

    view, head = None if wish.view == "hops" else wish.view, None if wish.head == "mean" else wish.head
    refuse_for_stories(
        {"--view": view, "--head": head, "--rollout": wish.rollout, "--step": wish.step, "--words": words,
         "--padding": padding, "--layer": None if numbers or wish.layer == "mean" else wish.layer}
    )  # fmt: skip
    shown = found.work_out(one_of(wish.layer, "--layer")) if numbers else found
    _show(shown, shown.to_text(), as_json)
    return shown


def _show_explanation(
    found: Explanation, wish: Wish, words: bool, padding: int | None, numbers: bool, as_json: bool
) -> Explanation | Worked:
    """A view, or one attention in numbers; and what JSON is to have."""
    from regard.views.draw import to_text
    from regard.views.wishes import refuse_without_effect

    layer, head = (None if choice == "mean" else choice for choice in (wish.layer, wish.head))
    refuse_without_effect(
        {"--layer": layer, "--head": head, "--rollout": wish.rollout, "--step": wish.step, "--words": words,
         "--padding": padding},
        wish.view_of(found), numbers=numbers,
    )  # fmt: skip
    if numbers:
        worked = _worked(found, wish)
        _show(worked, worked.to_text(), as_json)
        return worked
    found = found.words() if words else found
    _show(found, to_text(found, wish), as_json)
    return found


def _worked(found: Explanation, wish: Wish) -> Worked:
    """One attention in numbers: of the layer, head and step that were asked for, or the first head and step."""
    from regard.views.draw import one_of
    from regard.views.numbers import work_out

    layer, head = one_of(wish.layer, "--layer"), one_of(wish.head, "--head")
    return work_out(found, wish.view, layer=layer, head=head or 1, step=1 if wish.step is None else wish.step)


def _show(found: Explanation | Worked | Hops, text: str, as_json: bool) -> None:
    if as_json:
        show(found.to_json())
    else:
        print(text, end="")
