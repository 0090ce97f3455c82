"""Chapters of the course as the studio shows them: computed here, or with the findings that come with
the package."""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.course import find_chapter
from regard.course.findings import packaged
from regard.course.in_studio import OPENINGS
from regard.course.lab import FIGURE_PLACE, Lesson, packaged_lesson
from regard.language import request_language
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
    lesson = packaged_lesson(find_chapter(name, language), language)
    return None if lesson is None else shown_chapter(lesson)


@cache
def packaged_page(name: str, language: str) -> str | None:
    """The page of a chapter with the findings of the package."""
    lesson = packaged_lesson(find_chapter(name, language), language)
    return None if lesson is None else page(lesson.report())


def origin_of(name: str) -> dict[str, Any] | None:
    """Where and when the findings were computed that the package has for a chapter."""
    stored = packaged(name)
    if stored is None or packaged_chapter(name, "en") is None:
        return None
    origin = stored.origin
    return {
        "version": origin.version,
        "date": origin.date,
        "seeds": [*origin.seeds],
        "minutes": max(1, round(origin.seconds / SECONDS_PER_MINUTE)),
        "outdated": origin.outdated,
    }
