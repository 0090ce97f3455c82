"""Texts in a table: with choices, with labels, in pairs or alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

from regard.data.formats import (
    Key,
)
from regard.data.prepare import NANS
from regard.errors import DataError
from regard.recipes.proposals.columns import Table, is_label, is_named, kind_of, last_name
from regard.recipes.proposals.profile import DataProfile, TextStatistics, japanese_settings
from regard.recipes.proposals.raw_text import documents_in
from regard.recipes.proposals.tables import cell_text

CHOICE_NAME = re.compile(
    r"((ending|choice|option|answer|candidate|sol|alternative)s?[ ._-]?)?(\d|[a-e])"
)
CHOICE_LABELS = ("0123456789", "123456789", "ABCDEFGHI", "abcdefghi")
COMPARED_COLUMNS = (
    ("premise", "hypothesis"),
    ("first", "second"),
    ("question", "passage"),
    ("question", "sentence"),
)


def texts_in(table: Table) -> DataProfile:
    if choices := choices_in(table):
        return choices
    texts = table.of_kind("text")
    sources = [key for key in texts if is_named(key, "source")]
    targets = [
        key for key in texts if is_named(key, "target", "summary") and key not in sources[:1]
    ]
    are_pairs = sources and any(is_named(key, "target") for key in targets)
    if not are_pairs and (labels := labelled_texts(table)):
        return labels
    _refuse_one_label(table, are_pairs=bool(are_pairs))
    if len(texts) == len(table.columns) == 1:
        [values] = table.columns.values()
        return documents_in(
            {**table.data, "text": texts[0]}, table.rows, mean(map(len, values)), values
        )
    # then these are the two, whatever is in them
    if len(table.columns) == 2 and not table.of_kind("list"):
        texts = [*table.columns]
    if len(texts) < 2:
        seen = f"only column {texts[0]} looks like text" if texts else "no column looks like text"
        what = f"two columns of text are needed, or a text and its label, but {seen}"
        hint = f"the columns are {', '.join(map(str, table.columns))}"
        if all(isinstance(key, int) for key in table.columns):
            hint = f"the file names no columns; it has {len(table.columns)}"
        raise DataError(what, where=str(next(iter(table.data.values()))), hint=hint)
    source = [*sources, *(key for key in texts if key not in targets[:1])][0]
    target = [*targets, *(key for key in texts if key != source)][0]
    return paired_texts(
        table.data, table.rows, [source, target], [table.columns[source], table.columns[target]]
    )


def _refuse_one_label(table: Table, *, are_pairs: bool) -> None:
    """Refuse a table whose column of labels, or the second of its two columns, has one value only:
    it would be taken for a pair of texts."""
    same = [
        key
        for key, values in table.columns.items()
        if len(values) > 1 and len({*map(str, values)}) == 1
    ]
    named = [key for key in same if is_named(key, "class", "number") and not are_pairs]
    if key := [*named, *(same if len(table.columns) == 2 else ())][:1]:
        raise one_value_error(key[0], table.columns[key[0]], str(next(iter(table.data.values()))))


def one_value_error(key: Key, values: Sequence[Any], where: str) -> DataError:
    what = (
        f"column {str(key)!r} has one value only, {str(values[0])!r}, in all {len(values):,} rows"
    )
    hint = (
        "a label needs two at least; label=COLUMN chooses another column, source= and "
        "target= two texts"
    )
    return DataError(what, where=where, hint=hint)


def paired_texts(
    data: dict[str, Any], rows: int, keys: Sequence[Any], texts: Sequence[Sequence[str]]
) -> DataProfile:
    """A summary is known by the name of its column, or because it is far shorter; other pairs are
    translations."""
    source, target = map(TextStatistics.of, texts)
    task, names = "translation", ("source", "target")
    settings = japanese_settings(texts[1])
    named = not isinstance(keys[1], Path) and is_named(keys[1], "summary")
    if named or source.words > max(25, 4 * target.words):
        task, names, settings = "summarization", ("document", "summary"), {}
    return DataProfile(
        task, {**data, **dict(zip(names, keys, strict=True))}, rows, (source, target), settings
    )


def choices_in(table: Table) -> DataProfile | None:
    """A text, its choices in columns that are named and numbered so or in a list, and which of them
    is right."""
    columns: dict[Key, Sequence[Any]] = {**table.columns}
    choices = [key for key in table.of_kind("text") if CHOICE_NAME.fullmatch(str(key).lower())]
    for key in table.of_kind("list"):
        if len({*map(len, columns[key])}) == 1 and len(columns[key][0]) > 1:
            by_place = enumerate(zip(*columns[key], strict=True))
            items: dict[Key, Sequence[Any]] = {
                f"{key}.{place}": [*map(cell_text, row)] for place, row in by_place
            }
            if all(kind_of(item, values) == "text" for item, values in items.items()):
                columns, choices = columns | items, [*items]
    labels = {  # how a column numbers or letters the choices
        key: next(
            (way for way in CHOICE_LABELS if {*map(str, values)} <= {*way[: len(choices)]}), ""
        )
        for key, values in table.columns.items()
    }
    named = sorted(
        filter(labels.get, labels),
        key=lambda key: not is_label(key) and last_name(key) != "answer",
    )
    text = table.text(*choices)
    if len(choices) < 2 or text is None or not named:
        return None
    line = {**table.data, "text": text, "choices": choices, "label": named[0]}
    rows = zip(columns[text], *map(columns.__getitem__, choices), strict=True)
    size = TextStatistics.of([f"{first} {max(others, key=len)}" for first, *others in rows])
    way = labels[named[0]]
    head = {} if way == CHOICE_LABELS[0] else {"head.labels": [*way[: len(choices)]]}
    return DataProfile("multiple_choice", line, table.rows, (size,), head)


def labelled_texts(table: Table, task: str | None = None) -> DataProfile | None:
    """A text or two with a class or a number; the likeliest label by its name, then classes, then
    the fewest.

    Without a name for it, a label beside two texts is rather a remark on a pair. The user may have
    chosen the `task`.
    """
    labels = table.of_kind("class", "number")
    labels.sort(key=lambda key: (not is_label(key), table.kinds[key], len({*table.columns[key]})))
    text = table.text()
    if not labels or text is None:
        return None
    label, inputs = labels[0], {"text": text}
    for first, second in combinations(table.sentences, 2):
        names = (last_name(first), last_name(second))
        stems = {re.sub(r"\d+|(?<=[_ -])[ab]$", "", name) for name in names}
        if names in COMPARED_COLUMNS or (isinstance(first, str) and len(stems) == 1):
            inputs = {"first": first, "second": second}
            break
    if "text" in inputs and len(table.sentences) > 1 and not is_label(label) and task is None:
        return None
    line = {**table.data, **inputs, "label": label}
    texts = [*map(" ".join, zip(*(table.columns[key] for key in inputs.values()), strict=True))]
    size = TextStatistics.of(texts)
    others = [str(key) for key in labels[1:] if is_label(key) == is_label(label)]
    note = (
        f"column {label} is taken for the label; others that may be: {', '.join(others)} "
        "(label=COLUMN)"
    )
    notes: tuple[str, ...] = (note,) if others else ()
    if task is None and (other_task := _other_labelling(table, label)):
        notes += (other_task,)
    if (table.kinds[label] == "number" and task is None) or task == "regression":
        return DataProfile("regression", line, table.rows, (size,), notes=notes)
    counts = Counter(
        value for value in table.columns[label] if value.strip() and value not in NANS
    ).values()
    settings: dict[str, Any] = (
        {"training.best": "f1_macro"} if max(counts) > 3 * min(counts) else {}
    )  # rare ones count
    # held-out texts are like the others: only the loss shows overfitting
    if table.rows >= 5_000 and _overlap(texts):
        settings = {"training.best": "loss", "model.dropout": 0.5, "tokenizer.vocabulary": 16_000}
    return DataProfile("classification", line, table.rows, (size,), settings, notes)


def _other_labelling(table: Table, label: Key) -> str:
    """A note on numbers that are a few whole ones, such as stars: they may also be meant as
    classes."""
    values = {
        value.strip() for value in table.columns[label] if value.strip() and value not in NANS
    }
    if (
        table.kinds[label] != "number"
        or len(values) > 11
        or not all(value.isdecimal() for value in values)
    ):
        return ""
    own = table.chosen.get(str(label), label)
    return (
        f"column {own} has {len(values)} different whole numbers, which are predicted as numbers "
        "(regression); "
        "task=classification predicts them as classes"
    )


def _overlap(texts: Sequence[str]) -> bool:
    """Whether texts are often parts of others, as the phrases of one sentence are: one in 20 of a
    sample."""
    whole = "\n".join(texts)
    return 20 * sum(whole.count(text) > 1 for text in texts if " " in text) > len(texts)
