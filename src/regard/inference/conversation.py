"""A conversation: each answer is given with the turns before it in view."""

from __future__ import annotations

from typing import Any, Protocol, cast

from regard.data.corpora import joined_turns
from regard.errors import DecodeError
from regard.inference.predictions import Predictions
from regard.tasks.written import Written
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizers


class Answering(Protocol):
    """A run with its model in memory, as `regard.load` gives it."""

    @property
    def recipe(self) -> Any: ...

    @property
    def tokenizers(self) -> Tokenizers: ...

    def predict(self, inputs: Any) -> Predictions: ...


class Conversation:
    """What was said so far, and the model that answers.

    The model reads `said | answer | ... | what is said now`, as it was trained on: with the last
    `turns` exchanges, or with fewer if they are longer than `data.max_length`.
    """

    def __init__(self, run: Answering, turns: int) -> None:
        if "source" not in run.tokenizers:
            what = f"a run of {run.recipe.task} does not answer with the turns before in view"
            raise DecodeError(what, where="--turns", hint="leave it out")
        self.run = run
        self.turns = turns
        self.exchanges: list[tuple[str, str]] = []
        """What was said, and the answer to it, the oldest first."""

    def source(self, text: str) -> str:
        """What the model reads to answer a text."""
        text = fold_white_space(text)
        last = self.exchanges[-self.turns :] if self.turns else []
        longest = self.run.recipe.data.max_length
        while last and self._length(joined_turns(last, text)) > longest:
            last = last[1:]
        return joined_turns(last, text)

    def answer(self, text: str) -> Predictions:
        """Answer a text, and remember both."""
        predictions = self.run.predict([self.source(text)])
        written = cast("Written", predictions[0])
        self.exchanges.append((fold_white_space(text), written.output))
        return predictions

    def forget(self) -> None:
        """Begin a new conversation."""
        self.exchanges.clear()

    def _length(self, text: str) -> int:
        return len(self.run.tokenizers["source"].encode(text)) + 1
