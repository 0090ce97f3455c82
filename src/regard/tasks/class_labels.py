"""Labels as they are written -> classes and their numbers; labels that cannot be classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.dataset import Where
from regard.errors import ConfigError, DataError, did_you_mean
from regard.tasks.headed import HeadedRecipe, with_head
from regard.tasks.labels import refuse_labels
from regard.text.normalise import fold_white_space, natural, nfc

FRACTION = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(\.\d*)?[eE][-+]?\d+)")
"""A number that is written with a fraction or an exponent."""
WHOLE = re.compile(
    r"([-+]?\d+)(\.0*)?"
)  # a whole number: pandas writes 1 as 1.0 in a column that has gaps
MAX_LISTED = 10
"""Labels that a message names."""
MANY_CLASSES = 20
"""Labels are refused as classes if there are more of them than this, and more than half as many as
examples."""


def settle_labels(recipe: HeadedRecipe, train: Mapping[str, Sequence[str]], where: Where) -> Any:
    """The recipe with the labels, and with the weights that `balanced` stands for."""
    head = recipe.head
    labels = list(train["label"])
    names = list(head.labels or _distinct_labels(recipe, train, where))
    hint = f"head.labels has {first_names(names)}; leave it out to take all labels"
    classes = [canonical_label(label, names) for label in labels]
    refuse_labels(
        classes,
        lambda label: "" if label in names else "is not one of head.labels",
        where,
        hint,
    )
    weights = balanced(names, classes) if head.class_weights == "balanced" else head.class_weights
    for label in weights or ():
        if label not in names:
            hint = did_you_mean(label, names)
            what = f"there is no label {label!r}"
            raise ConfigError(what, where="head.class_weights", hint=hint)
    return with_head(recipe, labels=names, class_weights=weights)


def _distinct_labels(
    recipe: HeadedRecipe, train: Mapping[str, Sequence[str]], where: Where
) -> list[str]:
    """The labels of the training data as they are written there, sorted as people would."""
    labels = list(train["label"])
    classes = list(dict.fromkeys(labels))
    if all(map(WHOLE.fullmatch, classes)):
        classes = list(dict.fromkeys(canonical_label(label, ()) for label in classes))
    fraction = next((label for label in classes if FRACTION.fullmatch(label)), None)
    if fraction is not None:
        what = f"the label {fraction!r} is a number with a fraction, not a class"
        hint = "task: regression learns numbers; a class is a word or a whole number"
        raise DataError(what, where=where(labels.index(fraction)), hint=hint)
    if len(classes) < 2:
        what = f"every label is {classes[0]!r}"
        raise DataError(what, where="data.train", hint="two labels at the least")
    if len(classes) > max(MANY_CLASSES, len(labels) / 2):
        raise _not_classes(recipe, train, labels, classes)
    _refuse_look_alikes(labels, classes, where)
    return sorted(classes, key=natural)


def _not_classes(
    recipe: HeadedRecipe,
    train: Mapping[str, Sequence[str]],
    labels: Sequence[str],
    classes: Sequence[str],
) -> DataError:
    """Nearly every example has a label of its own."""
    corpus = recipe.data.train[0]
    text = corpus.texts[0]
    what = (
        f"{len(classes):,} different labels in {len(labels):,} examples, such as {labels[0][:60]!r}"
    )
    hint = "is it the right column? task: regression learns numbers, task: translation writes texts"
    if len(set(train[text])) < len(classes) / 2:
        hint = f"are the columns swapped? {text}: {corpus.label}, label: {corpus.columns[text]}"
    return DataError(what, where=f"data.train.label: {corpus.label}", hint=hint)


def _refuse_look_alikes(labels: Sequence[str], classes: Sequence[str], where: Where) -> None:
    """Labels that look the same would silently be two classes."""
    seen: dict[str, str] = {}
    for label in classes:
        other = seen.setdefault(fold_white_space(nfc(label)), label)
        if other == label:
            continue
        same_words = label.split() == other.split()
        how = "white space" if same_words else "their Unicode form (NFC)"
        what = f"the labels {other!r} and {label!r} differ only in {how}"
        hint = (
            "write them in the same way: a space between a comma and a label belongs to the label"
        )
        raise DataError(what, where=where(labels.index(label)), hint=hint)


def first_names(names: Sequence[str]) -> str:
    """The first few names."""
    return ", ".join(
        [
            *names[:MAX_LISTED],
            *([f"and {len(names) - MAX_LISTED:,} more"] if len(names) > MAX_LISTED else []),
        ]
    )


def label_numbers(
    labels: Sequence[str], names: Sequence[str], where: Where, what: str, hint: str
) -> NDArray[np.int64]:
    """The number of each label among `names`; one DataError with `what` for those that are not
    among them."""
    known = {name: number for number, name in enumerate(names)}
    classes = [canonical_label(label, known) for label in labels]
    refuse_labels(classes, lambda label: "" if label in known else what, where, hint)
    return np.array([known[label] for label in classes], dtype=np.int64)


def canonical_label(label: str, names: Container[str]) -> str:
    """The class among `names` that a label stands for: 1.0 is 1, unless it is itself a class."""
    whole = None if label in names else WHOLE.fullmatch(label)
    return label if whole is None else whole[1]


def balanced(names: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """N / (Y n_y) for each class y: classes of the same size all have 1."""
    counts = Counter(labels)
    return {name: len(labels) / (len(names) * max(1, counts[name])) for name in names}
