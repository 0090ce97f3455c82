"""What a user can get wrong, in the user's words.

    RegardError              a user's mistake: one clear sentence, exit code 2, no traceback
    ├── ConfigError          a recipe or an override
    ├── DataError            a file, its lines, its columns
    ├── CheckpointError      a run folder and what is stored in it
    └── DecodeError          an input to predict or score, or what was asked of the search

`assert` is for our own mistakes, these are for theirs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

NAMED = 20
"""How many problems of a kind are named; the rest are counted."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where it is, what it is, what is allowed or what to do."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        return f"{sentence} ({self.hint})" if self.hint else sentence


class RegardError(Exception):
    """A user's mistake, or several found together."""

    def __init__(self, what: str = "", *, where: str = "", hint: str = "", problems: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems) or (Problem(where, what, hint),)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(RegardError):
    """A recipe or an override that cannot be meant."""


class DataError(RegardError):
    """A file that cannot be read as asked."""


class ColumnError(DataError):
    """A column that is asked for and not there."""


class CheckpointError(RegardError):
    """A run folder that is missing, broken, or not the one that was meant."""


class DecodeError(RegardError):
    """An input that cannot be decoded, or a search that cannot be run."""


@dataclass
class Faults:
    """The problems of very many lines, of which only the first are kept."""

    named: list[Problem] = field(default_factory=list)
    count: int = 0

    def add(self, *problems: Problem) -> None:
        for problem in problems:
            if self.named and self.named[-1] == problem:  # an empty line of a table has several empty cells
                continue
            self.count += 1
            if self.count <= NAMED:
                self.named.append(problem)

    @property
    def problems(self) -> list[Problem]:
        """The first ones, and how many more there are."""
        more = [Problem("", f"and {self.count - NAMED:,} more such lines")] if self.count > NAMED else []
        return [*self.named, *more]


def first_of(problems: Sequence[Problem], most: int = NAMED) -> list[Problem]:
    """The first problems, and how many more there are."""
    more = [Problem("", f"and {len(problems) - most:,} more such problems")] if len(problems) > most else []
    return [*problems[:most], *more]


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """The nearest allowed word as a question, or the list of what is allowed."""
    words = sorted(allowed)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(words)}"
