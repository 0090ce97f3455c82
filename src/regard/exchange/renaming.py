"""Weights under other names. One table of names serves both directions, so a round trip loses no
weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from regard.errors import DataError

WeightNames = Mapping[str, str]
"""Our name of a layer, or of a single weight or bias -> their name of it.

If one side has a single tensor and the other several, the tensors have parts of equal size. A name
is then listed once for each of its parts, as in "W_KV W_KV": "key value".
"""


def prefixed(ours: str, theirs: str, table: WeightNames) -> dict[str, str]:
    """A table of names with a prefix before every name."""
    return {
        " ".join(ours + name for name in key.split()): " ".join(
            theirs + name for name in value.split()
        )
        for key, value in table.items()
    }


def _tensors(table: WeightNames) -> Iterator[tuple[list[str], list[str]]]:
    """The names of tensors on both sides: a layer has a weight and a bias."""
    for ours, theirs in table.items():
        for kind in [""] if ours.endswith((".weight", ".bias")) else [".weight", ".bias"]:
            yield [name + kind for name in ours.split()], [name + kind for name in theirs.split()]


def _convert(
    weights: Mapping[str, Tensor], before: list[str], after: list[str]
) -> dict[str, Tensor]:
    """Split tensors into their parts and join these under the other names. A tensor that only gets
    another name is not copied."""
    if len(before) == len(after) == 1:
        return {after[0]: weights[before[0]].detach()}
    parts = (
        part
        for name, count in Counter(before).items()
        for part in weights[name].detach().chunk(count)
    )
    return {
        name: torch.cat([next(parts) for _ in range(count)])
        for name, count in Counter(after).items()
    }


def to_ours(table: WeightNames, theirs: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """The weights under our names; missing and unexpected weights are refused. They are taken out of
    `theirs`, so that no large model is in memory twice."""
    names = {name for _, tensors in _tensors(table) for name in tensors}
    missing = names - set(theirs)
    unexpected = set(theirs) - names
    if missing or unexpected:
        what = (
            f"there is no {min(missing)}" if missing else f"there is no place for {min(unexpected)}"
        )
        hint = "the weights are not those of the architecture that config.json names"
        raise DataError(f"of its weights {what}", where=where, hint=hint)
    weights: dict[str, Tensor] = {}
    for ours, before in _tensors(table):
        weights |= _convert(
            {name: theirs.pop(name) for name in dict.fromkeys(before)}, before, ours
        )
    return weights


def to_theirs(table: WeightNames, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: w
        for before, theirs in _tensors(table)
        for name, w in _convert(ours, before, theirs).items()
    }


def without_copies(
    theirs: Mapping[str, Tensor], copies: Mapping[str, str], where: str
) -> dict[str, Tensor]:
    """The weights with each shared tensor once: `copies` is second name -> first name. Copies with
    other values are refused."""
    weights = dict(theirs)
    for copy, first in copies.items():
        if copy in weights and not torch.equal(
            tensor := weights.pop(copy), weights.setdefault(first, tensor)
        ):
            raise DataError(
                f"has other values than {first}, but regard has one table for both",
                where=f"{where}: {copy}",
            )
    return weights
