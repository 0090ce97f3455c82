"""The same weights under other names. One table of renamings is used both ways, so no round trip loses a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import DataError

Change = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Renaming:
    """Some of our weights, the same weights in `transformers`, and how to convert one into the other."""

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
    """Several linear layers of theirs are one of ours, concatenated."""
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
    """The weights under our names; missing weights and weights without a place are refused."""
    renamings = list(renamings)
    names = {name for renaming in renamings for name in renaming.theirs}
    missing, left = names - set(theirs), set(theirs) - names
    if missing or left:
        what = f"there is no {min(missing)}" if missing else f"there is no place for {min(left)}"
        hint = "the weights are not those of the architecture that config.json names"
        raise DataError(f"of its weights {what}", where=where, hint=hint)
    ours: dict[str, Tensor] = {}
    for renaming in renamings:
        tensors = renaming.read(*(theirs[name] for name in renaming.theirs))
        ours |= dict(zip(renaming.ours, tensors, strict=True))
    return {name: tensor.contiguous() for name, tensor in ours.items()}


def to_theirs(renamings: Iterable[Renaming], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under their names."""
    theirs: dict[str, Tensor] = {}
    for renaming in renamings:
        tensors = renaming.write(*(ours[name] for name in renaming.ours))
        theirs |= dict(zip(renaming.theirs, tensors, strict=True))
    return {name: tensor.detach().clone().contiguous() for name, tensor in theirs.items()}
