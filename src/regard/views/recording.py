"""What a model computes for one input, recorded from outside: attention weights, module calls, token probabilities.

No model knows that it is recorded: weights come from `layers.attention.recording`, the rest from forward hooks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from regard.layers.attention import recording
from regard.layers.embeddings import Positions
from regard.models.base import device_of
from regard.search.hypotheses import log_probabilities
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK
from regard.views.report import Numbers

Kind = Literal["alignment", "encoder", "decoder", "hops"]
"""Attention over the source, self-attention of the encoder or the decoder, attention over the sentences of a story."""

CANDIDATES = 5
"""Likeliest tokens that are kept for each step."""
POSITIONS = 50
"""Position encodings that are shown."""


# -------------------------------------------------------------------------------------------------- calls of modules


class Call(NamedTuple):
    """One call of a module."""

    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def module_calls(model: nn.Module, names: Collection[str]) -> Iterator[dict[str, list[Call]]]:
    """The calls of these modules inside `model`, by name and in order; the name of `model` itself is empty."""
    calls: dict[str, list[Call]] = {}

    def keep(name: str, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls.setdefault(name, []).append(Call(inputs, output))

    modules = dict(model.named_modules())
    hooks = [modules[name].register_forward_hook(partial(keep, name)) for name in names if name in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


# ---------------------------------------------------------------------------------------------------------- attention


@dataclass(frozen=True)
class Recorded:
    """What one forward pass computed for the first sentence of its batch."""

    hidden_TD: Tensor
    weights_HQK: dict[str, Tensor]
    """By the name of the attention inside the model."""
    visible_QK: dict[str, Tensor]
    """Where each of them may look: padding, look-ahead and windows. True means "may look"."""


@torch.inference_mode()
def record(model: nn.Module, forward: Callable[[], Tensor]) -> Recorded:
    """Run the written-out equation of every attention; `forward` returns the hidden states [B, T, D]."""

    with recording() as recorded:
        hidden_BTD = forward()
    weights, visible = recorded.by_name(model), recorded.visible_by_name(model)
    return Recorded(
        hidden_BTD[0],
        {name: weights_BHQK[0] for name, weights_BHQK in weights.items()},
        {name: visible_B1QK[0, 0] for name, visible_B1QK in visible.items()},
    )


@dataclass(frozen=True, eq=False)
class Attention:
    """The weights of one attention: `weights[h, q, k]` is how much of `keys[k]` head h reads at `queries[q]`."""

    name: str
    """Of the module inside the model."""
    kind: Kind
    layer: int
    """From 1; the hop, for a story."""
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: npt.NDArray[np.float32]
    visible: npt.NDArray[np.bool_]
    """[Q, K], where it may look."""

    def between_words(self, query_starts: Sequence[int], key_starts: Sequence[int]) -> Attention:
        """The same between words, given where words begin among queries and keys."""
        query_starts = [start for start in query_starts if start < len(self.queries)]
        return replace(
            self,
            queries=words_of(self.queries, query_starts),
            keys=words_of(self.keys, key_starts),
            weights=merge_pieces(self.weights, query_starts, key_starts).astype(np.float32),
            visible=merge_pieces(self.visible.astype(np.float32), query_starts, key_starts) > 0,
        )

    def to_json(self) -> dict[str, Any]:
        numbers = {"weights": self.weights.tolist(), "visible": self.visible.astype(int).tolist()}
        return {name: getattr(self, name) for name in ("name", "kind", "layer", "queries", "keys")} | numbers


def attention_of(name: str, kind: Kind, recorded: Recorded, queries: Sequence[str], keys: Sequence[str]) -> Attention:
    """One recorded attention between tokens; its layer is the number in its name."""
    number, weights_HQK = re.search(r"\.(\d+)\.", name), recorded.weights_HQK[name]
    return Attention(
        name,
        kind,
        layer=int(number[1]) + 1 if number else 1,
        queries=tuple(queries[: weights_HQK.shape[1]]),  # a recurrent decoder takes no step for padding
        keys=tuple(keys),
        weights=weights_HQK.float().cpu().numpy(),
        visible=recorded.visible_QK[name].cpu().numpy(),
    )


# -------------------------------------------------------------------------------------------------------------- words


def word_starts(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """The position of each word's first token. Special tokens, `<unk>` among them, are words of their own.

    A word begins with the mark `▁`, or, in vocabularies that write `##` before continuations, without `##`.
    """
    special = tokenizer.special
    decoder = json.loads(tokenizer.to_json())["decoder"] or {}
    hashes = decoder.get("prefix") == "##"
    starts = []
    for position, piece in enumerate(tokenizer.pieces(ids)):
        begins = not piece.startswith("##") if hashes else piece.startswith(MARK)
        after_special = position == 0 or ids[position - 1] in special
        if begins or after_special or ids[position] in special:
            starts.append(position)
    return tuple(starts)


def words_of(pieces: Sequence[str], starts: Sequence[int]) -> tuple[str, ...]:
    """The tokens of each word joined, without the marks."""
    ends = [*starts[1:], len(pieces)]
    joined = ["".join(pieces[first:last]) for first, last in zip(starts, ends[: len(starts)], strict=True)]
    return tuple(word.replace("##", "").replace("‿", "").strip(MARK) or MARK for word in joined)


def merge_pieces(weights: Numbers, query_starts: Sequence[int], key_starts: Sequence[int]) -> Numbers:
    """Weights [..., Q, K] between words: the sum over the tokens of a key, the mean over the tokens of a query.

    So rows that sum to 1 still do (Clark et al. 2019, arXiv:1906.04341, section 4.1).
    """
    summed = np.add.reduceat(weights, key_starts, axis=-1)
    tokens_Q1 = np.diff([*query_starts, weights.shape[-2]])[:, None]
    merged: Numbers = np.add.reduceat(summed, query_starts, axis=-2) / tokens_Q1
    return merged


# ----------------------------------------------------------------------------------------- likely tokens and positions


@dataclass(frozen=True)
class Candidate:
    """A token and its probability, given the source and the tokens before it."""

    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One token of the target: its probability, its rank from 1, and the likeliest tokens at its position."""

    token: str
    probability: float
    rank: int
    candidates: tuple[Candidate, ...]

    def to_json(self) -> dict[str, Any]:
        candidates = [[candidate.token, candidate.probability] for candidate in self.candidates]
        return {"token": self.token, "probability": self.probability, "rank": self.rank, "candidates": candidates}


@torch.inference_mode()
def steps_of(logits_TV: Tensor, vocabulary: Tokenizer, target_ids: Sequence[int]) -> tuple[Step, ...]:
    """The model's own probabilities, also of tokens that the search may not write."""
    p_TV = log_probabilities(logits_TV[: len(target_ids)]).exp().cpu()
    p_T1 = p_TV.gather(1, torch.tensor(target_ids)[:, None])
    ranks = ((p_TV > p_T1).sum(1) + 1).tolist()
    likeliest = p_TV.topk(min(CANDIDATES, p_TV.shape[1]))
    columns = vocabulary.pieces(target_ids), p_T1[:, 0].tolist(), ranks, likeliest.indices, likeliest.values.tolist()
    steps = []
    for piece, p, rank, ids, probabilities in zip(*columns, strict=True):
        # Each alone: side by side, the bytes of alternatives would be read as one character.
        tokens = [vocabulary.pieces([token])[0] for token in ids.tolist()]
        steps.append(Step(piece, p, rank, tuple(map(Candidate, tokens, probabilities))))
    return tuple(steps)


@torch.inference_mode()
def positions_of(model: nn.Module) -> Numbers | None:
    """What the model adds to the embeddings at the first positions, [50, D]; None where it has no such encoding."""
    for module in model.modules():
        if isinstance(module, Positions) and module.kind != "none":
            count = min(POSITIONS, module.longest) if module.kind == "learned" else POSITIONS
            zeros_1LD = torch.zeros(1, count, module.width, device=device_of(model))
            encodings_LD: Numbers = module(zeros_1LD)[0].float().cpu().numpy()
            return encodings_LD
    return None
