"""regard explain"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.inputs import read_story
from regard.commands.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    RunArgument,
    StoryOption,
)
from regard.commands.output import show
from regard.errors import DecodeError

if TYPE_CHECKING:
    from regard.views.draw import Wish
    from regard.views.explanation import Explanation
    from regard.views.hops import Hops
    from regard.views.worked import Worked


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
            help="alignment (attention over the source), encoder or decoder (self-attention), heads (of one token, "
            "--step), mix (of layers), probabilities, masks or positions. Default: the first that the model has.",
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
    step: Annotated[
        int | None,
        typer.Option(
            "--step",
            help="The token that --numbers or --view heads is about, from 1. Default: the first; for heads, the one "
            "that stands for a text as a whole ([CLS], or GPT's last).",
        ),
    ] = None,
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
    from regard.views.draw import check_output, to_text, wish_of, write_explanation
    from regard.views.explain import explain as explain_run
    from regard.views.hops import Hops, write_hops

    wish = wish_of(view, layer, head, rollout, step)
    if out is not None:
        check_output(out)
    if padding is None:
        padding = 3 if view == "masks" else 0
    told = _told(run, text, story)
    found = explain_run(run, told, target=target, beam=beam, padding=padding, checkpoint=checkpoint, device=device)
    if isinstance(found, Hops):
        _show(found, found.to_text(), as_json)
    else:
        worked = _worked(found, wish) if numbers else None
        found = found.words() if words else found
        _show(worked or found, worked.to_text() if worked else to_text(found, wish), as_json)
    if out is None:
        return
    if isinstance(found, Hops):
        write_hops(found, out)
    else:
        write_explanation(found, out, wish)
    if not as_json:
        print(f"drawn: {out}")


def _told(run: Path, text: str | None, story: Path | None) -> str:
    """What to explain: a text, or the question about a story in a file, the last one there unless another is given."""
    if story is None and text is None:
        raise DecodeError("there is nothing to explain", where="INPUT", hint="give a text, or --story")
    told = [] if story is None else read_story(run, story)[0]
    return "\n".join([*told, *([] if text is None else [text])])


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
