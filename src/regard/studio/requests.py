"""The JSON of requests: inputs, and the options of a prediction."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import HTTPException, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.errors import Problem
from regard.language import shown
from regard.recipes.search_options import SearchOptions, language_overrides
from regard.text.json_objects import RENAME_KEY, RepeatedKeyError, object_of

MAX_TEXT_CHARACTERS = 20_000
"""Most characters of an input."""
MAX_EXPLAINED_CHARACTERS = 4_000
"""Most characters of an input to explain, whose answer grows with the square of its length."""
MAX_INPUTS = 256
"""Most inputs of a request."""

Input = str | list[str] | dict[str, str | list[str]]
"""A text, the texts that an input consists of, or the run's columns; for a run that reads images: a
`data:` URL."""


class StrictRequest(Request):
    """A request whose JSON has each key of an object once: of two values one would not be read."""

    async def json(self) -> Any:
        try:
            return json.loads(await self.body(), object_pairs_hook=object_of)
        except RepeatedKeyError as error:
            problem = Problem("", shown(str(error)), shown(RENAME_KEY))
            raise HTTPException(422, str(problem)) from None


class StrictRoute(APIRoute):
    """A route that reads its body as a StrictRequest."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_strictly(request: Request) -> Response:
            return await answer(StrictRequest(request.scope, request.receive))

        return answer_strictly


class Body(BaseModel):
    """The JSON of a request."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
    max_characters: ClassVar[int] = MAX_EXPLAINED_CHARACTERS
    """Most characters of an input."""

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, tree: object) -> object:
        """JSON can spell halves of surrogate pairs, which no answer could repeat."""
        if isinstance(tree, bytes):
            raise ValueError("send JSON, with Content-Type: application/json")
        try:
            json.dumps(tree, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is not a character") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return tree

    @property
    def languages(self) -> list[str]:
        """The languages that it asks for, as overrides of the run's recipe."""
        return []

    def given(self) -> list[Input]:
        """All inputs of the request."""
        single = [getattr(self, name) for name in ("source", "input") if hasattr(self, name)]
        return [*single, *getattr(self, "inputs", ()), *getattr(self, "others", ())]


class LanguagesBody(Body):
    """A request to a run that may translate between many languages."""

    source_language: str | None = Field(None, min_length=1, max_length=20)
    target_language: str | None = Field(None, min_length=1, max_length=20)

    @property
    def languages(self) -> list[str]:
        return language_overrides(self.source_language, self.target_language)


class PredictBody(LanguagesBody):
    max_characters: ClassVar[int] = MAX_TEXT_CHARACTERS
    inputs: list[Input] = Field(min_length=1, max_length=MAX_INPUTS)
    beam: int | None = Field(None, ge=1, le=64)
    nbest: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = Field(None, ge=0, le=10)
    prefix: str | None = Field(None, max_length=1_000)
    sample: bool | None = None
    temperature: float | None = Field(None, gt=0, le=100)
    top_k: int | None = Field(None, ge=1, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    skip_bad: bool = False
    """Whether an input that cannot be read is answered with the reason, instead of failing the
    request."""
    stream: bool = False
    """Whether the best output so far is sent, as server-sent events, whenever it changes.
    For one input."""

    @property
    def search_options(self) -> SearchOptions:
        sampling = self.model_dump(
            include={"sample", "temperature", "top_k", "top_p", "seed"}, exclude_none=True
        )
        overrides = [f"search.{name}={json.dumps(value)}" for name, value in sampling.items()]
        changes = (*overrides, *self.languages)
        return SearchOptions(self.beam, self.nbest, self.length_penalty, self.prefix, changes)
