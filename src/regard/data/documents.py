"""Raw text -> documents: files and folders, plain, compressed or tables, streamed."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import VERSION, Part, generate
from regard.data.formats import FORMATS, Row, rows_in
from regard.data.readers import Reader, prefixed
from regard.data.report import NAMED
from regard.errors import ColumnError, DataError, Problem, first_of
from regard.text.files import BINARY_HINT, TextFile, problem_with

PIECE = 1 << 16
"""Characters after which the rest of a document comes in a row of its own, so that an endless one need not be held."""
FILES = 1 << 40
"""Times the number of a file, and its line on top: where a row of several files stands, in one number."""


class RawText(Corpus):
    """Documents: text files, tables with a column of text, or tales of the package."""

    text: str | int | None = None
    """A text file; a folder: all files below it by their names; or a pattern: folder/**/*.txt. Beside `file` or
    `dataset` the column that holds a document in each row; default there, and in .jsonl, .parquet, .tsv and .csv files
    of a folder: text."""
    documents: Literal["blank_lines", "lines", "all_lines"] = "blank_lines"
    """What ends a document in a text file. `blank_lines`: a blank line; `lines`: every line, empty ones do not count;
    `all_lines`: every line, and an empty one is a document of nothing but its end, as published counts of tokens and
    perplexities of tokenised corpora have it (set `deduplicate: false`, too)."""
    corpus: Literal["tales-en", "tales-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Short tales of the package, in English or Korean."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {"text": self.text}

    @model_validator(mode="before")
    @classmethod
    def _column_of_a_table(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and (tree.get("file") or tree.get("dataset")) and tree.get("text") is None:
            return {**tree, "text": "text"}
        return tree


class RawData(Splits[RawText]):
    """The raw text of a run."""

    UNIT: ClassVar[str] = "documents"
    MORE: ClassVar[str] = (
        "documents end with a blank line, or with documents: lines at every line; give more of them, or files of their "
        "own to data.validation and data.test"
    )

    train: Annotated[list[RawText], BeforeValidator(as_list)]
    """One corpus, or a list of them that are mixed by weight. An imported run has none."""
    validation: HeldOut[RawText] = Split(split=0.02)
    """Documents to choose the best checkpoint with."""
    test: HeldOut[RawText] | None = None
    """Documents to measure with at the end."""
    max_characters: int = Field(1 << 20, ge=1)
    """A line longer than this is taken for a broken file."""
    max_length: int = Field(128, ge=8)
    """Most tokens of an example, special ones included; longer documents are cut into several."""


def open_documents(corpus: RawText, base: Path, part: Part = "train") -> Reader:
    """A reader of the documents; names of files are relative to `base`."""
    reader = DocumentReader(corpus, base, part)
    if reader.dataset is not None:
        reader.dataset.check()
    elif corpus.corpus is None:
        if not reader.is_pattern and (problem := _missing(reader.root)):
            raise DataError(problems=[problem])
        if not reader.files:
            raise _nothing_in(reader)
    return reader


def _nothing_in(reader: DocumentReader) -> DataError:
    name, path = reader.root.name, reader.root.path
    if reader.is_pattern:
        what = "no file has such a name" + (", or only empty ones" if glob.glob(str(path), recursive=True) else "")
        return DataError(what, where=name, hint="* stands for any name, ** for any folders")
    if any(one.is_file() for one in path.rglob("*")):
        what = "the files in the folder are all empty, or hidden: their names, or their folder's, begin with a dot"
        return DataError(what, where=name, hint="put .txt files into it, or name one with text")
    return DataError("there is no file in the folder", where=name, hint="put .txt files into it")


def _missing(root: TextFile) -> Any:
    return None if root.path.is_dir() else problem_with(root)


class DocumentReader(Reader):
    """The documents of a corpus as rows of one column; the lines of a document stay apart by line breaks.

    A long document is several rows, each of which but the last ends with a line break.
    """

    corpus: RawText
    in_pieces = True

    @property
    def may_be_empty(self) -> bool:
        return self.corpus.documents == "all_lines"

    @property
    def root(self) -> TextFile:
        """The file or folder that the corpus names."""
        name = str(self.corpus.text if self.corpus.file is None else self.corpus.file)
        return TextFile(name, self.base / name)

    @cached_property
    def is_pattern(self) -> bool:
        """Whether the name stands for several files."""
        return self.corpus.file is None and glob.has_magic(self.root.name) and not self.root.path.exists()

    @cached_property
    def files(self) -> tuple[TextFile, ...]:
        if self.corpus.corpus is not None or self.corpus.dataset is not None:
            return ()
        root = self.root
        if self.is_pattern:
            names = sorted(glob.glob(root.name, root_dir=self.base, recursive=True))
            return tuple(TextFile(name, self.base / name) for name in names if _has_text(self.base / name))
        if not root.path.is_dir():
            return (root,)
        below = (path for path in sorted(root.path.rglob("*")) if _has_text(path))
        shown = (path for path in below if not any(part.startswith(".") for part in path.relative_to(root.path).parts))
        return tuple(TextFile(str(Path(root.name) / path.relative_to(root.path)), path) for path in shown)

    def findings(self) -> Iterator[str]:
        """Which files of a folder are read: one that was not meant would go into the training unseen."""
        if len(self.files) < 2:
            return
        kinds: dict[str, list[str]] = {}
        for file in self.files:
            kinds.setdefault("".join(file.suffixes), []).append(Path(file.name).name)
        first, *others = sorted(kinds, key=lambda kind: (-len(kinds[kind]), not kind.startswith(".txt")))
        counts = [f"{len(kinds[first]):,} {first or 'without a suffix'}"]
        for kind in others:
            names = [*kinds[kind][:NAMED], *["..."] * (len(kinds[kind]) > NAMED)]
            counts.append(f"{len(kinds[kind]):,} {kind or 'without a suffix'} ({', '.join(names)})")
        choose = f"; {self.root.name}/**/*{first} names the {first} files alone" if first and others else ""
        yield f"{self.root.name}: {len(self.files):,} files are read: {', '.join(counts)}{choose}"

    def rows(self) -> Iterator[Row]:
        size, prefix = self.corpus.size, self.corpus.prefix
        begun = 0
        for row in self._rows():
            begun += not row.continues
            if size is not None and begun > size:
                return
            yield row if row.continues else prefixed(row, prefix)

    def _rows(self) -> Iterator[Row]:
        corpus = self.corpus
        if corpus.corpus is not None:
            tales = generate(corpus.corpus, corpus.size, corpus.seed, self.part)
            yield from (Row(line, tale) for line, tale in enumerate(tales, 1))
        if self.dataset is not None:
            yield from super()._rows()
        problems: list[Problem] = []
        for number, file in enumerate(self.files):
            rows = self._table(file) if self._is_table(file) else _documents(file, corpus.documents)
            try:
                yield from (row._replace(line=number * FILES + row.line) for row in rows)
            except DataError as error:  # all files that cannot be read are named at once
                if len(self.files) == 1:
                    raise
                problems += error.problems
        if problems:
            raise DataError(problems=first_of(problems))

    def _is_table(self, file: TextFile) -> bool:
        return self.corpus.file is not None or file.suffixes[0] in FORMATS

    def _table(self, file: TextFile) -> Iterator[Row]:
        if self.corpus.file is not None:
            yield from rows_in(file, self.corpus)
            return
        try:
            yield from rows_in(file, self.corpus.model_copy(update={"text": "text"}))
        except ColumnError as error:
            hint = f"rename one to text, or name it in the recipe: {{file: {file.name}, text: COLUMN}}"
            raise DataError(problems=[replace(one, hint=f"{one.hint}; {hint}") for one in error.problems]) from None

    def empty(self, row: Row, column: int) -> str:
        if self.files and self._is_table(self.files[row.line // FILES]):
            return f"the column {('text' if self.corpus.file is None else self.corpus.text)!r} is empty"
        return super().empty(row, column)

    def where(self, line: int, column: str | None = None) -> str:
        if not self.files:
            return super().where(line)
        if line < 1:
            return self.root.name
        return self.files[line // FILES].where(line % FILES)

    def fingerprint(self) -> str:
        corpus = self.corpus
        if corpus.dataset is not None:
            return super().fingerprint()
        settings: list[Any] = ["documents", corpus.size, corpus.prefix, corpus.documents, corpus.text, corpus.header]
        if corpus.corpus is not None:
            settings += [corpus.corpus, corpus.seed, self.part, VERSION]
        settings += [[file.suffixes, self._is_table(file), file.digest()] for file in self.files]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()


def _has_text(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _documents(file: TextFile, separated: str) -> Iterator[Row]:
    """The documents of a text file, each with its first line; a long one in pieces, which end with a line."""
    lines: list[str] = []
    first = size = 0
    continues = False
    for number, line in enumerate(file.lines(), 1):
        if "\0" in line:
            what = "this is a binary file, not a text: the line holds a zero byte"
            raise DataError(what, where=file.where(number), hint=BINARY_HINT)
        text = line.strip()
        if lines and (not text or separated != "blank_lines"):
            yield Row(first, ("\n".join(lines),), continues=continues)
            lines, size, continues = [], 0, False
        elif size > PIECE:
            yield Row(first, ("\n".join([*lines, ""]),), continues=continues)
            lines, size, continues = [], 0, True
        if text or separated == "all_lines":
            first = number if not lines else first
            lines.append(text)
            size += len(text)
    if lines:
        yield Row(first, ("\n".join(lines),), continues=continues)
