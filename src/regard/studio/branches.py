"""Outputs token by token for the page, and the words of an input that a run does not know."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from pydantic import Field

from regard.studio.attention_maps import image_of, packed
from regard.studio.requests import MAX_TEXT_CHARACTERS, Input, LanguagesBody
from regard.studio.served import ServedRun
from regard.studio.verbs import VerbBody
from regard.tasks.reading import LONGEST
from regard.views.branch import branch

MAX_TEXTS = 8
"""Most texts of one input."""


class BranchBody(LanguagesBody, VerbBody):
    """An output token by token, each with its probability and the likeliest others; from given
    first tokens on."""

    input: Input
    tokens: list[str] = Field([], max_length=LONGEST)
    """The first tokens of the output, spelt as `predict --json` shows them."""
    goes_on: bool = True
    """Whether the run completes the output."""

    def answer(self, served: ServedRun) -> dict[str, Any]:
        found = branch(served.run, self.input, self.tokens, goes_on=self.goes_on)
        return {
            "output": found.output,
            "score": found.score,
            "steps": [asdict(step) for step in found.steps],
            "next": [asdict(candidate) for candidate in found.next],
            "map": packed(found.attention) if found.attention else None,
            "picture": image_of(found.picture),
        }


class UnknownBody(VerbBody):
    """The words of an input that are not in the vocabulary, as spans of characters of each of its
    texts."""

    max_characters: ClassVar[int] = MAX_TEXT_CHARACTERS
    texts: dict[str, str] = Field(max_length=MAX_TEXTS)
    """The texts by the names that the page has for them."""

    def given(self) -> list[Input]:
        return [*self.texts.values()]

    def answer(self, served: ServedRun) -> dict[str, Any]:
        run = served.run
        tokenizer = run.tokenizers.get("source") or run.tokenizers.get("text")
        if tokenizer is None or run.recipe.model.letters is not None:  # letters are read instead
            return {"unknown": {}}
        rows = tokenizer.token_spans([*self.texts.values()])
        return {
            "unknown": {
                name: [
                    [*span]
                    for token, span in zip(ids, spans, strict=True)
                    if token == tokenizer.unk
                ]
                for name, (ids, spans) in zip(self.texts, rows, strict=True)
            }
        }
