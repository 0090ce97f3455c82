"""A user's file -> stories with questions about them: bAbI's numbered lines, or JSON Lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from regard.data.story_files import NUMBERED
from regard.text.files import TextFile

SAMPLE = 2000
"""Lines that are looked at."""


@dataclass(frozen=True)
class RecognisedStories:
    """Questions about stories."""

    file: str
    questions: int


def numbered_stories_in(file: TextFile) -> RecognisedStories | None:
    """bAbI's format: every line has a number, from 1 on, and questions a tab before their answers."""
    if file.suffixes[0] != ".txt":
        return None
    lines = list(islice(filter(str.strip, file.lines()), SAMPLE))
    numbers = [NUMBERED.fullmatch(line) for line in lines]
    if not all(numbers) or not any("\t" in line for line in lines) or int(lines[0].split()[0]) != 1:
        return None
    return RecognisedStories(file.name, sum("\t" in line for line in file.lines()))


def stories_in(file: str, objects: Sequence[Mapping[str, Any]], questions: int) -> RecognisedStories | None:
    """JSON Lines with a story, a question and an answer each."""
    return RecognisedStories(file, questions) if all(map(_is_story, objects)) else None


def _is_story(example: Mapping[str, Any]) -> bool:
    texts = (example.get("question"), example.get("answer"))
    return isinstance(example.get("story"), str | list) and all(isinstance(text, str) for text in texts)
