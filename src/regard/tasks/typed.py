"""What a user types or keeps in a file -> questions about stories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from regard.data.sentences import split_sentences
from regard.errors import DecodeError

_NUMBERED = re.compile(r"\s*(\d{1,9})\s+(\S.*)")


@dataclass(frozen=True)
class Typed:
    """A question about what was told before it."""

    story: tuple[str, ...]
    question: str
    answer: str | None
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the sentences that the answer rests on, where they were given."""
    place: str
    numbers: tuple[int, ...]
    """What the user calls each sentence: the number of its line, or its own, both from 1."""

    @property
    def text(self) -> str:
        """The same as one text, which `questions_in` reads again: a sentence a line, the question last."""
        facts = " ".join(str(fact + 1) for fact in self.facts or ())
        known = "" if self.answer is None else f"\t{self.answer}\t{facts}"
        return "\n".join([*self.story, self.question + known])


@dataclass
class _Told:
    """A story so far."""

    sentences: list[str] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    """The number of each sentence."""
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of a line -> that of its sentence."""
    last: int = 0
    """The number of the line before, where lines are numbered."""
    asked: bool = False
    place: str = ""

    def add(self, sentence: str, number: int | None) -> None:
        self.named.append(number or len(self.sentences) + 1)
        self.numbers[self.named[-1]] = len(self.sentences)
        self.sentences.append(sentence)


def questions_in(lines: Iterable[tuple[str, str]]) -> Iterator[Typed]:
    """The questions among lines, each given with its place.

    Sentences are remembered; what ends in `?` is asked about all that was told so far. An empty line, or one that is
    numbered 1 as in the files of bAbI, begins a new story. A question may be followed by a tab and its answer, and by
    another tab and the numbers of its supporting facts.
    """
    told = _Told()
    for text, place in lines:
        number, said = _number_of(text, told.last)
        if number == 1 or not text.strip():
            _refuse_unasked(told)
            told = _Told()
        told.last, told.place = number or 0, place
        said, *known = said.split("\t")
        sentences = split_sentences(" ".join(said.split()))
        for which, sentence in enumerate(sentences, 1):
            last = which == len(sentences)
            if sentence.endswith(("?", "？")) or (last and known):
                yield _asked(told, sentence, known if last else [], place)
            else:
                told.add(sentence, number)
    _refuse_unasked(told)


def _number_of(text: str, before: int) -> tuple[int | None, str]:
    """The number of a line in the manner of bAbI, and its text; a number that does not count on is part of the text."""
    found = _NUMBERED.fullmatch(text)
    if found and int(found[1]) in (1, before + 1 if before else 1):
        return int(found[1]), found[2]
    return None, text


def _refuse_unasked(told: _Told) -> None:
    if told.sentences and not told.asked:
        hint = "end with a question, which ends in '?': Mary went to the garden. Where is Mary?"
        raise DecodeError("the story has no question", where=told.place, hint=hint)


def _asked(told: _Told, question: str, known: Sequence[str], place: str) -> Typed:
    told.asked = True
    if not told.sentences:
        hint = "tell the story first: Mary went to the garden. Where is Mary?"
        raise DecodeError("there is no story before the question", where=place, hint=hint)
    answer = known[0].strip() if known and known[0].strip() else None
    named = known[1].split() if len(known) > 1 else []
    wrong = [one for one in named if not one.isdecimal() or int(one) not in told.numbers]
    if wrong:
        raise DecodeError(f"the supporting fact {wrong[0]!r} is no sentence before the question", where=place)
    facts = tuple(told.numbers[int(one)] for one in named) or None
    return Typed(tuple(told.sentences), question.strip(), answer, facts, place, tuple(told.named))


def typed_in(text: str, place: str) -> Typed:
    """The last question of one text."""
    if not text.strip():
        raise DecodeError("the text is empty", where=place, hint="tell a story, then ask a question that ends in '?'")
    lines = text.split("\n")
    return last_question(lines, [place] * len(lines))


def last_question(lines: Sequence[str], places: Sequence[str]) -> Typed:
    """The last question among lines."""
    asked = list(questions_in(zip(lines, places, strict=True)))
    if not asked:
        raise DecodeError("there is no question", where=places[-1], hint="tell a story, then end a question in '?'")
    return asked[-1]
