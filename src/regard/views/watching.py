"""What a model that is being trained makes of one text: its output, its probabilities and its
attention, as an entry of watch.json."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.runs.run import Run
from regard.views.attention import PredictedToken
from regard.views.explain import explain
from regard.views.explanation import MAP_VIEWS, Explanation, ViewOptions
from regard.views.labels import token_label
from regard.views.report import HeatMap, Numbers

MAX_CELLS = 4096
"""Largest map that is stored."""
DIGITS = 3


class RunInTraining(Run):
    """A run whose model is the one that is being trained, not a checkpoint."""

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run.folder, checked=False)
        self.__dict__.update(vars(run))
        self.model = model

    def load_model(self, checkpoint: str | None = None, device: str | None = "cpu") -> nn.Module:
        return self.model


def look(run: Run, model: nn.Module, text: str) -> dict[str, Any]:
    """What the model makes of a text. What does not apply to its task is left out: the `output`,
    `tokens` with their probabilities, the `probabilities` of a classifier, the `importance` of each
    word for its answer, and the `map` of the first attention, between words if the model writes."""
    explained = explain(RunInTraining(run, model), text)
    writes = bool(explained.source.texts) and bool(explained.target.texts)
    drawn = _first_map(explained.select(ViewOptions(words=writes)))
    probabilities = explained.prediction.get("probabilities")
    seen: dict[str, Any] = {
        "output": explained.output,
        "tokens": [] if probabilities else [_token(step) for step in explained.steps],
        "probabilities": {
            str(name): _rounded(value) for name, value in (probabilities or {}).items()
        },
        "importance": _importance(explained),
        "map": None if drawn is None else _map(drawn),
    }
    return {name: value for name, value in seen.items() if value}


def _first_map(explained: Explanation) -> HeatMap | None:
    """The map of the first attention that the model has."""
    if explained.story is not None:
        weights_NS = explained.story.weights_NS
        hops = [f"hop {hop}" for hop in range(1, len(weights_NS) + 1)]
        return HeatMap(hops, explained.story.sentences, weights_NS, explained.title)
    view = next((kind for kind in MAP_VIEWS if kind in explained.views), None)
    if view is None:
        return None
    return explained.select(ViewOptions(view)).heat_maps()[0]


def _map(drawn: HeatMap) -> dict[str, Any] | None:
    values: Numbers = drawn.values
    if values.size > MAX_CELLS:
        return None
    return {
        "rows": list(drawn.rows),
        "columns": list(drawn.columns),
        "values": [[_rounded(value) for value in row] for row in values],
        "name": drawn.choice[0] if drawn.choice else "",
    }


def _token(step: PredictedToken) -> dict[str, Any]:
    return {
        "token": token_label(step.token),
        "probability": _rounded(step.probability),
        "candidates": [[token_label(name), _rounded(value)] for name, value in step.candidates],
    }


def _importance(explained: Explanation) -> list[list[Any]]:
    """How much the answer falls without each word."""
    occlusion = explained.occlusion
    if occlusion is None or len(occlusion.answers) != 1:
        return []
    falls = occlusion.falls_WA[:, 0]
    return [[word, _rounded(fall)] for word, fall in zip(occlusion.words, falls, strict=True)]


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)
