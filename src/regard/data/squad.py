"""Questions about texts, answered by a stretch of the text -> rows of text: SQuAD's JSON, JSON Lines, or our own texts.

Rajpurkar et al. 2016, arXiv:1606.05250 (SQuAD 1.1); Rajpurkar et al. 2018, arXiv:1806.03822 (2.0: some questions have
no answer); Lim et al. 2019, arXiv:1909.07005 (KorQuAD, the same format):

    {"data": [{"paragraphs": [{"context": "...", "qas": [
        {"id": "1", "question": "...", "answers": [{"text": "...", "answer_start": 17}], "is_impossible": false}]}]}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from regard.data.config import Corpus, HeldOut, Split, Splits, as_list
from regard.data.corpora import Part
from regard.data.formats import Row, objects_in, text_of, value_in
from regard.errors import DataError, Problem
from regard.text.files import TextFile
from regard.text.normalise import Clusters

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
"""A string of JSON; followed by a colon, it is a key."""
_EXPECTED = "expected is SQuAD's JSON: data, in it paragraphs, in them a context and qas"


class Answers(NamedTuple):
    """A question, the text it is about, and where its answers begin; none where the text has none."""

    line: int
    """Where it stands in a file of lines; its number in one of JSON."""
    id: str
    context: str
    question: str
    answers: tuple[tuple[int, str], ...]
    fault: Problem | None = None
    """Why it cannot be read, if so."""


class QuestionedText(Corpus):
    """Texts and questions about them."""

    file: str | None = None
    """A .json file in the format of SQuAD 1.1 or 2.0 (KorQuAD has it too), or .jsonl with a context, a question and its
    answers a line; plain or as .gz, .xz or .zst."""
    context: str = "context"
    """The key of the text in .jsonl."""
    question: str = "question"
    """The key of the question there."""
    answers: str = "answers"
    """The key of the answers there: a list of objects with `text` and `answer_start`, or of texts, or an object with a
    list of each, as the Hugging Face datasets have it. An empty list: the text does not answer the question. Without a
    start the first place where the text stands is taken."""
    corpus: Literal["portraits-en", "portraits-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Texts of the package about people, in English or Korean; a quarter of the questions has no answer."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        return {}

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The answers are a JSON list of places and texts."""
        return ("context", "question", "answers", "id")

    def files(self, base: Path) -> tuple[TextFile, ...]:
        return () if self.file is None else (TextFile(self.file, base / self.file),)

    def format(self, file: TextFile) -> str:
        suffix = file.suffixes[0]
        if suffix not in (".json", ".jsonl"):
            what = f"questions cannot be read from a {suffix or 'file without suffix'}"
            hint = ".json in the format of SQuAD; .jsonl: an object a line with context, question and answers"
            raise DataError(what, where=file.name, hint=hint)
        return "squad" if suffix == ".json" else "questions .jsonl"

    def place(self, file: TextFile, line: int) -> str:
        """Rows of SQuAD's JSON are numbered by question."""
        if file.suffixes[0] == ".jsonl":
            return file.where(line)
        return f"{_place(file, line, question_lines(file) if line else ())}: question {line}"

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        for number, (context, question, answer) in enumerate(super().built_in(part), 1):
            answers = [(context.index(answer), answer)] if answer else []
            yield context, question, json.dumps(answers, ensure_ascii=False), str(number)

    @model_validator(mode="after")
    def _file_or_corpus(self) -> QuestionedText:
        for name in ("header", "dataset", "prefix"):
            if getattr(self, name):
                raise ValueError(f"questions about texts have no {name!r}: give 'file' or 'corpus'")
        if self.file is None and self.corpus is None:
            raise ValueError("name the questions: 'file', a .json in the format of SQuAD or a .jsonl, or 'corpus'")
        return self


class QuestionData(Splits[QuestionedText]):
    """The questions of a run."""

    UNIT: ClassVar[str] = "questions"

    train: Annotated[list[QuestionedText], BeforeValidator(as_list)]
    """One corpus, or a list of them that are mixed by weight."""
    validation: HeldOut[QuestionedText] = Split(split=0.1)
    """Questions to choose the best checkpoint with. A share is drawn by whole texts."""
    test: HeldOut[QuestionedText] | None = None
    """Questions to measure with at the end."""
    max_characters: int = Field(1 << 20, ge=1)
    """A text longer than this is taken for a broken file."""
    max_length: int = Field(384, ge=16)
    """Most tokens that are read at once, question, text and special ones; a longer text is read in windows."""
    stride: int | None = Field(128, ge=1)
    """Tokens from the beginning of one window to that of the next; null is half a window."""
    max_question: int = Field(64, ge=1)
    """Tokens of a question that are read, and no more than half of max_length; the rest is left out."""


def squad_rows(file: TextFile, corpus: QuestionedText) -> Iterator[Row]:
    """SQuAD's JSON; a row's line is the number of its question."""
    return map(_row, squad_questions(file))


def question_rows(file: TextFile, corpus: QuestionedText) -> Iterator[Row]:
    """An object a line with context, question and answers."""
    return map(_row, _listed(file, corpus))


def _row(asked: Answers) -> Row:
    answers = json.dumps(asked.answers, ensure_ascii=False)
    return Row(asked.line, (asked.context, asked.question, answers, asked.id), asked.fault)


def answers_in(text: str) -> tuple[tuple[int, str], ...]:
    """The answers of a row."""
    return tuple((start, answer) for start, answer in json.loads(text))


# SQuAD's JSON


def squad_questions(file: TextFile) -> Iterator[Answers]:
    """The questions of a file, in their order."""
    lines: list[int] | None = None
    for number, (asked, told) in enumerate(_asked(file), 1):
        id = str(asked.get("id", number))
        try:
            question = told.asked(asked, "")
            answers = [] if asked.get("is_impossible") is True else value_in(asked, "answers", "")
            yield Answers(number, id, told.context, question, _checked(answers, told.context, told.clusters, ""))
        except DataError as error:
            lines = question_lines(file) if lines is None else lines
            where = f"{_place(file, number, lines)}: question {id!r}"
            yield Answers(number, id, "", "", (), replace(error.problems[0], where=where))


def squad_inputs(file: TextFile) -> Iterator[tuple[str, str, str, Problem | None]]:
    """The same to predict for, answered or not: question, context, where it stands, and why it cannot be read if so."""
    lines = question_lines(file)
    for number, (asked, told) in enumerate(_asked(file), 1):
        where = f"{_place(file, number, lines)}: question {number}"
        try:
            yield told.asked(asked, where), told.context, where, None
        except DataError as error:
            yield "", told.context, where, replace(error.problems[0], where=where)


def question_lines(file: TextFile) -> list[int]:
    """The line of each question of SQuAD's JSON, by a key that each of them has; nothing where there is none."""
    return _question_lines(file, file.path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _question_lines(file: TextFile, changed: int) -> list[int]:
    """The same; kept as long as the file does not change."""
    text, count = "\n".join(file.lines()), sum(1 for _ in _asked(file))
    places = {f'"{name}"': list[int]() for name in ("question", "id", "answers")}
    for found in _STRING.finditer(text):
        if found[1] and (name := found[0].removesuffix(found[1])) in places:
            places[name].append(found.start())
    keys = next((starts for starts in places.values() if len(starts) == count), None)
    if keys is None:
        return []
    lines = accumulate((text.count("\n", *part) for part in pairwise([0, *keys])), initial=1)
    return list(lines)[1:]


def _place(file: TextFile, number: int, lines: Sequence[int]) -> str:
    return file.where(lines[number - 1]) if 0 < number <= len(lines) else file.name


class _Paragraph(NamedTuple):
    """What is asked about, and its characters; or why it cannot be read."""

    context: str
    clusters: Clusters
    fault: DataError | None

    def asked(self, question: Mapping[str, Any], where: str) -> str:
        """The text of a question about it."""
        if self.fault is not None:
            raise self.fault
        return _text(question, "question", where)


def _asked(file: TextFile) -> Iterator[tuple[dict[str, Any], _Paragraph]]:
    """Each question of a file as it stands there, and what it is about."""
    number = 0
    for article, title in _items(_parsed(file), "data", file.name):
        for paragraph, place in _items(article, "paragraphs", title):
            context, fault = "", None
            try:
                context = _text(paragraph, "context", place)
            except DataError as error:
                if not paragraph.get("qas"):  # else each question has the fault, and others may be read
                    raise
                fault = error
            told = _Paragraph(context, Clusters(context), fault)
            for asked, _ in _items(paragraph, "qas", place):
                number += 1
                yield asked, told
    if number == 0:
        raise DataError("there is no question", where=file.name, hint=_EXPECTED)


def _parsed(file: TextFile) -> dict[str, Any]:
    try:
        tree = json.loads("\n".join(file.lines()))
    except (ValueError, RecursionError) as error:
        where = file.where(error.lineno) if isinstance(error, json.JSONDecodeError) else file.name
        raise DataError(f"not valid JSON: {error}", where=where, hint=_EXPECTED) from None
    if not isinstance(tree, dict):
        raise DataError("there is no object with the key 'data'", where=file.name, hint=_EXPECTED)
    return tree


def _items(tree: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects in a list, and what to call each."""
    items = tree.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DataError(f"there is no list of objects under {key!r}", where=where, hint=_EXPECTED)
    for number, item in enumerate(items):
        yield item, f"{where}: {key}[{number}]"


def _text(tree: Mapping[str, Any], key: str, where: str) -> str:
    return text_of(value_in(tree, key, where), key, where)


# JSON Lines


def _listed(file: TextFile, corpus: QuestionedText) -> Iterator[Answers]:
    for line, example in objects_in(file, [corpus.context, corpus.question, corpus.answers]):
        if isinstance(example, Problem):
            yield Answers(line, "", "", "", (), example)
        elif example is not None:
            yield _answered(example, corpus, line, file.where(line))


def _answered(example: dict[str, Any], corpus: QuestionedText, line: int, where: str) -> Answers:
    try:
        context, question = (_text(example, key, where) for key in (corpus.context, corpus.question))
        found = _checked(value_in(example, corpus.answers, where), context, Clusters(context), where)
    except DataError as error:
        return Answers(line, "", "", "", (), error.problems[0])
    return Answers(line, str(example.get("id", line)), context, question, found)


# Answers and their places


def _checked(answers: Any, context: str, clusters: Clusters, where: str) -> tuple[tuple[int, str], ...]:
    """The answers, each where it stands in the text and whole characters."""
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or (starts is not None and not isinstance(starts, list)):
            raise _not_answers(answers, where)
        starts = [None] * len(texts) if starts is None else starts
        if len(starts) != len(texts):
            raise DataError(f"there are {len(texts)} answers and {len(starts)} starts", where=where)
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(answers, list):
        raise _not_answers(answers, where)
    return tuple(_placed(answer, context, clusters, where) for answer in answers)


def _placed(answer: Any, context: str, clusters: Clusters, where: str) -> tuple[int, str]:
    if isinstance(answer, str):
        answer = {"text": answer}
    if not isinstance(answer, dict):
        raise _not_answers(answer, where)
    text, start = _text(answer, "text", where), answer.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise DataError(f"the start of the answer is {json.dumps(start)[:40]}", where=where, hint="a whole number")
    if not text.strip():
        hint = "leave it out: an empty list of answers says that there is none"
        raise DataError("an answer is empty", where=where, hint=hint)
    first = context.find(text)
    start = first if start is None else start
    if first < 0 or start < 0 or context[start : start + len(text)] != text:
        raise _misplaced(text, start, first, context, where)
    if not (clusters.cut_at(start) and clusters.cut_at(start + len(text))):
        seen = context[slice(*clusters.whole(start, start + len(text)))]
        what = f"the answer {text[:80]!r} at {start} cuts through a character of several code points"
        raise DataError(what, where=where, hint=f"the whole characters are {seen[:80]!r}")
    return start, text


def _not_answers(found: Any, where: str) -> DataError:
    hint = 'expected is a list such as [{"text": "1853", "answer_start": 154}]'
    return DataError(f"the answers are {json.dumps(found, default=str)[:80]}", where=where, hint=hint)


def _misplaced(text: str, start: int, first: int, context: str, where: str) -> DataError:
    """What is wrong with an answer that does not stand where it should."""
    said = f"the answer {text[:80]!r} does not stand at {start} of its context"
    if first < 0:
        return DataError(
            f"the answer {text[:80]!r} does not stand in its context", where=where, hint="copy it from there"
        )
    units = context.encode("utf-16-le")[2 * start :] if start >= 0 else b""
    if units.startswith(text.encode("utf-16-le")):
        hint = "the offset counts UTF-16 units, as Java and JavaScript do; characters (code points) are expected"
    else:
        hint = f"it stands at {first}: {context[max(0, first - 10) : first + len(text) + 10]!r}"
    return DataError(said, where=where, hint=hint)
