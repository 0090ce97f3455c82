"""The weights of every attention of a model on one input, between tokens or words.

Models do not know that they are recorded: forward hooks take what their modules compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import nn

from regard.text.vocabularies import MARK
from regard.views.report import Numbers

AttentionKind = Literal["alignment", "encoder", "decoder", "hops"]
"""Attention over the source, self-attention of the encoder or the decoder, attention over the
sentences of a story."""
ATTENTION_NAMES: dict[AttentionKind, str] = {
    "alignment": "attention over the source",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "hops": "attention over the story",
}


class ModuleCall(NamedTuple):
    """One call of a module."""

    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def module_calls(model: nn.Module, names: Collection[str]) -> Iterator[dict[str, list[ModuleCall]]]:
    """The calls of these modules inside `model`, by name and in order; the name of `model` itself
    is empty."""
    calls: dict[str, list[ModuleCall]] = {}

    def keep(name: str, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls.setdefault(name, []).append(ModuleCall(inputs, output))

    modules = dict(model.named_modules())
    hooks = [
        modules[name].register_forward_hook(partial(keep, name))
        for name in names
        if name in modules
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


class TextPieces(NamedTuple):
    """A text as a model reads or writes it, in tokens or words."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    """The position of each word's first token."""

    def words(self) -> TextPieces:
        """The tokens of each word joined, without the marks."""
        ends = [*self.starts[1:], len(self.texts)]
        joined = [
            "".join(self.texts[first:last]) for first, last in zip(self.starts, ends, strict=False)
        ]
        words = tuple(
            word.replace("##", "").replace("‿", "").strip(MARK) or MARK for word in joined
        )
        return TextPieces(words, tuple(range(len(words))))


def merge_pieces(
    weights: Numbers, query_starts: Sequence[int], key_starts: Sequence[int]
) -> Numbers:
    """Weights [..., Q, K] between words: the sum over the tokens of a key, the mean over the tokens
    of a query.

    Rows that sum to 1 therefore still do (Clark et al. 2019, arXiv:1906.04341, section 4.1).
    """
    summed = np.add.reduceat(weights, key_starts, axis=-1)
    tokens_Q1 = np.diff([*query_starts, weights.shape[-2]])[:, None]
    merged: Numbers = np.add.reduceat(summed, query_starts, axis=-2) / tokens_Q1
    return merged


@dataclass(frozen=True, eq=False)
class Attention:
    """The weights of one attention: `weights[h, q, k]` is how much of key k head h reads at query
    q."""

    name: str
    """The name of the module inside the model."""
    kind: AttentionKind
    layer: int
    queries: TextPieces
    keys: TextPieces
    weights: Numbers
    visible: npt.NDArray[np.bool_]
    """[Q, K]: True where the query may look at the key."""

    def between_words(self) -> Attention:
        starts = self.queries.starts, self.keys.starts
        return replace(
            self,
            queries=self.queries.words(),
            keys=self.keys.words(),
            weights=merge_pieces(self.weights, *starts).astype(self.weights.dtype),
            visible=merge_pieces(self.visible.astype(np.float32), *starts) > 0,
        )

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"queries": self.queries.texts, "keys": self.keys.texts}


@dataclass(frozen=True)
class PredictedToken:
    """One token of the target: its probability, its rank from 1, and the likeliest tokens at its
    position."""

    token: str
    probability: float
    rank: int
    candidates: tuple[tuple[str, float], ...]
