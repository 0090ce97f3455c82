"""Sentences in a file -> texts to tag: CoNLL's columns, with tags or without, or a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.data.conll import TaggedText, in_columns
from regard.data.file_inputs import FileInput, is_table, table_rows
from regard.data.formats import object_in
from regard.data.rows import text_of, value_in
from regard.errors import DataError
from regard.text.files import TextFile

COLUMNS = (".conll", ".conllu", ".bio", ".iob", ".tsv")
"""Suffixes by which CoNLL's columns are known; a .txt has one text a line."""


def untagged_inputs(file: TextFile, corpus: TaggedText) -> Iterator[FileInput] | None:
    """The sentences of a file, their words with blanks between; None where a line is a text.

    Columns, and the key of .jsonl, are those of the corpus; a table without them has a column `text`.
    """
    if file.suffixes[0] in COLUMNS:
        sentences = in_columns(file, corpus, tagged=False)
        return (
            FileInput(" ".join(one.tokens), file.where(one.lines[0]), next(iter(one.faults), None)) for one in sentences
        )
    if file.suffixes[0] == ".jsonl":
        key = corpus.tokens if isinstance(corpus.tokens, str) else "tokens"
        return (_listed(text, key, file.where(line)) for line, text in enumerate(file.lines(), 1))
    if is_table(file):
        rows = table_rows(file, {"text": "text"})
        return (FileInput(row.values[0], file.where(row.line), row.fault) for row in rows)
    return None


def _listed(text: str, key: str, where: str) -> FileInput:
    """An object with a list of words, or with a text."""
    try:
        example: dict[str, Any] = object_in(text, where, [key]) if text.strip() else {"text": ""}
        if key not in example and "text" in example:
            return FileInput(text_of(example["text"], "text", where), where)
        words = value_in(example, key, where)
        if not isinstance(words, list):
            return FileInput(text_of(words, key, where), where)
        return FileInput(" ".join(text_of(word, key, where) for word in words), where)
    except DataError as error:
        return FileInput("", where, error.problems[0])
