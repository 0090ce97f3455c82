"""The result of `explain`: every attention, the likeliest tokens, masks and positions of one input;
and its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import AnyBatch, StoryBatch
from regard.data.images import Picture
from regard.errors import DecodeError
from regard.layers.attention import recording
from regard.models.headed import LayerMix
from regard.models.memory_network import MemoryNetwork
from regard.tasks.views import WordWeights
from regard.views import worked_attention
from regard.views.attention import (
    ATTENTION_NAMES,
    Attention,
    AttentionKind,
    PredictedToken,
    TextPieces,
)
from regard.views.labels import shorten, token_label
from regard.views.occlusion import Occlusion
from regard.views.report import (
    Bars,
    Cell,
    HeatMap,
    HeatMaps,
    ImageMap,
    Numbers,
    Part,
    Report,
    Result,
    Section,
    Table,
    json_parts,
    muted,
)
from regard.views.story_attention import StoryAttention
from regard.views.worked_attention import ChangedScores, WorkedAttention

REGION_NAMES = (
    "A region of the image is named by its row and column, counted from the top left: 1,1 is the "
    "corner."
)
View = Literal[
    "alignment",
    "encoder",
    "decoder",
    "hops",
    "mix",
    "occlusion",
    "probabilities",
    "heads",
    "masks",
    "positions",
]
LayerOrHead = int | str
"""The number of a layer or head, from 1; `mean` for the mean over all; `all` for one map each."""

MAP_VIEWS = ("alignment", "encoder", "decoder")
OPTION_EFFECTS = {
    "layer": (*MAP_VIEWS, "heads", "--numbers"),
    "head": (*MAP_VIEWS, "--numbers"),
    "rollout": MAP_VIEWS,
    "step": ("heads", "--numbers"),
    "words": (*MAP_VIEWS, "heads", "masks"),
    "padding": (*MAP_VIEWS, "heads", "masks", "--numbers"),
}
"""The views that each option changes; `--numbers` are those of one attention."""
MAX_SHOWN_DIMENSIONS = 128
"""Dimensions of the position encodings that are drawn."""
MAX_WEIGHED_CLASSES = 6
"""Classes whose weights of words are shown, the likeliest first."""
MAX_SHOWN_LABELS = 10
"""Labels whose probabilities are shown."""


@dataclass(frozen=True)
class ViewOptions:
    """Which part of an explanation to show."""

    view: View | None = None
    """None: the first view that the model has."""
    layer: LayerOrHead = "mean"
    head: LayerOrHead = "mean"
    rollout: bool = False
    words: bool = False
    step: int | None = None
    """The query that `heads` is about, from 1."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Where a model looked for one input, and which other tokens it considered."""

    input: str
    output: str
    model_kind: str
    model: nn.Module
    batch: AnyBatch
    forward: Callable[[], Tensor]
    """Runs the model on the batch again: the hidden states [1, T, D] that its readout or head
    reads."""
    follow: Callable[[Tensor], tuple[PredictedToken, ...]]
    """Turns the output of `forward` into the model's predictions."""
    source: TextPieces = field(default_factory=TextPieces)
    inputs: TextPieces = field(default_factory=TextPieces)
    """The tokens that the decoder reads."""
    target: TextPieces = field(default_factory=TextPieces)
    """The written tokens, with `</s>`."""
    attentions: Mapping[str, Attention] = field(default_factory=dict)
    rollouts: Mapping[AttentionKind, Sequence[Attention]] = field(default_factory=dict)
    """Attention rollout up to each layer; empty if the model has no layers of self-attention."""
    whole: int = 0
    """The position of the query that represents the text as a whole: [CLS] of BERT, the last token
    of GPT."""
    steps: tuple[PredictedToken, ...] = ()
    positions: Numbers | None = None
    """[50, D], the encodings of the first positions; None if the model has none."""
    prediction: Mapping[str, Any] = field(default_factory=dict)
    """Other predictions of the model, such as the probabilities of classes."""
    picture: Picture | None = None
    """The source if it is an image; `source` then names its regions."""
    mix: Mapping[str, Any] | None = None
    """How layers are mixed (Peters et al. 2018, equation 1): `shares` by layer, `gamma`, whether it
    is `learned`."""
    occlusion: Occlusion | None = None
    word_weights: WordWeights | None = None
    """The weights of the words, of a model that is linear in them."""
    story: StoryAttention | None = None
    unknown: Sequence[str] = ()
    """The words of the input and of a given target that the vocabulary does not know."""
    options: ViewOptions = ViewOptions()

    def select(self, options: ViewOptions) -> Explanation:
        if not options.words:
            return replace(self, options=options)
        starts = self.of_kind(self.kinds[0])[0].queries.starts if self.attentions else ()
        return replace(
            self,
            options=options,
            source=self.source.words(),
            target=self.target.words(),
            attentions={
                name: attention.between_words() for name, attention in self.attentions.items()
            },
            rollouts={
                kind: [layer.between_words() for layer in layers]
                for kind, layers in self.rollouts.items()
            },
            whole=max(0, sum(start <= self.whole for start in starts) - 1),
        )

    def refuse_without_effect(self, *, padding: int | None, numbers: bool) -> None:
        """Refuse an option that would change nothing in the view, or in the numbers of one
        attention."""
        shown = "--numbers" if numbers else self.view
        defaults = vars(ViewOptions()) | {"padding": None}
        given = vars(self.options) | {"padding": padding}
        for name, changed in OPTION_EFFECTS.items():
            if given[name] != defaults[name] and shown not in changed:
                hint = f"it changes {', '.join(changed)}"
                raise DecodeError(f"it does not change {shown}", where=f"--{name}", hint=hint)

    @property
    def title(self) -> str:
        if self.story is not None:
            right = self.story.answer
            correction = (
                "" if right is None or right.lower() == self.output.lower() else f", not {right}"
            )
            return (
                f"{self.story.question} {self.output} ({self.steps[0].probability:.3f}){correction}"
            )
        return f"{self.input} → {self.output}" if self.output else self.input

    @property
    def weights(self) -> Numbers:
        """Attention over the source, [T, S]: the mean over layers and heads."""
        return self.select(ViewOptions("alignment")).heat_maps()[0].values

    def of_kind(self, kind: AttentionKind) -> list[Attention]:
        """The attentions of a kind, first layer first."""
        return [attention for attention in self.attentions.values() if attention.kind == kind]

    @property
    def kinds(self) -> list[AttentionKind]:
        return (
            ["hops"]
            if self.story is not None
            else [kind for kind in ATTENTION_NAMES if self.of_kind(kind)]
        )

    @property
    def views(self) -> list[View]:
        has: dict[View, bool] = {
            "occlusion": self.occlusion is not None,
            **dict.fromkeys(self.kinds, True),
            "mix": self.mix is not None,
            "probabilities": bool(self.steps) and self.story is None,
            "heads": bool(self.attentions),
            "masks": bool(self.attentions),
            "positions": self.positions is not None,
        }
        return [view for view, there in has.items() if there]

    @property
    def view(self) -> View:
        """The selected view, or the first that the model has; no option but `view` changes
        `occlusion`."""
        others = [view for view in self.views if view != "occlusion"]
        plain = self.options.view is not None or self.options == ViewOptions()
        return self._view_of(self.views if plain else others or self.views)

    def _view_of(self, views: Sequence[View]) -> View:
        view = self.options.view or views[0]
        if view not in views:
            what = f"the model {self.model_kind!r} has no view {view!r}"
            hint = f"allowed for it: {', '.join(views)}"
            raise DecodeError(what, where="--view", hint=hint)
        return view

    @property
    def workable(self) -> list[View]:
        """Views that can be worked out: kinds of attention, and the mix of layers."""
        return [*self.kinds, *(view for view in self.views if view == "mix")]

    def queries(self, kind: View) -> Sequence[str]:
        """The queries among which a step of `worked` chooses."""
        if self.story is not None:
            return [self.story.question]
        if kind == "mix":
            return self.inputs.texts or self.source.texts
        written = [step.token for step in self.steps] if kind != "encoder" else []
        return written or self.of_kind(cast("AttentionKind", kind))[0].queries.texts

    def worked(self, scores: ChangedScores = None) -> WorkedAttention:
        """One attention computed again for one query, equation by equation.

        By default this is attention over the source, its last layer, first head and first step. A
        step is a token that is written; for the encoder's self-attention, one that is read. With
        other `scores`, one for each key or None to hide it, the rest is what the model computes
        from these.
        """
        self._check_workable()
        options = self.options
        view = self._view_of(self.workable)
        queries = self.queries(view)
        attentions = [] if view in ("hops", "mix") else self.of_kind(cast("AttentionKind", view))
        layers = len(self.story.weights_NS) if self.story else max(1, len(attentions))
        heads = len(attentions[0].weights) if attentions else 1
        layer = _number("--layer", options.layer, layers, layers)
        head = _number("--head", options.head, heads)
        step = _number("--step", options.step, len(queries))
        chosen = {
            "views": self.workable,
            "view": view,
            "layers": layers,
            "layer": layer,
            "heads": heads,
            "head": head,
            "queries": list(queries),
            "step": step,
        }
        token: PredictedToken | None = None
        change: AbstractContextManager[object]
        if attentions:
            worked, change = self._worked_head(attentions, layer, head, step, scores)
            token = self.steps[step - 1] if self.steps and view != "encoder" else None
        elif self.story is None:
            worked, change = self._worked_mix(queries, step, scores)
        else:
            worked, change = self._worked_hop(self.story, layer, scores)
            token = self.steps[0]
        outcome = self.steps
        if scores is not None or not outcome:
            with torch.inference_mode(), nullcontext() if scores is None else change:
                outcome = self.follow(self.forward())
        return replace(worked, step=token, outcome=outcome, chosen=chosen)

    def _check_workable(self) -> None:
        if self.options.words:
            raise DecodeError(
                "the numbers are those of tokens, not of words",
                where="--words",
                hint="leave it out",
            )
        if not self.workable:
            what = f"the model {self.model_kind!r} has no attention to work out"
            raise DecodeError(
                what, where="--numbers", hint=f"leave it out; views of it: {', '.join(self.views)}"
            )

    def _worked_head(
        self,
        attentions: Sequence[Attention],
        layer: int,
        head: int,
        step: int,
        scores: ChangedScores,
    ) -> tuple[WorkedAttention, AbstractContextManager[object]]:
        """A head of a layer at a step, all from 1, and the context in which the model uses its
        weights."""
        attention = attentions[layer - 1]
        worked = worked_attention.work_out(
            self.model, self.forward, attention, len(attentions), head - 1, step - 1, scores
        )
        module = self.model.get_submodule(attention.name)
        change = worked_attention.replaced(module, head - 1, step - 1, worked.weights_K)
        return worked, recording(change)

    def _worked_mix(
        self, queries: Sequence[str], step: int, scores: ChangedScores
    ) -> tuple[WorkedAttention, AbstractContextManager[object]]:
        """The mix of the layers of a token, and the context in which the model uses its weights."""
        learned = bool(self.mix and self.mix["learned"])
        worked = worked_attention.work_out_mix(
            self.model, self.batch, queries, step - 1, scores, learned
        )
        if not learned:
            return worked, nullcontext()
        assert isinstance(self.model.mix, LayerMix)
        return worked, worked_attention.mixed(self.model.mix, worked.weights_K)

    def _worked_hop(
        self, story: StoryAttention, hop: int, scores: ChangedScores
    ) -> tuple[WorkedAttention, AbstractContextManager[object]]:
        """A hop over the sentences, from 1, and the context in which the model uses its weights."""
        model = self.model
        batch = self.batch
        assert isinstance(model, MemoryNetwork)
        assert isinstance(batch, StoryBatch)
        named = zip(story.numbers, story.sentences, strict=True)
        numbered = [f"{number} {text}" for number, text in named]
        worked = worked_attention.work_out_hop(model, batch, numbered, hop, scores)
        hops = len(story.weights_NS)
        title = f"{ATTENTION_NAMES['hops']}, hop {hop} of {hops}: {story.question}"
        change = worked_attention.replaced(model, int(model.winner), hop - 1, worked.weights_K)
        return replace(worked, title=title), recording(change)

    # Heat maps

    def heat_maps(self) -> list[HeatMap]:
        """The selected maps: one, or with `all` one per layer or head."""
        match self.view:
            case "alignment" | "encoder" | "decoder" as kind:
                return self._attention_maps(kind)
            case "heads":
                return [self._heads()]
            case "masks":
                maps = {}  # once for all attentions of a kind with the same mask
                for attention in self.attentions.values():
                    name = ATTENTION_NAMES[attention.kind]
                    values = attention.visible.astype(np.float64)
                    mask = _heat_map(
                        attention,
                        values,
                        f"{name} · dark may be looked at",
                        f"{name}: what it may see",
                    )
                    maps[attention.kind, values.tobytes()] = mask
                return [*maps.values()]
            case "positions":
                assert self.positions is not None
                shown = self.positions[:, :MAX_SHOWN_DIMENSIONS]
                width = self.positions.shape[1]
                rows, columns = (
                    [str(n) if n % 10 == 0 else "" for n in range(size)] for size in shown.shape
                )
                of = f" of {width}" if width > MAX_SHOWN_DIMENSIONS else ""
                title = f"positions 0 to {len(shown) - 1}, {shown.shape[1]}{of} dimensions"
                return [HeatMap(rows, columns, shown, title, (title, "", ""))]
            case (
                "probabilities"
            ):  # a column for each likely token, in the order of their appearance
                by_step = [
                    dict(step.candidates) | {step.token: step.probability} for step in self.steps
                ]
                tokens = list(dict.fromkeys(token for row in by_step for token in row))
                values = np.array([[row.get(token, 0.0) for token in tokens] for row in by_step])
                rows, columns = (
                    [token_label(step.token) for step in self.steps],
                    [*map(token_label, tokens)],
                )
                return [
                    HeatMap(
                        rows,
                        columns,
                        values,
                        f"the five likeliest tokens at each step · {self.title}",
                    )
                ]
        return []

    def _attention_maps(self, kind: AttentionKind) -> list[HeatMap]:
        """The maps of one kind of attention: the mean over layers or heads, a single one, or
        each."""
        options = self.options
        attentions = self.of_kind(kind)
        maps = list[HeatMap]()
        counts = len(attentions), len(attentions[0].weights)
        layers = _numbers("--layer", options.layer, counts[0])
        # What differs between maps comes first: a title that is too long is cut at its end.
        about = [self.title] if kind == "alignment" else [ATTENTION_NAMES[kind], self.title]
        if options.rollout:
            if options.head != "mean":
                raise DecodeError(
                    "a rollout uses the mean of the heads", where="--head", hint="leave it out"
                )
            if not self.rollouts:
                what = f"the model {self.model_kind!r} has no layers of self-attention to roll out"
                raise DecodeError(
                    what,
                    where="--rollout",
                    hint="transformer, self_attention, gpt and bert have them",
                )
            for number in layers:
                last = number or counts[0]
                rolled = self.rollouts[kind][last - 1]
                title = " · ".join([f"rolled out to layer {last}", *about])
                choice = [ATTENTION_NAMES[kind], f"layer {last}", "rolled out up to this layer"]
                maps.append(_heat_map(rolled, rolled.weights[0], title, *choice))
            return maps
        for layer, head in product(layers, _numbers("--head", options.head, counts[1])):
            read = attentions if layer is None else [attentions[layer - 1]]
            kept = [
                attention.weights if head is None else attention.weights[head - 1 : head]
                for attention in read
            ]
            values: Numbers = kept[0][
                0
            ]  # where it is one head, it is not copied: a page has all of them
            if len(kept) * len(kept[0]) > 1:
                values = np.mean(
                    [weights_HQK.mean(0, dtype=np.float64) for weights_HQK in kept], axis=0
                )
            names = list[str]()
            choice = [ATTENTION_NAMES[kind]]
            for what, number, count in zip(("layer", "head"), (layer, head), counts, strict=True):
                one = {"layer": f"layer {number or 1}", "head": f"head {number or 1}"}[what]
                names += [] if number is None else [one]
                choice.append(f"mean of all {what}s" if number is None and count > 1 else one)
            if counts == (1, 1) and not self.rollouts:  # nothing to choose from
                del choice[1:]
            maps.append(_heat_map(attentions[0], values, " · ".join([*names, *about]), *choice))
        return maps

    def _heads(self) -> HeatMap:
        """Where one query looked, with one row per head of each layer."""
        options = self.options
        attentions = self.of_kind(self.kinds[0])
        queries = attentions[0].queries.texts
        numbers = range(1, len(attentions) + 1)
        step = _number("--step", options.step, len(queries), self.whole + 1)
        rows = {
            f"layer {number}, head {head}": weights_QK[step - 1]
            for number in [
                layer for layer in _numbers("--layer", options.layer, len(attentions)) if layer
            ]
            or numbers
            for head, weights_QK in enumerate(attentions[number - 1].weights, 1)
        }
        name = f"{token_label(queries[step - 1])} by head"
        columns = [*map(token_label, attentions[0].keys.texts)]
        return HeatMap(
            [*rows], columns, np.stack([*rows.values()]), f"{name} · {self.title}", (name, "", "")
        )

    def _all_maps(self) -> Iterator[HeatMap]:
        """Every map of a page: each layer's heads and their mean, the mean of all, rollouts, and
        the other views."""
        pages = list[ViewOptions]()
        for kind in self.kinds:
            attentions = self.of_kind(kind)
            pages.append(ViewOptions(kind))
            for layer in range(1, len(attentions) + 1):
                pages.append(ViewOptions(kind, layer))
                pages += [ViewOptions(kind, layer, "all")] if len(attentions[0].weights) > 1 else []
                pages += [ViewOptions(kind, layer, rollout=True)] if self.rollouts else []
        pages += [
            ViewOptions("heads"),
            ViewOptions("masks"),
            *([] if self.positions is None else [ViewOptions("positions")]),
        ]
        for options in pages:
            yield from replace(self, options=options).heat_maps()

    # Report and JSON

    @property
    def opening(self) -> str:
        """A note for models without attention."""
        without = self.view == "probabilities" and not self.attentions and self.mix is None
        return (
            f"The model {self.model_kind!r} has no attention to draw; these are its probabilities."
            * without
        )

    def report(self) -> Report:
        """All views, the selected one first; the terminal and pictures show only that one."""
        if self.story is not None:
            return self.story.report(self.title, self.steps[0])
        sections = sorted(self._sections(self.view), key=lambda section: not section.in_picture)
        return Report(shorten(self.title, 160), sections, opening=self.opening)

    def _sections(self, view: View) -> Iterator[Section]:
        """A section for each kind of view that the model has."""
        if self.picture is not None and self.of_kind("alignment"):
            yield self._regions(self.picture, view)
        if self.attentions:
            yield self._maps(view)
        if self.occlusion is not None:
            yield self._occluded(self.occlusion, view)
        if self.word_weights is not None:
            yield self._weights(self.word_weights)
        if self.mix is not None:
            yield self._shares(self.mix, view)
        if self.steps:
            yield self._likeliest(view)

    def _regions(self, picture: Picture, view: View) -> Section:
        """The picture, then one picture per word that shows where the word looked."""
        options = self.options if view == "alignment" else ViewOptions("alignment")
        shown = picture.shown
        pixels = np.asarray(shown) if shown.ndim == 3 else np.full((8, 8, 3), 128, dtype=np.uint8)
        grid = -(-picture.regions // picture.columns), picture.columns
        drawn = self.select(replace(options, words=True)).heat_maps()
        images = [
            ImageMap(pixels, grid, heat_map.rows, heat_map.values, picture.names(), heat_map.title)
            for heat_map in drawn
        ]
        hint = (
            "First the input picture, then one picture per word: bright regions have high "
            "attention."
        )
        parts = [*images, muted(hint)]
        return _section("Regions that each word looked at", parts, view == "alignment", len(images))

    def _maps(self, view: View) -> Section:
        """All heat maps in one part, with choosers; the selected ones are shown first."""
        of_maps = view in (*MAP_VIEWS, "heads", "masks", "positions")
        selected = self.heat_maps() if of_maps else []
        maps = {heat_map.choice: heat_map for heat_map in (*self._all_maps(), *selected)}
        places = [[*maps].index(heat_map.choice) for heat_map in selected] or [0]
        part = HeatMaps(
            [*maps.values()],
            ("Show", "Layer", "Heads"),
            places,
            tokens=[*ATTENTION_NAMES.values()],
        )
        of_regions = self.picture is not None and view == "alignment"
        parts = [part, *[muted(REGION_NAMES)] * (self.picture is not None)]
        return _section("Attention", parts, bool(selected) and not of_regions)

    def _occluded(self, occlusion: Occlusion, view: View) -> Section:
        """How much the answer depends on each word, after the likeliest answers of a classifier."""
        parts = occlusion.parts(self.title)
        probabilities = self.prediction.get("probabilities")
        if probabilities is not None:
            likeliest = [*islice(probabilities.items(), MAX_SHOWN_LABELS)]
            table = Table(["label", "probability"], likeliest, formats=[".3f"])
            parts = [parts[0], table, *parts[1:]]
        heading = "How much the answer depends on each word"
        in_terminal = 1 + (probabilities is not None)
        return _section(heading, parts, view == "occlusion", in_terminal)

    def _weights(self, of: WordWeights) -> Section:
        """What each word adds to the logit of each class: a linear model is its own explanation."""
        added_WY = of.weights_WY * of.values_W[:, None]
        order = np.argsort(-np.abs(added_WY).max(1), kind="stable")
        best = np.argsort(-(added_WY.sum(0) + of.bias_Y), kind="stable")[:MAX_WEIGHED_CLASSES]
        rows = [
            [of.words[word], float(of.values_W[word]), *added_WY[word, best].tolist()]
            for word in order
        ]
        rows.append([Cell("bias", ours=True), "", *of.bias_Y[best].tolist()])
        sums_Y = added_WY.sum(0) + of.bias_Y
        rows.append([Cell("logit", ours=True), "", *sums_Y[best].tolist()])
        title = "weight * x of each word, for each class; their sum is the logit"
        classes = [of.classes[number] for number in best]
        table = Table(["word", "x", *classes], rows, title, formats=["", ".3f", "+.3f"])
        return Section("Weights of the words", [table], in_terminal=1)

    def _shares(self, mix: Mapping[str, Any], view: View) -> Section:
        """The shares of the layers in their mix, as bars."""
        how = "" if mix["learned"] else "; even, since no task has learned it"
        title = f"gamma * sum_j s_j h_j with gamma {mix['gamma']:.3f}{how}"
        shares = {"share": [*mix["shares"].values()]}
        bars = Bars([*mix["shares"]], shares, "share s_j", title, span=1.0)
        return _section("Mix of layers", [bars], view == "mix")

    def _likeliest(self, view: View) -> Section:
        """The likeliest tokens at each step: a table, and a map if it is selected."""
        rows = []
        for number, step in enumerate(self.steps, 1):
            candidates = " · ".join(
                f"{token_label(token)}\u00a0{p:.3f}" for token, p in step.candidates
            )
            rows.append([number, token_label(step.token), step.probability, step.rank, candidates])
        columns = ["step", "written", "probability", "rank", "the five likeliest"]
        selected = view == "probabilities"
        table = Table(columns, rows, self.title if selected else "", formats=[".3f"])
        maps = [HeatMaps(self.heat_maps())] if selected else []
        return _section("Likeliest tokens", [table, *maps], view == "probabilities")

    def to_json(self) -> dict[str, Any]:
        """All numbers, with four digits."""
        whole: dict[str, Any] = json.loads("".join(json_parts(self.tree())))
        return whole

    def tree(self) -> dict[str, Any]:
        """The content of the JSON, with numbers as arrays; only the attention of the selected layer
        or head, if one is selected."""
        if self.story is not None:
            return {
                "input": self.input,
                "output": self.output,
                **self.prediction,
                **self.story.to_json(),
            }
        return {
            "input": self.input,
            "source": self.source.texts,
            "target": self.target.texts,
            "weights": self.weights if self.of_kind("alignment") else None,
            "output": self.output,
            "model": self.model_kind,
            "steps": [asdict(step) for step in self.steps],
            "attentions": [*self._chosen()],
            "positions": self.positions,
            **({} if self.picture is None else {"columns": self.picture.columns}),
            **({} if self.mix is None else {"mix": self.mix}),
            **({} if self.occlusion is None else {"occlusion": self.occlusion.to_json()}),
            **({} if self.word_weights is None else {"word_weights": self._weights_json()}),
            **({"unknown": [*self.unknown]} if self.unknown else {}),
            **self.prediction,
        }

    def _weights_json(self) -> dict[str, Any]:
        of = self.word_weights
        assert of is not None
        return {
            "words": of.words,
            "x": of.values_W.tolist(),
            "classes": of.classes,
            "weights": of.weights_WY.tolist(),
            "bias": of.bias_Y.tolist(),
        }

    def json_size(self) -> int:
        """The approximate size of the JSON in bytes: ten per weight."""
        return sum(10 * int(attention["weights"].size) for attention in self._chosen())

    def _chosen(self) -> Iterator[dict[str, Any]]:
        layer, head = (str(choice) for choice in (self.options.layer, self.options.head))
        for attention in self.attentions.values():
            if not layer.isdecimal() or attention.layer == int(layer):
                kept = slice(int(head) - 1, int(head)) if head.isdecimal() else slice(None)
                yield attention.to_json() | {"weights": attention.weights[kept]}


def _heat_map(attention: Attention, values: Numbers, title: str, *choice: str) -> HeatMap:
    rows, columns = (
        [*map(token_label, pieces.texts)] for pieces in (attention.queries, attention.keys)
    )
    return HeatMap(rows, columns, values, title, (*choice, "", "")[:3])


def _section(heading: str, parts: Sequence[Part], selected: bool, in_terminal: int = 1) -> Section:
    """A section; the selected one is first in the report and has no heading."""
    return Section(
        "" if selected else heading,
        parts,
        in_terminal=in_terminal if selected else 0,
        in_picture=selected,
    )


def _numbers(option: str, choice: LayerOrHead, count: int) -> list[int | None]:
    """The layer or head of each map, from 1; None is the mean over all."""
    if choice == "all":
        return [*range(1, count + 1)]
    return [None if choice == "mean" else _number(option, choice, count, also=", mean, all")]


def _number(
    option: str, choice: LayerOrHead | None, count: int, default: int = 1, also: str = ""
) -> int:
    """The number of a layer, head or step, from 1 to `count`; `also` names what else is allowed."""
    number = default if choice in (None, "mean") else choice
    if str(number) not in map(str, range(1, count + 1)):
        hint = f"allowed: {f'1 to {count}' if count > 1 else '1'}{also}"
        raise DecodeError(f"there is no {option.strip('-')} {number}", where=option, hint=hint)
    return int(number or 0)
