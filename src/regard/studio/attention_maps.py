"""The attention of one input for the page: one map at a time in bytes, all heads as small pictures."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
from pydantic import Field

from regard.data.images import Picture
from regard.language import shown
from regard.studio.requests import MAX_EXPLAINED_CHARACTERS, Input, LanguagesBody
from regard.studio.served import ServedRun
from regard.studio.verbs import VerbBody
from regard.views.attention import Attention
from regard.views.explanation import MAP_VIEWS, Explanation, View, ViewOptions
from regard.views.report import HeatMap, Numbers, base64_of, in_language

MAX_HEAD_PICTURE_SIDE = 48
"""Most rows and columns of a small picture of a head."""
MIN_EMPTY_WEIGHT = 1e-4
"""What all empty memories of a hop got together, from which on they are drawn."""


class AttentionBody(LanguagesBody, VerbBody):
    """One map of weights, and all heads as small pictures."""

    input: Input
    target: str | None = Field(None, max_length=MAX_EXPLAINED_CHARACTERS)
    view: View | None = None
    """Default: the first attention that the model has."""
    layer: int | Literal["mean"] = "mean"
    head: int | Literal["mean"] = "mean"
    rollout: bool = False
    words: bool = False
    heads: bool = False
    """Whether every head is given too, as a small picture."""

    def explanation(self, served: ServedRun) -> Explanation:
        """Every attention. What is costly, or changes the input, is done only for the view that
        shows it."""
        view = self.view if self.view in ("occlusion", "masks") else None
        key = json.dumps([self.input, self.target, view, self.languages])
        if served.last is None or served.last[0] != key:
            padding = None if view else 0
            whole = served.run.explain([self.input], target=self.target, view=view, padding=padding)
            served.last = key, whole
        return served.last[1]

    def answer(self, served: ServedRun) -> dict[str, Any]:
        options = ViewOptions(self.view, str(self.layer), str(self.head), self.rollout, self.words)
        explanation = self.explanation(served).select(options)
        view = explanation.view
        attentions = list[Attention]()
        if view in MAP_VIEWS:
            attentions = explanation.of_kind(view)  # type: ignore[arg-type]
        maps = _hop_maps(explanation) if view == "hops" else explanation.heat_maps()
        parts = [] if maps else in_language(explanation.report()).sections[0].parts
        views = [*explanation.views, *(["occlusion"] if served.run.task.network.has_head else [])]
        return {
            "input": explanation.input,
            "output": explanation.output,
            "views": list(dict.fromkeys(views)),
            "view": view,
            "layers": len(attentions),
            "heads": len(attentions[0].weights) if attentions else 0,
            "rollout": bool(explanation.rollouts) and view in MAP_VIEWS,
            "map": packed(maps[0]) if maps else None,
            "others": [packed(other) for other in maps[1:]],
            "small": _small_pictures(attentions) if self.heads and attentions else None,
            "picture": image_of(explanation.picture) if view == "alignment" else None,
            "figures": [part.to_json() for part in parts if part.kind not in ("text", "table")],
        }


def image_of(picture: Picture | None) -> dict[str, Any] | None:
    """The image that was captioned, as bytes."""
    if picture is None:
        return None
    return {
        "columns": picture.columns,
        "side": len(picture.shown),
        "pixels": base64_of(np.asarray(picture.shown)),
    }


def _hop_maps(explanation: Explanation) -> list[HeatMap]:
    """A row for each hop over the sentences of a story, and over the empty memories together."""
    story = explanation.story
    assert story is not None
    hops = [shown(f"hop {hop}") for hop in range(1, len(story.weights_NS) + 1)]
    sentences = [*story.sentences]
    weights_NS = story.weights_NS
    nothing = np.asarray(story.nothing, weights_NS.dtype)
    if nothing.max() > MIN_EMPTY_WEIGHT:
        sentences.append(shown("(empty memories)"))
        weights_NS = np.concatenate([weights_NS, nothing[:, None]], axis=1)
    return [HeatMap(hops, sentences, weights_NS, explanation.title)]


def packed(drawn: HeatMap) -> dict[str, Any]:
    """A map with its values as bytes."""
    return {
        "rows": drawn.rows,
        "columns": drawn.columns,
        "values": base64_of(np.asarray(drawn.values, dtype="<f4")),
        "peak": drawn.peak,
        "title": drawn.title,
        "name": shown(drawn.choice[0]) if drawn.choice else "",
    }


def _small_pictures(attentions: list[Attention]) -> dict[str, Any]:
    """Every head of every layer in bytes, each as strong as its strongest weight; cells that fall
    together are one."""
    pictures = [
        _shrunk(_shrunk(weights_QK, 0), 1)
        for attention in attentions
        for weights_QK in attention.weights
    ]
    codes = [
        np.rint(255 * np.sqrt(picture / max(float(picture.max()), 1e-9))) for picture in pictures
    ]
    rows, columns = codes[0].shape
    return {"rows": rows, "columns": columns, "codes": base64_of(np.stack(codes).astype(np.uint8))}


def _shrunk(values: Numbers, axis: int) -> Numbers:
    starts = np.unique(
        np.arange(MAX_HEAD_PICTURE_SIDE) * values.shape[axis] // MAX_HEAD_PICTURE_SIDE
    )
    shrunk: Numbers = np.maximum.reduceat(values, starts, axis=axis)
    return shrunk
