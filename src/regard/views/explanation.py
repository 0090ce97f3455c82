"""What `explain` found: every attention, the likeliest tokens, masks and positions; and the pictures of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from torch import nn

from regard.data.batch import AnyBatch
from regard.data.images import Picture
from regard.errors import DecodeError
from regard.views.alignment import Alignment
from regard.views.heatmap import Heatmap, Numbers
from regard.views.labels import label
from regard.views.occlusion import Occlusion
from regard.views.rollout import Rollout, roll_out
from regard.views.seen import Attention, Kind, Mix, Step
from regard.views.words import merge_pieces, words_of

View = Literal[
    "alignment", "encoder", "decoder", "mix", "occlusion", "probabilities", "heads", "hops", "masks", "positions",
]  # fmt: skip
Choice = int | Literal["mean", "all"]
"""A layer or head by its number from 1; the mean over them; or a picture of each."""

KINDS: tuple[Kind, ...] = get_args(Kind)
VIEWS: tuple[View, ...] = get_args(View)
NAMES = {
    "alignment": "attention over the source",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
}
MISSING = {
    "positions": "position encodings",
    "hops": "hops over a memory",
    "masks": "attention, so no masks",
    "mix": "mix of layers",
    "probabilities": "token to predict in this text",
    "occlusion": "label, number, tag or answer that could change where a word is left out",
}
"""What a model may lack beside these."""
SIDES: dict[Kind, tuple[str, str]] = {
    "alignment": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("inputs", "inputs"),
}
"""What looks and what is looked at, by the names of `Explanation.starts`."""
WIDEST = 128
"""Dimensions of the positions that are drawn."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where a model looked while it wrote, and what else it might have written."""

    input: str
    output: str
    model_kind: str
    source: tuple[str, ...]
    """Pieces of the source, with `</s>`; or its words."""
    target: tuple[str, ...]
    """Pieces that were written, with `</s>`; or words."""
    attentions: Mapping[str, Attention]
    """By name, in the order in which the model computes them."""
    steps: tuple[Step, ...]
    positions: Numbers | None
    """[50, D], what is added to the tokens at the first places; None where the model has no such thing."""
    residual: bool
    """Whether each attention's input is added to its output, which a rollout must know."""
    starts: Mapping[str, tuple[int, ...]] = field(repr=False)
    """Where words begin, in `source`, `target` and `inputs` (what the decoder reads)."""
    model: nn.Module = field(repr=False)
    batch: AnyBatch = field(repr=False)
    read: Callable[[], Any] = field(repr=False)
    """Runs the model on the batch once more, for those who watch it."""
    pieces: Explanation | None = field(default=None, repr=False)
    """The same between pieces, where this is between words."""
    picture: Picture | None = field(default=None, repr=False)
    """What was looked at, where that was an image; `source` then names its regions."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What else the model says: probabilities of classes, ..."""
    mix: Mix | None = None
    """Of its layers, where the model mixes them."""
    occlusion: Occlusion | None = None
    """What its answer loses without each word, where that was worked out."""
    looks: int = 0
    """The place of the query that stands for a text as a whole: [CLS] of BERT, the last token of GPT."""

    @cached_property
    def alignment(self) -> Alignment | None:
        """Attention over the source, the mean over layers and heads; None where the model has none."""
        return self._chosen("alignment", "mean", "mean")[0] if self.of_kind("alignment") else None

    @property
    def title(self) -> str:
        return f"{self.input} → {self.output}" if self.output else self.input

    @property
    def weights(self) -> Numbers:
        """Of the alignment, [T, S]."""
        return self.pictures("alignment")[0].values

    def of_kind(self, kind: Kind) -> list[Attention]:
        """The attentions of a kind, first layer first."""
        return [attention for attention in self.attentions.values() if attention.kind == kind]

    @property
    def views(self) -> list[View]:
        """What there is to see of this model."""
        kinds: list[View] = [kind for kind in KINDS if self.of_kind(kind)]
        mix: list[View] = [] if self.mix is None else ["mix"]
        mix += [] if self.occlusion is None else ["occlusion"]
        steps: list[View] = ["probabilities"] if self.steps else []
        positions: list[View] = [] if self.positions is None else ["positions"]
        masks: list[View] = ["heads", "masks"] if kinds else []
        return [*kinds, *mix, *steps, *masks, *positions]

    def words(self) -> Explanation:
        """The same between words: summed over the pieces that are looked at, averaged over those that look."""
        if self.pieces is not None:
            return self
        attentions = {name: self._merged(attention) for name, attention in self.attentions.items()}
        source, target = (words_of(getattr(self, side), self.starts[side]) for side in ("source", "target"))
        looks = sum(start <= self.looks for start in self.starts["inputs"]) - 1 if self.starts["inputs"] else self.looks
        return replace(self, source=source, target=target, attentions=attentions, looks=max(0, looks), pieces=self)

    def _merged(self, attention: Attention) -> Attention:
        starts = self._word_starts(attention)
        return replace(
            attention,
            queries=words_of(attention.queries, starts[0]),
            keys=words_of(attention.keys, starts[1]),
            weights=merge_pieces(attention.weights, *starts).astype(np.float32),
            visible=merge_pieces(attention.visible.astype(np.float32), *starts) > 0,
        )

    def _word_starts(self, attention: Attention) -> tuple[list[int], tuple[int, ...]]:
        """Where words begin among the queries and the keys of an attention."""
        looks, looked_at = SIDES[attention.kind]
        return [start for start in self.starts[looks] if start < len(attention.queries)], self.starts[looked_at]

    def pictures(
        self,
        view: View = "alignment",
        *,
        layer: Choice = "mean",
        head: Choice = "mean",
        rollout: bool = False,
        step: int | None = None,
    ) -> Sequence[Heatmap]:
        """The pictures of a view: one, or one a layer or head where `all` of them are asked for.

        `step` is the query that `heads` is about, from 1.
        """
        if view not in self.views:
            lacks = "heads" if view == "heads" and self.attentions else "attention"
            what = f"the model {self.model_kind!r} has no {MISSING.get(view, NAMES.get(view, lacks))}"
            raise DecodeError(what, where="--view", hint=f"allowed for it: {', '.join(self.views)}")
        if view == "mix":
            assert self.mix is not None
            return [self.mix.heatmap()]
        if view == "occlusion":
            assert self.occlusion is not None
            return [self.occlusion.heatmap(self.title)]
        if view == "heads":
            return [self._heads(layer, step)]
        if view == "probabilities":
            return [self._probabilities()]
        if view == "positions":
            return [self._positions()]
        if view == "masks":
            return self._masks()
        assert view != "hops", "only stories have hops, and they are explained elsewhere"
        if rollout:
            return self._rolled_out(view, layer, head)
        return self._chosen(view, layer, head)

    def _chosen(self, kind: Kind, layer: Choice, head: Choice) -> list[Alignment]:
        attentions = self.of_kind(kind)
        weights_NHQK = np.stack([attention.weights for attention in attentions])
        layers = choices(layer, len(attentions), "--layer")
        heads = choices(head, weights_NHQK.shape[1], "--head")
        return [
            self._picture(attentions[0], weights_NHQK[n][:, h].mean((0, 1), dtype=np.float64), layer_name, head_name)
            for layer_name, n in layers.items()
            for head_name, h in heads.items()
        ]

    def _rolled_out(self, kind: Kind, layer: Choice, head: Choice) -> list[Alignment]:
        if head != "mean":
            raise DecodeError("a rollout is over the mean of the heads", where="--head", hint="leave it out")
        found = self.rollout()
        shares = {"alignment": found.source, "encoder": found.encoder, "decoder": found.target}[kind]  # no memory
        last: Choice = len(shares) if layer == "mean" else layer
        first = self.of_kind(kind)[0]
        return [
            self._picture(first, shares[n[0]], f"rolled out to {name}", "")
            for name, n in choices(last, len(shares), "--layer").items()
        ]

    @property
    def rolls_out(self) -> bool:
        """Whether all that looks is self-attention or goes on from it; the regions of an image look at nothing."""
        return bool(self.of_kind("decoder")) or bool(self.of_kind("encoder") and not self.of_kind("alignment"))

    def rollout(self) -> Rollout:
        """How much of each word there is in the states of each layer; followed piece by piece, then merged."""
        if self.pieces is not None:
            return self.pieces._rollout_of_words()
        if not self.rolls_out:
            what = f"the model {self.model_kind!r} has no layers of self-attention to roll out"
            raise DecodeError(what, where="--rollout", hint="transformer, self_attention, gpt and bert have")
        means = {kind: [one.weights.mean(0, dtype=np.float64) for one in self.of_kind(kind)] for kind in KINDS}
        return roll_out(means["encoder"], means["decoder"], means["alignment"], residual=self.residual)

    def _rollout_of_words(self) -> Rollout:
        def merged(kind: Kind, layers: Sequence[Numbers]) -> tuple[Numbers, ...]:
            return tuple(merge_pieces(shares, *self._word_starts(self.of_kind(kind)[0])) for shares in layers)

        found = self.rollout()
        shares = merged("encoder", found.encoder), merged("alignment", found.source), merged("decoder", found.target)
        return Rollout(*shares)

    def _picture(self, like: Attention, weights: Numbers, *names: str) -> Alignment:
        # What tells pictures apart comes first: a title that is too long loses its end.
        details = [*names, NAMES[like.kind] if like.kind != "alignment" else ""]
        return Alignment(like.keys, like.queries, weights, " · ".join([*filter(None, details), self.title]))

    def _probabilities(self) -> Heatmap:
        """The five likeliest tokens at each step; a column for each of them, in the order in which they come up."""
        found = [
            {one.token: one.probability for one in step.candidates} | {step.token: step.probability}
            for step in self.steps
        ]
        tokens = list(dict.fromkeys(token for row in found for token in row))
        values = np.array([[row.get(token, 0.0) for token in tokens] for row in found])
        rows, columns = (label(step.token) for step in self.steps), (label(token) for token in tokens)
        title = f"the five likeliest tokens at each step · {self.title}"
        return Heatmap(tuple(rows), tuple(columns), values, title)

    def _heads(self, layer: Choice, step: int | None) -> Heatmap:
        """Where one query looked, a row for each head of each layer."""
        kind = next(kind for kind in KINDS if self.of_kind(kind))
        attentions = self.of_kind(kind)
        queries, number = len(attentions[0].queries), self.looks + 1 if step is None else step
        if not 1 <= number <= queries:
            raise DecodeError(f"there is no step {number}", where="--step", hint=f"allowed: 1 to {queries}")
        shown = choices("all" if layer == "mean" else layer, len(attentions), "--layer")
        rows = [
            (f"{name}, head {head}", weights_QK[number - 1])
            for name, [n] in shown.items()
            for head, weights_QK in enumerate(attentions[n].weights, 1)
        ]
        columns = tuple(map(label, attentions[0].keys))
        title = f"{label(attentions[0].queries[number - 1])} by head · {self.title}"
        return Heatmap(tuple(name for name, _ in rows), columns, np.stack([row for _, row in rows]), title)

    def _positions(self) -> Heatmap:
        assert self.positions is not None
        shown = self.positions[:, :WIDEST]
        rows, columns = (tuple(str(n) if n % 10 == 0 else "" for n in range(size)) for size in shown.shape)
        of = f" of {self.positions.shape[1]}" if self.positions.shape[1] > WIDEST else ""
        return Heatmap(rows, columns, shown, f"positions 0 to {len(shown) - 1}, {shown.shape[1]}{of} dimensions")

    def _masks(self) -> list[Heatmap]:
        """Who might look at whom: once for all attentions of a kind that were told the same."""
        masks: dict[tuple[str, bytes], Heatmap] = {}
        for attention in self.attentions.values():
            rows, columns = tuple(map(label, attention.queries)), tuple(map(label, attention.keys))
            title = f"{NAMES[attention.kind]} · dark may be looked at"
            mask = Heatmap(rows, columns, attention.visible.astype(np.float64), title)
            masks.setdefault((attention.kind, attention.visible.tobytes()), mask)
        return list(masks.values())

    def to_json(self) -> dict[str, Any]:
        """All numbers, as they are."""
        return {
            "input": self.input,
            "source": self.source,
            "target": self.target,
            "weights": None if self.alignment is None else self.alignment.weights.tolist(),
            "output": self.output,
            "model": self.model_kind,
            "steps": [
                {
                    "token": step.token,
                    "probability": step.probability,
                    "rank": step.rank,
                    "candidates": [[one.token, one.probability] for one in step.candidates],
                }
                for step in self.steps
            ],
            "attentions": [attention.to_json() for attention in self.attentions.values()],
            "positions": None if self.positions is None else self.positions.tolist(),
            **({} if self.picture is None else {"columns": self.picture.columns}),
            **({} if self.mix is None else {"mix": self.mix.to_json()}),
            **({} if self.occlusion is None else {"occlusion": self.occlusion.to_json()}),
            **self.told,
        }


def choices(choice: Choice, count: int, option: str) -> dict[str, Sequence[int]]:
    """What to average for each picture, by its name: all of them, one of them, or each of them."""
    what = option.strip("-")
    if choice == "mean":
        return {"": range(count)}
    if choice == "all":
        return {f"{what} {number}": [number - 1] for number in range(1, count + 1)}
    if not 1 <= choice <= count:
        hint = f"allowed: 1 to {count}, mean, all"
        raise DecodeError(f"there is no {what} {choice}", where=option, hint=hint)
    return {f"{what} {choice}": [choice - 1]}
