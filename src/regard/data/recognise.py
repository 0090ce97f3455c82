"""A user's files -> what is in them: the format, the header, the two columns of text, their scripts and sizes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, TypeVar

from regard.data.columns import Column, Columns, column_of, is_text, last_name
from regard.data.formats import FORMATS, SEPARATORS, csv_records, first_records, format_of, object_in, tsv_records
from regard.data.huggingface import HubDataset, is_saved
from regard.data.parquet import count_rows, plain_columns, read_parquet
from regard.data.recognise_images import RecognisedCaptions, captions_in, names_images
from regard.data.recognise_labels import CLASSES, NUMBERS, TEXTS, RecognisedLabels, is_label, labels_in
from regard.data.recognise_stories import RecognisedStories, numbered_stories_in, stories_in
from regard.data.recognise_text import RecognisedText, column_of_text, stands_in_columns, text_below, text_in
from regard.data.recognise_words import lists_in, questions_in, words_in
from regard.data.rows import Key, leaves_in
from regard.errors import DataError
from regard.text.files import TextFile, open_text, problem_with

R = TypeVar("R")
SAMPLE = 2000
"""Rows that are looked at."""
NEAR = 20
"""Of these the first ones of the file, by which a header is told."""
SOURCES = ("source", "src", "input", "question", "q", "document", "article", "body", "content", "text", "dialogue")
TARGETS = ("target", "tgt", "output", "answer", "a", "summary", "highlights", "headline", "abstract", "title")
"""What the two columns are often called; the last part of a nested name counts."""
SUMMARIES = ("summary", "highlights", "headline", "abstract", "title")
KNOWN = frozenset((*SOURCES, *TARGETS, *CLASSES, *NUMBERS, *TEXTS))


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
        if self.file is not None and last_name(self.target.key) in SUMMARIES:
            return True
        return self.source.words > max(25.0, 4 * self.target.words)


RecognisedTask = RecognisedLabels | RecognisedCaptions | RecognisedStories | RecognisedText
"""What is no pairs of texts."""


def recognise(names: Sequence[str], base: Path) -> Recognised | RecognisedTask:
    """What is in one file, in two parallel ones, or in a folder: a dataset, or texts."""
    if len(names) == 1 and is_saved(base / names[0]):
        examples, count = _sampled(HubDataset(names[0], base, None, None, "train").examples())
        return _labels_or_pairs(names[0], _keys(examples), count)
    if len(names) == 1 and (below := text_below(base / names[0])):
        return text_in(below, Path())
    files = [open_text(name, base) for name in names]
    if len(files) > 2 or (len(files) == 2 and any(file.suffixes[0] in FORMATS for file in files)):
        hint = f"one file with all columns ({', '.join(FORMATS)}), or two text files, parallel line by line"
        raise DataError(f"{len(files)} files cannot be read together", where=files[1].name, hint=hint)
    if len(files) == 2:
        rows, _ = _sampled(zip(*(file.lines() for file in files), strict=False))
        source, target = (
            column_of(file.name, texts) for file, texts in zip(files, zip(*rows, strict=True), strict=True)
        )
        return Recognised(None, False, files[0].count_lines(), source, target)
    if files[0].suffixes[0] == ".json":
        return questions_in(files[0])
    found = numbered_stories_in(files[0]) or words_in(files[0])
    if found is not None:
        return found
    is_table = files[0].suffixes[0] in FORMATS or stands_in_columns(files[0])
    return _table(files[0]) if is_table else text_in(files[0].name, base)


def _table(file: TextFile) -> Recognised | RecognisedTask:
    suffix = file.suffixes[0]
    if suffix not in FORMATS:
        hint = (
            f"a table ({', '.join(FORMATS)}), CoNLL columns, SQuAD's .json, bAbI's numbered lines, "
            f"two parallel texts: {file.name} OTHER, or raw text: regard check gpt data.train.text={file.name}"
        )
        what = "what is in this file cannot be told from it alone: there are tabs in its lines"
        raise DataError(what, where=file.name, hint=hint)
    format_of(file)
    header, objects = False, list[dict[str, Any]]()
    if suffix == ".parquet":
        names = plain_columns(file)
        rows, _ = _sampled(row.values for row in read_parquet(file, names, frozenset(names))) if names else ([], 0)
        columns: dict[Key, list[str]] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        pairs = count_rows(file)
    elif suffix == ".jsonl":
        lines, pairs = _sampled(enumerate(file.lines(), 1))
        objects = [object_in(text, file.where(line)) for line, text in sorted(lines) if text.strip()]
        columns = _keys(objects)
    else:
        header, columns, pairs = _fields(file)
    if found := _stories_or_captions(file, objects, columns, pairs):
        return found
    return _labels_or_pairs(file.name, columns, pairs, objects, header=header)


def _labels_or_pairs(
    file: str, columns: Columns, pairs: int, objects: Sequence[Mapping[str, Any]] = (), *, header: bool = False
) -> Recognised | RecognisedTask:
    if not _are_named_pairs(columns):
        labels = lists_in(file, objects, columns, pairs) if objects else labels_in(file, columns, pairs)
        if labels is not None:
            return labels
    if len(columns) == 1 and all(map(is_text, columns.values())):
        [(key, texts)] = columns.items()
        return column_of_text(file, key, texts, pairs)
    source, target = _chosen(columns, file)
    return Recognised(file, header, pairs, column_of(source, columns[source]), column_of(target, columns[target]))


def _stories_or_captions(
    file: TextFile, objects: Sequence[Mapping[str, Any]], columns: Columns, rows: int
) -> RecognisedStories | RecognisedCaptions | None:
    stories = stories_in(file.name, objects, rows) if objects else None
    return stories or captions_in(file, objects, columns, rows)


def _are_named_pairs(columns: Columns) -> bool:
    """Whether names say what is read and what is written, and both are texts: a label beside them is by the way."""
    texts = {last_name(key) for key, values in columns.items() if is_text(values) and not is_label(values)}
    return bool(texts.intersection(SOURCES)) and bool(texts.intersection(set(TARGETS) - set(SUMMARIES)))


def _keys(objects: Sequence[Mapping[str, Any]]) -> dict[Key, list[str]]:
    """The columns of a .jsonl file; what is no text or number there is an empty one."""
    examples = [dict(leaves_in(example)) for example in objects]
    paths = dict.fromkeys(path for example in examples for path in example)
    return {path: [_said(example.get(path)) for example in examples] for path in paths}


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else ""


def _fields(file: TextFile) -> tuple[bool, dict[Key, list[str]], int]:
    """Of a .tsv or .csv: whether there is a header, the columns, and how many rows there are below it."""
    records = tsv_records(file) if file.suffixes[0] == ".tsv" else csv_records(file, _separator(file))
    rows, pairs = _sampled(fields for _, fields in records)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    header = len(rows) > 1 and _is_header(rows[0], [row for row in rows[1:] if len(row) == width])
    names: Sequence[Key] = rows[0] if header else range(width)
    body = [row for row in rows[header:] if len(row) >= len(names)]
    return header, {name: [row[place] for row in body] for place, name in enumerate(names)}, pairs - header


def _sampled(records: Iterable[R]) -> tuple[list[R], int]:
    """The first records and some of all others, drawn since many files are sorted, by label or by length; and how many
    there are."""
    rows, count, random = list[R](), 0, Random(0)
    for count, fields in enumerate(records, 1):
        if count <= SAMPLE:
            rows.append(fields)
        elif (place := random.randrange(NEAR, count)) < SAMPLE:
            rows[place] = fields
    return rows, count


def _separator(file: TextFile) -> str:
    """What stands between the cells of a .csv: that which cuts most records into as many as the first."""
    alike = {one: _alike(first_records(file, one)) for one in SEPARATORS}
    return max(SEPARATORS, key=lambda one: alike[one])


def _alike(records: Sequence[Sequence[str]]) -> int:
    width = len(records[0]) if records else 0
    return sum(len(record) == width for record in records) if width > 1 else 0


def first_rows(file: TextFile) -> list[list[str]]:
    """The first records of a .tsv or .csv; none where it cannot be read, which is said when it is."""
    if problem_with(file):
        return []
    records = tsv_records(file) if file.suffixes[0] == ".tsv" else csv_records(file, _separator(file))
    try:
        return [fields for _, fields in islice(records, SAMPLE)]
    except DataError:
        return []


def header_of(file: TextFile) -> list[str]:
    """The first line of a .tsv or .csv where it names columns of texts; nothing where it is a row as all others."""
    records = first_rows(file)
    if not records:
        return []
    first, rows = records[0], [row for row in records[1:] if len(row) == len(records[0])]
    if (of_images := names_images(first, rows)) is not None:
        return first if of_images else []
    known = {name for name in KNOWN if len(name) > 1}  # a pair of letters is rather a pair
    return first if rows and all(first) and _names_texts(first, rows, known) else []


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a record names columns of texts, images or labels. The first name may be missing, as pandas writes it."""
    if (of_images := names_images(first, rows)) is not None:
        return of_images and len(set(first)) == len(first)
    return (
        len(set(first)) == len(first) and all(first[1:]) and (_names_labels(first, rows) or _names_texts(first, rows))
    )


def _names_texts(first: Sequence[str], rows: Sequence[Sequence[str]], known: Container[str] = KNOWN) -> bool:
    """Distinct names of one word, of which one is well known, or which stand above texts of several words and not above
    more of their kind, as a single word in a file sorted by length does."""
    if len(set(first)) < len(first) or not _are_names(first):
        return False
    if any(last_name(name) in known for name in first):
        return True
    if not rows or mean(_are_names(row) for row in rows[: NEAR - 1]) > 0.5:
        return False
    texts = [place for place in range(len(first)) if mean(" " in row[place].strip() for row in rows) > 0.5]
    return len(texts) >= 2


def _are_names(row: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[^\W\d]([\w.-]*\w)?", name) for name in row if name)


def _names_labels(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether short names, and no numbers, stand above the rows, one of them above labels that it is none of."""
    if not rows or len(rows[0]) != len(first) or max(map(len, first)) > 30:
        return False
    if any(re.fullmatch(r"[-+\d.,]+", name) for name in first):
        return False
    columns = zip(*rows, strict=True)
    return any(is_label(values) and name not in values for name, values in zip(first, columns, strict=True))


def _chosen(columns: Columns, where: str) -> tuple[Key, Key]:
    """The source and the target: by their names, else the first two columns of text."""
    texts = [key for key, values in columns.items() if is_text(values)]
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
    source = next((key for key in texts if last_name(key) in SOURCES), None)
    target = next((key for key in texts if last_name(key) in TARGETS and key != source), None)
    first = source if source is not None else next(key for key in texts if key != target)
    return first, target if target is not None else next(key for key in texts if key != first)
