"""Questions and texts -> rows of tokens, with the first and last token of the answer to find."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import LabelledBatch
from regard.data.dataset import Examples
from regard.data.framing import Framed, Framing, padded_rows, windows
from regard.data.prepare import Prepared
from regard.data.readers import without_faults
from regard.data.report import ColumnReport, Histogram, Report
from regard.data.squad import QuestionData, QuestionReader, answers_in
from regard.data.store import Integers, TokenColumn
from regard.data.texts import Progress, Texts, prepare_texts
from regard.errors import DataError, first_of
from regard.text.offsets import Span, token_spans, trimmed
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers, train_tokenizers

ENCODED = 1024
"""Texts that are tokenised at once."""


class Window(NamedTuple):
    """A row that holds a question and a part of its text."""

    row: Framed
    first: int
    """The place in the row of the part's first token."""
    start: int
    """The number of that token in the text."""
    stop: int
    """The number of the token after the part."""
    silent: int
    """The place in the row that stands for no answer."""


@dataclass(frozen=True)
class Asking:
    """How a question and its text become rows: the question is read whole in each, the text through windows."""

    framing: Framing
    max_question: int
    last: bool = False
    """Which token stands for no answer: the last one, GPT's extract token, for a model that has read all only there;
    else the first."""

    @property
    def longest_question(self) -> int:
        """Tokens of a question that are read: at least half of the room is the text's."""
        return min(self.max_question, (self.framing.longest - 3) // 2)

    def windows(self, question: Sequence[int], context: Sequence[int]) -> list[Window]:
        question = question[: self.longest_question]
        room = self.framing.longest - 3 - len(question)
        found = []
        for start, stop in windows(len(context), room, self.framing.stride):
            row = self.framing.frame(question, context[start:stop])
            found.append(Window(row, len(question) + 2, start, stop, len(row.ids) - 1 if self.last else 0))
        return found


@dataclass(frozen=True, eq=False)
class SpannedTexts:
    """Texts as tokens and the characters that these stand for; a text that many questions are about is held once."""

    texts: tuple[str, ...]
    ids: TokenColumn
    starts: TokenColumn
    ends: TokenColumn

    @classmethod
    def of(cls, texts: Sequence[str], framing: Framing) -> SpannedTexts:
        ids, starts, ends = list[list[int]](), list[list[int]](), list[list[int]]()
        for first in range(0, len(texts), ENCODED):
            for row, spans in token_spans(framing.tokenizer, texts[first : first + ENCODED]):
                ids.append(row)
                starts.append([span.start for span in spans])
                ends.append([span.end for span in spans])
        return cls(tuple(texts), TokenColumn.of(ids), TokenColumn.of(starts), TokenColumn.of(ends))

    def tokens_of(self, number: int, answer: Span) -> tuple[int, int] | None:
        """The first and the last token that have a part in some characters; None where no token has."""
        starts, ends = self.starts[number], self.ends[number]
        inside = np.flatnonzero((starts < answer.end) & (ends > answer.start) & (starts < ends))
        return (int(inside[0]), int(inside[-1])) if len(inside) else None

    def span(self, number: int, first: int, last: int) -> Span:
        """The characters from one token to another."""
        return Span(int(self.starts[number][first]), int(self.ends[number][last]))

    def seen(self, number: int) -> NDArray[np.bool_]:
        """The tokens that stand for more than white space: an answer begins and ends with such."""
        seen: NDArray[np.bool_] = self.starts[number] < self.ends[number]
        return seen


@dataclass(frozen=True, eq=False)
class QuestionExamples(Examples):
    """Questions about texts."""

    texts: SpannedTexts
    numbers: Integers
    """The text that each question is about."""
    questions: Sequence[str]
    question_ids: TokenColumn
    answers: Sequence[str]
    """Each a JSON list of places and texts."""
    names: Sequence[str]
    """The ids of the questions."""
    asking: Asking
    corpora: Integers
    weights: tuple[float, ...]
    place: Callable[[int], str]

    def where(self, example: int) -> str:
        return self.place(example)

    def expected(self, example: int) -> list[str]:
        """The answers that people gave."""
        return [text for _, text in answers_in(self.answers[example])]

    def windows(self, example: int) -> list[Window]:
        framing, number = self.asking.framing, int(self.numbers[example])
        question = framing.spelled(self.question_ids[example].tolist(), self.questions, example)
        context = framing.spelled(self.texts.ids[number].tolist(), self.texts.texts, number)
        return self.asking.windows(question, context)

    def answer_tokens(self, example: int) -> tuple[int, int] | None:
        """The first and last token of the first answer, as numbers in the text; None where there is no answer."""
        number = int(self.numbers[example])
        for start, text in answers_in(self.answers[example])[:1]:
            return self.texts.tokens_of(number, trimmed(self.texts.texts[number], start, start + len(text)))
        return None

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """All rows of a question together."""
        framing = self.asking.framing
        asked = np.minimum(self.question_ids.lengths, self.asking.longest_question)
        pairs = zip(asked.tolist(), self.texts.ids.lengths[self.numbers].tolist(), strict=True)
        return np.array([_positions(framing, *pair) for pair in pairs], dtype=np.int32)

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> LabelledBatch:
        """Nothing is drawn. A row without the whole answer has it where no answer stands."""
        windows, labels = list[list[Window]](), list[tuple[int, int]]()
        for example in examples.tolist():
            windows.append(self.windows(example))
            labels += [places_of(window, self.answer_tokens(example)) for window in windows[-1]]
        return question_batch(windows, labels, self.asking.framing.tokenizer.pad, tuple(examples.tolist()))

    def frequencies(self) -> NDArray[np.int64]:
        """How many questions have no answer, and how many have one."""
        answered = np.array([bool(answers_in(text)) for text in self.answers])
        return np.bincount(answered, minlength=2)

    def pieces(self, example: int) -> dict[str, list[str]]:
        tokenizer, number, found = (
            self.asking.framing.tokenizer,
            int(self.numbers[example]),
            self.answer_tokens(example),
        )
        context = self.texts.ids[number].tolist()
        return {
            "question": tokenizer.pieces(self.question_ids[example].tolist()),
            "context": tokenizer.pieces(context),
            "answer": [] if found is None else tokenizer.pieces(context[found[0] : found[1] + 1]),
        }

    def fingerprint(self) -> int:
        return zlib.crc32("\n".join(self.answers).encode(), zlib.crc32(self.lengths.tobytes()))


def _positions(framing: Framing, question: int, context: int) -> int:
    parts = windows(context, framing.longest - 3 - question, framing.stride)
    return sum(question + 3 + stop - start for start, stop in parts)


def places_of(window: Window, answer: tuple[int, int] | None) -> tuple[int, int]:
    """Where the answer begins and ends in a row: where no answer stands, if the row does not hold all of it."""
    if answer is None or answer[0] < window.start or answer[1] >= window.stop:
        return window.silent, window.silent
    return answer[0] - window.start + window.first, answer[1] - window.start + window.first


def question_batch(
    windows: Sequence[Sequence[Window]],
    labels: Sequence[tuple[int, int]],
    pad: int,
    examples: tuple[int, ...] = (),
) -> LabelledBatch:
    """The rows of some questions as tensors; `labels` has two places for each row."""
    text, segments_BL = padded_rows([window.row for one in windows for window in one], pad)
    owners_B = torch.repeat_interleave(torch.tensor([len(one) for one in windows]))
    return LabelledBatch(text, segments_BL, owners_B, torch.tensor(labels), examples, len(labels))


def question_examples(
    columns: Sequence[Sequence[str]],
    asking: Asking,
    place: Callable[[int], str],
    *,
    corpora: Integers | None = None,
    weights: tuple[float, ...] = (1.0,),
) -> QuestionExamples:
    """Questions that are ready for batches, from the columns of a reader: texts, questions, answers and ids."""
    contexts, questions, answers, names = columns
    numbers: dict[str, int] = {}
    about = np.array([numbers.setdefault(context, len(numbers)) for context in contexts])
    encoded = TokenColumn.of(asking.framing.tokenizer.encode_batch(list(questions)))
    texts = SpannedTexts.of(list(numbers), asking.framing)
    corpora = np.zeros(len(about), dtype=np.int16) if corpora is None else corpora
    return QuestionExamples(
        texts, about, list(questions), encoded, list(answers), list(names), asking, corpora, weights, place
    )


def prepare_questions(
    data: QuestionData,
    config: TokenizerConfig,
    asking: Callable[[Tokenizer], Asking],
    *,
    base: Path,
    seed: int,
    tokenizers: Tokenizers | None = None,
    progress: Progress | None = None,
) -> Prepared[QuestionExamples]:
    """Read, check and split the questions, by the texts that they are about."""
    found = prepare_texts(data, base=base, seed=seed, progress=progress or (lambda step, done: None))
    if tokenizers is None:
        train = found.splits["train"].columns
        lines = [*dict.fromkeys(train["context"]), *train["question"]]
        tokenizers = train_tokenizers(config, {"text": lines}, base)
    splits = {name: _examples(texts, asking(tokenizers["text"])) for name, texts in found.splits.items()}
    reports = {name: replace(found.report[name], columns=_columns(splits[name])) for name in found.splits}
    report = Report(reports, {"over_long_line": data.max_characters}, data.UNIT)
    return Prepared(splits["train"], splits["validation"], splits.get("test"), tokenizers, report)


def read_questions(readers: Sequence[QuestionReader], data: QuestionData, asking: Asking) -> QuestionExamples:
    """Corpora as they are, to measure a run on."""
    rows, faults = without_faults(readers)
    if faults and (data.bad_lines == "error" or not rows):
        raise DataError(problems=first_of(faults))
    columns = list(zip(*(row.values for _, row in rows), strict=True))
    return question_examples(columns, asking, lambda row: rows[row][0].where(rows[row][1].line))


def _examples(texts: Texts, asking: Asking) -> QuestionExamples:
    columns = [list(texts.columns[name]) for name in ("context", "question", "answers", "id")]
    weights = tuple(reader.corpus.weight for reader in texts.readers)
    return question_examples(columns, asking, texts.where, corpora=texts.corpora[texts.rows], weights=weights)


def _columns(examples: QuestionExamples) -> dict[str, ColumnReport]:
    """The tokens of the texts, each once, and of the questions."""
    tokenizer = examples.asking.framing.tokenizer
    found = {}
    for name, column in (("context", examples.texts.ids), ("question", examples.question_ids)):
        tokens = int(column.lengths.sum())
        unknown = int(column.counts(tokenizer.size)[tokenizer.unk]) / max(tokens, 1)
        found[name] = ColumnReport(tokens, unknown, Histogram.of(column.lengths))
    return found
