"""Results as files: pages, pictures, JSON; whole, or what was there before."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from regard.errors import CheckpointError, RegardError, import_extra
from regard.text.files import write_file
from regard.views.report import Result

PAGE = (".html", ".htm")
PICTURES = (".svg", ".png")


def check_output(path: Path | None, allowed: Collection[str] = PAGE[:1]) -> None:
    """Refuse, before any work is done, a file that could not be written; None is no file."""
    if path is None:
        return
    suffix = path.suffix.lower()
    if suffix not in allowed and not (suffix in PAGE and PAGE[0] in allowed):
        what = f"cannot write a {path.suffix or 'file without suffix'}"
        raise RegardError(what, where=str(path), hint=f"allowed: {', '.join(allowed)}")
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RegardError(what, where=str(path), hint="give another --out")
    if suffix in PICTURES:
        import_extra("matplotlib", extra="plots", where=str(path), doing="drawing")


def write_result(result: Result, path: Path) -> None:
    """Write a result in the format that the suffix names: its page, its figures as one picture, or its numbers."""
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        from regard.views.figures import draw

        write(path, draw(result.report().figures, path))
    elif suffix in PAGE:
        from regard.views.page import page

        write(path, page(result.report()).encode())
    else:
        write(path, (json.dumps(result.to_json(), ensure_ascii=False) + "\n").encode())


def write(path: Path, content: bytes, *, option: str = "--out") -> None:
    """Write a file whole or not at all; `option` is where its path was given."""
    try:
        write_file(path, content)
    except CheckpointError as error:  # this is no checkpoint: nothing can be resumed
        raise RegardError(error.problems[0].what, where=str(path), hint=f"give another {option}") from None
