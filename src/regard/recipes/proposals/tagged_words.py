"""Tagged words in columns, and JSON Lines of tagged words, questions or stories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from glob import escape
from itertools import chain, groupby, islice, permutations
from pathlib import Path
from statistics import mean
from typing import Any

from regard.data.config import OBJECTS, TABLES
from regard.data.conll import DOCUMENT_MARK, OUTSIDE, fields_of, is_chunk_tag, is_comment, shape_of
from regard.recipes.proposals.columns import SAMPLED_ROWS, Table, last_name
from regard.recipes.proposals.profile import DataProfile, TextStatistics
from regard.text.files import TextFile

TAG_COLUMNS = ("tags", "ner_tags", "ner", "pos_tags", "labels")
CONLL_SUFFIXES = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes")


def tagged_words(file: TextFile) -> DataProfile | None:
    """CoNLL's columns: a word a line, then its tag as the last one, empty lines between sentences;
    CoNLL-U has parts of speech in its fourth."""
    named = file.suffixes[0] in CONLL_SUFFIXES
    if file.suffixes[0] in (*OBJECTS, ".parquet"):
        return None
    shape = shape_of(file.lines())

    def is_word(line: str) -> bool:
        return (
            bool(line.strip())
            and not line.startswith(DOCUMENT_MARK)
            and not is_comment(line, shape)
        )

    rows = [fields_of(line) for line in islice(filter(is_word, file.lines()), SAMPLED_ROWS)]
    width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    if width < 2 or count < 0.98 * len(rows):  # the others are for `check` to name
        return None
    rows = [fields for fields in rows if len(fields) == width]
    data: dict[str, Any] = {"file": Path(file.name), "tokens": 0, "tags": -1}
    if width == 10 and file.suffixes[0] == ".conllu":
        data |= {"tokens": 1, "tags": 3}
    words, tags = ([fields[data[name]] for fields in rows] for name in ("tokens", "tags"))
    are_tags = all(map(is_chunk_tag, tags)) and {*tags} != {OUTSIDE}
    may_be_syllables = file.suffixes[0] == ".tsv" or file.suffixes[0] not in TABLES
    if may_be_syllables and {*map(len, words)} == {1}:
        are_tags = 1 < len({*tags}) <= min(100, len(tags) / 4)
    if not (named or are_tags):
        return None
    lengths = [
        len([*group]) for is_sentence, group in groupby(file.lines(), is_word) if is_sentence
    ]
    return _tagging(data, len(lengths), mean(lengths), words, tags) if len(lengths) > 1 else None


def objects_in(table: Table) -> DataProfile | None:
    """JSON Lines with stories, with answers to questions, or with a list of words and a list of
    their tags."""
    if {"story", "question", "answer"} <= {*table.columns}:
        return DataProfile(
            "story_answering", {"file": Path(escape(str(table.data["file"])))}, table.rows
        )
    lists = table.of_kind("list")
    if {"context", "question"} <= {*table.columns} and any(
        str(key).split(".")[0] == "answers" for key in lists
    ):
        return DataProfile("question_answering", table.data, table.rows)
    for tokens, tags in permutations(lists, 2):
        lengths, others = ([*map(len, table.columns[key])] for key in (tokens, tags))
        words, marks = ([*chain.from_iterable(table.columns[key])] for key in (tokens, tags))
        are_tags = last_name(tags) in TAG_COLUMNS or all(is_chunk_tag(str(mark)) for mark in marks)
        if lengths == others and are_tags and {*map(type, (*words, *marks))} == {str}:
            data = {**table.data, "tokens": tokens, "tags": tags}
            return _tagging(data, table.rows, mean(lengths), words, marks)
    return None


def _tagging(
    data: dict[str, Any], rows: int, length: float, words: Sequence[str], tags: Sequence[str]
) -> DataProfile:
    settings: dict[str, Any] = {}
    if not all(map(is_chunk_tag, tags)):  # tags that mark no entities
        data, settings = {**data, "scheme": "plain"}, {"training.best": "accuracy"}
    if mean(map(len, words)) == 1:
        settings["data.words"] = (
            "characters_and_blanks" if any(map(str.isspace, words)) else "characters"
        )
    return DataProfile(
        "tagging", data, rows, (TextStatistics.of(words)._replace(words=length),), settings
    )
