"""The drawing of a run with a sentence in it, for the page."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from regard.studio.attention_maps import AttentionBody
from regard.studio.requests import MAX_EXPLAINED_CHARACTERS, Input, LanguagesBody
from regard.studio.served import ServedRun
from regard.studio.verbs import VerbBody
from regard.views.diagrams import diagram, diagram_of_vectors, explains_nothing


class DiagramBody(LanguagesBody, VerbBody):
    """The model as a drawing, with the states, the attention and the answer for one input."""

    input: Input
    target: str | None = Field(None, max_length=MAX_EXPLAINED_CHARACTERS)

    def answer(self, served: ServedRun) -> dict[str, Any]:
        if explains_nothing(served.run):
            return diagram_of_vectors(served.run, self.input).to_json()
        # the explanation is the one that the view of attention asks for
        asked = AttentionBody(**self.model_dump())
        return diagram(asked.explanation(served)).to_json()
