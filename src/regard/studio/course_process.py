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
from regard.course.in_studio import OPENINGS
from regard.course.lab import FIGURE_PLACE, Lesson, run
from regard.language import request_language
from regard.text.writing import atomic_file
from regard.views.page import markdown_renderer, page


def say(text: str) -> None:
    """A function of the module, since the processes of the seeds call it."""
    print(text, flush=True)


def shown_chapter(lesson: Lesson) -> dict[str, Any]:
    """The report of a chapter: texts as HTML, and each figure with its name if the studio can open
    its run."""
    report = lesson.report()
    renderer = markdown_renderer()
    captions = {caption: name for caption, name in FIGURE_PLACE.findall(lesson.text) if caption}
    openings = OPENINGS.get(lesson.chapter.name, {})
    told = report.to_json()
    for part in (part for section in told["sections"] for part in section["parts"]):
        if part["kind"] == "prose":
            part["html"] = renderer.render(part.pop("text"))
        elif captions.get(part.get("title", "")) in openings:
            part["opens"] = captions[part["title"]]
    return told


def main(number: str, folder: Path, extent: str) -> None:
    lesson = run(number, runs=folder / "runs", language="en", quick=extent == "quick", say=say)
    shown = dict[str, Any]()
    for language in LANGUAGES:
        own = replace(lesson, chapter=find_chapter(number, language), language=language)
        token = request_language.set(language)
        try:
            shown[language] = shown_chapter(own)
        finally:
            request_language.reset(token)
        _write(folder / f"{number}.{language}.html", page(own.report()))
    _write(folder / f"{number}.json", json.dumps({"quick": extent == "quick", **shown}))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
