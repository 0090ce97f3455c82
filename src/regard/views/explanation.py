"""What `explain` returns: every attention, the likeliest tokens, masks and positions of one input; and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor, nn

from regard.data.batches import AnyBatch
from regard.data.images import Picture
from regard.errors import DecodeError, did_you_mean
from regard.views.labels import label, shorten
from regard.views.leave_one_out import Occlusion
from regard.views.recording import Attention, Kind, Step, merge_pieces, words_of
from regard.views.report import Bars, HeatMap, HeatMaps, ImageMap, Numbers, Part, Report, Section, Table, Text, Value
from regard.views.rollout import Rollout, roll_out
from regard.views.story import Story

View = Literal[
    "alignment", "encoder", "decoder", "hops", "mix", "occlusion", "probabilities", "heads", "masks", "positions"
]
Choice = int | Literal["mean", "all"]
"""A layer or head by its number from 1; the mean over them; or a map for each."""

KINDS: tuple[Kind, ...] = get_args(Kind)
VIEWS: tuple[View, ...] = get_args(View)
NAMES = {
    "alignment": "attention over the source",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "hops": "attention over the story",
}
MISSING = {
    "positions": "position encodings",
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
"""The queries and the keys of a kind, by the names of `Explanation.starts`."""
CHANGES: dict[str, tuple[View, ...]] = {
    "--layer": ("alignment", "encoder", "decoder", "heads"),
    "--head": ("alignment", "encoder", "decoder"),
    "--rollout": ("alignment", "encoder", "decoder"),
    "--step": ("heads",),
    "--words": ("alignment", "encoder", "decoder", "heads", "masks"),
    "--padding": ("alignment", "encoder", "decoder", "heads", "masks"),
}
"""The views that each option changes."""
WIDEST = 128
"""Dimensions of the position encodings that are drawn."""


@dataclass(frozen=True)
class Options:
    """What to show of an explanation."""

    view: View | None = None
    """None: the first that the model has."""
    layer: Choice = "mean"
    head: Choice = "mean"
    rollout: bool = False
    words: bool = False
    """Whether tokens are merged into words."""
    step: int | None = None
    """The query that `heads` is about, from 1."""

    @classmethod
    def parse(cls, view: str | None, layer: str, head: str, **others: Any) -> Options:
        """From the command line."""
        known = next((name for name in VIEWS if name == view), None)
        if view is not None and known is None:
            raise DecodeError(f"there is no view {view!r}", where="--view", hint=did_you_mean(view, VIEWS))
        return cls(known, _choice(layer, "--layer"), _choice(head, "--head"), **others)

    def refuse_without_effect(self, view: View, *, padding: int | None, numbers: bool) -> None:
        """Refuse an option that would change nothing in the view, or in the numbers of one attention."""
        layer, head = (None if choice == "mean" else choice for choice in (self.layer, self.head))
        given = {"--layer": layer, "--head": head, "--rollout": self.rollout or None, "--step": self.step,
                 "--words": self.words or None, "--padding": padding}  # fmt: skip
        for option in (option for option, value in given.items() if value is not None):
            if numbers and option in ("--rollout", "--words"):
                what = "the numbers are those of one attention between tokens"
                raise DecodeError(what, where=option, hint="leave it out")
            if not numbers and view not in CHANGES[option]:
                works_out = option == "--step" or (option, view) == ("--layer", "hops")
                hint = "leave it out, or give --numbers" if works_out else "leave it out"
                raise DecodeError(f"it does not change the view {view!r}", where=option, hint=hint)


def _choice(text: str, option: str) -> Choice:
    if text == "mean":
        return "mean"
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise DecodeError(f"not a number: {text!r}", where=option, hint="allowed: a number from 1 on, mean, all")
    return int(text)


@dataclass(frozen=True)
class Mix:
    """How a task mixes the layers that it reads: gamma * sum_j s_j h_j (Peters et al. 2018, equation 1)."""

    names: tuple[str, ...]
    shares: tuple[float, ...]
    """s_j, which sum to 1."""
    gamma: float
    learned: bool

    def to_json(self) -> dict[str, Any]:
        shares = dict(zip(self.names, self.shares, strict=True))
        return {"shares": shares, "gamma": self.gamma, "learned": self.learned}

    def bars(self) -> Bars:
        how = "" if self.learned else "; even, since no task has learned it"
        title = f"gamma * sum_j s_j h_j with gamma {self.gamma:.3f}{how}"
        return Bars(self.names, {"share": self.shares}, "share s_j", title, span=1.0)


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where a model looked for one input, and which other tokens it might have written."""

    input: str
    output: str
    model_kind: str
    attentions: Mapping[str, Attention]
    """By name, in the order in which the model computes them."""
    steps: tuple[Step, ...]
    model: nn.Module = field(repr=False)
    batch: AnyBatch = field(repr=False)
    forward: Callable[[], Tensor] = field(repr=False)
    """Runs the model on the batch again."""
    source: tuple[str, ...] = ()
    """Tokens of the source, with `</s>`; or its words."""
    target: tuple[str, ...] = ()
    """Tokens that were written, with `</s>`; or words."""
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """Where words begin in `source`, `target` and `inputs` (what the decoder reads)."""
    whole: int = 0
    """The position of the query that stands for a text as a whole: [CLS] of BERT, the last token of GPT."""
    positions: Numbers | None = None
    """[50, D], the encodings of the first positions; None where the model has none."""
    residual: bool = True
    """Whether the input of each attention is added to its output."""
    prediction: Mapping[str, Any] = field(default_factory=dict)
    """What else the model predicts: probabilities of classes, ..."""
    picture: Picture | None = field(default=None, repr=False)
    """The source, where that is an image; `source` then names its regions."""
    mix: Mix | None = None
    """Of its layers, where the model mixes them."""
    occlusion: Occlusion | None = None
    """What the answer depends on, where that was computed."""
    story: Story | None = None
    """The story that a question was asked about."""
    by_token: Explanation | None = field(default=None, repr=False)
    """The same between tokens, where this is between words."""
    options: Options = Options()
    """What its report shows."""

    def select(self, options: Options) -> Explanation:
        """The same with other options."""
        return replace(self.between_words() if options.words else self, options=options)

    @property
    def title(self) -> str:
        if self.story is not None:
            return self.story.title(self.output, self.steps[0].probability)
        return f"{self.input} → {self.output}" if self.output else self.input

    @property
    def weights(self) -> Numbers:
        """Attention over the source, [T, S]: the mean over layers and heads."""
        return self.select(Options("alignment")).heat_maps()[0].values

    def of_kind(self, kind: Kind) -> list[Attention]:
        """The attentions of a kind, first layer first."""
        return [attention for attention in self.attentions.values() if attention.kind == kind]

    @property
    def kinds(self) -> list[Kind]:
        return [kind for kind in KINDS if self.of_kind(kind)]

    @property
    def views(self) -> list[View]:
        """What there is to see of this model."""
        if self.story is not None:
            return ["hops"]
        has: dict[View, bool] = {
            "mix": self.mix is not None,
            "occlusion": self.occlusion is not None,
            "probabilities": bool(self.steps),
            "heads": bool(self.attentions),
            "masks": bool(self.attentions),
            "positions": self.positions is not None,
        }
        return [*self.kinds, *(view for view, there in has.items() if there)]

    @property
    def view(self) -> View:
        """The view that is asked for, or the first that the model has."""
        view = self.options.view or self.views[0]
        if view not in self.views:
            what = f"the model {self.model_kind!r} has no {MISSING.get(view, NAMES.get(view, 'attention'))}"
            raise DecodeError(what, where="--view", hint=f"allowed for it: {', '.join(self.views)}")
        return view

    # ---------------------------------------------------------------------------------------------- words and rollout

    def between_words(self) -> Explanation:
        """The same between words: the sum over the tokens of a key, the mean over those of a query."""
        if self.by_token is not None or self.story is not None:
            return self
        attentions = {
            name: attention.between_words(*(self.starts[side] for side in SIDES[attention.kind]))
            for name, attention in self.attentions.items()
        }
        source, target = (words_of(getattr(self, side), self.starts[side]) for side in ("source", "target"))
        whole = max(0, sum(start <= self.whole for start in self.starts["inputs"]) - 1)
        return replace(self, source=source, target=target, attentions=attentions, whole=whole, by_token=self)

    @property
    def rolls_out(self) -> bool:
        """Whether there are layers of self-attention to roll out; the regions of an image attend to nothing."""
        return bool(self.of_kind("decoder")) or bool(self.of_kind("encoder") and not self.of_kind("alignment"))

    @cached_property
    def rollout(self) -> Rollout:
        """How much of each token there is in the states of each layer; between words, merged from that."""
        if self.by_token is not None:
            return self.by_token._rollout_of_words()
        if not self.rolls_out:
            what = f"the model {self.model_kind!r} has no layers of self-attention to roll out"
            raise DecodeError(what, where="--rollout", hint="transformer, self_attention, gpt and bert have")
        means = {kind: [one.weights.mean(0, dtype=np.float64) for one in self.of_kind(kind)] for kind in KINDS}
        return roll_out(means["encoder"], means["decoder"], means["alignment"], residual=self.residual)

    def _rollout_of_words(self) -> Rollout:
        def merged(kind: Kind, layers: Sequence[Numbers]) -> tuple[Numbers, ...]:
            queries, keys = (self.starts[side] for side in SIDES[kind])
            return tuple(merge_pieces(shares, [q for q in queries if q < len(shares)], keys) for shares in layers)

        rolled = self.rollout
        return Rollout(
            merged("encoder", rolled.encoder), merged("alignment", rolled.source), merged("decoder", rolled.target)
        )

    # ----------------------------------------------------------------------------------------------------- heat maps

    def heat_maps(self) -> list[HeatMap]:
        """The maps that are asked for: one, or one for each layer or head where `all` are asked for."""
        view, layer, head = self.view, self.options.layer, self.options.head
        match view:
            case "alignment" | "encoder" | "decoder" if self.options.rollout:
                if head != "mean":
                    raise DecodeError("a rollout is over the mean of the heads", where="--head", hint="leave it out")
                layers = len(self._rolled(view))
                return [self._rollout_map(view, number or layers) for number in _numbers(layer, layers, "--layer")]
            case "alignment" | "encoder" | "decoder":
                attentions = self.of_kind(view)
                return [
                    self._attention_map(view, layer_number, head_number)
                    for layer_number in _numbers(layer, len(attentions), "--layer")
                    for head_number in _numbers(head, len(attentions[0].weights), "--head")
                ]
            case "heads":
                return [self._heads()]
            case "masks":
                return self._masks()
            case "positions":
                return [self._positions()]
            case "probabilities":
                return [self._probabilities()]
        return []

    def _all_maps(self) -> Iterator[HeatMap]:
        """Every map of a page: each layer's heads and their mean, the mean of all, rollouts, and the other views."""
        for kind in self.kinds:
            attentions = self.of_kind(kind)
            layers, heads = len(attentions), len(attentions[0].weights)
            if layers > 1:
                yield self._attention_map(kind)
            for layer in range(1, layers + 1):
                yield self._attention_map(kind, layer)
                if heads > 1:
                    yield from (self._attention_map(kind, layer, head) for head in range(1, heads + 1))
                if self.rolls_out:
                    yield self._rollout_map(kind, layer)
        yield replace(self, options=Options())._heads()
        yield from self._masks()
        if self.positions is not None:
            yield self._positions()

    def _attention_map(self, kind: Kind, layer: int | None = None, head: int | None = None) -> HeatMap:
        """One layer and head, from 1; None is the mean over all of them."""
        attentions = self.of_kind(kind)
        counts = len(attentions), len(attentions[0].weights)
        kept = attentions if layer is None else [attentions[layer - 1]]
        heads = slice(None) if head is None else slice(head - 1, head)
        values = np.stack([attention.weights[heads] for attention in kept]).mean((0, 1), dtype=np.float64)
        chosen = (("layer", layer, counts[0]), ("head", head, counts[1]))
        names = [f"{what} {number}" for what, number, _ in chosen if number is not None]
        choice = [
            f"mean of all {what}s" if number is None and count > 1 else f"{what} {number or 1}"
            for what, number, count in chosen
        ]
        return self._map(attentions[0], values, names, *(choice if max(counts) > 1 or self.rolls_out else ("", "")))

    def _rolled(self, kind: Kind) -> tuple[Numbers, ...]:
        return {"alignment": self.rollout.source, "encoder": self.rollout.encoder, "decoder": self.rollout.target}[kind]

    def _rollout_map(self, kind: Kind, layer: int) -> HeatMap:
        choice = f"layer {layer}", "rolled out up to this layer"
        values = self._rolled(kind)[layer - 1]
        return self._map(self.of_kind(kind)[0], values, [f"rolled out to layer {layer}"], *choice)

    def _map(self, like: Attention, values: Numbers, names: Sequence[str], *choice: str) -> HeatMap:
        # What differs between maps comes first: a title that is too long is cut at its end.
        details = [*names, *([NAMES[like.kind]] if like.kind != "alignment" else []), self.title]
        rows, columns = [*map(label, like.queries)], [*map(label, like.keys)]
        return HeatMap(rows, columns, values, " · ".join(details), (NAMES[like.kind], *choice))

    def _heads(self) -> HeatMap:
        """Where one query looked: a row for each head of each layer."""
        attentions = self.of_kind(self.kinds[0])
        keys, queries = attentions[0].keys, attentions[0].queries
        step = self.whole + 1 if self.options.step is None else self.options.step
        check_number("--step", step, len(queries))
        named = [number for number in _numbers(self.options.layer, len(attentions), "--layer") if number]
        rows = {
            f"layer {number}, head {head}": weights_QK[step - 1]
            for number in named or range(1, len(attentions) + 1)
            for head, weights_QK in enumerate(attentions[number - 1].weights, 1)
        }
        name, values = f"{label(queries[step - 1])} by head", np.stack([*rows.values()])
        return HeatMap([*rows], [*map(label, keys)], values, f"{name} · {self.title}", (name, "", ""))

    def _masks(self) -> list[HeatMap]:
        """Which key each query may look at: once for all attentions of a kind with the same mask."""
        masks: dict[tuple[str, bytes], HeatMap] = {}
        for attention in self.attentions.values():
            rows, columns = [*map(label, attention.queries)], [*map(label, attention.keys)]
            name, values = NAMES[attention.kind], attention.visible.astype(np.float64)
            choice = f"{name}: what it may see", "", ""
            mask = HeatMap(rows, columns, values, f"{name} · dark may be looked at", choice)
            masks.setdefault((attention.kind, attention.visible.tobytes()), mask)
        return list(masks.values())

    def _positions(self) -> HeatMap:
        assert self.positions is not None
        shown = self.positions[:, :WIDEST]
        rows, columns = ([str(n) if n % 10 == 0 else "" for n in range(size)] for size in shown.shape)
        of = f" of {self.positions.shape[1]}" if self.positions.shape[1] > WIDEST else ""
        title = f"positions 0 to {len(shown) - 1}, {shown.shape[1]}{of} dimensions"
        return HeatMap(rows, columns, shown, title, (title, "", ""))

    def _probabilities(self) -> HeatMap:
        """The five likeliest tokens at each step: a column for each token, in the order of their appearance."""
        found = [
            {one.token: one.probability for one in step.candidates} | {step.token: step.probability}
            for step in self.steps
        ]
        tokens = list(dict.fromkeys(token for row in found for token in row))
        values = np.array([[row.get(token, 0.0) for token in tokens] for row in found])
        rows, columns = [label(step.token) for step in self.steps], [*map(label, tokens)]
        return HeatMap(rows, columns, values, f"the five likeliest tokens at each step · {self.title}")

    # -------------------------------------------------------------------------------------------------- report, JSON

    def report(self) -> Report:
        """All views, the one that is asked for first; the terminal and pictures show only that one."""
        view, opening = self.view, ""
        if self.story is not None:
            return self._story_report(self.story)
        if view == "probabilities" and not self.attentions and self.mix is None:
            opening = f"The model {self.model_kind!r} has no attention to draw; these are its probabilities."
        sections = sorted(self._sections(view), key=lambda section: not section.in_picture)
        return Report(shorten(self.title, 160), sections, opening=opening)

    def _sections(self, view: View) -> Iterator[Section]:
        if self.picture is not None and self.of_kind("alignment"):
            images = [*self._images(self.picture)]
            hint = "The first picture is what the model saw. Then one for each word: bright is where it looked."
            parts = [*images, Text([hint], tone="muted")]
            yield _section("Regions that each word looked at", parts, view == "alignment", len(images))
        if self.attentions:
            asked = self.heat_maps() if view in (*KINDS, "heads", "masks", "positions") else []
            maps = {one.choice: one for one in (*self._all_maps(), *asked)}
            shown = [[*maps].index(one.choice) for one in asked]
            drawn = bool(shown) and not (self.picture is not None and view == "alignment")
            part = HeatMaps([*maps.values()], ("Show", "Layer", "Heads"), shown or [0], tokens=[*NAMES.values()])
            yield _section("Attention", [part], drawn)
        if self.occlusion is not None:
            parts = self.occlusion.parts(self.title)
            yield _section("How much the answer depends on each word", parts, view == "occlusion")
        if self.mix is not None:
            yield _section("Mix of layers", [self.mix.bars()], view == "mix")
        if self.steps:
            title, as_map = (self.title, [HeatMaps(self.heat_maps())]) if view == "probabilities" else ("", [])
            yield _section("Likeliest tokens", [self._likeliest(title), *as_map], view == "probabilities")

    def _images(self, picture: Picture) -> Iterator[ImageMap]:
        """The regions that each word looked at."""
        options = self.options if self.view == "alignment" else Options("alignment")
        pixels = np.asarray(picture.shown) if picture.shown.ndim == 3 else np.full((8, 8, 3), 128, dtype=np.uint8)
        grid = -(-picture.regions // picture.columns), picture.columns
        for one in self.select(replace(options, words=True)).heat_maps():
            yield ImageMap(pixels, grid, one.rows, one.values, picture.names(), one.title)

    def _likeliest(self, title: str) -> Table:
        """The five likeliest tokens at each step."""
        rows: list[list[Value]] = []
        for number, step in enumerate(self.steps, 1):
            candidates = " · ".join(f"{label(one.token)}\u00a0{one.probability:.3f}" for one in step.candidates)
            rows.append([number, label(step.token), f"{step.probability:.3f}", step.rank, candidates])
        return Table(["step", "written", "probability", "rank", "the five likeliest"], rows, title)

    def _story_report(self, story: Story) -> Report:
        table, drawn = story.parts(self.title)
        answers = [[one.token, f"{one.probability:.3f}"] for one in self.steps[0].candidates]
        sections = [
            Section("Where each hop looked", [table, drawn], in_terminal=1),
            Section("The likeliest answers", [Table(["answer", "probability"], answers)]),
        ]
        return Report(self.title, sections, opening=story.note(), conclusions=[story.conclusion()])

    def to_json(self) -> dict[str, Any]:
        """All numbers, unrounded."""
        if self.story is not None:
            return {"input": self.input, "output": self.output, **self.prediction, **self.story.to_json()}
        return {
            "input": self.input,
            "source": self.source,
            "target": self.target,
            "weights": self.weights.tolist() if self.of_kind("alignment") else None,
            "output": self.output,
            "model": self.model_kind,
            "steps": [step.to_json() for step in self.steps],
            "attentions": [attention.to_json() for attention in self.attentions.values()],
            "positions": None if self.positions is None else self.positions.tolist(),
            **({} if self.picture is None else {"columns": self.picture.columns}),
            **({} if self.mix is None else {"mix": self.mix.to_json()}),
            **({} if self.occlusion is None else {"occlusion": self.occlusion.to_json()}),
            **self.prediction,
        }


def _section(heading: str, parts: Sequence[Part], asked: bool, in_terminal: int = 1) -> Section:
    """The section that is asked for comes first, without a heading."""
    return Section("" if asked else heading, parts, in_terminal=in_terminal if asked else 0, in_picture=asked)


def unit(kind: Kind) -> str:
    """What the numbers of `--layer` count."""
    return "hop" if kind == "hops" else "layer"


def check_number(option: str, number: int, count: int, what: str | None = None, also: str = "") -> None:
    """Refuse a number that is not from 1 to `count`; `also` names what else is allowed."""
    if not 1 <= number <= count:
        hint = f"allowed: {f'1 to {count}' if count > 1 else '1'}{also}"
        raise DecodeError(f"there is no {what or option.strip('-')} {number}", where=option, hint=hint)


def _numbers(choice: Choice, count: int, option: str) -> list[int | None]:
    """The layer or head of each map, from 1; None is the mean over all."""
    if choice == "mean":
        return [None]
    if choice == "all":
        return [*range(1, count + 1)]
    check_number(option, choice, count, also=", mean, all")
    return [choice]
