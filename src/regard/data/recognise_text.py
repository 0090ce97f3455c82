"""A user's file or folder -> raw text: how much of it there is, and what ends its documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Literal

from regard.data.columns import column_of
from regard.data.documents import DocumentReader, RawText
from regard.data.rows import Key
from regard.text.files import TextFile
from regard.text.sentences import split_sentences

SAMPLE = 2000
"""Lines that are looked at."""
APART = 5
"""Documents between blank lines, from which on these are taken for what ends one."""
RECIPES = (".yaml", ".yml")


@dataclass(frozen=True)
class RecognisedText:
    """Documents."""

    name: str
    """The file, the folder, or the pattern of those of its files that are read."""
    column: Key | None
    """Where the documents stand in a table."""
    documents: Literal["blank_lines", "lines"]
    """What ends one."""
    count: int
    characters: int
    script: str
    several: float
    """The share of documents with two sentences or more."""


def text_below(folder: Path) -> str | None:
    """What names the .txt files of a folder, plain or compressed; None for a folder without, or one of recipes."""
    if not folder.is_dir() or any(path.suffix in RECIPES for path in folder.iterdir()):
        return None
    files = DocumentReader(RawText(text=str(folder)), Path(), "train").files
    kinds = {"".join(file.suffixes) for file in files}
    texts = [kind for kind in sorted(kinds) if kind.startswith(".txt")]
    if not texts:
        return None
    return str(folder) if len(kinds) == 1 else f"{folder.as_posix()}/**/*{texts[0]}"


def stands_in_columns(file: TextFile) -> bool:
    """Whether most lines have tabs, so that it is rather a table."""
    sample = [*islice(filter(str.strip, file.lines()), SAMPLE)]
    return 2 * sum("\t" in line for line in sample) > len(sample)


def text_in(name: str, base: Path) -> RecognisedText:
    """The documents of a text file, a folder or a pattern."""
    files = DocumentReader(RawText(text=name), base, "train").files
    sample = [*islice(_lines(files), SAMPLE)]
    lines = between = characters = 0
    inside = False
    for line in _lines(files):
        filled = bool(line.strip())
        lines, between = lines + filled, between + (filled and not inside)
        inside, characters = filled, characters + len(line)
    by_line = between < APART and lines > between
    filled_lines = [*filter(str.strip, sample)]
    documents = filled_lines if by_line else _between_blank_lines(sample)
    return RecognisedText(
        name=name,
        column=None,
        documents="lines" if by_line else "blank_lines",
        count=lines if by_line else between,
        characters=characters,
        script=column_of(0, filled_lines or [""]).script,
        several=_several(documents),
    )


def _lines(files: Sequence[TextFile]) -> Iterator[str]:
    """The lines of all files; one of them ends a document, too."""
    for file in files:
        yield from file.lines()
        yield ""


def _between_blank_lines(lines: Sequence[str]) -> list[str]:
    groups = groupby(lines, key=lambda line: bool(line.strip()))
    return [" ".join(group) for filled, group in groups if filled]


def _several(documents: Sequence[str]) -> float:
    """The share of documents with two sentences or more."""
    return sum(len(split_sentences(document)) > 1 for document in documents) / max(1, len(documents))


def column_of_text(name: str, key: Key, texts: Sequence[str], count: int) -> RecognisedText:
    """The only column of a table, of which some texts were looked at."""
    characters = count * sum(map(len, texts)) // max(1, len(texts))
    return RecognisedText(name, key, "blank_lines", count, characters, column_of(key, texts).script, _several(texts))
