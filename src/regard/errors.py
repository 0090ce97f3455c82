"""Errors for what a user can get wrong, in the user's words.

    RegardError              a user's mistake: one clear sentence, exit code 2, no traceback
    ├── ConfigError          a recipe or an override
    ├── DataError            a file, its lines, its columns
    ├── CheckpointError      a run folder and what is stored in it
    └── DecodeError          an input to predict or score, or what was asked of the search
        └── InputError       inputs to predict that cannot be read

`assert` is for our own mistakes, these are for theirs.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

MAX_NAMED_PROBLEMS = 20
"""How many problems of a kind are named; the rest are counted."""
MAX_VALUE_CHARACTERS = 80
"""Most characters of a value in a message."""
MAX_PATH_CHARACTERS = 300
"""Most characters of a value that may be a path."""
MAX_MESSAGE_CHARACTERS = 1_000
"""Most characters of what is said, and of what is advised."""
_QUOTED = re.compile(r"""(?<![\w\\])(['"])((?:\\.|(?!\1)[^\\])*)\1(?!\w)""", re.DOTALL)
_CONTROL_CHARACTERS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that could control a terminal or reorder a line, and halves of surrogate pairs."""


def short(text: str, most: int = 0) -> str:
    """The text without its middle if it is longer: the end of a path says more than what is
    before it."""
    if not most:
        may_be_path = "/" in text or "\\" in text
        most = MAX_PATH_CHARACTERS if may_be_path else MAX_VALUE_CHARACTERS
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"


def printable(text: str) -> str:
    """The text with control characters, other than line breaks and tabs, as escapes: file names may
    have them."""
    return _CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where it is, what it is, what is allowed or what to do. Values in it
    are shortened."""

    where: str
    what: str
    hint: str = ""

    def __post_init__(self) -> None:
        for name, most in (
            ("where", 0),
            ("what", MAX_MESSAGE_CHARACTERS),
            ("hint", MAX_MESSAGE_CHARACTERS),
        ):
            line = printable(getattr(self, name).replace("\n", r"\n"))
            values_short = _QUOTED.sub(lambda match: f"{match[1]}{short(match[2])}{match[1]}", line)
            object.__setattr__(self, name, short(values_short, most))

    def __str__(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        return f"{sentence} ({self.hint})" if self.hint else sentence


class Recurring(Problem):
    """A problem that many lines have if one has it, as with a wrong setting: only the first of
    those in the same words is told."""


class RegardError(Exception):
    """A user's mistake, or several found together."""

    def __init__(
        self, what: str = "", *, where: str = "", hint: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        self.problems = tuple(problems) or (Problem(where, what, hint),)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def raise_if(cls, problems: Iterable[Problem | None]) -> None:
        """Raise one error with the first of these problems, if there are any."""
        if named := first_of([problem for problem in problems if problem]):
            raise cls(problems=named)


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


class InputError(DecodeError):
    """Inputs to predict that cannot be read."""


@dataclass
class Faults:
    """The problems of very many lines, of which only the first are kept."""

    named: list[Problem] = field(default_factory=list)
    count: int = 0
    alike: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """How often each recurring problem occurs, by its file and words."""

    def add(self, *problems: Problem) -> None:
        for problem in problems:
            # an empty line of a table has several empty cells
            if self.named and self.named[-1] == problem:
                continue
            if isinstance(problem, Recurring):
                self.alike[_words(problem)] += 1
                if self.alike[_words(problem)] > 1:
                    continue
            self.count += 1
            if self.count <= MAX_NAMED_PROBLEMS:
                self.named.append(problem)

    @property
    def problems(self) -> list[Problem]:
        """The first ones, and how many more there are."""
        problems = [self._counted(problem) for problem in self.named]
        if self.count > MAX_NAMED_PROBLEMS:
            others = self.count - MAX_NAMED_PROBLEMS
            problems.append(Problem("", f"and {others:,} more such lines"))
        return problems

    def _counted(self, problem: Problem) -> Problem:
        """The problem, with the number of others that say the same."""
        others = self.alike[_words(problem)] - 1
        if others < 1:
            return problem
        return replace(
            problem,
            what=f"{problem.what}, and so in {others:,} more line{'s' if others > 1 else ''}",
        )


def _words(problem: Problem) -> tuple[str, ...]:
    """The file, less the line, and what is said."""
    return problem.where.rpartition(":")[0], problem.what, problem.hint


def first_of(problems: Sequence[Problem]) -> list[Problem]:
    """The first problems, each named once, and how many more there are."""
    different = list(dict.fromkeys(problems))
    first = different[:MAX_NAMED_PROBLEMS]
    if len(different) > MAX_NAMED_PROBLEMS:
        others = len(different) - MAX_NAMED_PROBLEMS
        first.append(Problem("", f"and {others:,} more such problems"))
    return first


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """The nearest allowed word as a question, or the list of what is allowed."""
    words = sorted(allowed)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(words)}"


def refuse(options: Mapping[str, object], what: str, hint: str = "leave it out") -> None:
    """Refuse the first of these options that is given, and not at its default."""
    for option, value in options.items():
        if value is not None and value is not False and value not in ("auto", "local"):
            raise DecodeError(what, where=option, hint=hint)


def import_extra(module: str, *, extra: str, where: str, doing: str = "reading") -> Any:
    """Import a library that only some users need; if it is missing, say how to install it and
    what needs it."""
    try:
        return import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        what = f"{doing} it needs the library {library!r}"
        raise DataError(what, where=where, hint=f"pip install 'regard[{extra}]'") from None
