"""How the columns of tables are named, and what a column holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean
from typing import Any

from regard.data.formats import (
    Key,
)
from regard.data.prepare import NANS

SAMPLED_ROWS = 2000  # rows that are looked at


COLUMN_NAMES = {
    "source": (
        "source",
        "src",
        "input",
        "question",
        "q",
        "document",
        "article",
        "body",
        "content",
        "text",
        "dialogue",
    ),
    "target": ("target", "tgt", "output", "answer", "a"),
    "summary": ("summary", "highlights", "headline", "abstract", "title"),
    "text": (
        "text",
        "sentence",
        "review",
        "comment",
        "comments",
        "document",
        "content",
        "tweet",
        "message",
        "utterance",
        "startphrase",
        "question",
        "context",
        "premise",
        "stem",
    ),
    "class": (
        "label",
        "labels",
        "class",
        "category",
        "sentiment",
        "gold_label",
        "polarity",
        "intent",
        "topic",
        "emotion",
    ),
    "number": ("score", "rating", "stars", "similarity", "grade"),
}
"""What columns are often called, by what they hold."""


IMAGE_NAME = re.compile(r"(?!\w+://).*\.(png|jpe?g|gif|bmp|webp|tiff?|npy)", re.IGNORECASE)
"""The name of an image's file, or of its features; not a URL."""


# Tables

NUMBER_TEXT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Table:
    """A sample of the rows of a table."""

    data: dict[str, Any]  # the file or the dataset, as a recipe names it
    columns: Mapping[Key, Sequence[Any]]  # texts and, of a .jsonl or a dataset, also lists
    rows: int  # of the whole table
    chosen: Mapping[str, Key] = field(
        default_factory=dict
    )  # their own names of columns that are named by their roles

    @cached_property
    def kinds(self) -> dict[Key, str]:
        kinds = {key: kind_of(key, values) for key, values in self.columns.items()}
        own = self.chosen.get("label")
        if (
            own is not None
            and is_named(own, "number")
            and kind_of(own, self.columns["label"]) == "number"
        ):
            kinds["label"] = "number"
        return kinds

    def of_kind(self, *kinds: str) -> list[Key]:
        return [key for key, kind in self.kinds.items() if kind in kinds]

    @cached_property
    def sentences(self) -> list[Key]:
        """The columns of text. Single words beside sentences are rather names."""
        words = {
            key: mean(len(text.split()) for text in self.columns[key])
            for key in self.of_kind("text")
        }
        return [key for key in words if words[key] >= 1.5 or max(words.values()) < 3]

    def text(self, *others: Key) -> Key | None:
        """The column of text that is none of the others: the one that is named so, else the
        longest."""
        keys = [key for key in self.sentences if key not in others]
        lengths = {key: mean(map(len, self.columns[key])) for key in keys}
        return min(keys, key=lambda key: (not is_named(key, "text"), -lengths[key]), default=None)


def kind_of(key: Key, values: Sequence[Any]) -> str:
    """The kind of a column: list, image, number (with a fraction, or named so), class (few short words or
    whole numbers), text or other."""
    if any(isinstance(value, list) for value in values):
        return "list"
    filled = [value.strip() for value in values if value.strip() and value not in NANS]
    distinct = {*filled}
    if filled and are_images(values):
        return "image"
    # a named label may often be missing
    if len(distinct) > 1 and (is_label(key) or len(filled) >= 0.9 * len(values)):
        numbers = [value for value in filled if NUMBER_TEXT.fullmatch(value)]
        numeric = len(numbers) >= 0.95 * len(filled)  # the others are for `check` to name
        if numeric and (is_named(key, "number") or any(float(value) % 1 for value in numbers)):
            return "number"
        few = len(distinct) <= (len(filled) / 2 if is_label(key) else min(50, len(filled) / 4))
        if (
            few
            and max(map(len, distinct)) <= 40
            and mean(len(value.split()) for value in distinct) <= 3
        ):
            return "class"
    texts = [
        value
        for value in filled
        if any(map(str.isalpha, value)) and not re.match("https?://", value)
    ]
    repeated = len(values) > 50 and len(distinct) <= 10
    return "text" if len(texts) > len(values) / 2 and not repeated else "other"


def last_name(key: Key) -> str:
    """The last part of a nested name, in lower case."""
    return str(key).rpartition(".")[2].lower()


def is_named(key: Key, *roles: str) -> bool:
    """Whether a column's name says that it holds one of these."""
    return any(last_name(key) in COLUMN_NAMES[role] for role in roles)


def are_images(values: Sequence[str]) -> bool:
    """Whether nearly all values name images."""
    return sum(IMAGE_NAME.fullmatch(value.strip()) is not None for value in values) > 0.9 * len(
        values
    )


def is_label(key: Key) -> bool:
    return is_named(key, "class", "number")
