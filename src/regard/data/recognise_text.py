"""A user's file or folder -> raw text: how much of it there is, and what ends its documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from regard.data.columns import column_of
from regard.data.documents import DocumentReader, RawText
from regard.data.files import TextFile
from regard.data.rows import Key

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
    sample = [*islice(filter(str.strip, _lines(files)), SAMPLE)]
    lines = between = characters = 0
    inside = False
    for line in _lines(files):
        filled = bool(line.strip())
        lines, between = lines + filled, between + (filled and not inside)
        inside, characters = filled, characters + len(line)
    by_line = between < APART and lines > between
    script = column_of(0, sample or [""]).script
    return RecognisedText(
        name, None, "lines" if by_line else "blank_lines", lines if by_line else between, characters, script
    )


def _lines(files: Sequence[TextFile]) -> Iterator[str]:
    """The lines of all files; one of them ends a document, too."""
    for file in files:
        yield from file.lines()
        yield ""


def column_of_text(name: str, key: Key, texts: Sequence[str], count: int) -> RecognisedText:
    """The only column of a table, of which some texts were looked at."""
    characters = count * sum(map(len, texts)) // max(1, len(texts))
    return RecognisedText(name, key, "blank_lines", count, characters, column_of(key, texts).script)
