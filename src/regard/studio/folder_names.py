"""Folders of the server in its answers: each is called by its name, and the path to it is not
told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SENT_FOLDER = ".sent"
"""The folder under the root with what was sent for each training, and what it printed."""


def with_folder_names(answer: Any, roots: Iterable[Path], runs: Iterable[Path]) -> Any:
    """An answer as JSON whose texts name no path to the folders of the server.

    What lies in one of the `roots` is called by its path in there, a file that was sent by its
    name, and a run that lies elsewhere by the name of its folder.
    """
    names = list[tuple[re.Pattern[str], str]]()
    for root in _spellings(roots):
        names.append((_path(root, rf"(/{re.escape(SENT_FOLDER)}/[^/]+)?/"), ""))
        names.append((_path(root, r"(?![\w-])"), root.name))
    names += [(_path(run, r"(?![\w-])"), run.name) for run in _spellings(runs)]
    return _replaced(answer, names)


def _spellings(folders: Iterable[Path]) -> list[Path]:
    """The absolute paths of folders, with links and without; a path without a name tells
    nothing."""
    paths = [path for folder in folders for path in (folder.absolute(), folder.resolve())]
    return [path for path in dict.fromkeys(paths) if path.name]


def _path(folder: Path, after: str) -> re.Pattern[str]:
    """This path, unless it is the end of another."""
    return re.compile(rf"(?<![\w.-]){re.escape(str(folder))}{after}")


def _replaced(answer: Any, names: Sequence[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(answer, dict):
        return {key: _replaced(value, names) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_replaced(value, names) for value in answer]
    if isinstance(answer, str):
        for path, name in names:
            answer = path.sub(name.replace("\\", r"\\"), answer)
    return answer
