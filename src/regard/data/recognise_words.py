"""A user's file -> what is in it, where it is no plain table: tagged words, questions about texts, lists of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from statistics import mean
from typing import Any

from regard.data.columns import Columns, is_text
from regard.data.conll import COMMENT, DOCUMENT, fields_of
from regard.data.formats import FORMATS
from regard.data.recognise_labels import CLASSES, RecognisedLabels, chosen_of, labels_in, names_of_choices
from regard.data.rows import leaves_in
from regard.data.schemes import OUTSIDE, is_chunk_tag
from regard.data.squad import QuestionedText, open_questions
from regard.text.files import TextFile

SAMPLE = 2000
"""Rows that are looked at."""
SUFFIXES = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes")
"""What files of CoNLL's columns are often called."""
TAGS = ("tags", "ner_tags", "ner", "pos_tags", "labels")

Objects = Sequence[Mapping[str, Any]]


def words_in(file: TextFile) -> RecognisedLabels | None:
    """CoNLL's columns: a word a line with its tag in the last column, empty lines between sentences."""
    named = file.suffixes[0] in SUFFIXES
    if not named and file.suffixes[0] in {*FORMATS, ".json"} - {".tsv"}:
        return None
    rows = [fields_of(line) for line in islice(filter(_is_word, file.lines()), SAMPLE)]
    tags = [fields[-1] for fields in rows]
    chunks = all(map(is_chunk_tag, tags)) and set(tags) != {OUTSIDE}
    if len({len(fields) for fields in rows}) != 1 or len(rows[0]) < 2 or not (named or chunks):
        return None
    sentences = sum(1 for words, _ in groupby(file.lines(), _is_word) if words)
    if sentences < 2:
        return None
    return _tagged(file.name, {"tokens": 0, "tags": -1}, sentences, [fields[0] for fields in rows], tags)


def _is_word(line: str) -> bool:
    """Whether a line has a word and its tags; else it ends a sentence, or says something about one."""
    return bool(line.strip()) and not line.startswith((DOCUMENT, f"{COMMENT} "))


def _tagged(
    name: str, columns: dict[str, Any], sentences: int, words: Sequence[str], tags: Sequence[str]
) -> RecognisedLabels:
    if all(map(is_chunk_tag, tags)):
        types = sorted({tag[2:] for tag in tags if tag != OUTSIDE})
        about = f"entities: {', '.join(types[:8])}"
    else:
        columns, about = columns | {"scheme": "plain"}, f"{len(set(tags))} tags, which mark no entities"
    by_character = mean(len(word) for word in words) == 1
    return RecognisedLabels(
        "tagging", name, columns, sentences, about, characters=0, words="characters" if by_character else None
    )


def questions_in(file: TextFile) -> RecognisedLabels:
    """SQuAD's JSON, the only .json there is; what is wrong with another is said as for that."""
    asked = sum(1 for _ in open_questions(QuestionedText(file=str(file.path)), Path()).questions())
    return RecognisedLabels("question_answering", file.name, {}, asked, "questions about texts, as in SQuAD", 0)


def lists_in(file: str, objects: Objects, columns: Columns, examples: int) -> RecognisedLabels | None:
    """JSON Lines with lists of words and tags, with answers, or with lists of choices; or a label in a column."""
    if all(_is_question(example) for example in objects):
        about = "a text, a question and its answers a line"
        return RecognisedLabels("question_answering", file, {}, examples, about, 0)
    lists = _lists(objects)
    for tokens, tags in ((one, other) for one in lists for other in lists if _is_tags(one, other, lists)):
        words, found = ([word for one in lists[key] for word in one] for key in (tokens, tags))
        return _tagged(file, {"tokens": tokens, "tags": tags}, examples, words, found)
    for key, choices in lists.items():
        text = next((name for name, values in columns.items() if is_text(values)), None)
        label = _right_one(columns, len(choices[0]))
        if text is not None and label is not None and len({len(one) for one in choices}) == 1 < len(choices[0]):
            names = [f"{key}.{number}" for number in range(len(choices[0]))]
            split: Columns = dict(zip(names, zip(*choices, strict=True), strict=True))
            return chosen_of(file, {**columns, **split}, examples, text, names, label)
    return labels_in(file, columns, examples)


def _is_question(example: Mapping[str, Any]) -> bool:
    texts = (example.get("context"), example.get("question"))
    return all(isinstance(text, str) for text in texts) and isinstance(example.get("answers"), list | dict)


def _lists(objects: Objects) -> dict[str, list[list[str]]]:
    """The keys that hold a list of texts in every object."""
    leaves = [dict(leaves_in(example)) for example in objects]
    keys = leaves[0] if leaves else {}
    return {
        key: [one[key] for one in leaves]
        for key in keys
        if all(
            isinstance(one.get(key), list) and one[key] and all(isinstance(x, str) for x in one[key]) for one in leaves
        )
    }


def _is_tags(tokens: str, tags: str, lists: Mapping[str, Sequence[Sequence[str]]]) -> bool:
    """Whether one list has a tag for each word of the other."""
    alike = [len(one) for one in lists[tokens]] == [len(one) for one in lists[tags]]
    known = tags.rpartition(".")[2] in TAGS or all(is_chunk_tag(tag) for one in lists[tags] for tag in one)
    return tokens != tags and alike and known


def _right_one(columns: Columns, count: int) -> Any:
    """The column that says which choice is right: one that names no other thing, first those that are named so."""
    fitting = [key for key, values in columns.items() if names_of_choices(values, count) is not None]
    return min(fitting, key=lambda key: key not in ("answer", *CLASSES), default=None)
