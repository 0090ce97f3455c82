"""What a user types or keeps in a file -> questions about stories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from regard.data.file_inputs import FileInput
from regard.data.stories import NUMBERED, Asked, Keys, Unread, question_in
from regard.errors import DecodeError, Problem
from regard.tasks.task import problem_in_text
from regard.text.files import TextFile
from regard.text.normalise import fold_white_space, split_sentences


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
    given: str | None = None
    """The object that it was given as, if it was."""

    @property
    def text(self) -> str:
        """The same as one text, which `questions_in` reads again: a sentence a line, the question last."""
        if self.given is not None:
            return self.given
        facts = " ".join(str(fact + 1) for fact in self.facts or ())
        known = "" if self.answer is None else f"\t{self.answer}\t{facts}"
        return "\n".join([*self.story, self.question + known])


@dataclass(frozen=True)
class Refused:
    """What was typed and cannot be answered; its text shows that again."""

    text: str
    place: str
    problem: Problem


@dataclass
class _Told:
    """A story so far."""

    lines: list[str] = field(default_factory=list)
    """As they were typed."""
    sentences: list[str] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    """The number of each sentence."""
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of a line -> that of its sentence."""
    last: int = 0
    """The number of the line before, where lines are numbered."""
    asked: bool = False
    place: str = ""

    @classmethod
    def of(cls, story: Sequence[str]) -> _Told:
        """A story that something was asked about already."""
        told = cls(list(story), asked=True)
        for sentence in story:
            told.add(sentence, None)
        return told

    def add(self, sentence: str, number: int | None) -> None:
        self.named.append(number or len(self.sentences) + 1)
        self.numbers[self.named[-1]] = len(self.sentences)
        self.sentences.append(sentence)

    def refused(self, what: str, hint: str = "") -> Refused:
        return Refused("\n".join(self.lines), self.place, Problem(self.place, what, hint))


def questions_in(lines: Iterable[tuple[str, str]]) -> Iterator[Typed]:
    """The questions among lines, each given with its place; or an error for the first that cannot be answered."""
    for one in asked_in(lines):
        if isinstance(one, Refused):
            raise DecodeError(problems=[one.problem])
        yield one


def asked_in(lines: Iterable[tuple[str, str]]) -> Iterator[Typed | Refused]:
    """The questions among lines, and in their places the stories and questions that cannot be answered.

    Sentences are remembered; what ends in `?` is asked about all that was told so far. An empty line, or one that is
    numbered 1 as in the files of bAbI, begins a new story. A question may be followed by a tab and its answer, and by
    another tab and the numbers of its supporting facts. A line may also be a JSON object with story and question.
    """
    told = _Told()
    for text, place in lines:
        number, said = _number_of(text, told.last)
        is_object = text.lstrip().startswith("{")
        if number == 1 or not text.strip() or is_object:
            yield from _unasked(told)
            told = _Told()
        if is_object:
            yield (given := _given(text, place))
            told = _Told.of(given.story) if isinstance(given, Typed) else told
            continue
        told.last, told.place = number or 0, place
        told.lines.append(text)
        said, *known = said.split("\t")
        sentences = split_sentences(fold_white_space(said))
        for which, sentence in enumerate(sentences, 1):
            last = which == len(sentences)
            if sentence.endswith(("?", "？")) or (last and known):
                yield _asked(told, sentence, known if last else [], place)
            else:
                told.add(sentence, number)
    yield from _unasked(told)


def asks(lines: Iterable[str]) -> bool:
    """Whether a story contains a question itself."""
    return any(isinstance(question, Typed) for question in asked_in((line, "") for line in lines))


def _number_of(text: str, before: int) -> tuple[int | None, str]:
    """The number of a line in the manner of bAbI, and its text; a number that does not count on is part of the text."""
    found = NUMBERED.fullmatch(text)
    if found and int(found[1]) in (1, before + 1 if before else 1):
        return int(found[1]), found[2]
    return None, text


def _unasked(told: _Told) -> Iterator[Refused]:
    if told.sentences and not told.asked:
        hint = "it goes up to an empty line, and needs a question, which ends in '?': Mary left. Where is Mary?"
        yield told.refused("the story has no question", hint)


def _given(text: str, place: str) -> Typed | Refused:
    """The question that an object is."""
    asked = question_in(text, Keys(), 0, place, answered=False)
    if isinstance(asked, Unread):
        return Refused(text, place, asked.problem)
    numbers = tuple(range(1, len(asked.story) + 1))
    return Typed(asked.story, asked.question, asked.answer or None, asked.facts, place, numbers, _as_object(asked))


def _as_object(asked: Asked) -> str:
    """One line for a question, as `_given` reads it."""
    facts = [fact + 1 for fact in asked.facts or ()]
    known = {"answer": asked.answer, "facts": facts}
    tree = {"story": asked.story, "question": asked.question, **{key: value for key, value in known.items() if value}}
    return json.dumps(tree, ensure_ascii=False)


def object_inputs(file: TextFile, keys: Keys) -> Iterator[FileInput]:
    """The questions of a .jsonl as they may be typed; they need no answer."""
    for line, text in enumerate(file.lines(), 1):
        if text.strip():
            asked = question_in(text, keys, line, where := file.where(line), answered=False)
            if isinstance(asked, Unread):
                yield FileInput("{}", where, asked.problem)  # an object, which no line before or after belongs to
            else:
                yield FileInput(_as_object(asked), where)


def _asked(told: _Told, question: str, known: Sequence[str], place: str) -> Typed | Refused:
    told.asked = True
    if not told.sentences:
        hint = "tell the story first: Mary went to the garden. Where is Mary?"
        return told.refused("there is no story before the question", hint)
    answer = known[0].strip() if known and known[0].strip() else None
    named = known[1].split() if len(known) > 1 else []
    wrong = [one for one in named if not one.isdecimal() or int(one) not in told.numbers]
    if wrong:
        return told.refused(f"the supporting fact {wrong[0]!r} is no sentence before the question")
    facts = tuple(told.numbers[int(one)] for one in named) or None
    return Typed(tuple(told.sentences), question.strip(), answer, facts, place, tuple(told.named))


def typed_in(text: str, place: str) -> Typed | Problem:
    """The last question of one text, or why it cannot be answered."""
    if not text.strip():
        return Problem(place, "the text is empty", "tell a story, then ask a question that ends in '?'")
    lines = text.split("\n")
    try:
        return problem_in_text(text, place) or all_questions(lines, [place] * len(lines))[-1]
    except DecodeError as error:
        return error.problems[0]


def all_questions(lines: Sequence[str], places: Sequence[str]) -> list[Typed]:
    """The questions among lines, of which there must be one."""
    asked = list(questions_in(zip(lines, places, strict=True)))
    if not asked:
        raise DecodeError("there is no question", where=places[-1], hint="tell a story, then end a question in '?'")
    return asked
