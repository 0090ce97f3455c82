"""An explanation as a file or in the terminal: one writer a format, chosen by the suffix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rich.cells import cell_len

from regard.errors import DecodeError, did_you_mean
from regard.text.extras import needed
from regard.views import regions
from regard.views.explain_page import to_page
from regard.views.explanation import VIEWS, Choice, Explanation
from regard.views.labels import label, pad
from regard.views.old_files import write_picture
from regard.views.old_terminal import to_terminal
from regard.views.png import to_png
from regard.views.svg import to_svg
from regard.views.wishes import Wish


def _svg(explanation: Explanation, wish: Wish, path: Path) -> bytes:
    if picture := wish.image_of(explanation):
        return regions.to_svg(wish.pictures(explanation.words()), picture).encode()
    return to_svg(*wish.pictures(explanation)).encode()


def _png(explanation: Explanation, wish: Wish, path: Path) -> bytes:
    if picture := wish.image_of(explanation):
        return regions.to_png(wish.pictures(explanation.words()), picture, str(path))
    return to_png(*wish.pictures(explanation), where=str(path))


def _html(explanation: Explanation, wish: Wish, path: Path) -> bytes:
    if picture := wish.image_of(explanation):
        return regions.to_page(explanation, wish.pictures(explanation.words()), picture).encode()
    return to_page(explanation, wish).encode()


def _json(explanation: Explanation, wish: Wish, path: Path) -> bytes:
    return (json.dumps(explanation.to_json(), ensure_ascii=False) + "\n").encode()


WRITERS: dict[str, Callable[[Explanation, Wish, Path], bytes]] = {
    ".svg": _svg,
    ".png": _png,
    ".html": _html,
    ".json": _json,
}


def check_output(path: Path) -> None:
    """Refuse what could not be drawn before a model is loaded for it."""
    if path.suffix.lower() not in WRITERS:
        what = f"cannot draw a {path.suffix or 'file without suffix'}"
        raise DecodeError(what, where=str(path), hint=f"allowed: {', '.join(WRITERS)}")
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise DecodeError(what, where=str(path), hint="give another --out")
    if path.suffix.lower() == ".png":
        needed("matplotlib", extra="plots", where=str(path), doing="drawing")


def write_explanation(explanation: Explanation, path: Path, wish: Wish) -> None:
    """Draw a file of the format that its suffix names: whole, or not at all."""
    check_output(path)
    write_picture(path, WRITERS[path.suffix.lower()](explanation, wish, path))


def to_text(explanation: Explanation, wish: Wish) -> str:
    """For the terminal: pictures in blocks, probabilities as a table."""
    if wish.view_of(explanation) == "probabilities" and explanation.steps:
        return _no_attention(explanation) + likeliest(explanation)
    if wish.view_of(explanation) == "occlusion" and explanation.occlusion is not None:
        return explanation.occlusion.to_text()
    if picture := wish.image_of(explanation):
        return regions.to_text(wish.pictures(explanation.words()), picture)
    return "\n".join(to_terminal(picture) for picture in wish.pictures(explanation))


def _no_attention(explanation: Explanation) -> str:
    if explanation.attentions or explanation.mix is not None:
        return ""
    return f"The model {explanation.model_kind!r} has no attention to draw; these are its probabilities.\n"


def likeliest(explanation: Explanation) -> str:
    """Each token that was written, its probability and rank, and the five likeliest at its place."""
    rows = [["written", "P", "rank", "the five likeliest"]]
    for step in explanation.steps:
        others = "   ".join(f"{label(one.token)} {one.probability:.3f}" for one in step.candidates)
        rows.append([label(step.token), f"{step.probability:.3f}", str(step.rank), others])
    widths = [max(cell_len(row[column]) for row in rows) for column in range(4)]
    return "\n".join([explanation.title, *("  ".join(map(pad, row, widths)).rstrip() for row in rows)]) + "\n"


def wish_of(view: str | None, layer: str, head: str, rollout: bool, step: int | None = None) -> Wish:
    """What was asked for on the command line."""
    if view is not None and view not in VIEWS:
        raise DecodeError(f"there is no view {view!r}", where="--view", hint=did_you_mean(view, VIEWS))
    return Wish(view, _choice(layer, "--layer"), _choice(head, "--head"), rollout, step)


def _choice(text: str, option: str) -> Choice:
    if text == "mean":
        return "mean"
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise DecodeError(f"not a number: {text!r}", where=option, hint="allowed: a number from 1 on, mean, all")
    return int(text)


def one_of(choice: Choice, option: str) -> int | None:
    """A single layer or head for `--numbers`, or None where none was named."""
    if choice == "all":
        raise DecodeError("the numbers are those of one of them", where=option, hint="a number from 1 on")
    return None if choice == "mean" else choice
