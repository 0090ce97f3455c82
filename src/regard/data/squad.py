"""Questions about texts, answered by a span of the text -> rows of text: SQuAD's JSON, JSON Lines,
or our own texts.

Rajpurkar et al. 2016, arXiv:1606.05250 (SQuAD 1.1); Rajpurkar et al. 2018, arXiv:1806.03822 (2.0:
some questions have no answer); Lim et al. 2019, arXiv:1909.07005 (KorQuAD, the same format):

    {"data": [{"paragraphs": [{"context": "...", "qas": [
        {"id": "1", "question": "...", "answers": [{"text": "...", "answer_start": 17}],
        "is_impossible": false}]}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from regard.data.config import OBJECTS
from regard.data.corpora import Part
from regard.data.example import Example
from regard.data.formats import (
    EXPECTED_JSON,
    NamedColumns,
    Object,
    Row,
    input_texts,
    is_array,
    json_values,
    object_rows,
    table_rows,
    text_of,
    value_in,
)
from regard.data.inputs import Inputs, has_column, is_table
from regard.data.labelled import LabelledSplits, OneFile
from regard.errors import DataError, Problem
from regard.text.files import TextFile
from regard.text.normalise import Clusters


class QuestionedText(OneFile):
    """Texts and questions about them."""

    ROW: ClassVar[tuple[str, ...]] = ("context", "question", "answers", "id")
    """The answers are a JSON list of places and texts."""
    EXAMPLES: ClassVar[str] = "questions"
    SUFFIXES: ClassVar[Mapping[str, str]] = {".json": "squad", ".jsonl": "questions"}
    ALLOWED: ClassVar[str] = (
        ".json in the format of SQuAD; .jsonl (an object a line) or .json (an array): context, "
        "question and answers"
    )

    file: str | None = None
    """A .json file in the format of SQuAD 1.1 or 2.0 (KorQuAD has it too), or .jsonl or a .json
    array: objects with a context, a question and its answers; plain or as .gz, .xz or .zst."""
    context: str = "context"
    """The key of the text in .jsonl."""
    question: str = "question"
    """The key of the question there."""
    answers: str = "answers"
    """The key of the answers there: a list of objects with `text` and `answer_start`, or of texts,
    or an object with a list of each, as the Hugging Face datasets have it. An empty list: the text
    does not answer the question. Without a start the first place where the text stands is taken."""
    corpus: Literal["portraits-en", "portraits-ko"] | None = None  # type: ignore[assignment]  # other corpora than those of pairs
    """Texts of the package about people, in English or Korean; a quarter of the questions has no
    answer."""

    def format(self, file: TextFile) -> str:
        return (
            "questions" if file.suffixes[0] == ".json" and is_array(file) else super().format(file)
        )

    def place(self, file: TextFile, line: int) -> str:
        """Rows of a .json are numbered by question."""
        return f"{file.name}: question {line}" if file.suffixes[0] == ".json" else file.row(line)

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        for number, (context, question, answer) in enumerate(super().built_in(part), 1):
            answers = [(context.index(answer), answer)] if answer else []
            yield context, question, json.dumps(answers, ensure_ascii=False), str(number)


class QuestionData(LabelledSplits[QuestionedText]):
    """The questions of a run."""

    UNIT: ClassVar[str] = "questions"

    max_characters: int = Field(1 << 20, ge=1)
    """A text longer than this is taken for a broken file."""
    max_length: int = Field(384, ge=16)
    """Most tokens that are read at once, question, text and special ones; a longer text is read in
    windows."""
    stride: int | None = Field(None, ge=1)
    """Tokens from the beginning of one window to that of the next. Default: half a window."""
    max_question: int = Field(64, ge=1)
    """Tokens of a question that are read, and no more than half of max_length; the rest is left
    out."""


def answers_in(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((start, answer) for start, answer in json.loads(text))


def squad_rows(file: TextFile, corpus: QuestionedText, *, answered: bool = True) -> Iterator[Row]:
    """The questions of SQuAD's JSON; a row's line is the number of its question. Inputs need not be
    `answered`.

    The file gets a note on ids that several questions have.
    """
    number = 0
    numbers = dict[str, int]()
    repeated = list[tuple[int, str]]()
    for paragraph, place in _paragraphs(file):
        context = ""
        fault = None
        try:
            context = _text(paragraph, "context", place)
        except DataError as error:
            if not paragraph.get("qas"):  # else each question has the fault, and others may be read
                raise
            fault = error
        clusters = Clusters(context)
        for question, _ in _items(paragraph, "qas", place):
            number += 1
            id = str(question.get("id", number))
            if numbers.setdefault(id, number) != number and "id" in question:
                repeated.append((number, id))
            try:
                if fault is not None:
                    raise fault
                text = _text(question, "question", "")
                answers = _answers_of(question, context, clusters) if answered else "[]"
                yield Row(number, (context, text, answers, id))
            except DataError as error:
                where = corpus.place(file, number) + (f" ({id!r})" if "id" in question else "")
                yield Row(number, ("", ""), replace(error.problems[0], where=where))
    if number == 0:
        raise DataError("there is no question", where=file.name, hint=EXPECTED_JSON)
    if repeated:
        (number, id), *_ = repeated
        file.notes.append(
            f"{corpus.place(file, number)} has the id {id!r} of question {numbers[id]:,} "
            f"({len(repeated):,} such): "
            "predictions by id, as SQuAD's, would have only one of them"
        )


def _answers_of(question: Object, context: str, clusters: Clusters) -> str:
    """The answers of a question of SQuAD and their places; none if it has none in its context."""
    if question.get("is_impossible") is True:
        return "[]"
    return _placed_answers(value_in(question, "answers", ""), context, clusters, "")


def question_rows(
    file: TextFile, corpus: QuestionedText, *, answered: bool = True
) -> Iterator[Row]:
    """The questions of objects. Inputs need not be `answered`; an empty line is then one, too."""
    keys = [corpus.context, corpus.question]

    def cells(example: Object, where: str) -> list[tuple[str, ...]]:
        context, question = (_text(example, key, where) for key in keys)
        if not answered:
            return [(context, question)]
        answers = _placed_answers(
            value_in(example, corpus.answers, where), context, Clusters(context), where
        )
        line = where.rpartition(":")[2].split()[-1]
        return [(context, question, answers, str(example.get("id", line)))]

    asked = [*keys, corpus.answers] if answered else keys
    return object_rows(file, asked, cells, blank_lines=not answered)


def _paragraphs(file: TextFile) -> Iterator[tuple[Object, str]]:
    """The paragraphs of SQuAD's JSON, and what messages call them."""
    for tree in json_values(file):
        if not isinstance(tree, dict):
            raise DataError(
                "there is no object with the key 'data'", where=file.name, hint=EXPECTED_JSON
            )
        for article, title in _items(tree, "data", file.name):
            yield from _items(article, "paragraphs", title)


def _items(tree: Object, key: str, where: str) -> Iterator[tuple[Object, str]]:
    """The objects in a list, and what to call each."""
    items = tree.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DataError(
            f"there is no list of objects under {key!r}", where=where, hint=EXPECTED_JSON
        )
    for number, item in enumerate(items):
        yield item, f"{where}: {key}[{number}]"


def _text(tree: Object, key: str, where: str) -> str:
    return text_of(value_in(tree, key, where), key, where)


def _placed_answers(answers: Any, context: str, clusters: Clusters, where: str) -> str:
    """The answers as JSON, each with its place in the context; they are whole characters of it."""
    if isinstance(answers, dict) and isinstance(answers.get("text"), list):
        texts = answers["text"]
        starts = answers.get("answer_start")
        starts = [None] * len(texts) if starts is None else starts
        if not isinstance(starts, list) or len(starts) != len(texts):
            what = f"there are {len(texts)} answers, and the starts are {json.dumps(starts)[:40]}"
            raise DataError(what, where=where, hint="a start for each")
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    bad = (
        [item for item in answers if not isinstance(item, dict | str)]
        if isinstance(answers, list)
        else [answers]
    )
    if bad:
        hint = 'expected is a list such as [{"text": "1853", "answer_start": 154}]'
        raise DataError(
            f"the answers are {json.dumps(bad[0], default=str)[:80]}", where=where, hint=hint
        )
    objects = ({"text": answer} if isinstance(answer, str) else answer for answer in answers)
    placed = [_placed(answer, context, clusters, where) for answer in objects]
    return json.dumps(placed, ensure_ascii=False)


def _placed(
    answer: dict[str, Any], context: str, clusters: Clusters, where: str
) -> tuple[int, str]:
    """Where an answer begins in the context, and its text."""
    text = _text(answer, "text", where)
    start = answer.get("answer_start")
    first = context.find(text)
    shown = f"the answer {text[:80]!r}"
    if start is not None and type(start) is not int:
        raise DataError(
            f"the start of the answer is {json.dumps(start)[:40]}",
            where=where,
            hint="a whole number",
        )
    if not text.strip():
        hint = "leave it out: an empty list of answers says that there is none"
        raise DataError("an answer is empty", where=where, hint=hint)
    if first < 0:
        raise DataError(f"{shown} is not in its context", where=where, hint="copy it from there")
    start = first if start is None else start
    if start < 0 or not context.startswith(text, start):
        hint = f"it is at {first}: {context[max(0, first - 10) : first + len(text) + 10]!r}"
        if start >= 0 and context.encode("utf-16-le")[2 * start :].startswith(
            text.encode("utf-16-le")
        ):
            hint = (
                "the offset counts UTF-16 units, as Java and JavaScript do; characters "
                "(code points) are expected"
            )
        raise DataError(f"{shown} is not at {start} of its context", where=where, hint=hint)
    if not (clusters.cut_at(start) and clusters.cut_at(start + len(text))):
        whole = context[slice(*clusters.whole(start, start + len(text)))]
        what = f"{shown} at {start} starts or ends inside a character of several code points"
        raise DataError(what, where=where, hint=f"the whole characters are {whole[:80]!r}")
    return start, text


@dataclass(frozen=True)
class QuestionInputs(Inputs):
    """A question and its text."""

    TABS = 1
    TYPED_OBJECTS = "rows"

    def rows(self, file: TextFile) -> Iterator[Example]:
        """The questions of SQuAD's JSON or of a table, each with its text. Else each line is one,
        also in a .tsv without these columns."""
        corpus = self.corpus_of([file.name])
        suffix = file.suffixes[0]
        if suffix == ".json" and corpus.format(file) == "squad":
            rows = squad_rows(file, corpus, answered=False)
        elif suffix in OBJECTS:
            rows = question_rows(file, corpus, answered=False)
        elif is_table(file) and (suffix != ".tsv" or has_column(file, corpus.question)):
            columns = NamedColumns.of(corpus.context, corpus.question)
            rows = table_rows(file, columns, answered=False)
        else:
            return (self.typed(text, file.where(line)) for line, text in enumerate(file.lines(), 1))
        return (
            self.of_texts(row.values[1::-1], corpus.place(file, row.line), row.fault)
            for row in rows
        )

    def read_object(self, values: Object, place: str) -> Example:
        corpus = self.corpus_of([""])
        keys = [corpus.question, corpus.context] if corpus.question in values else [*self.names]
        return self.of_texts(input_texts(values, keys, place), place)

    def wrong_number(self, given: Example) -> Problem | None:
        texts = given.texts
        if len(texts) == 2:
            return None
        what = f"a question and one text are expected, not {len(texts)} texts"
        if len(texts) == 1:
            what = "there is a question, but no text that it is about"
        hint = 'question, tab, text; or {"question": "...", "context": "..."}'
        return Problem(given.place, what, hint)

    def corpus_of(self, files: Sequence[str]) -> QuestionedText:
        return QuestionedText.of_files(files, self.corpora)
