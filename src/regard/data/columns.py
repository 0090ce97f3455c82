"""What the columns of a table are often called, and whether its first line names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import mean

from regard.data.formats import SEPARATORS, Key, csv_records, first_records, tsv_records
from regard.errors import DataError
from regard.text.files import TextFile, problem_with

SAMPLE = 2000
"""Rows that are looked at."""
NAMES = {
    "source": ("source", "src", "input", "question", "q", "document", "article", "body", "content", "text", "dialogue"),
    "target": ("target", "tgt", "output", "answer", "a"),
    "summary": ("summary", "highlights", "headline", "abstract", "title"),
    "text": ("text", "sentence", "review", "comment", "comments", "document", "content", "tweet", "message",
             "utterance", "startphrase", "question", "context", "premise", "stem"),
    "class": ("label", "labels", "class", "category", "sentiment", "gold_label", "polarity", "intent", "topic",
              "emotion"),
    "number": ("score", "rating", "stars", "similarity", "grade"),
}  # fmt: skip
"""What columns are often called, by what they hold."""
IMAGE = re.compile(r"(?!\w+://).*\.(png|jpe?g|gif|bmp|webp|tiff?|npy)", re.IGNORECASE)
"""The name of an image's file, or of its features; not a URL."""


def last_name(key: Key) -> str:
    """The last part of a nested name, in lower case."""
    return str(key).rpartition(".")[2].lower()


def is_named(key: Key, *roles: str) -> bool:
    """Whether a column's name says that it holds one of these."""
    return any(last_name(key) in NAMES[role] for role in roles)


def are_images(values: Sequence[str]) -> bool:
    """Whether nearly all values name images."""
    return sum(IMAGE.fullmatch(value.strip()) is not None for value in values) > 0.9 * len(values)


def table_records(file: TextFile) -> Iterator[list[str]]:
    """The cells of each line of a .tsv, or of each record of a .csv with the separator that splits it evenly."""
    records = tsv_records(file) if file.suffixes[0] == ".tsv" else csv_records(file, _separator(file))
    return (fields for _, fields in records)


def _separator(file: TextFile) -> str:
    def even(separator: str) -> int:
        widths = [len(record) for record in first_records(file, separator)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    return max(SEPARATORS, key=even)


def first_rows(file: TextFile) -> list[list[str]]:
    """The first records of a .tsv or .csv; none where it cannot be read: the reader reports why."""
    try:
        return [] if problem_with(file) else [*islice(table_records(file), SAMPLE)]
    except DataError:
        return []


def header_of(file: TextFile) -> list[str]:
    """The first line of a .tsv or .csv if it names the columns, else nothing."""
    records = first_rows(file)
    if not records:
        return []
    rows = [row for row in records[1:] if len(row) == len(records[0])]
    return records[0] if rows and is_header(records[0], rows) else []


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record names the columns: by distinct single words, where one is a known name, or where two
    columns below hold texts of several words. pandas leaves the first name empty.

    A file sorted by length begins with single words, too: then the next rows are like the first.
    """
    if len(set(first)) < len(first) or not all(first[1:]):
        return False
    for place, name in enumerate(first):
        if are_images([row[place] for row in rows if len(row) > place]):
            return not are_images([name])
    if not _are_words(first) or any(len(name) > 1 and is_named(name, *NAMES) for name in first):
        return _are_words(first)  # a single letter, as in Q and A, may also be a word
    if not rows or mean(_are_words(row) for row in rows[:19]) > 0.5:
        return False
    columns = list(zip(*rows, strict=True))
    return sum(mean(" " in cell.strip() for cell in cells) > 0.5 for cells in columns) >= 2


def _are_words(row: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[^\W\d]([\w.-]*\w)?", cell) for cell in row if cell)
