"""Files, datasets and built-in corpora -> rows of text, streamed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from regard.data.config import Corpus
from regard.data.corpora import VERSION, Part, generate
from regard.data.formats import format_of, rows_in
from regard.data.huggingface import HubDataset
from regard.data.rows import Row, keys_of, numeric_keys
from regard.errors import DataError
from regard.text.files import TextFile, problem_with


def open_corpus(corpus: Corpus, base: Path, part: Part = "train") -> Reader:
    """A reader of the corpus; names of files are relative to `base`.

    `part` is the part of a built-in corpus, and the split of a dataset unless the corpus names one.
    """
    reader = Reader(corpus, base, part)
    problems = [problem for file in reader.files if (problem := problem_with(file))]
    if problems:
        raise DataError(problems=problems)
    if corpus.file is not None:
        format_of(reader.files[0])
    else:
        _refuse_tables(reader.files)
    if reader.dataset is not None:
        reader.dataset.check()
    return reader


@dataclass(frozen=True)
class Reader:
    """The rows of a corpus: each iteration streams them anew, and none holds more than a line a file."""

    corpus: Corpus
    base: Path
    part: Part
    in_pieces: ClassVar[bool] = False
    """Whether an example may be several rows, as a long document is: the column `part` then says where it ends."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What the columns are read as, in the order of a row's values."""
        return tuple(self.corpus.READ_AS.get(name, name) for name in self.corpus.columns)

    @property
    def may_be_empty(self) -> bool:
        """Whether a row without text is meant so, and no mistake."""
        return False

    @property
    def files(self) -> tuple[TextFile, ...]:
        """The one file, or a file for each column, or none."""
        if self.corpus.corpus is not None or self.corpus.dataset is not None:
            return ()
        names = self.corpus.columns.values() if self.corpus.file is None else [self.corpus.file]
        return tuple(TextFile(str(name), self.base / str(name)) for name in names)

    @property
    def dataset(self) -> HubDataset | None:
        """The dataset to read instead of files."""
        corpus = self.corpus
        if corpus.dataset is None:
            return None
        return HubDataset(corpus.dataset, self.base, corpus.subset, corpus.split, self.part)

    def __iter__(self) -> Iterator[Row]:
        """Every row, or a DataError for the first that cannot be read."""
        for row in self.rows():
            if row.fault is not None:
                raise DataError(problems=[row.fault])
            yield row

    def rows(self) -> Iterator[Row]:
        """The same with those that have a fault, for whoever may drop them."""
        rows = islice(self._rows(), self.corpus.size)
        return (prefixed(row, self.corpus.prefix) for row in rows) if self.corpus.prefix else rows

    def _rows(self) -> Iterator[Row]:
        corpus = self.corpus
        if corpus.corpus is not None:
            rows = generate(corpus.corpus, corpus.size, corpus.seed, self.part, corpus.words)
            return (Row(line, cells) for line, cells in enumerate(rows, 1))
        if self.dataset is not None:
            return self.dataset.rows(list(keys_of(corpus).values()), numeric_keys(corpus))
        if corpus.file is None:
            return _parallel_rows(self.files)
        return rows_in(self.files[0], corpus)

    def where(self, line: int, column: str | None = None) -> str:
        """The place of a row, or of one of its columns, as messages name it: `train.en:17`."""
        if self.corpus.corpus is not None:
            return f"corpus {self.corpus.corpus}:{line}"
        if self.dataset is not None:
            return self.dataset.where(line)
        number = self.columns.index(column) if column and self.corpus.file is None else 0
        return self.files[number].where(line)

    def empty(self, row: Row, column: int) -> str:
        """What to call an empty text: a line, or a cell where other cells of the row are filled."""
        names = list(self.corpus.columns.items())
        if self.corpus.file is None or len(names) != len(row.values) or not "".join(row.values).strip():
            return "the line is empty"
        name, key = names[column]
        return f"the {name} is empty" if name == key else f"the {name} (column {key!r}) is empty"

    def findings(self) -> Iterator[str]:
        """What a user should know of the files that are read."""
        return iter(())

    def fingerprint(self) -> str:
        """A hash of all that decides the rows: the bytes of the files as they lie there, and how they are read."""
        corpus = self.corpus
        settings: list[Any] = [corpus.size, self.columns, corpus.prefix]
        if corpus.corpus is not None:
            settings += [corpus.corpus, corpus.seed, self.part, VERSION, corpus.words.start, corpus.words.stop]
        elif corpus.file is not None:
            settings += [list(corpus.columns.values()), corpus.header]
        elif self.dataset is not None:
            settings += [list(corpus.columns.values()), corpus.subset, corpus.split, self.part, self.dataset.digest()]
        settings += [[file.suffixes, file.digest()] for file in self.files]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()


def prefixed(row: Row, prefix: str) -> Row:
    """The prefix before the first column; an empty text stays empty, so that it is still found."""
    first, *others = row.values
    return Row(row.line, (prefix + first, *others)) if first.strip() else row


def _refuse_tables(files: Sequence[TextFile]) -> None:
    """A Parquet file is no text, whatever column it is named for."""
    for file in files:
        if file.suffixes[0] == ".parquet":
            hint = f"file: {file.name}, and the columns by their names"
            raise DataError(
                "a Parquet file holds all columns, it is not one of parallel files", where=file.name, hint=hint
            )


def _parallel_rows(files: Sequence[TextFile]) -> Iterator[Row]:
    """Line n of each file makes row n."""
    lines = zip(*(file.lines() for file in files), strict=True)
    try:
        for line, values in enumerate(lines, 1):
            yield Row(line, values)
    except ValueError:  # zip: one file ended before another
        raise _unequal(files) from None


def _unequal(files: Sequence[TextFile]) -> DataError:
    counts = {file: file.count_lines() for file in files}
    shorter, longer = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    what = f"{longer.name} has {counts[longer]:,} lines, {shorter.name} has {counts[shorter]:,}"
    hint = "parallel files need the same number of lines; this line has no partner"
    return DataError(what, where=longer.where(counts[shorter] + 1), hint=hint)
