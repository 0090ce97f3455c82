"""Raw text -> documents: files and folders, plain, compressed or tables, streamed."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from regard.data.config import TABLES, Corpus, Splits
from regard.data.corpora import Part
from regard.data.dataset import NAMED
from regard.data.formats import Row, table_rows
from regard.errors import ColumnError, DataError
from regard.text.files import BINARY_HINT, TextFile, files_below

Texts = Literal[
    "tales-en", "tales-ko", "errands", "meanings-en", "meanings-ko", "reviews-en", "reviews-ko", "names-en",
    "portraits-en", "portraits-ko",
]  # fmt: skip
"""The built-in corpora of raw text."""
PIECE = 1 << 16
"""Characters after which the rest of a document comes in a row of its own, so that an endless one need not be held."""


class RawText(Corpus):
    """Documents: text files, tables with a column of text, or a corpus of the package."""

    IN_PIECES: ClassVar[bool] = True

    text: str | int | None = None
    """A text file; a folder: all files below it by their names; or a pattern: folder/**/*.txt. Beside `file` or
    `dataset` the column that holds a document in each row; default there, and in .jsonl, .json, .parquet, .tsv and .csv
    files of a folder: text."""
    documents: Literal["blank_lines", "lines", "all_lines"] = "blank_lines"
    """What ends a document in a text file. `blank_lines`: a blank line; `lines`: every line, empty ones do not count;
    `all_lines`: every line, and an empty one is a document of nothing but its end, as published counts of tokens and
    perplexities of tokenised corpora have it (set `deduplicate: false`, too)."""
    corpus: Texts | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """A corpus of the package: short tales in English or Korean; two sentences of which the second depends on the
    first; sentences with homonyms and pronouns; or the texts alone of the reviews, names and portraits, without labels,
    tags and questions."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {"text": self.text}

    @property
    def may_be_empty(self) -> bool:
        return self.documents == "all_lines"

    def files(self, base: Path) -> tuple[TextFile, ...]:
        if self.corpus is not None or self.dataset is not None:
            return ()
        name = str(self.text if self.file is None else self.file)
        root = TextFile(name, base / name)
        if self.file is None and glob.has_magic(name) and not root.path.exists():
            names = sorted(glob.glob(name, root_dir=base, recursive=True))
            files = tuple(TextFile(own, base / own) for own in names if _has_text(base / own))
            if not files:
                what = "no file has such a name" + (", or only empty ones" if names else "")
                raise DataError(what, where=name, hint="* stands for any name, ** for any folders")
            return files
        return files_below(root) if root.path.is_dir() else (root,)

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        return ((text,) for text, *_ in super().built_in(part))

    def format(self, file: TextFile) -> str:
        if self.file is not None:
            return super().format(file)
        return "table of texts" if file.suffixes[0] in TABLES else "text"

    def findings(self, files: Sequence[TextFile]) -> list[str]:
        """Which files of a folder are read: one that was not meant would go into the training unnoticed."""
        if len(files) < 2:
            return []
        kinds: dict[str, list[str]] = {}
        for file in files:
            kinds.setdefault("".join(file.suffixes), []).append(Path(file.name).name)
        first, *others = sorted(kinds, key=lambda kind: (-len(kinds[kind]), not kind.startswith(".txt")))
        counts = [f"{len(kinds[first]):,} {first or 'without a suffix'}"]
        for kind in others:
            names = [*kinds[kind][:NAMED], *["..."] * (len(kinds[kind]) > NAMED)]
            counts.append(f"{len(kinds[kind]):,} {kind or 'without a suffix'} ({', '.join(names)})")
        choose = f"; {self.text}/**/*{first} names the {first} files alone" if first and others else ""
        return [f"{self.text}: {len(files):,} files are read: {', '.join(counts)}{choose}"]

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

    max_characters: int = Field(1 << 20, ge=1)
    """A line longer than this is taken for a broken file."""
    max_length: int = Field(128, ge=8)
    """Most tokens of an example, special ones included; longer documents are cut into several."""


def _has_text(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def text_table_rows(file: TextFile, corpus: RawText) -> Iterator[Row]:
    """A table that stands for a text file, or in a folder of them: its column is `text`."""
    try:
        yield from table_rows(file, corpus.model_copy(update={"text": "text"}))
    except ColumnError as error:
        hint = f"rename one to text, or name it in the recipe: {{file: {file.name}, text: COLUMN}}"
        problems = [replace(problem, hint=f"{problem.hint}; {hint}") for problem in error.problems]
        raise DataError(problems=problems) from None


def document_rows(file: TextFile, corpus: RawText) -> Iterator[Row]:
    """The documents of a text file, each with its first line; a long one in pieces, which end with a line."""
    separated = corpus.documents
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
