"""Pairs of texts to measure a run on: corpora as they are, and what `--file` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.config import Corpus, Data, Splits
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.files import TextFile
from regard.data.readers import Reader, open_corpus
from regard.data.rows import Row
from regard.data.tokenizers import Tokenizers
from regard.errors import DataError, Problem, first_of
from regard.tasks.inputs import LONGEST


def corpus_of(files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
    """What `--file` names: one file a column, or one with all columns.

    Those are found as in the recipe's own file of the same format, if there is one; else by number, in .jsonl by name.
    """
    kind, columns = type(own[0]), list(own[0].columns)
    if len(files) == len(columns):
        named_files: dict[str, Any] = dict(zip(columns, files, strict=True))
        return kind(**named_files)
    if len(files) != 1:
        hint = f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    suffix = suffix_of(files[0])
    for corpus in own:
        if corpus.file is not None and suffix_of(corpus.file) == suffix:
            return kind(file=files[0], header=corpus.header, **corpus.columns)  # type: ignore[arg-type]
    keys: dict[str, Any] = {name: name if suffix == ".jsonl" else number for number, name in enumerate(columns)}
    return kind(file=files[0], **keys)


def suffix_of(file: str) -> str:
    """What a file is, however it is compressed."""
    return TextFile(file, Path(file)).suffixes[0]


def read_pairs(data: Data[Any], corpora: Sequence[Corpus], part: Part, base: Path, tokenizers: Tokenizers) -> Dataset:
    """Corpora as they are, less the bad lines where the recipe drops those."""
    dataset = read_texts(data, [open_corpus(corpus, base, part) for corpus in corpora], tokenizers)
    too_long = [
        Problem(
            dataset.where(row), f"the pair has {dataset.lengths[row] - 1:,} tokens", f"at most {LONGEST:,}: split it"
        )
        for row in np.flatnonzero(dataset.lengths > LONGEST + 1).tolist()
    ]
    if too_long:
        raise DataError(problems=first_of(too_long))
    return dataset


def read_texts(data: Splits[Any], readers: Sequence[Reader], tokenizers: Tokenizers) -> Dataset:
    """The rows of some readers, those columns as tokens that have a tokenizer; however long they are."""
    texts: dict[str, list[str]] = {}
    places: list[str] = []
    numbers: list[int] = []
    problems: list[Problem] = []
    for number, reader in enumerate(readers):
        columns = [texts.setdefault(name, []) for name in reader.columns]
        for row in reader:
            if bad := _problems_in(reader, row, data.max_characters):
                problems += bad
                continue
            for column, value in zip(columns, row.values, strict=True):
                column.append(value)
            places.append(reader.where(row.line))
            numbers.append(number)
    if problems and (data.bad_lines == "error" or not places):
        raise DataError(problems=first_of(problems))
    dataset = Dataset.of(texts, tokenizers, lambda row: places[row])
    return replace(dataset, corpora=np.array(numbers, dtype=np.int16), weights=(1.0,) * len(readers))


def _problems_in(reader: Reader, row: Row, max_characters: int) -> list[Problem]:
    problems = []
    for name, value in zip(reader.columns, row.values, strict=True):
        if not value.strip():
            problems.append(Problem(reader.where(row.line, name), "the line is empty", "fill it, or drop the pair"))
        elif len(value) > max_characters:
            what = f"the line has {len(value):,} characters, data.max_characters allows {max_characters:,}"
            problems.append(Problem(reader.where(row.line, name), what, "split it, or drop the pair"))
    return problems
