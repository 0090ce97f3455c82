"""Which files are for training, for validation and for the test, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from regard.data.corpora import Part

WORDS_OF_PARTS: dict[Part, str] = {
    "train": "train|training|trn",
    # CoNLL-2003 has testa and testb
    "validation": "validation|valid|val|development|devel|dev|testa",
    "test": "test|testb|tst",
}
"""What names of files say that these are for, as a word of its own."""


# What is in the files


def parts_of(names: Sequence[str]) -> dict[Part, list[str]]:
    """Files by what they are for, if all their names say so and they are as many for each; else all
    are for training.

    Parallel files of a part get the order of those for training: train.en train.ko dev.ko dev.en.
    """
    words = {
        part: re.compile(rf"(?<![^\W\d_])({words})(?![^\W\d_])", re.IGNORECASE)
        for part, words in WORDS_OF_PARTS.items()
    }
    parts: dict[Part, list[str]] = {}
    for name in names:
        path = Path(name)
        of = next(
            (
                part
                for text in (path.name, path.parent.name)
                for part in words
                if words[part].search(text)
            ),
            None,
        )
        if of is not None:
            parts.setdefault(of, []).append(name)
    train = parts.get("train", [])
    if (
        len(parts) < 2
        or sum(map(len, parts.values())) < len(names)
        or {*map(len, parts.values())} != {len(train)}
    ):
        return {"train": [*names]}
    rest = {part: {words[part].sub("", name): name for name in parts[part]} for part in parts}
    in_order: dict[Part, list[str]] = {"train": train}
    for part in (part for part in WORDS_OF_PARTS if part in parts and part != "train"):
        alike = rest[part].keys() == rest["train"].keys()
        in_order[part] = [rest[part][key] for key in rest["train"]] if alike else parts[part]
    return in_order
