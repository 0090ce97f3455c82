"""Stories with questions -> rows of text: the format of the bAbI tasks, JSON Lines, or stories of
the package.

The format of bAbI (Weston et al. 2015, arXiv:1502.05698): numbered lines, 1 begins a new story; a
question is followed by a tab, its answer, a tab and the numbers of the lines that it rests on.

    1 Mary moved to the bathroom.
    2 Where is Mary?	bathroom	1
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from itertools import chain
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import OBJECTS, BadLines, as_list
from regard.data.corpora import Part, generate
from regard.data.example import Example
from regard.data.formats import (
    Object,
    Row,
    object_in,
    object_rows,
    read_objects,
    text_of,
    value_in,
)
from regard.data.inputs import Inputs
from regard.data.labelled import LabelledSplits, OneFile
from regard.errors import DataError, DecodeError, Problem
from regard.text.files import TextFile, matching
from regard.text.normalise import fold_white_space, natural, split_sentences

# sentences of a story that are kept for a question: the last ones, as many as the largest memory
# holds
MAX_SENTENCES = 1000
OPENING_SENTENCES = 20  # sentences of a story that tell it from others
UNKNOWN = "-"  # stands for supporting facts that are not given
NUMBERED = re.compile(r"\s*(\d{1,9})\s+(\S.*)")  # a line of bAbI's: its number, and what it says
QUESTION_MARKS = ("?", "？")
_EXAMPLE = "3 Where is Mary?\tbathroom\t1"
_ONE_WORD = "an answer is one word; several go with commas and no spaces: apple,milk"


class Stories(OneFile):
    """Stories with questions about them; each file is a task of its own, whose error is measured
    apart."""

    NOT_COLUMNS: ClassVar[frozenset[str]] = frozenset({"about"})
    ROW: ClassVar[tuple[str, ...]] = (
        "opening",
        "story",
        "question",
        "answer",
        "facts",
        "sentences",
        "task",
    )
    """How the story begins, its sentences one a line, how many these were before only the last were
    kept, and the name of the task (each file is one)."""
    EXAMPLES: ClassVar[str] = "stories"
    SUFFIXES: ClassVar[Mapping[str, str]] = {".txt": "babi", **dict.fromkeys(OBJECTS, "stories")}
    ALLOWED: ClassVar[str] = (
        ".txt: bAbI's numbered lines; .jsonl (an object a line) or .json (an array): story, "
        "question and answer"
    )

    file: str | None = None
    """A file of bAbI's numbered lines (.txt), or .jsonl or .json: objects with a story, a question
    and an answer; plain or as .gz, .xz or .zst. A pattern such as `babi/*_train.txt` names several
    files: a task each."""
    story: str = "story"
    """The key of the story in .jsonl: a text, or a list of sentences."""
    question: str = "question"
    """The key of the question there."""
    answer: str = "answer"
    """The key of the answer there: one word, or several with commas and no spaces between them."""
    facts: str = "facts"
    """The key of the supporting facts there, which need not be: the numbers, from 1, of the
    sentences."""
    corpus: Literal["stories-en", "stories-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Stories of the package, in English or Korean: who is where, who has what."""
    about: Literal["where", "things", "who", "count", "yes_no"] | None = None
    """What the questions of these are about: where someone is, where a thing is, who has it, how
    many things someone has, or whether someone is somewhere. Default: all five."""

    def files(self, base: Path, within: Path | None = None) -> tuple[TextFile, ...]:
        name = self.file
        if name is None or not has_magic(name):
            return super().files(base, within)
        files = sorted(
            matching(name, base, within), key=lambda file: natural(PurePath(file.name).name)
        )
        if not files:
            raise DataError(
                "no file has a name of this pattern",
                where=name,
                hint="for example babi/*_train.txt",
            )
        return tuple(files)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "file": self.file}  # which names the tasks

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        assert self.corpus is not None
        task = f"{self.corpus}:{self.about}" if self.about else self.corpus
        for cells in generate(self.corpus, self.size, self.seed, part, about=self.about):
            yield (*cells, str(cells[1].count("\n") + 1), task)

    @model_validator(mode="after")
    def _about_needs_a_corpus(self) -> Stories:
        if self.about is not None and self.corpus is None:
            raise ValueError("'about' needs 'corpus: stories-en' or 'stories-ko' beside it")
        return self


class StoryData(LabelledSplits[Stories]):
    """The stories of a run."""

    UNIT: ClassVar[str] = "questions"

    train: Annotated[list[Stories], BeforeValidator(as_list), Field(min_length=1)]
    """One corpus, or a list of them that are mixed by weight."""
    max_characters: int = Field(1 << 20, ge=1)
    """A story longer than this is taken for a broken file."""
    bad_lines: BadLines = "auto"
    """What to do with questions that cannot be read or have no answer, and with stories that have
    no question. `drop`: drop and count them. `error`: stop and name them. `auto`: drop and count
    them if they are at most 1 % of a split's questions, else stop and name them. After a line that
    cannot be read, no question about its story can."""


@dataclass(frozen=True)
class Question:
    """A question about the sentences before it."""

    story: tuple[str, ...]
    question: str
    answer: str | None
    facts: tuple[int, ...] | None
    """The numbers, from 0, of the sentences that the answer rests on; None where that is not
    given."""
    place: str
    numbers: tuple[
        int, ...
    ] = ()  # what the user calls each sentence: the number of its line, or its own, both from 1
    is_object: bool = False  # whether it was given as a JSON object

    @classmethod
    def of(cls, example: Example) -> Question:
        """The question that an example asks."""
        story = example.several("story")
        [question] = example.several("question")
        facts = tuple(int(fact) for fact in "".join(example.several("facts")).split())
        answer = "".join(example.several("answer")) or None
        return cls(
            story,
            question,
            answer,
            facts or None,
            example.place,
            tuple(range(1, len(story) + 1)),
            is_object=example.text.startswith("{"),
        )

    @property
    def example(self) -> Example:
        columns: dict[str, str | tuple[str, ...]] = {
            "story": self.story,
            "question": self.question,
            "answer": self.answer or "",
            "facts": " ".join(map(str, self.facts or ())),
        }
        return Example(columns, self.place, typed=self.text)

    @property
    def text(self) -> str:
        """The question as it may be typed again: an object, or a sentence per line, the question
        last."""
        facts = [fact + 1 for fact in self.facts or ()]
        if self.is_object:
            tree = {
                "story": self.story,
                "question": self.question,
                "answer": self.answer,
                "facts": facts,
            }
            return json.dumps(
                {key: value for key, value in tree.items() if value}, ensure_ascii=False
            )
        answer = "" if self.answer is None else f"\t{self.answer}\t{' '.join(map(str, facts))}"
        return "\n".join([*self.story, self.question + answer])

    def cells(self, opening: str, task: str) -> tuple[str, ...]:
        """A row, with the last sentences of the story, and the facts that are among them."""
        gone = max(0, len(self.story) - MAX_SENTENCES)
        facts = " ".join(str(fact - gone) for fact in self.facts or () if fact >= gone) or UNKNOWN
        kept = "\n".join(self.story[gone:])
        answer = self.answer or ""
        return opening, kept, self.question, answer, facts, str(len(self.story)), task


@dataclass
class _Story:
    """A story so far, from a file or as it is typed."""

    line: int = 0  # where it begins in a file
    place: str = ""
    sentences: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """What each sentence is called: the number of its line, or its own."""
    last: int = 0  # the number of the line before, where lines are numbered
    has_question: bool = False
    opening: str = ""
    # of a line in a file: what is asked after it is not about the story that was meant
    fault: Problem | None = None
    typed: list[str] = field(default_factory=list)  # the lines as they were typed

    def add(self, sentence: str, number: int | None = None) -> None:
        self.sentences.append(sentence)
        self.numbers.append(number or len(self.sentences))

    def question(self, text: str, answer: str, facts: str, where: str) -> Question:
        """A question about the story so far; `facts` has the sentences that the answer rests on, as
        they are called."""
        places = {number: place for place, number in enumerate(self.numbers)}
        for name in facts.split():
            if not name.isdecimal() or int(name) not in places:
                hint = (
                    "the sentences before the question are numbered "
                    f"{', '.join(map(str, [*places][-10:]))}"
                )
                what = f"the supporting fact {name!r} is not the number of an earlier sentence"
                raise DataError(what, where=where, hint=hint)
        known = tuple(places[int(name)] for name in facts.split()) or None
        return Question(
            tuple(self.sentences), text, answer.strip() or None, known, where, tuple(self.numbers)
        )

    @classmethod
    def before(cls, question: Question) -> _Story:
        """The story of a question that was given whole; others may be asked about it."""
        return cls(
            sentences=[*question.story],
            numbers=[*question.numbers],
            has_question=True,
            typed=[*question.story],
        )

    def is_ended_by(self, line: str) -> bool:
        """Whether a typed line begins a new story."""
        return self.numbered(line)[0] == 1 or not line.strip() or "\n" in line.strip()

    def numbered(self, line: str) -> tuple[int | None, str]:
        """The number of a typed line, and what it says. Other numbers are part of the text."""
        numbered = NUMBERED.fullmatch(line)
        if numbered and int(numbered[1]) in (1, self.last + 1 if self.last else 1):
            return int(numbered[1]), numbered[2]
        return None, line

    def told(self, line: str, example: Example) -> Iterator[Question | Example]:
        """Add the sentences of a typed line; the questions among them."""
        number, content = self.numbered(line)
        self.last = number or 0
        self.place = example.place
        self.typed.append(example.text)
        content, *answer = content.split("\t")
        sentences = split_sentences(fold_white_space(content))
        for left, sentence in zip(range(len(sentences))[::-1], sentences, strict=True):
            if sentence.endswith(QUESTION_MARKS) or (answer and not left):
                yield self.asked(sentence, [] if left else answer)
            else:
                self.add(sentence, number)

    def asked(self, question: str, given: Sequence[str]) -> Question | Example:
        """A typed question, with its answer and its facts if they are `given`."""
        self.has_question = True
        if not self.sentences:
            hint = "tell the story first: Mary went to the garden. Where is Mary?"
            return self.refused("there is no story before the question", hint)
        answer, facts, *_ = (*given, "", "")
        try:
            return self.question(question.strip(), answer, facts, self.place)
        except DataError as error:
            return self.refused(error.problems[0].what)

    def unasked(self) -> Iterator[Example]:
        if self.sentences and not self.has_question:
            hint = (
                "it goes up to an empty line, and needs a question, which ends in '?': Mary "
                "left. Where is Mary?"
            )
            yield self.refused("the story has no question", hint)

    def refused(self, what: str, hint: str = "") -> Example:
        fault = Problem(self.place, what, hint)
        return Example({}, self.place, fault, typed="\n".join(self.typed))


# Files


def babi_rows(file: TextFile, corpus: Stories) -> Iterator[Row]:
    """The questions in bAbI's numbered lines. A story without a question is a fault, too."""
    story = _Story(has_question=True)
    for line, text in enumerate(file.lines(), 1):
        if not text.strip():
            continue
        where = file.where(line)
        numbered = NUMBERED.fullmatch(text)
        number, content = (int(numbered[1]), numbered[2]) if numbered else (0, text)
        if number == 1:
            yield from _unasked_row(story)
            story = _Story(line, where)
        if story.fault is None and number != story.last + 1:
            story.has_question = False
            if numbered:
                hint = "lines of a story are numbered one by one, and 1 begins a new story"
                story.fault = Problem(where, f"line number {number} follows {story.last}", hint)
            else:
                hint = "expected is bAbI's format: 1 Mary moved to the bathroom."
                story.fault = Problem(
                    where, "the line does not begin with a number and a text", hint
                )
        story.last = number
        if not ("\t" in content or content.rstrip().endswith(QUESTION_MARKS)):
            story.add(fold_white_space(content), number)
            continue
        story.has_question = True
        story.opening = story.opening or "\n".join(story.sentences[:OPENING_SENTENCES])
        try:
            DataError.raise_if([story.fault])
            yield Row(
                line, _babi_question(content, story, where).cells(story.opening, _task_of(file))
            )
        except DataError as error:
            yield Row(line, (), error.problems[0])
    yield from _unasked_row(story)


def _unasked_row(story: _Story) -> Iterator[Row]:
    if not story.has_question:
        none = Problem(story.place, "the story has no question", f"a question line: {_EXAMPLE}")
        yield Row(story.line, (), story.fault or none)


def _babi_question(content: str, story: _Story, where: str) -> Question:
    """A question line after its number: question, answer, and the lines that it rests on, tabs
    between."""
    fields = [part.strip() for part in content.split("\t")]
    if len(fields) == 1:
        hint = f"a tab and the answer follow a question: {_EXAMPLE}"
        raise DataError("the question has no answer", where=where, hint=hint)
    if not story.sentences:
        raise DataError(
            "there is no sentence before the question", where=where, hint="tell the story first"
        )
    if len(fields) > 3 or not fields[0]:
        hint = (
            "expected are a question, its answer and the numbers of its facts, with a tab "
            "between each two"
        )
        raise DataError(f"the question line has {len(fields)} fields", where=where, hint=hint)
    _check_one_word(fields[1], where)
    return story.question(fold_white_space(fields[0]), fields[1], "".join(fields[2:]), where)


def _check_one_word(answer: str, where: str) -> None:
    if not answer:
        raise DataError(
            "the question has no answer", where=where, hint="a word is expected after the question"
        )
    if len(answer.split()) > 1:
        raise DataError(
            f"the answer {answer!r} has {len(answer.split())} words", where=where, hint=_ONE_WORD
        )


def _task_of(file: TextFile) -> str:
    """The name of a file without `_train` and suffixes: each file is a task."""
    name = PurePath(file.name).name.partition(".")[0]
    return re.sub(r"[._-](train|training|valid|validation|dev|test)$", "", name)


def story_rows(file: TextFile, corpus: Stories) -> Iterator[Row]:
    def cells(example: Object, where: str) -> list[tuple[str, ...]]:
        question = object_question(example, where, corpus, answered=True)
        return [question.cells("\n".join(question.story[:OPENING_SENTENCES]), _task_of(file))]

    return object_rows(file, [corpus.story, corpus.question], cells)


def object_question(
    example: Object, where: str, keys: Stories, *, answered: bool = False
) -> Question:
    """The question that an object is, by the keys of a corpus; unless it must be `answered`, it
    need have no answer."""
    story = _sentences(value_in(example, keys.story, where), keys.story, where)
    question = fold_white_space(
        text_of(value_in(example, keys.question, where), keys.question, where)
    )
    if not story or not question:
        what = f"the {'question' if story else 'story'} is empty"
        raise DataError(what, where=where, hint="fill it, or drop the line")
    answer = ""
    if answered or example.get(keys.answer) is not None:
        value = value_in(example, keys.answer, where)
        answer = text_of(value, keys.answer, where, number=True, hint=_ONE_WORD).strip()
    facts = [] if example.get(keys.facts) is None else example[keys.facts]
    if not isinstance(facts, list) or not all(
        type(fact) is int and 1 <= fact <= len(story) for fact in facts
    ):
        hint = f"a list of numbers of sentences, from 1 to {len(story)}"
        raise DataError(f"the facts are {json.dumps(facts)[:80]}", where=where, hint=hint)
    if answered:
        _check_one_word(answer, where)
    places = tuple(fact - 1 for fact in facts)
    numbers = tuple(range(1, len(story) + 1))
    return Question(
        tuple(story), question, answer or None, places or None, where, numbers, is_object=True
    )


def _sentences(value: Any, key: str, where: str) -> list[str]:
    if not isinstance(value, list):
        return split_sentences(fold_white_space(text_of(value, key, where)))
    sentences = [fold_white_space(text_of(sentence, key, where)) for sentence in value]
    if "" in sentences:
        hint = "leave it out; the numbers of the facts count the sentences that are left"
        raise DataError(
            f"sentence {sentences.index('') + 1} of the story is empty", where=where, hint=hint
        )
    return sentences


# What a user gives


@dataclass(frozen=True)
class StoryInputs(Inputs):
    """Questions about stories. What is typed are lines of either: examples with a column `line`,
    which `gathered` makes into questions, each with its story."""

    @property
    def takes_tuples(self) -> bool:
        return False

    def by_column(self, texts: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
        return {"line": texts[0]}

    def of_value(self, value: object, place: str) -> Example:
        """Tabs in a text of a program are blanks: none is before an answer."""
        if isinstance(value, str) and not _is_object(value):
            return Example({"line": value.replace("\t", " ")}, place, typed=value)
        return super().of_value(value, place)

    def read_object(self, values: Object, place: str) -> Example:
        corpus = self.corpus_of([""])
        keys = corpus if corpus.story in values else Stories.model_construct()
        return object_question(values, place, keys).example

    def rows(self, file: TextFile) -> Iterator[Example]:
        """The questions of objects, which need no answer; or the lines of a story."""
        if file.suffixes[0] not in OBJECTS:
            return self.lines(file)
        return self._in_objects(file, self.corpus_of([file.name]))

    def _in_objects(self, file: TextFile, corpus: Stories) -> Iterator[Example]:
        keys = [corpus.story, corpus.question]
        for line, question in read_objects(file, keys, partial(object_question, keys=corpus)):
            if isinstance(question, Problem):
                yield Example({}, file.row(line), question, typed="{}")
            elif question is not None:
                yield question.example

    def story(self, file: str | Path, *, skip_bad: bool = False) -> list[Example]:
        return list(self.in_file(file, skip_bad=skip_bad))

    def gathered(
        self, examples: Iterable[Example], story: Sequence[Example] = ()
    ) -> Iterator[Example]:
        """Lines of stories and questions -> an example for each question, with the story before it.

        A story's own questions are left out if there are others about it. What cannot be answered
        has a fault.
        """
        lines = iter(examples)
        first = next(lines, None)
        before, asked = ([], story) if first is None else (story, [first])
        lines_read = 0
        has_question = False

        def read_lines() -> Iterator[Example]:
            nonlocal lines_read
            for line in chain(before, asked, lines):
                lines_read += 1
                yield line

        for question in questions_among(read_lines()):
            if isinstance(question, Question) and lines_read <= len(before):
                continue
            yield question.example if isinstance(question, Question) else question
            has_question = True
        if not has_question:
            where = asked[0].place if asked else "--story"
            raise DecodeError("there is no question", where=where, hint="a question ends in '?'")

    def corpus_of(self, files: Sequence[str]) -> Stories:
        """A file, or a pattern of files: a task each."""
        return Stories.of_files(
            files, self.corpora, hint="one, or a pattern in quotes such as 'babi/*_test.txt'"
        )


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{")


def questions_among(lines: Iterable[Example]) -> Iterator[Question | Example]:
    """The questions among lines, and the stories and questions that cannot be answered, as examples
    with a fault.

    Sentences are remembered; what ends in `?` is asked about all that was told so far. An empty
    line, or one that is numbered 1 as in the files of bAbI, begins a new story, as does a text of
    several lines. A question may be followed by a tab and its answer, and by another tab and the
    numbers of its supporting facts. A line may also be a JSON object with story and question.
    """
    story = _Story()
    for example in lines:
        line = None if example.fault else example.columns.get("line")
        if isinstance(line, str) and not _is_object(line):
            if story.is_ended_by(line):
                yield from story.unasked()
                story = _Story()
            yield from story.told(line, example)
            continue
        yield from story.unasked()
        story = _Story()
        asked = example if not isinstance(line, str) else _typed_object(line, example.place)
        if asked.fault is None:
            question = Question.of(asked)
            story = _Story.before(question)
            yield question
        else:
            yield asked
    yield from story.unasked()


def _typed_object(line: str, place: str) -> Example:
    """The question that a line asks as a JSON object, or an example with the reason that it cannot
    be read."""
    try:
        values = object_in(line, place, ["story", "question"])
        return object_question(values, place, Stories.model_construct()).example
    except DataError as error:
        return Example({}, place, error.problems[0], typed=line)


def questions_in(lines: Sequence[Example]) -> list[Question]:
    """The questions among lines; an error if one cannot be answered, or there is none."""
    questions = list[Question]()
    for question in questions_among(lines):
        if isinstance(question, Example):
            raise DecodeError(problems=[question.fault] if question.fault else [])
        questions.append(question)
    if not questions:
        raise DecodeError(
            "there is no question",
            where=lines[-1].place,
            hint="tell a story, then end a question in '?'",
        )
    return questions
