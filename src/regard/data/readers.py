"""Files, datasets and built-in corpora -> rows of text, streamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.config import TABLES, Corpus
from regard.data.conll import conll_rows, tagged_rows
from regard.data.corpora import VERSION, Part
from regard.data.formats import TABLE_ROWS, Row, keys_of, numeric_keys, object_texts, table_rows
from regard.data.raw import document_rows, text_table_rows
from regard.data.squad import question_rows, squad_rows
from regard.data.stories import babi_rows, story_rows
from regard.errors import DataError, Problem, did_you_mean, import_extra
from regard.text.access import outside
from regard.text.checksums import key_of
from regard.text.files import TextFile, problem_with

FORMATS: dict[str, Callable[[TextFile, Any], Iterator[Row]]] = {
    **dict.fromkeys(TABLE_ROWS, table_rows),
    "text": document_rows,
    "table of texts": text_table_rows,
    "conll": conll_rows,
    "tagged": tagged_rows,
    "squad": squad_rows,
    "questions": question_rows,
    "babi": babi_rows,
    "stories": story_rows,
}
"""How a file becomes rows with the columns of its corpus; tables are in TABLE_ROWS of
data/formats.py. `Corpus.format` chooses one of these by the file's suffix."""
LINES_PER_FILE = (
    1 << 40
)  # times the number of a file, plus the line: the place of a row of several files, in one number


def open_corpus(
    corpus: Corpus,
    base: Path,
    part: Part = "train",
    encoding: str = "utf-8",
    within: Path | None = None,
) -> Reader:
    """A reader of the corpus; names of files are relative to `base`.

    `part` is the part of a built-in corpus, and the split of a dataset unless the corpus names one.
    `encoding` is that of the recipe's section `data`, `within` the only folder whose files may be
    read.
    """
    # its files may name others, and a name leads to the Hub
    if corpus.dataset is not None and within is not None:
        raise DataError(problems=[outside(corpus.dataset)])
    reader = (Reader if corpus.dataset is None else DatasetReader)(
        corpus, base, part, encoding, within
    )
    problems = [problem for file in reader.files if (problem := problem_with(file))]
    if problems:
        raise DataError(problems=problems)
    for file in reader.files:
        if not reader.parallel:
            corpus.format(file)
        elif file.suffixes[0] == ".parquet":
            what = "a Parquet file holds all columns, it is not one of parallel files"
            raise DataError(
                what, where=file.name, hint=f"file: {file.name}, and the columns by their names"
            )
    if isinstance(reader, DatasetReader):
        _ = reader.folder  # a name that cannot be one
        import_extra("datasets", extra="hf", where=reader.name)
    return reader


@dataclass(frozen=True)
class Reader:
    """The rows of a corpus: each iteration streams them anew, and none holds more than a line a
    file."""

    corpus: Corpus
    base: Path
    part: Part
    encoding: str = "utf-8"
    within: Path | None = None  # the only folder whose files may be read

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.corpus.ROW or tuple(
            self.corpus.READ_AS.get(name, name) for name in self.corpus.columns
        )

    @cached_property
    def files(self) -> tuple[TextFile, ...]:
        return tuple(
            replace(file, encoding=self.encoding)
            for file in self.corpus.files(self.base, self.within)
        )

    @cached_property
    def parallel(self) -> bool:
        """Whether each column has a file of its own, or a folder of them."""
        return self.corpus.file is None and 1 < len(self.corpus.columns) <= len(self.files)

    def rows(self) -> Iterator[Row]:
        """All rows, also those that have a fault."""
        prefix = self.corpus.prefix
        drawn = self._drawn
        begun = 0
        for row in self._all_rows():
            begun += not row.continues
            if drawn is not None and not drawn[begun - 1]:
                continue
            # an empty text is still found to be empty
            if prefix and not row.continues and row.values[0].strip():
                row = Row(row.line, (prefix + row.values[0], *row.values[1:]))
            yield row

    @cached_property
    def _drawn(self) -> NDArray[np.bool_] | None:
        """Which of all examples are among the `size` that are drawn; None where all are read."""
        size = self.corpus.size
        if size is None or self.corpus.corpus is not None:
            return None
        drawn = np.zeros(sum(not row.continues for row in self._all_rows()), dtype=np.bool_)
        random = np.random.Generator(np.random.PCG64(self.corpus.seed))
        drawn[random.permutation(len(drawn))[:size]] = True
        return drawn

    def _all_rows(self) -> Iterator[Row]:
        if self.corpus.corpus is not None:
            return (
                Row(line, cells) for line, cells in enumerate(self.corpus.built_in(self.part), 1)
            )
        if not self.parallel:
            return self._rows_of_files()
        shards = zip(*[iter(self.files)] * len(self.corpus.columns), strict=True)
        return chain.from_iterable(
            _parallel_rows(files, number * LINES_PER_FILE) for number, files in enumerate(shards)
        )

    def _rows_of_files(self) -> Iterator[Row]:
        """The rows of one file after the other; all files that cannot be read are named at once."""
        problems: list[Problem] = []
        for number, file in enumerate(self.files):
            try:
                rows = FORMATS[self.corpus.format(file)](file, self.corpus)
                yield from (row._replace(line=number * LINES_PER_FILE + row.line) for row in rows)
            except DataError as error:
                if len(self.files) == 1:
                    raise
                problems += error.problems
        DataError.raise_if(problems)

    def where(self, line: int, column: str | None = None) -> str:
        """The place of a row, or of one of its columns, as messages name it: `train.en:17`."""
        if self.corpus.corpus is not None:
            return f"corpus {self.corpus.corpus}:{line}"
        if self.parallel:
            first = line // LINES_PER_FILE * len(self.corpus.columns)
            return self.files[first + (self.columns.index(column) if column else 0)].where(
                line % LINES_PER_FILE
            )
        return self.corpus.place(self.files[line // LINES_PER_FILE], line % LINES_PER_FILE)

    def empty(self, row: Row, column: int) -> str:
        """The message for an empty text: a line, or a cell of a table."""
        names = list(self.corpus.columns.items())
        is_table = (
            bool(self.files)
            and not self.parallel
            and self.files[row.line // LINES_PER_FILE].suffixes[0] in TABLES
        )
        if not is_table or len(names) != len(row.values):
            return "the line is empty"
        name, key = names[column]
        if len(names) == 1:
            return f"the column {name if self.corpus.file is None else key!r} is empty"
        if not "".join(row.values).strip():
            return "the line is empty"
        return f"the {name} is empty" if name == key else f"the {name} (column {key!r}) is empty"

    def fingerprint(self) -> str:
        """A hash of all that decides the rows: how they are read, and the bytes of the files."""
        return key_of([self.corpus.settings(), self.columns, *self._content()])

    def _content(self) -> list[Any]:
        if self.corpus.corpus is not None:
            return [self.part, VERSION]
        return [[file.suffixes, file.digest(), file.encoding] for file in self.files]


def _parallel_rows(files: Sequence[TextFile], first: int) -> Iterator[Row]:
    """Line n of each file makes row `first` + n."""
    lines = zip(*(file.lines() for file in files), strict=True)
    try:
        for line, values in enumerate(lines, 1):
            yield Row(first + line, values)
    except ValueError:  # zip: one file ended before another
        counts = {file: sum(1 for _ in file.lines()) for file in files}
        shorter, longer = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        what = f"{longer.name} has {counts[longer]:,} lines, {shorter.name} has {counts[shorter]:,}"
        hint = (
            "parallel files need the same number of lines; this line has no counterpart in "
            "the other file"
        )
        raise DataError(what, where=longer.where(counts[shorter] + 1), hint=hint) from None


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote a folder."""
    # False also for a name that is too long for a file's
    return os.path.isfile(folder / "state.json") or os.path.isfile(folder / "dataset_dict.json")


def named(value: Any, kind: Any) -> Any:
    """A value of a dataset, where numbers of a `ClassLabel` are its names; -1 is for a label that
    is missing."""
    if isinstance(value, int) and hasattr(kind, "names"):
        return kind.names[value] if value >= 0 else None
    if isinstance(value, Mapping) and isinstance(kind, Mapping):
        return {name: named(below, kind.get(name)) for name, below in value.items()}
    return value


@dataclass(frozen=True)
class DatasetReader(Reader):
    """The rows of a dataset: of a folder that `save_to_disk` wrote, a folder of data files, or a
    name on the Hub.

    The split is the one that the corpus names; else the part, if there are several.
    """

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return str(self.corpus.dataset)

    @property
    def folder(self) -> Path | None:
        path = self.base / self.name
        if path.is_dir():
            return path
        if path.exists():
            raise DataError(
                "is a file, not a dataset", where=self.name, hint="name it as 'file: ...'"
            )
        if self.name.startswith((".", "/", "~")) or self.name.count("/") > 1 or "\\" in self.name:
            raise DataError(
                "there is no such folder", where=self.name, hint=f"looked in {self.base.absolute()}"
            )
        return None

    def where(self, line: int, column: str | None = None) -> str:
        return f"{self.name}:{line}"

    def _all_rows(self) -> Iterator[Row]:
        """A null is an empty text."""
        keys = keys_of(self.corpus).values()
        numeric = numeric_keys(self.corpus)
        row = 0
        for row, example in enumerate(self.examples(), 1):
            texts = [
                object_texts(example, key, self.where(row), number=key in numeric)[0]
                for key in keys
            ]
            yield Row(row, tuple(texts))
        if row == 0:
            raise DataError("the split has no rows", where=self.name)

    def _content(self) -> list[Any]:
        folder = self.folder
        if folder is None and self.corpus.stream:
            return [self.part, self._revisions()]
        if folder is None:
            files = [Path(file["filename"]) for file in self._load().cache_files]
        else:
            files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [str(path.relative_to(folder) if folder else path.name) for path in files]
        return [
            self.part,
            [
                [name, TextFile(name, path).digest()]
                for name, path in zip(names, files, strict=True)
            ],
        ]

    def examples(self) -> Iterator[Mapping[str, Any]]:
        """The rows as they are, with all columns."""
        dataset = self._load()
        kinds = dataset.features or {}
        with self._loading():
            for batch in dataset.iter(1000):
                for values in zip(*batch.values(), strict=True):
                    yield {
                        name: named(value, kinds.get(name))
                        for name, value in zip(batch, values, strict=True)
                    }

    def _load(self) -> Any:
        """The split, not read yet."""
        datasets = import_extra("datasets", extra="hf", where=self.name)
        folder = self.folder
        subset = self.corpus.subset
        split = self.corpus.split
        with self._loading():
            if folder is None and not self.corpus.stream:
                return datasets.load_dataset(self.name, subset, split=split or self.part)
            if folder is not None and is_saved(folder):
                loaded = datasets.load_from_disk(str(folder))
            else:
                loaded = datasets.load_dataset(
                    str(folder or self.name), subset, streaming=True
                )  # no copy in its cache
        splits = loaded if isinstance(loaded, Mapping) else {}
        if not splits and split is None:
            return loaded
        wanted = split or (self.part if len(splits) > 1 else next(iter(splits)))
        if wanted not in splits:
            hint = did_you_mean(wanted, splits) if splits else "leave 'split' out"
            raise DataError(f"there is no split {wanted!r}", where=self.name, hint=hint)
        return splits[wanted]

    def _revisions(self) -> list[object]:
        """The revision of each file of a dataset on the Hub: they tell its versions apart."""
        datasets = import_extra("datasets", extra="hf", where=self.name)
        with self._loading():
            files = datasets.load_dataset_builder(self.name, self.corpus.subset).config.data_files
        return [
            [str(split), list(listed), listed.origin_metadata] for split, listed in files.items()
        ]

    @contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except (
            Exception
        ) as error:  # no connection, no such name, no such subset, a broken file: one class each
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            hint = (
                "a folder, or a name on the Hugging Face Hub, which needs a connection the "
                "first time"
            )
            raise DataError(
                f"cannot be loaded as a dataset: {reason}", where=self.name, hint=hint
            ) from None
