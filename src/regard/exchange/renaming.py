"""The same weights under other names: one table of renamings leads both ways, so that no round trip loses any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import DataError

Change = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Renaming:
    """Some weights here, the same ones there, and how the values of one side become those of the other."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Change
    """Their tensors -> ours."""
    write: Change
    """Our tensors -> theirs."""


def same(ours: str, theirs: str) -> list[Renaming]:
    """One tensor under two names."""
    return [Renaming((ours,), (theirs,), lambda tensor: [tensor], lambda tensor: [tensor])]


def affine(ours: str, theirs: str) -> list[Renaming]:
    """Weight and bias of a linear layer or a norm."""
    return [*same(f"{ours}.weight", f"{theirs}.weight"), *same(f"{ours}.bias", f"{theirs}.bias")]


def joined(ours: str, *theirs: str) -> list[Renaming]:
    """Several linear layers that read the same stand in one here, one below the other."""
    return [
        Renaming(
            (f"{ours}.{kind}",),
            tuple(f"{name}.{kind}" for name in theirs),
            lambda *tensors: [torch.cat(tensors)],
            lambda tensor: tensor.chunk(len(theirs)),
        )
        for kind in ("weight", "bias")
    ]


def to_ours(renamings: Iterable[Renaming], theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The weights under our names; refuses a set that lacks some, or has some that the model has no place for."""
    renamings = list(renamings)
    named = [name for one in renamings for name in one.theirs]
    missing, left = set(named) - set(theirs), set(theirs) - set(named)
    if missing or left:
        what = f"there is no {min(missing)}" if missing else f"there is no place for {min(left)}"
        hint = "the weights are not those of the architecture that config.json names"
        raise DataError(f"of its weights {what}", where=where, hint=hint)
    found: dict[str, Tensor] = {}
    for one in renamings:
        found |= dict(zip(one.ours, one.read(*(theirs[name] for name in one.theirs)), strict=True))
    return {name: tensor.contiguous() for name, tensor in found.items()}


def to_theirs(renamings: Iterable[Renaming], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under their names."""
    found: dict[str, Tensor] = {}
    for one in renamings:
        found |= dict(zip(one.theirs, one.write(*(ours[name] for name in one.ours)), strict=True))
    return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}
