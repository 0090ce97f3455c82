"""The columns of a user's table -> what is to be found for its texts: a class, a number, or one of several choices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Literal

from regard.data.columns import Columns, column_of, is_text, last_name
from regard.data.rows import Key

CLASSES = ("label", "labels", "class", "category", "sentiment", "gold_label", "polarity", "intent", "topic", "emotion")
NUMBERS = ("score", "rating", "stars", "similarity", "grade")
TEXTS = ("text", "sentence", "review", "comment", "comments", "document", "content", "tweet", "message", "utterance",
         "startphrase", "question", "context", "premise", "stem")  # fmt: skip
CHOICES = ("ending", "choice", "option", "answer", "candidate", "sol", "alternative")
PAIRS = (("premise", "hypothesis"), ("first", "second"), ("question", "passage"), ("question", "sentence"))
"""What columns are often called: labels, numbers, a text, the choices that it has, two texts that are compared."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class RecognisedLabels:
    """Texts, and what is to be found for each."""

    task: Literal["classification", "regression", "multiple_choice", "tagging", "question_answering"]
    file: str
    columns: dict[str, Any]
    """Which they are, as a recipe names them beside the file."""
    examples: int
    about: str
    """What was seen, in a few words."""
    characters: int
    """What 99 of 100 inputs do not exceed."""
    head: dict[str, Any] = field(default_factory=dict)
    uneven: bool = False
    """Whether one label is more than three times as frequent as another."""
    words: str | None = None
    """How a text that is typed becomes words, where that is not the default."""


def labels_in(file: str, columns: Columns, examples: int) -> RecognisedLabels | None:
    """What is to be found for the texts of a table, if one of its columns can be that."""
    kinds = {key: kind for key, values in columns.items() if (kind := _kind(key, values))}
    texts = _without_names(
        [key for key, values in columns.items() if is_text(values) and kinds.get(key) != "class"], columns
    )
    for label in sorted(kinds, key=lambda key: _rank(key, kinds[key], columns[key])):
        others = [key for key in texts if key != label]
        if found := _choices(file, columns, examples, label, others):
            return found
        chosen = _texts(columns, others, named=_is_named(label))
        if chosen:
            return _labelled(file, columns, examples, label, kinds, chosen)
    return None


def is_label(values: Sequence[str]) -> bool:
    """Whether a column without a name may be one of labels or numbers."""
    return _kind(0, values) is not None


def _kind(key: Key, values: Sequence[str]) -> Literal["class", "number"] | None:
    """A few short words or whole numbers are classes; numbers with a fraction, or named as such, are numbers."""
    filled = [value.strip() for value in values if value.strip()]
    distinct = set(filled)
    if len(filled) < 0.9 * len(values) or len(distinct) < 2:
        return None
    numeric = all(NUMBER.fullmatch(value) for value in distinct)
    if numeric and (last_name(key) in NUMBERS or any("." in value for value in distinct)):
        return "number"
    few = len(distinct) <= (len(filled) / 2 if _is_named(key) else min(50, len(filled) / 4))
    short = max(map(len, distinct)) <= 40 and mean(len(value.split()) for value in distinct) <= 3
    return "class" if few and short else None


def _is_named(key: Key) -> bool:
    return last_name(key) in (*CLASSES, *NUMBERS)


def _without_names(texts: list[Key], columns: Columns) -> list[Key]:
    """Columns of single words beside one of sentences are names of files, or of people, and no texts."""
    words = {key: mean(len(text.split()) for text in columns[key]) for key in texts}
    return [key for key in texts if words[key] >= 1.5 or max(words.values()) < 3]


def _rank(key: Key, kind: str, values: Sequence[str]) -> tuple[bool, bool, int]:
    """The likeliest label first: by its name, then classes, then the fewest of them."""
    return not _is_named(key), kind != "class", len(set(values))


def _texts(columns: Columns, texts: list[Key], *, named: bool) -> dict[str, Key] | None:
    """The text that a label is for, or the two; None where they are rather a text and what is to be written for it."""
    for number, first in enumerate(texts):
        for second in texts[number + 1 :]:
            if _are_pair(first, second):
                return {"first": first, "second": second}
    if not texts or (len(texts) > 1 and not named):
        return None
    by_name = [key for name in TEXTS for key in texts if last_name(key) == name]
    return {"text": [*by_name, *sorted(texts, key=lambda key: -mean(map(len, columns[key])))][0]}


def _are_pair(first: Key, second: Key) -> bool:
    """Whether two names differ in a number or a letter alone: sentence1 and sentence2, text_a and text_b."""
    names = (last_name(first), last_name(second))
    stems = {re.sub(r"\d+|(?<=[_ -])[ab]$", "", name) for name in names}
    return names in PAIRS or (isinstance(first, str) and len(stems) == 1 and stems != {""})


def _labelled(
    file: str, columns: Columns, examples: int, label: Key, kinds: dict[Key, Any], chosen: dict[str, Key]
) -> RecognisedLabels:
    seen = column_of(label, [" ".join(row) for row in zip(*(columns[key] for key in chosen.values()), strict=True)])
    about, counts = f"{seen.script} script, {seen.words:.1f} words", Counter(columns[label])
    keys = {**chosen, "label": label}
    if kinds[label] == "number":
        numbers = [float(value) for value in columns[label] if value.strip()]
        about = f"numbers from {min(numbers):g} to {max(numbers):g}; {about}"
        return RecognisedLabels("regression", file, keys, examples, about, seen.characters)
    others = [f"column {key}" for key in kinds if key != label and kinds[key] == "class" and not _is_named(label)]
    about = f"{len(counts)} labels: {_told(counts)}; {about}"
    if others:
        about += f"; {', '.join(others)} may be labels, too"
    uneven = max(counts.values()) > 3 * min(counts.values())
    return RecognisedLabels("classification", file, keys, examples, about, seen.characters, uneven=uneven)


def _told(counts: Counter[str]) -> str:
    most = ", ".join(f"{label} {100 * count / counts.total():.0f} %" for label, count in counts.most_common(5))
    return f"{most}, …" if len(counts) > 5 else most


def _choices(file: str, columns: Columns, examples: int, label: Key, texts: list[Key]) -> RecognisedLabels | None:
    """Columns of one name that are numbered or lettered, with a text before them, and which of them is right."""
    for stem, choices in _numbered(columns):
        first = [key for key in texts if key not in choices]
        names = names_of_choices(columns[label], len(choices))
        if first and label not in choices and names is not None and (len(choices) > 2 or stem in CHOICES):
            text = next((key for name in TEXTS for key in first if last_name(key) == name), first[0])
            return chosen_of(file, columns, examples, text, choices, label)
    return None


def chosen_of(
    file: str, columns: Columns, examples: int, text: Key, choices: Sequence[Key], label: Key
) -> RecognisedLabels:
    """A text with choices, one of which is right."""
    names = names_of_choices(columns[label], len(choices))
    longest = max(column_of(key, columns[key]).characters for key in choices)
    seen = column_of(text, columns[text])
    about = f"{len(choices)} choices; {seen.script} script, {seen.words:.1f} words before them"
    keys = {"text": text, "choices": list(choices), "label": label}
    head = {"labels": names} if names else {}
    return RecognisedLabels("multiple_choice", file, keys, examples, about, seen.characters + longest, head)


def names_of_choices(labels: Sequence[str], count: int) -> list[str] | None:
    """How the labels call the choices: nothing to say where they are numbered from 0, None where they do not."""
    given = {label.strip() for label in labels}
    ways = ("0123456789", "123456789", "ABCDEFGHI", "abcdefghi")
    found = next((list(way[:count]) for way in ways if given <= set(way[:count])), None)
    return [] if found == list("0123456789"[:count]) else found


def _numbered(columns: Columns) -> Iterator[tuple[str, list[Key]]]:
    """Two columns or more whose names differ in the number or the letter at their end, in order."""
    stems: dict[str, list[Key]] = {}
    for key in columns:
        if isinstance(key, str) and (match := re.fullmatch(r"(.*?)[ _-]?(\d|[a-eA-E])", key)) and is_text(columns[key]):
            stems.setdefault(last_name(match[1]), []).append(key)
    yield from ((stem, keys) for stem, keys in stems.items() if len(keys) > 1)
