"""The verbs that compute one request at a time: what each request contains, and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

from fastapi.responses import Response
from pydantic import Field

from regard.errors import DecodeError
from regard.language import shown
from regard.models.base import Generator, Pooling
from regard.recipes.search_options import SearchOptions, with_search
from regard.search.stopping import stop_if_given_up
from regard.studio.requests import (
    MAX_EXPLAINED_CHARACTERS,
    MAX_INPUTS,
    MAX_TEXT_CHARACTERS,
    Body,
    Input,
    LanguagesBody,
)
from regard.studio.served import ServedRun
from regard.views.explanation import Explanation, View, ViewOptions
from regard.views.mathml import mathml
from regard.views.render import json_line
from regard.views.report import in_language, plain
from regard.views.search_record import follow_reference

MAX_ANSWER_NUMBERS = 10_000_000
"""Most weights of attention that an answer explains, and most numbers of the vectors that it
has."""


def refuse_long_answer(count: int, where: str) -> None:
    """Refuse an answer that would be too long."""
    if count > MAX_ANSWER_NUMBERS:
        hint = f"at most {MAX_ANSWER_NUMBERS:,}: shorter or fewer texts"
        raise DecodeError(f"the answer would have {count:,} numbers", where=where, hint=hint)


def unless_given_up(parts: Iterable[str]) -> Iterator[str]:
    """The parts of an answer, until nobody waits for it any more."""
    for part in parts:
        stop_if_given_up()
        yield part


class VerbBody(Body):
    """A request that is computed alone."""

    def answer(self, served: ServedRun) -> Any:
        """The answer: a value that can be sent as JSON, or a response."""
        raise NotImplementedError


class ScoreBody(LanguagesBody, VerbBody):
    """log P(target | source), token by token, as `regard score --json` prints it."""

    max_characters: ClassVar[int] = MAX_TEXT_CHARACTERS
    source: Input
    target: str | list[str] = Field(max_length=MAX_TEXT_CHARACTERS)

    def answer(self, served: ServedRun) -> dict[str, Any]:
        return served.run.score(self.source, self.target)


class ExplainBody(LanguagesBody, VerbBody):
    """What the model attended to, as `regard explain --json` prints it."""

    input: Input
    target: str | None = Field(None, max_length=MAX_EXPLAINED_CHARACTERS)
    beam: int | None = Field(None, ge=1, le=64)
    view: View | None = None
    layer: int | str = Field("mean")
    head: int | str = Field("mean")
    rollout: bool = False
    words: bool = False
    step: int | None = Field(None, ge=1)
    padding: int | None = Field(None, ge=0, le=64)
    question: int | None = Field(None, ge=1)
    numbers: bool = False

    def explanation(self, served: ServedRun) -> Explanation:
        chosen = ViewOptions(
            self.view, str(self.layer), str(self.head), self.rollout, self.words, self.step
        )
        options = self.model_dump(include={"target", "beam", "view", "padding", "question"})
        return served.run.explain([self.input], **options).select(chosen)

    def answer(self, served: ServedRun) -> Any:
        explanation = self.explanation(served)
        explanation.refuse_without_effect(padding=self.padding, numbers=self.numbers)
        explanation.heat_maps()  # refuses a layer or head that is not there
        if not self.numbers:
            weights = sum(attention.weights.size for attention in explanation.attentions.values())
            refuse_long_answer(weights, "input")
        parts = json_line(explanation.worked() if self.numbers else explanation)
        return Response("".join(unless_given_up(parts)), media_type="application/json")


class StepsBody(ExplainBody):
    """One attention worked out, with its equations and code; `scores` changes them."""

    scores: list[float | None] | None = Field(None, max_length=MAX_EXPLAINED_CHARACTERS)
    """The scores as a reader has changed them, null for a key that is hidden; the rest follows from
    them."""

    def answer(self, served: ServedRun) -> dict[str, Any]:
        explanation = self.explanation(served)
        worked = explanation.worked(self.scores)
        texts = {"input": explanation.input, "output": explanation.output}
        answer: dict[str, Any] = plain({**texts, **worked.to_json(), **worked.details()})
        for part in ("query", "after"):
            answer[part] = {shown(name): values for name, values in answer[part].items()}
        equations = answer["equations"]
        answer["mathml"] = {part: mathml(text) for part, text in equations.items()}
        answer["equations"] = {part: shown(text) for part, text in equations.items()}
        return answer


class SearchBody(LanguagesBody, VerbBody):
    """The record of a search and its tree; with `reference`, the step at which that left the
    beam."""

    input: Input
    beam: int | None = Field(None, ge=1, le=16)
    length_penalty: float | None = Field(None, ge=0, le=10)
    normalisation: Literal["none", "mean", "wu", "reward"] | None = None
    reference: str | None = Field(None, max_length=MAX_EXPLAINED_CHARACTERS)
    """A text that the search might have given: the answer says where it left the beam."""

    def answer(self, served: ServedRun) -> dict[str, Any]:
        """The record is that of docs/search-record.md."""
        overrides = ["search.sample=false"]
        if self.normalisation:
            overrides.append(f"search.normalisation={self.normalisation}")
        options = SearchOptions(
            self.beam, self.beam, self.length_penalty, overrides=tuple(overrides)
        )
        run = served.run.under(with_search(served.run.recipe, options))
        record = run.predict([self.input], record=True).record
        assert record is not None
        if self.reference is not None:
            if run.task.views.targets is None:
                what = "the run writes no texts that have a reference"
                raise DecodeError(what, where="reference", hint="leave it out")
            text = record.inputs[0]["input"]
            model = cast(Generator, run.load_model())
            reference = follow_reference(run, model, text, self.reference)
            record = replace(record, reference=reference)
        report = in_language(record.report()).to_json()
        answer: dict[str, Any] = plain({**record.to_json(), "run": served.name, "report": report})
        return answer


class FeaturesBody(VerbBody):
    """Vectors of texts or tokens, as `regard predict --features` writes them."""

    max_characters: ClassVar[int] = MAX_TEXT_CHARACTERS
    inputs: list[Input] = Field(min_length=1, max_length=MAX_INPUTS)
    layer: int = -1
    pooling: Pooling | None = None
    normalize: bool = False

    def answer(self, served: ServedRun) -> dict[str, Any]:
        features = served.run.features(**self.model_dump()).arrays()
        refuse_long_answer(sum(array.size for array in features.values()), "inputs")
        return {name: array.tolist() for name, array in features.items()}


class VectorsBody(VerbBody):
    """One word in several texts, as `regard vectors --json` prints it."""

    inputs: list[Input] = Field(min_length=1, max_length=MAX_INPUTS)
    word: str = Field(min_length=1, max_length=100)
    others: list[Input] = Field([], max_length=MAX_INPUTS)
    """More texts, whose words can be neighbours."""
    layer: int = -1

    def answer(self, served: ServedRun) -> dict[str, Any]:
        return served.run.vectors(**self.model_dump()).to_json()


VERB_BODIES: dict[str, type[VerbBody]] = {
    "score": ScoreBody,
    "explain": ExplainBody,
    "steps": StepsBody,
    "search": SearchBody,
    "features": FeaturesBody,
    "vectors": VectorsBody,
}
