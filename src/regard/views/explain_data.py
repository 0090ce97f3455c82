"""The numbers of an explanation, small enough for a page: quantised, packed, and thinned where a text is long."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regard.views.explanation import KINDS, NAMES, Explanation
from regard.views.heatmap import Heatmap, Numbers
from regard.views.labels import label
from regard.views.seen import Kind
from regard.views.wishes import Wish

BUDGET = 1_900_000
"""Bytes for all weights. Base64 makes them a third longer, and the page must stay below 3 MB."""
ENTRY = 3
"""Bytes of a weight that is kept with its place."""


def page_data(explanation: Explanation, wish: Wish) -> dict[str, Any]:
    """What the page's script draws; what was wished for is shown when it is opened, and is always whole."""
    matrices, whole = list(_matrices(explanation)), ("", "")
    found: dict[str, Any] = {"kinds": {}, "matrices": {}, "heatmaps": {}, "layer": "mean", "head": "mean"}
    if opening := _opening(explanation, wish):
        kind, found["layer"], found["head"] = opening
        whole = kind, f"{found['layer']}/{found['head']}"
        if whole not in [one[:2] for one in matrices]:  # one head, but the mean of the layers
            matrices.append((*whole, wish.pictures(explanation)[0].values))
    found["kept"] = kept = _kept(matrices, whole)
    for kind in KINDS:
        if attentions := explanation.of_kind(kind):
            found["kinds"][kind] = {
                "name": NAMES[kind],
                "layers": len(attentions),
                "heads": len(attentions[0].weights),
                "rows": [label(piece) for piece in attentions[0].queries],
                "columns": [label(piece) for piece in attentions[0].keys],
            }
    for kind, name, weights in matrices:
        found["matrices"][f"{kind}/{name}"] = _packed(weights, None if (kind, name) == whole else kept)
    for view in ("occlusion", "heads", "mix", "masks", "positions"):
        if view in explanation.views:
            shown = (wish if view == wish.view else Wish(view)).pictures(explanation)
            found["heatmaps"] |= {one.title: _packed_heatmap(one) for one in shown}
    return found


def _opening(explanation: Explanation, wish: Wish) -> tuple[Kind, str, str] | None:
    """The kind, layer and head of the matrix that the page opens with: of several, the first; None if it has none."""
    there = [kind for kind in KINDS if explanation.of_kind(kind)]
    if not there:
        return None
    view = wish.view_of(explanation)
    kind = next((kind for kind in there if kind == view), None)
    if kind is None:
        kind, wish = there[0], Wish(there[0])
    attentions = explanation.of_kind(kind)
    layers, heads = len(attentions), len(attentions[0].weights)
    layer, head = (1 if choice == "all" else choice for choice in (wish.layer, wish.head))
    if wish.rollout:
        return kind, str(layers if layer == "mean" else layer), "rollout"
    return kind, str(layer) if layers > 1 else "1", str(head) if heads > 1 else "mean"


def _kept(matrices: Sequence[tuple[Kind, str, Numbers]], whole: tuple[str, str]) -> int | None:
    """How many weights of a row the budget allows beside the picture that is whole; None where it allows all."""
    if sum(weights.size for *_, weights in matrices) <= BUDGET:
        return None
    size = sum(weights.size for kind, name, weights in matrices if (kind, name) == whole)
    rows = sum(len(weights) for kind, name, weights in matrices if (kind, name) != whole)
    return max(1, (BUDGET - size) // (ENTRY * rows))


def _matrices(explanation: Explanation) -> Iterator[tuple[Kind, str, Numbers]]:
    """Each layer's heads and their mean, the mean of all, and what is rolled out to each layer."""
    for kind in KINDS:
        attentions = explanation.of_kind(kind)
        for attention in attentions:
            yield kind, f"{attention.layer}/mean", attention.weights.mean(0)
            if len(attention.weights) > 1:
                yield from ((kind, f"{attention.layer}/{h}", one) for h, one in enumerate(attention.weights, 1))
        if len(attentions) > 1:
            yield kind, "mean/mean", np.mean([attention.weights.mean(0) for attention in attentions], axis=0)
    if explanation.rolls_out:
        found = explanation.rollout()
        shares: dict[Kind, tuple[Numbers, ...]] = {
            "alignment": found.source,
            "encoder": found.encoder,
            "decoder": found.target,
        }
        for kind, layers in shares.items():
            yield from ((kind, f"{layer}/rollout", weights) for layer, weights in enumerate(layers, 1))


def _packed(weights: Numbers, kept: int | None) -> dict[str, Any]:
    """A byte a weight, round(255 sqrt(w)), so that small weights keep their digits; all of them, or the `kept` largest
    of each row with their places."""
    if kept is None or kept >= weights.shape[1]:
        return {"cells": _base64(_bytes(weights))}
    topk = torch.from_numpy(weights).topk(kept, sorted=False)  # several times as fast as numpy's argpartition
    largest = topk.values.numpy()
    return {
        "cells": _base64(_bytes(largest)),
        "places": _base64(topk.indices.numpy().astype("<u2")),
        "share": round(float(largest.sum() / weights.sum()), 3),
    }


def _bytes(weights: Numbers) -> npt.NDArray[np.uint8]:
    codes: npt.NDArray[np.uint8] = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    return codes


def _packed_heatmap(heatmap: Heatmap) -> dict[str, Any]:
    """Masks as bits, positions as bytes from -peak to peak."""
    common = {"rows": heatmap.rows, "columns": heatmap.columns, "peak": heatmap.peak, "signed": heatmap.signed}
    if set(np.unique(heatmap.values)) <= {0.0, 1.0}:
        return common | {"bits": _base64(np.packbits(heatmap.values.astype(bool)))}
    return common | {"cells": _base64(np.rint(255 * heatmap.shares).astype(np.uint8))}


def _base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
