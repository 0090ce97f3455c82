"""Chapters of the course as the studio shows them: computed here, or with the findings that come with
the package."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from regard.course import find_chapter
from regard.course.findings import read
from regard.course.in_studio import OPENINGS
from regard.course.lab import FIGURE_PLACE, Lesson, fitting_lesson, packaged_lesson
from regard.language import default_language, request_language
from regard.views.page import markdown_renderer, page

SECONDS_PER_MINUTE = 60


def shown_chapter(lesson: Lesson) -> dict[str, Any]:
    """The report of a chapter: texts as HTML, and each figure with its name if the studio can open
    its run."""
    token = request_language.set(lesson.language)
    try:
        told = lesson.report().to_json()
    finally:
        request_language.reset(token)
    renderer = markdown_renderer()
    captions = {caption: name for caption, name in FIGURE_PLACE.findall(lesson.text) if caption}
    openings = OPENINGS.get(lesson.chapter.name, {})
    for part in (part for section in told["sections"] for part in section["parts"]):
        if part["kind"] == "prose":
            part["html"] = renderer.render(part.pop("text"))
        elif captions.get(part.get("title", "")) in openings:
            part["opens"] = captions[part["title"]]
    return told


@cache
def packaged_chapter(name: str, language: str) -> dict[str, Any] | None:
    """A chapter with the findings of the package; None if it has none."""
    lesson = _packaged_lesson(name, language)
    return None if lesson is None else shown_chapter(lesson)


@lru_cache(maxsize=64)
def own_lesson(path: Path, changed: int, name: str, language: str) -> Lesson | None:
    """A chapter with findings that `regard course` left in a file, `changed` at this time."""
    lesson = fitting_lesson(find_chapter(name, language), language, read(path))
    return None if lesson is None else replace(lesson, origin=None)


@cache
def packaged_page(name: str, language: str) -> str | None:
    """The page of a chapter with the findings of the package."""
    lesson = _packaged_lesson(name, language)
    return None if lesson is None else page(lesson.report())


@cache
def _packaged_lesson(name: str, language: str) -> Lesson | None:
    return packaged_lesson(find_chapter(name, language), language)


def origin_of(name: str) -> dict[str, Any] | None:
    """Where and when the findings were computed that the package has for a chapter."""
    lesson = _packaged_lesson(name, default_language())
    if lesson is None or lesson.origin is None:
        return None
    origin = lesson.origin
    return {
        "version": origin.version,
        "date": origin.date,
        "seeds": [*origin.seeds],
        "minutes": max(1, round(origin.seconds / SECONDS_PER_MINUTE)),
        "outdated": origin.outdated,
    }
