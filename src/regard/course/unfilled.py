"""A chapter before its experiment has run: its text, with gaps where numbers and figures will be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from regard.course import Chapter
from regard.course.lab import GUESS_BLOCK, WORDS_BLOCK, text_parts
from regard.views.page import markdown_renderer
from regard.views.report import Prose

GAP = "…"
"""What stands for a number that is not known yet."""
_INNERMOST_CONDITION = re.compile(r"\{%-? if (?:(?!\{%-? if ).)*?\{%-? endif -?%\}", re.DOTALL)
_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def unfilled(chapter: Chapter) -> list[dict[str, Any]]:
    """The sections of a chapter as JSON: texts and code as HTML, and a part of the kind `pending`
    with the caption of each figure."""
    text = without_results(GUESS_BLOCK.sub("", WORDS_BLOCK.sub("", chapter.text)))
    _, *bodies = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = []
    for heading, _, body in (body.partition("\n") for body in bodies):
        sections.append({"heading": heading.strip(), "parts": [*_parts(body)]})
    return sections


def without_results(text: str) -> str:
    """A text in Jinja2 without what depends on results: a gap for each value, and nothing for
    sentences that stand under a condition."""
    while _INNERMOST_CONDITION.search(text):
        text = _INNERMOST_CONDITION.sub("", text)
    return _VALUE.sub(GAP, text)


def _parts(body: str) -> Iterator[dict[str, Any]]:
    renderer = markdown_renderer()
    for piece in text_parts(body):
        if isinstance(piece, Prose):
            yield {"kind": "prose", "title": piece.title, "html": renderer.render(piece.text)}
        elif piece[0]:
            yield {"kind": "pending", "title": piece[0]}
