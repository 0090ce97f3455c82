"""The attention of one input for the page: one map at a time as bytes, all heads as small pictures."""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

import numpy as np
from pydantic import Field

from regard.studio.served import EXPLAINED, Body, Input, Served
from regard.views.explanation import MAPS, Explanation, Options, View
from regard.views.recording import Attention
from regard.views.report import HeatMap, Numbers, in_language

SMALL = 48
"""Most rows and columns of a small picture."""


class AttentionBody(Body):
    input: Input
    target: str | None = Field(None, max_length=EXPLAINED)
    view: View | None = None
    """Default: the first attention that the model has."""
    layer: int | Literal["mean"] = "mean"
    head: int | Literal["mean"] = "mean"
    rollout: bool = False
    words: bool = False
    heads: bool = False
    """Whether every head is given too, as a small picture."""

    def explanation(self, served: Served) -> Explanation:
        """Every attention. What is costly, or changes the input, is done only for the view that shows it."""
        view = self.view if self.view in ("occlusion", "masks") else None
        key = json.dumps([self.input, self.target, view])
        if served.last is None or served.last[0] != key:
            padding = None if view else 0
            whole = served.run.explain([self.input], target=self.target, view=view, padding=padding)
            served.last = key, whole
        return served.last[1]

    def answer(self, served: Served) -> dict[str, Any]:
        """What the view shows of it."""
        options = Options(self.view, str(self.layer), str(self.head), self.rollout, self.words)
        shown = self.explanation(served).select(options)
        view, picture, attentions = shown.view, shown.picture, list[Attention]()
        if view in MAPS:
            attentions = shown.of_kind(view)  # type: ignore[arg-type]
        maps = _hops(shown) if view == "hops" else shown.heat_maps()
        parts = [] if maps else in_language(shown.report()).sections[0].parts
        answer = {
            "input": shown.input,
            "output": shown.output,
            "views": list(dict.fromkeys([*shown.views, *(["occlusion"] if served.run.task.head else [])])),
            "view": view,
            "layers": len(attentions),
            "heads": len(attentions[0].weights) if attentions else 0,
            "rollout": bool(shown.rollouts) and view in MAPS,
            "map": _packed(maps[0]) if maps else None,
            "small": _small(attentions) if self.heads and attentions else None,
            "picture": None,
            "figures": [part.to_json() for part in parts if part.kind not in ("text", "table")],
        }
        if picture is not None and view == "alignment":
            pixels = _text(picture.shown)
            answer["picture"] = {"columns": picture.columns, "side": len(picture.shown), "pixels": pixels}
        return answer


def _hops(shown: Explanation) -> list[HeatMap]:
    """A row for each hop over the sentences of a story."""
    assert shown.story is not None
    hops = [f"hop {hop}" for hop in range(1, len(shown.story.weights_NS) + 1)]
    return [HeatMap(hops, shown.story.sentences, shown.story.weights_NS, shown.title)]


def _packed(drawn: HeatMap) -> dict[str, Any]:
    values = _text(np.asarray(drawn.values, dtype="<f4"))
    return {"rows": drawn.rows, "columns": drawn.columns, "values": values, "peak": drawn.peak, "title": drawn.title}


def _small(attentions: list[Attention]) -> dict[str, Any]:
    """Every head of every layer in bytes, each as strong as its strongest weight; cells that fall together are one."""
    pictures = [_fewer(_fewer(weights_QK, 0), 1) for one in attentions for weights_QK in one.weights]
    codes = [np.rint(255 * np.sqrt(picture / max(float(picture.max()), 1e-9))) for picture in pictures]
    rows, columns = codes[0].shape
    return {"rows": rows, "columns": columns, "codes": _text(np.stack(codes).astype(np.uint8))}


def _fewer(values: Numbers, axis: int) -> Numbers:
    starts = np.unique(np.arange(SMALL) * values.shape[axis] // SMALL)
    fewer: Numbers = np.maximum.reduceat(values, starts, axis=axis)
    return fewer


def _text(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
