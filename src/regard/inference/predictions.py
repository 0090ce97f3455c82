"""Predictions for inputs in memory, chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regard.data.example import Example
from regard.errors import Problem
from regard.runs.run import Run
from regard.search.external import AnyModel
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.reading import image_notes
from regard.views.search_record import SearchRecord

to_json = json.JSONEncoder(ensure_ascii=False).encode
INPUTS_PER_CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""


@dataclass(frozen=True)
class Skipped(Prediction):
    """Takes the place of a prediction for an input that cannot be read."""

    problem: Problem

    def content(self) -> dict[str, Any]:
        return {"input": self.input, "output": None, "problem": asdict(self.problem)}

    def lines(self, nbest: int) -> Iterator[str]:
        """An empty line, so that outputs keep the line numbers of their inputs."""
        yield ""


class Predictions(list[Prediction]):
    """Predictions in the order of the inputs, and what a user should know about them."""

    def __init__(
        self, predictions: Iterable[Prediction], nbest: int, notes: Iterable[Note] = ()
    ) -> None:
        super().__init__(predictions)
        self.nbest = nbest
        """Outputs for each input, as the search was set."""
        self.notes = list(notes)
        self.record: SearchRecord | None = None
        """The whole search, if that was asked for."""

    def lines(self, *, as_json: bool) -> Iterator[str]:
        """One JSON object per prediction, or the lines that people read, with each output in one
        line."""
        for prediction in self:
            if as_json:
                yield to_json(prediction.to_json())
            else:
                yield from (" ".join(line.splitlines()) for line in prediction.lines(self.nbest))

    def append_chunk(self, chunk: Predictions) -> None:
        self += chunk
        self.notes += chunk.notes

    @property
    def skipped(self) -> list[Problem]:
        """Why each input that was skipped cannot be read."""
        return [prediction.problem for prediction in self if isinstance(prediction, Skipped)]

    @property
    def searches(self) -> list[dict[str, Any]]:
        """The record of each search, if records were asked for."""
        return [
            {"input": prediction.input, **prediction.search}
            for prediction in self
            if prediction.search is not None
        ]


def predict_chunks(
    run: Run,
    model: AnyModel,
    inputs: Sequence[Example],
    *,
    prefixes: Sequence[str] | None = None,
    skip_bad: bool,
    record: bool = False,
    progress: Done = ignore,
) -> Iterator[Predictions]:
    """The predictions for inputs, some thousands at a time; each may have a prefix of its own.

    Inputs that cannot be read are an InputError before any is decoded; with `skip_bad` a `Skipped`
    takes the place of each.
    """
    encoded: EncodedInputs[Any] = run.task.answers.encode_inputs(model, inputs, prefixes)
    if not skip_bad:
        encoded.readable()
    for first in range(0, max(1, len(inputs)), INPUTS_PER_CHUNK):
        chunk = encoded.take(range(first, min(first + INPUTS_PER_CHUNK, len(inputs))))
        yield _predict_chunk(run, model, chunk, record=record, progress=progress)


def _predict_chunk(
    run: Run, model: AnyModel, chunk: EncodedInputs[Any], *, record: bool, progress: Done
) -> Predictions:
    """The predictions for some inputs, with a `Skipped` for each that cannot be read."""
    unreadable = chunk.unreadable
    readable = chunk.take([row for row in range(len(chunk)) if row not in unreadable])
    predictions: Sequence[Prediction] = ()
    if len(readable):
        predictions = run.task.answers.predict_encoded(
            model, readable, record=record, progress=progress
        )
    progress(len(chunk) - len(predictions))
    following = iter(predictions)
    answers = [
        Skipped(item.text, unreadable[row]) if row in unreadable else next(following)
        for row, item in enumerate(chunk.inputs)
    ]
    notes = run.task.answers.notes(readable, predictions)
    answers = _with_unknown_words(answers, chunk.inputs, notes)
    if run.recipe.model.reads != "image":
        notes = [*image_notes(readable.inputs), *notes]
    return Predictions(answers, run.recipe.search.nbest, notes)


def _with_unknown_words(
    answers: Sequence[Prediction], inputs: Sequence[Example], notes: Iterable[Note]
) -> list[Prediction]:
    """The predictions, each with the words of its input that notes call unknown."""
    unknown = dict[str, tuple[str, ...]]()
    for note in notes:
        if note.words:
            unknown[note.place] = tuple(dict.fromkeys((*unknown.get(note.place, ()), *note.words)))
    if not unknown:
        return [*answers]
    return [
        replace(answer, unknown=unknown[given.place]) if given.place in unknown else answer
        for answer, given in zip(answers, inputs, strict=True)
    ]
