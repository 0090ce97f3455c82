"""Precision, recall and F1 of entities, as conlleval counts them: one is right if its type and both its ends are.

Tjong Kim Sang & De Meulder 2003, arXiv:cs/0306050, section 2.4, equation 1: F = 2 P R / (P + R).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from regard.data.schemes import entities_in


def accuracy(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """The share of words whose tag is the right one."""
    pairs = [pair for rows in zip(expected, found, strict=True) for pair in zip(*rows, strict=True)]
    return sum(ours == theirs for ours, theirs in pairs) / max(len(pairs), 1)


def entity_scores(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, Any]:
    """`precision`, `recall` and `f1` over all entities, and the same of each type under `types`."""
    there, said, right = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(expected, found, strict=True):
        gold, guessed = set(entities_in(ours)), set(entities_in(theirs))
        there.update(entity.type for entity in gold)
        said.update(entity.type for entity in guessed)
        right.update(entity.type for entity in gold & guessed)
    types = {
        one: {**_scores(right[one], said[one], there[one]), "entities": there[one]} for one in sorted({*there, *said})
    }
    return {**_scores(right.total(), said.total(), there.total()), "types": types}


def _scores(right: int, said: int, there: int) -> dict[str, float]:
    f1 = 2 * right / (said + there) if right else 0.0
    return {"precision": right / said if said else 0.0, "recall": right / there if there else 0.0, "f1": f1}
