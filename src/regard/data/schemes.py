"""Tags of words <-> the entities that they mean: IOB1, IOB2 and BIOES, as conlleval reads them.

    words   Anna   Kim    flew  to  New    York   Monday
    IOB1    I-PER  I-PER  O     O   I-LOC  I-LOC  O         B- only between two entities of one type
    IOB2    B-PER  I-PER  O     O   B-LOC  I-LOC  O         every entity begins with B-
    BIOES   B-PER  E-PER  O     O   B-LOC  E-LOC  O         E- ends one, S- is one of a single word

Ramshaw & Marcus 1995 (arXiv:cmp-lg/9505040); Tjong Kim Sang & Veenstra 1999 (arXiv:cs/9907006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Scheme = Literal["iob1", "iob2", "bioes"]
PREFIXES: dict[Scheme, str] = {"iob1": "BI", "iob2": "BI", "bioes": "BIES"}
OUTSIDE = "O"


class Entity(NamedTuple):
    """Words from `start` up to, but without, `end`."""

    type: str
    start: int
    end: int


def is_chunk_tag(tag: str) -> bool:
    """Whether a tag is of a scheme: `O`, or a prefix, a hyphen and a type."""
    return tag == OUTSIDE or (len(tag) > 2 and tag[0] in "BIES" and tag[1] == "-")


def entities_in(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, of whatever scheme the tags are, sound or not, by the rules of conlleval."""
    found: list[Entity] = []
    begun = 0
    for word, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if _ends(before, tag):
            found.append(Entity(before[2:], begun, word))
        if _begins(before, tag):
            begun = word
    return found


def _begins(before: str, tag: str) -> bool:
    return tag != OUTSIDE and (tag[0] in "BS" or before == OUTSIDE or before[0] in "ES" or before[2:] != tag[2:])


def _ends(before: str, tag: str) -> bool:
    return before != OUTSIDE and (before[0] in "ES" or tag == OUTSIDE or tag[0] in "BS" or before[2:] != tag[2:])


def tags_of(entities: Iterable[Entity], words: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence whose entities these are, in their order."""
    tags, before = [OUTSIDE] * words, Entity("", 0, 0)
    for entity in entities:
        prefixes = _WRITTEN[scheme](
            entity.end - entity.start, before.type == entity.type and before.end == entity.start
        )
        tags[entity.start : entity.end] = [f"{prefix}-{entity.type}" for prefix in prefixes]
        before = entity
    return tags


_WRITTEN: dict[Scheme, Callable[[int, bool], str]] = {
    "iob1": lambda words, adjoins: ("B" if adjoins else "I") + "I" * (words - 1),
    "iob2": lambda words, adjoins: "B" + "I" * (words - 1),
    "bioes": lambda words, adjoins: "S" if words == 1 else "B" + "I" * (words - 2) + "E",
}
"""The prefixes of an entity of so many words, that adjoins one of its type or does not."""


def labels_of(types: Iterable[str], scheme: Scheme) -> list[str]:
    """All tags that entities of these types can have."""
    return [OUTSIDE, *(f"{prefix}-{one}" for one in sorted(types) for prefix in PREFIXES[scheme])]


def first_fault(tags: Sequence[str], scheme: Scheme) -> int | None:
    """The number of the first tag that cannot stand where it does in the scheme."""
    written = tags_of(entities_in(tags), len(tags), scheme)
    return next((word for word, (tag, sound) in enumerate(zip(tags, written, strict=True)) if tag != sound), None)
