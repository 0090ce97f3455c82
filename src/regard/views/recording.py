"""What a model computes for one input, recorded from outside: attention, likely tokens, numbers of one step.

No model knows that it is recorded: weights come from `layers.attention.recording`, the rest from forward hooks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
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
NAMES: dict[Kind, str] = {
    "alignment": "attention over the source",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "hops": "attention over the story",
}
POSITIONS = 50
"""Position encodings that are shown."""
CANDIDATES = 5
"""Likeliest tokens that are kept for each step."""


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


class Pieces(NamedTuple):
    """A text as a model reads or writes it, in tokens or words."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    """The position of each word's first token."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> Pieces:
        """The tokens `ids`. Special tokens, `<unk>` among them, are words of their own.

        A word begins with the mark `▁`, or, in vocabularies that write `##` before continuations, without `##`.
        """
        special, pieces = tokenizer.special, tuple(tokenizer.pieces(ids))
        decoder = json.loads(tokenizer.to_json())["decoder"] or {}
        hashes, starts = decoder.get("prefix") == "##", []
        for position, piece in enumerate(pieces):
            begins = not piece.startswith("##") if hashes else piece.startswith(MARK)
            after_special = position == 0 or ids[position - 1] in special
            if begins or after_special or ids[position] in special:
                starts.append(position)
        return cls(pieces, tuple(starts))

    def first(self, count: int) -> Pieces:
        return Pieces(self.texts[:count], tuple(start for start in self.starts if start < count))

    def words(self) -> Pieces:
        """The tokens of each word joined, without the marks."""
        ends = [*self.starts[1:], len(self.texts)]
        joined = ["".join(self.texts[first:last]) for first, last in zip(self.starts, ends, strict=False)]
        words = tuple(word.replace("##", "").replace("‿", "").strip(MARK) or MARK for word in joined)
        return Pieces(words, tuple(range(len(words))))


def merge_pieces(weights: Numbers, query_starts: Sequence[int], key_starts: Sequence[int]) -> Numbers:
    """Weights [..., Q, K] between words: the sum over the tokens of a key, the mean over the tokens of a query.

    So rows that sum to 1 still do (Clark et al. 2019, arXiv:1906.04341, section 4.1).
    """
    summed = np.add.reduceat(weights, key_starts, axis=-1)
    tokens_Q1 = np.diff([*query_starts, weights.shape[-2]])[:, None]
    merged: Numbers = np.add.reduceat(summed, query_starts, axis=-2) / tokens_Q1
    return merged


@dataclass(frozen=True, eq=False)
class Attention:
    """The weights of one attention: `weights[h, q, k]` is how much of key k head h reads at query q."""

    name: str
    """Of the module inside the model."""
    kind: Kind
    layer: int
    queries: Pieces
    keys: Pieces
    weights: Numbers
    visible: npt.NDArray[np.bool_]
    """[Q, K], where it may look."""

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


@torch.inference_mode()
def record(
    model: nn.Module, forward: Callable[[], Tensor], source: Pieces, inputs: Pieces, target: Pieces
) -> tuple[Tensor, dict[str, Attention]]:
    """Run the written-out equation of every attention for the first sentence of a batch: hidden states, attentions."""
    with recording() as recorded:
        hidden_BTD = forward()
    visible, attentions = recorded.by_name(model, visible=True), dict[str, Attention]()
    for name, weights_BHQK in recorded.by_name(model).items():
        kind: Kind = "decoder"
        queries = keys = inputs
        if fnmatch(name, getattr(model, "alignment", "")):
            kind, queries, keys = "alignment", target, source
        elif name.startswith("encoder") or not inputs.texts:
            kind, queries, keys = "encoder", source, source
        queries = queries.first(weights_BHQK.shape[2])  # a recurrent decoder takes no step for padding
        number = re.search(r"\.(\d+)\.", name)
        layer, weights = int(number[1]) + 1 if number else 1, weights_BHQK[0].float().cpu().numpy()
        attentions[name] = Attention(name, kind, layer, queries, keys, weights, visible[name][0, 0].cpu().numpy())
    return hidden_BTD[0], attentions


def roll_out(attentions: Mapping[str, Attention], *, residual: bool = True) -> dict[Kind, list[Attention]]:
    """How much of each token there is in the states after each layer, by kind; empty without self-attention.

    Abnar & Zuidema 2020, arXiv:2005.00928, section 3, for weights averaged over the heads, with
    A = 0.5 W_att + 0.5 I for the residual connection; a model without has A = W_att:
        R_l = A_l R_{l-1},  R_0 = I

    The paper has one stack, as BERT and GPT have. In a decoder over an encoder, self-attention mixes what the states
    hold, and attention over the source adds what the encoder's last states, or the regions of an image, hold; the
    shares of source and target tokens sum to 1 together.
    """
    layers = {kind: [layer for layer in attentions.values() if layer.kind == kind] for kind in NAMES}
    encoder, decoder, cross = layers["encoder"], layers["decoder"], layers["alignment"]
    if not decoder and (cross or not encoder):
        return {}
    share, rolled = 0.5 if residual else 1.0, dict[Kind, list[Attention]]()

    def mix(attention: Attention, read: Numbers, before: Numbers) -> Numbers:
        mixed: Numbers = share * (attention.weights.mean(0, dtype=np.float64) @ read) + (1 - share) * before
        return mixed

    def keep(attention: Attention, shares: Numbers) -> None:
        rolled.setdefault(attention.kind, []).append(replace(attention, weights=shares[None]))

    of_encoder: Numbers = np.eye(len([*encoder, *cross][0].keys.texts) if encoder or cross else 0)
    for layer in encoder:
        of_encoder = mix(layer, of_encoder, of_encoder)
        keep(layer, of_encoder)
    of_target: Numbers = np.eye(len(decoder[0].keys.texts) if decoder else 0)
    of_source: Numbers = np.zeros((len(of_target), len(of_encoder)))
    for number, layer in enumerate(decoder):
        of_target, of_source = mix(layer, of_target, of_target), mix(layer, of_source, of_source)
        if cross:
            of_target, of_source = (1 - share) * of_target, mix(cross[number], of_encoder, of_source)
            keep(cross[number], of_source)
        keep(layer, of_target)
    return rolled


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


@dataclass(frozen=True)
class Step:
    """One token of the target: its probability, its rank from 1, and the likeliest tokens at its position."""

    token: str
    probability: float
    rank: int
    candidates: tuple[tuple[str, float], ...]
    """Each with its probability."""


class Predicted(NamedTuple):
    """Where a model predicts tokens, and which; None: the likeliest ones that are not special."""

    tokenizer: Tokenizer
    places: Sequence[int] = ()
    written: Sequence[int] | None = None


@torch.inference_mode()
def steps_of(model: Any, hidden_TD: Tensor, predicted: Predicted) -> tuple[Step, ...]:
    """The model's own probabilities, also of tokens that the search may not write."""
    tokenizer, places, written = predicted
    if not places:
        return ()
    logits_PV = model.readout(hidden_TD[[*places]])
    if written is None:
        special = torch.tensor(sorted(tokenizer.special), device=logits_PV.device)
        written = logits_PV.index_fill(1, special, -torch.inf).argmax(-1).tolist()
    p_PV = log_probabilities(logits_PV).exp().cpu()
    p_P1 = p_PV.gather(1, torch.tensor(written)[:, None])
    ranks = ((p_PV > p_P1).sum(1) + 1).tolist()
    likeliest = p_PV.topk(min(CANDIDATES, p_PV.shape[1]))
    columns = tokenizer.pieces(written), p_P1[:, 0].tolist(), ranks, likeliest.indices, likeliest.values.tolist()
    steps = []
    for piece, p, rank, ids, probabilities in zip(*columns, strict=True):
        # Each alone: side by side, the bytes of alternatives would be read as one character.
        tokens = [tokenizer.pieces([token])[0] for token in ids.tolist()]
        steps.append(Step(piece, p, rank, tuple(zip(tokens, probabilities, strict=True))))
    return tuple(steps)
