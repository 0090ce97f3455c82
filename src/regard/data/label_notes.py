"""Notes on labels that look wrong: rare ones, and several for one text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

import numpy as np

from regard.data.corpora import Part
from regard.data.dataset import (
    SPLITS,
    Dataset,
    Encoding,
)
from regard.data.splitting import SplitIndex, combined_hashes
from regard.data.store import Integers

MAX_SHOWN_LABELS = 10
MAX_SHOWN_PLACES = 3  # labels that a note names, and places of each


def rare_labels(encoding: Encoding, train: Dataset, held_out: Sequence[Dataset]) -> Iterator[str]:
    """Notes on labels missing from a share that is held out by label, since they can hardly be
    learned or measured; and on rare labels that look like a frequent one, since they may be
    mistakes."""
    if "label" not in train.texts:
        return
    counts = encoding.label_counts(train)
    elsewhere = [encoding.label_counts(split) for split in held_out]
    rare = {label for label in counts if not all(split[label] for split in elsewhere)}
    alike = _alike(counts)
    places = _places(train, [*dict.fromkeys([*sorted(rare), *alike])][: 2 * MAX_SHOWN_LABELS])
    if rare:
        named = [
            f"{label!r} ({counts[label]}: {', '.join(places[label])})"
            if label in places
            else repr(label)
            for label in counts
            if label in rare
        ]
        more = [f"{len(named) - MAX_SHOWN_LABELS:,} more"] if len(named) > MAX_SHOWN_LABELS else []
        yield f"too rare to be in every part: the label {', '.join([*named[:MAX_SHOWN_LABELS], *more])}"
    for label, frequent in [*alike.items()][:MAX_SHOWN_LABELS]:
        where = ", ".join(places.get(label, ()))
        yield (
            f"the label {label!r} may be a mistake for {frequent!r}: it stands at {where} "
            f"({counts[label]:,} in all)"
        )


def _alike(counts: Mapping[str, int]) -> dict[str, str]:
    """Labels that stand once or twice, each with a label 20 times as frequent that it resembles or
    has in it."""
    found: dict[str, str] = {}
    for label, count in counts.items():
        if not 0 < count <= 2 or label.isdecimal():
            continue
        frequent = [other for other in counts if counts[other] >= 20 * count and len(other) > 1]
        has_in_it = [other for other in frequent if other in re.split(r"[\s,;/|+]+", label)]
        if near := [*has_in_it, *get_close_matches(label, frequent, n=1, cutoff=0.8)]:
            found[label] = near[0]
    return found


def _places(train: Dataset, labels: Sequence[str]) -> dict[str, list[str]]:
    """Where labels stand in the training data, the first places of each."""
    places: dict[str, list[str]] = {label: [] for label in labels}
    if labels:
        for row, text in enumerate(train.texts["label"]):
            if (label := text.strip()) in places and len(places[label]) < MAX_SHOWN_PLACES:
                places[label].append(train.where(row))
    return {label: found for label, found in places.items() if found}


def contradictory_labels(split: Part, index: SplitIndex, examples: Integers) -> Iterator[str]:
    """A note on the texts that have several labels, with the places of two of the first."""
    if index.labels is None:
        return
    labelled = combined_hashes([index.inputs, index.labels])[examples]
    once = examples[np.sort(np.unique(labelled, return_index=True)[1])]
    inputs = index.inputs[once]
    _, first, counts = np.unique(inputs, return_index=True, return_counts=True)
    several = np.sort(first[counts > 1])
    if len(several):
        places = " and ".join(index.finding(once[inputs == inputs[several[0]]]).places[:2])
        have = "1 text has" if len(several) == 1 else f"{len(several):,} texts have"
        yield f"{have} several labels in the {SPLITS[split]} data (first: {places})"
