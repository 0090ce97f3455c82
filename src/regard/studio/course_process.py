"""Computes a chapter of the course in a process of its own, for the studio: its pages in both
languages, and what the studio shows of them. Called as

    python -m regard.studio.course_process NUMBER FOLDER whole|quick
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.course import LANGUAGES, find_chapter
from regard.course.lab import run
from regard.studio.shown_chapters import shown_chapter
from regard.text.writing import atomic_file
from regard.views.page import page


def say(text: str) -> None:
    """A function of the module, since the processes of the seeds call it."""
    print(text, flush=True)


def main(number: str, folder: Path, extent: str) -> None:
    lesson = run(number, runs=folder / "runs", language="en", quick=extent == "quick", say=say)
    shown = dict[str, Any]()
    for language in LANGUAGES:
        own = replace(lesson, chapter=find_chapter(number, language), language=language)
        shown[language] = shown_chapter(own)
        _write(folder / f"{number}.{language}.html", page(own.report()))
    _write(folder / f"{number}.json", json.dumps({"quick": extent == "quick", **shown}))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
