"""Inputs that cannot be read, left out of a prediction and told of in their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regard.errors import DecodeError, Problem
from regard.tasks.inputs import Inputs


@dataclass(frozen=True)
class Skipped:
    """Stands among the predictions for an input that was left out."""

    input: str
    problem: Problem
    search: None = None

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": None, "problem": asdict(self.problem)}

    def lines(self, nbest: int) -> Iterator[str]:
        """An empty one, so that outputs stand beside their inputs."""
        yield ""


def unreadable(check: Callable[[Inputs], None], inputs: Inputs) -> dict[int, Problem]:
    """What is wrong with each of the inputs that `check` refuses; other problems than of an input are raised."""
    bad = _unreadable(check, inputs, range(len(inputs.texts)))
    good = [text for row, text in enumerate(inputs.texts) if row not in bad]
    if good:  # in place of the bad ones, so that what else is wrong is found where it stands
        check(replace(inputs, texts=[good[0] if row in bad else text for row, text in enumerate(inputs.texts)]))
    return bad


def _unreadable(check: Callable[[Inputs], None], inputs: Inputs, rows: range) -> dict[int, Problem]:
    """Found by halving: a few bad inputs among many cost little."""
    part = inputs.take(rows)
    try:
        check(part)
    except DecodeError as error:
        if len(rows) > 1:
            middle = len(rows) // 2
            return _unreadable(check, inputs, rows[:middle]) | _unreadable(check, inputs, rows[middle:])
        if blames(error, part.places):
            return {rows[0]: error.problems[0]}
    return {}


def blames(error: DecodeError, places: Sequence[str]) -> bool:
    """Whether it is inputs that the error is about, and not what else was asked for."""
    return error.problems[0].where.startswith(tuple(places))
