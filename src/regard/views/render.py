"""A result as a file: its report as a page, its figures as a picture, its numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from regard.errors import CheckpointError, RegardError
from regard.text.writing import atomic_file, check_writable
from regard.views.page import page
from regard.views.picture import (
    draw_rows,
    matplotlib_module,
)
from regard.views.report import (
    Result,
    in_language,
    json_parts,
)

PAGE_SUFFIXES = (".html", ".htm")
PICTURE_SUFFIXES = (".svg", ".png")


def check_output(
    path: Path | None,
    allowed: Collection[str] = PAGE_SUFFIXES[:1],
    inputs: Iterable[object] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Check, before any work is done, that the file can and may be written (`check_writable`); None
    means no file."""
    if path is None:
        return
    suffix = path.suffix.lower()
    if suffix not in allowed and not (suffix in PAGE_SUFFIXES and PAGE_SUFFIXES[0] in allowed):
        what = f"cannot write a {path.suffix or 'file without suffix'}"
        raise RegardError(what, where=str(path), hint=f"allowed: {', '.join(allowed)}")
    check_writable(path, "--out", inputs, overwrite=overwrite)
    if suffix in PICTURE_SUFFIXES:
        matplotlib_module("", path)


def write_result(result: Result, path: Path, *, option: str = "--out") -> None:
    """Write a result as the picture or page that the suffix names, else as JSON."""
    content: Iterable[bytes] = map(str.encode, json_line(result))
    if path.suffix.lower() in PICTURE_SUFFIXES:
        content = [draw_rows(in_language(result.report()).figure_rows, path)]
    elif path.suffix.lower() in PAGE_SUFFIXES:
        content = [page(result.report()).encode()]
    write_file(path, content, option=option)


def json_line(result: Result) -> Iterator[str]:
    """A line of JSON, in parts because an explanation of 500 tokens has millions of numbers."""
    tree = getattr(result, "tree", None)
    yield from json_parts(tree()) if tree else [json.dumps(result.to_json(), ensure_ascii=False)]
    yield "\n"


def write_file(path: Path, content: Iterable[bytes], *, option: str = "--out") -> None:
    """Write a file whole or not at all; `option` is where its path was given."""
    try:
        with atomic_file(path) as file:
            file.writelines(content)
    except CheckpointError as error:  # this is not a checkpoint, so nothing can be resumed
        raise RegardError(
            error.problems[0].what, where=str(path), hint=f"give another {option}"
        ) from None
