"""A user's files -> what is in them: the format, the header, the two columns of text, their scripts and sizes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean, quantiles

from regard.data.files import TextFile, open_text
from regard.data.formats import FORMATS, RECORDS, format_of, objects_in
from regard.data.parquet import count_rows, read_parquet, text_columns
from regard.data.rows import Key, leaves_in
from regard.errors import DataError

SAMPLE = 2000
"""Rows that are looked at."""
SOURCES = ("source", "src", "input", "question", "q", "document", "article", "body", "content", "text", "dialogue")
TARGETS = ("target", "tgt", "output", "answer", "a", "summary", "highlights", "headline", "abstract", "title")
"""What the two columns are often called; the last part of a nested name counts."""
SUMMARIES = ("summary", "highlights", "headline", "abstract", "title")


@dataclass(frozen=True)
class Column:
    """One side of the pairs."""

    key: Key
    """The column's name or number, or the file."""
    script: str
    """What most letters belong to: Latin, Hangul, Cjk, …"""
    words: float
    """Words of a text, on average."""
    characters: int
    """What 99 of 100 texts do not exceed."""


@dataclass(frozen=True)
class Recognised:
    """Pairs of texts."""

    file: str | None
    """The one file with both columns; None for parallel files."""
    header: bool
    """Whether the first line names the columns, of a file where that is a question."""
    pairs: int
    source: Column
    target: Column

    @property
    def summaries(self) -> bool:
        """Whether the target says in short what the source says: by its name, or because it is far shorter."""
        if self.file is not None and _last_name(self.target.key) in SUMMARIES:
            return True
        return self.source.words > max(25.0, 4 * self.target.words)


def recognise(names: Sequence[str], base: Path) -> Recognised:
    """What is in one file with several columns, or in two parallel ones."""
    files = [open_text(name, base) for name in names]
    if len(files) > 2 or (len(files) == 2 and any(file.suffixes[0] in FORMATS for file in files)):
        hint = f"one file with all columns ({', '.join(FORMATS)}), or two text files, parallel line by line"
        raise DataError(f"{len(files)} files cannot be read together", where=files[1].name, hint=hint)
    if len(files) == 2:
        sample: dict[Key, list[str]] = {file.name: list(islice(file.lines(), SAMPLE)) for file in files}
        source, target = (_column(key, texts) for key, texts in sample.items())
        return Recognised(None, False, files[0].count_lines(), source, target)
    return _table(files[0])


def _table(file: TextFile) -> Recognised:
    format_of(file)
    suffix = file.suffixes[0]
    header = False
    if suffix == ".parquet":
        names = text_columns(file)
        rows = [row.values for row in islice(read_parquet(file, names), SAMPLE)] if names else []
        columns: dict[Key, list[str]] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        pairs = count_rows(file)
    elif suffix == ".jsonl":
        columns, pairs = _keys(file), file.count_lines()
    else:
        header, columns, pairs = _fields(file)
    source, target = _chosen(columns, file.name)
    return Recognised(
        file.name, header, pairs, _column(source, columns[source]), _column(target, columns[target])
    )  # fmt: skip


def _keys(file: TextFile) -> dict[Key, list[str]]:
    """The columns of a .jsonl file; what is no text there is an empty one."""
    examples = [dict(leaves_in(example)) for _, example in islice(objects_in(file), SAMPLE) if example is not None]
    paths = dict.fromkeys(path for example in examples for path in example)
    return {
        path: [value if isinstance(value := example.get(path), str) else "" for example in examples] for path in paths
    }


def _fields(file: TextFile) -> tuple[bool, dict[Key, list[str]], int]:
    """Of a .tsv or .csv: whether there is a header, the columns, and how many rows there are below it."""
    records = RECORDS[file.suffixes[0]](file)
    rows = [fields for _, fields in islice(records, SAMPLE)]
    pairs = len(rows) + sum(1 for _ in records)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    header = len(rows) > 1 and _is_header(rows[0], [row for row in rows[1:] if len(row) == width])
    names: Sequence[Key] = rows[0] if header else range(width)
    body = [row for row in rows[header:] if len(row) >= len(names)]
    return header, {name: [row[place] for row in body] for place, name in enumerate(names)}, pairs - header


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Distinct names of one word, of which one is well known, or which stand above texts of several words."""
    if len(set(first)) < len(first) or not all(re.fullmatch(r"[^\W\d][\w.-]*", name) for name in first):
        return False
    if any(_last_name(name) in (*SOURCES, *TARGETS) for name in first):
        return True
    texts = [place for place in range(len(first)) if rows and mean(" " in row[place].strip() for row in rows) > 0.5]
    return len(texts) >= 2


def _chosen(columns: Mapping[Key, Sequence[str]], where: str) -> tuple[Key, Key]:
    """The source and the target: by their names, else the first two columns of text."""
    texts = [key for key, values in columns.items() if _is_text(values)]
    if len(columns) == 2:  # then these are the two, whatever is in them
        texts = list(columns)
    if len(texts) < 2:
        found = ", ".join(f"column {key}" for key in texts)
        what = (
            f"two columns of text are needed, but only {found} looks like text"
            if texts
            else "no column looks like text"
        )
        raise DataError(what, where=where, hint=f"the columns are {', '.join(map(str, columns))}")
    source = next((key for key in texts if _last_name(key) in SOURCES), None)
    target = next((key for key in texts if _last_name(key) in TARGETS and key != source), None)
    first = source if source is not None else next(key for key in texts if key != target)
    return first, target if target is not None else next(key for key in texts if key != first)


def _is_text(values: Sequence[str]) -> bool:
    """Most values have letters, and they are not a few labels or the addresses of something."""
    filled = [value for value in values if any(map(str.isalpha, value))]
    addresses = sum(value.startswith(("http://", "https://")) for value in filled)
    few = len(values) > 50 and len(set(values)) <= 10
    return len(filled) > len(values) / 2 and addresses <= len(filled) / 2 and not few


def _column(key: Key, texts: Sequence[str]) -> Column:
    lengths = sorted(map(len, texts))
    longest = quantiles(lengths, n=100)[-1] if len(lengths) > 1 else lengths[0]
    return Column(key, _script(texts), mean(len(text.split()) for text in texts), round(longest))


def _script(texts: Sequence[str]) -> str:
    counts = Counter(_scripts(islice(texts, 300)))
    return counts.most_common(1)[0][0] if counts else "no"


def _scripts(texts: Iterator[str]) -> Iterator[str]:
    """The script of each letter: the first word of its name in Unicode."""
    for text in texts:
        for sign in unicodedata.normalize("NFC", text)[:300]:
            if sign.isalpha() and (name := unicodedata.name(sign, "")):
                yield name.split()[0].split("-")[0].capitalize()


def _last_name(key: Key) -> str:
    return str(key).rpartition(".")[2].lower()
