"""Files of stories -> questions: bAbI's numbered lines, or JSON Lines. What cannot be read is handed on as such."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.data.formats import object_in
from regard.data.rows import text_of, value_in
from regard.errors import DataError, Problem
from regard.text.files import TextFile
from regard.text.normalise import fold_white_space
from regard.text.sentences import split_sentences

OPENING = 20
"""Sentences of a story that tell it from others."""
NUMBERED = re.compile(r"\s*(\d{1,9})\s+(\S.*)")
"""A line of bAbI's: its number, and what it says."""
_EXAMPLE = "3 Where is Mary?\tbathroom\t1"
_ONE_WORD = "an answer is one word; several go with commas and no spaces: apple,milk"


class Keys(NamedTuple):
    """What an object of a .jsonl calls its parts."""

    story: str = "story"
    question: str = "question"
    answer: str = "answer"
    facts: str = "facts"


class Asked(NamedTuple):
    """A question about a story, and its answer."""

    line: int
    """Where it stands."""
    opening: str
    """How the story begins."""
    story: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the sentences that the answer rests on; None where that is not known."""


class Unread(NamedTuple):
    """Stands for a question that cannot be read, or a story without one."""

    line: int
    problem: Problem


def _one_word(answer: str, where: str) -> str:
    if not answer:
        raise DataError("the question has no answer", where=where, hint="a word is expected after the question")
    if len(answer.split()) > 1:
        raise DataError(f"the answer {answer!r} has {len(answer.split())} words", where=where, hint=_ONE_WORD)
    return answer


# bAbI's numbered lines


def babi_questions(file: TextFile, keys: Keys) -> Iterator[Asked | Unread]:
    """The questions of a file of numbered lines."""
    story = _Story(0, "", asked=True)
    for line, text in enumerate(file.lines(), 1):
        if not text.strip():
            continue
        found, where = NUMBERED.fullmatch(text), file.where(line)
        if found and int(found[1]) == 1:
            yield from story.ended()
            story = _Story(line, where)
        read = story.read(line, text, where)
        if read is not None:
            yield read
    yield from story.ended()


@dataclass
class _Story:
    """A story so far."""

    begun: int
    where: str
    sentences: list[str] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of a line -> that of its sentence."""
    last: int = 0
    """The number of the line before."""
    opening: str = ""
    asked: bool = False
    fault: Problem | None = None
    """Of a line: what is asked after it is not about the story that was meant."""

    def read(self, line: int, text: str, where: str) -> Asked | Unread | None:
        """The question in the next line, if it is one."""
        said = text
        if self.fault is None:
            try:
                self.last, said = _numbered(text, self.last, where)
            except DataError as error:
                self.fault, self.asked = error.problems[0], False
        is_question = "\t" in said or said.rstrip().endswith(("?", "？"))
        self.asked |= is_question
        if self.fault is not None:
            return Unread(line, self.fault) if is_question else None
        if is_question:
            return self._question(line, said, where)
        self.numbers[self.last] = len(self.sentences)
        self.sentences.append(fold_white_space(said))
        return None

    def _question(self, line: int, said: str, where: str) -> Asked | Unread:
        self.opening = self.opening or "\n".join(self.sentences[:OPENING])
        try:
            return Asked(line, self.opening, tuple(self.sentences), *_question(said, self.numbers, where))
        except DataError as error:
            return Unread(line, error.problems[0])

    def ended(self) -> Iterator[Unread]:
        """What is wrong with it and was not told with a question."""
        if not self.asked:
            none = Problem(self.where, "the story has no question", f"a question line: {_EXAMPLE}")
            yield Unread(self.begun, self.fault or none)


def _numbered(text: str, before: int, where: str) -> tuple[int, str]:
    found = NUMBERED.fullmatch(text)
    if found is None:
        hint = "expected is bAbI's format: 1 Mary moved to the bathroom."
        raise DataError("the line does not begin with a number and a text", where=where, hint=hint)
    number = int(found[1])
    if number not in (1, before + 1):
        hint = "lines of a story are numbered one by one, and 1 begins a new story"
        raise DataError(f"line number {number} follows {before}", where=where, hint=hint)
    return number, found[2]


def _question(said: str, numbers: dict[int, int], where: str) -> tuple[str, str, tuple[int, ...] | None]:
    """A question line after its number: question, answer, and the sentences that it rests on."""
    if "\t" not in said:
        hint = f"a tab and the answer follow a question: {_EXAMPLE}"
        raise DataError("the question has no answer", where=where, hint=hint)
    if not numbers:
        raise DataError("there is no sentence before the question", where=where, hint="tell the story first")
    fields = [one.strip() for one in said.split("\t")]
    if len(fields) > 3 or not fields[0]:
        hint = "expected are a question, its answer and the numbers of its facts, with a tab between each two"
        raise DataError(f"the question line has {len(fields)} fields", where=where, hint=hint)
    answer, named = _one_word(fields[1], where), fields[2].split() if len(fields) > 2 else []
    for one in named:
        if not one.isdecimal() or int(one) not in numbers:
            hint = f"the sentences before the question are numbered {', '.join(map(str, [*numbers][-10:]))}"
            raise DataError(f"the supporting fact {one!r} is no sentence before it", where=where, hint=hint)
    return fold_white_space(fields[0]), answer, tuple(numbers[int(one)] for one in named) or None


# JSON Lines


def jsonl_questions(file: TextFile, keys: Keys) -> Iterator[Asked | Unread]:
    """The questions of a file with an object a line; an empty line is none."""
    for line, text in enumerate(file.lines(), 1):
        if text.strip():
            yield question_in(text, keys, line, file.where(line))


def question_in(text: str, keys: Keys, line: int, where: str, *, answered: bool = True) -> Asked | Unread:
    """The question that an object is; unless it must be `answered`, the answer may be missing."""
    try:
        example = object_in(text, where, [keys.story, keys.question])
        story = _sentences(value_in(example, keys.story, where), keys.story, where)
        question = fold_white_space(text_of(value_in(example, keys.question, where), keys.question, where))
        if not story or not question:
            what = f"the {'question' if story else 'story'} is empty"
            raise DataError(what, where=where, hint="fill it, or drop the line")
        answer = ""
        if answered or example.get(keys.answer) is not None:
            value = value_in(example, keys.answer, where)
            answer = text_of(value, keys.answer, where, number=True, hint=_ONE_WORD).strip()
        facts = _facts(example.get(keys.facts), len(story), where)
        answer = _one_word(answer, where) if answered else answer
        return Asked(line, "\n".join(story[:OPENING]), tuple(story), question, answer, facts)
    except DataError as error:
        return Unread(line, error.problems[0])


def _sentences(value: Any, key: str, where: str) -> list[str]:
    if not isinstance(value, list):
        return split_sentences(fold_white_space(text_of(value, key, where)))
    sentences = [fold_white_space(text_of(one, key, where)) for one in value]
    if "" in sentences:
        hint = "leave it out; the numbers of the facts count the sentences that are left"
        raise DataError(f"sentence {sentences.index('') + 1} of the story is empty", where=where, hint=hint)
    return sentences


def _facts(value: Any, sentences: int, where: str) -> tuple[int, ...] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(type(one) is int and 1 <= one <= sentences for one in value):
        hint = f"a list of numbers of sentences, from 1 to {sentences}"
        raise DataError(f"the facts are {json.dumps(value)[:80]}", where=where, hint=hint)
    return tuple(one - 1 for one in value)
