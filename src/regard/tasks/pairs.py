"""What `--file` names, as a corpus with the columns of the recipe's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.columns import first_rows, header_of
from regard.data.config import Corpus
from regard.data.file_inputs import has_columns
from regard.data.formats import FORMATS
from regard.errors import DataError
from regard.text.files import TextFile


def corpus_of(files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
    """What `--file` names: one file a column, or one with all columns.

    Those are found as in the recipe's own file of the same format, or of another one with the same names; else by
    number, and in .jsonl, or where the first line says so, by name. A first line that names columns is no row.
    """
    kind, columns = type(own[0]), list(own[0].columns)
    if len(files) == len(columns):
        named_files: dict[str, Any] = dict(zip(columns, files, strict=True))
        return kind(**named_files)
    if len(files) != 1:
        hint = f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    suffix = suffix_of(files[0])
    if suffix not in FORMATS and Path(files[0]).is_file():
        hint = f"{' '.join(f'--file {name.upper()}' for name in columns)}, or one table: {', '.join(FORMATS)}"
        raise DataError(f"{files[0]} is no table, so it can hold only one of the columns", where="--file", hint=hint)
    file = TextFile(files[0], Path(files[0]))
    names = header_of(file) if suffix in (".tsv", ".csv") else []
    tables = [corpus for corpus in own if corpus.file is not None]
    alike = [corpus for corpus in tables if suffix_of(str(corpus.file)) == suffix]
    for corpus in [*alike, *(corpus for corpus in tables if _has_names_of(corpus, file))]:
        return kind(file=files[0], header=header_in(files[0], corpus), **corpus.columns)  # type: ignore[arg-type]
    named = suffix == ".jsonl" or set(columns) <= set(names)
    if not named and suffix in (".tsv", ".csv"):
        _refuse_more(file, columns)
    keys: dict[str, Any] = {name: name if named else number for number, name in enumerate(columns)}
    return kind(file=files[0], header=True if names and not named else None, **keys)


def _refuse_more(file: TextFile, columns: Sequence[str]) -> None:
    """Refuse a table with more columns than are read, where nothing says which of them those are."""
    filled = Counter(max((place for place, cell in enumerate(row, 1) if cell), default=0) for row in first_rows(file))
    [(width, _)] = filled.most_common(1) or [(0, 0)]
    if width > len(columns):
        what = f"it has {width} columns, and nothing says which is the {' and which the '.join(columns)}"
        hint = f"name them {', '.join(columns)} in a first line, or leave the others out"
        raise DataError(what, where=file.name, hint=hint)


def _has_names_of(corpus: Corpus, file: TextFile) -> bool:
    """Whether a file has a corpus's columns, of which the first is enough: what is to be found may be missing."""
    first, *others = corpus.columns.values()
    return isinstance(first, str) and all(isinstance(key, str) for key in others) and has_columns(file, {first: first})


def header_in(file: str, like: Corpus) -> bool | None:
    """The setting `header` for a file that is read as another corpus: a first line that names columns is no row, also
    where they are asked for by number."""
    by_number = like.header is None and all(isinstance(key, int) for key in like.columns.values())
    named = by_number and suffix_of(file) in (".tsv", ".csv") and header_of(TextFile(file, Path(file)))
    return True if named else like.header


def suffix_of(file: str) -> str:
    """What a file is, however it is compressed."""
    return TextFile(file, Path(file)).suffixes[0]
