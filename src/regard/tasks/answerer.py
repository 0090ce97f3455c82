"""Questions answered with a stretch of a text: the best over all windows of the text, or that there is none.

Devlin et al. 2019, arXiv:1810.04805, sections 4.2 and 4.3, with S and E the head's two rows, T the tokens' vectors:

    s_ij   = S . T_i + E . T_j, i <= j                     the score of the answer from token i to token j
    s_null = S . C + E . C                                 that there is none, from the first token C
    answer i to j with the highest s_ij, unless s_null > s_ij + threshold

A language model reads question and text from left to right, in the order of GPT's figure 1 (Radford et al. 2018). So
T_i knows the question and the text up to token i, but not how an answer that begins there goes on: only E . T_j does.
That there is no answer can be known at the last token alone, so C is that one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from regard.config import Config
from regard.data.file_inputs import FileInput, has_columns, is_table, table_rows
from regard.data.questions import Asking, SpannedTexts, Window, question_batch
from regard.data.rows import Key
from regard.data.squad import QuestionedText, squad_inputs
from regard.errors import Problem
from regard.models.base import device_of
from regard.models.headed import Headed
from regard.objectives.labels import span_logits
from regard.tasks.answer_scores import Script
from regard.tasks.inputs import by_length
from regard.text.files import TextFile
from regard.text.offsets import Span

READ_TOKENS = 8_192
"""Padded tokens that are read at once."""
Logits = NDArray[np.float32]


class AnswerEvaluation(Config):
    """How answers are chosen and compared."""

    script: Script = "squad"
    """Whose rules compare answers: `squad` those of words, less English articles; `korquad` those of characters."""
    longest_answer: int = Field(30, ge=1)
    """Most tokens of an answer."""
    threshold: float = 0.0
    """How much likelier no answer must be than the best one, in logits, to give none. `evaluate` says which is best."""


class Answerer(Headed):
    """A model that marks the first and the last token of an answer."""

    asking: Asking
    settings: AnswerEvaluation
    may_be_silent: bool
    """Whether it has learned that some questions have no answer."""


@dataclass(frozen=True)
class Found:
    """The best answers to a question, as first and last tokens of its text with log P; and what none is worth."""

    answers: tuple[tuple[int, int, float], ...]
    no_answer: float
    """s_null - s_ij of the best one."""
    silence: float
    """log P of no answer."""


@torch.inference_mode()
def row_logits(model: Answerer, windows: Sequence[Window]) -> list[Logits]:
    """For each row, [2, L]: of every token being the first of the answer, and the last."""
    found: dict[int, Logits] = {}
    for numbers in by_length([len(window.row.ids) for window in windows], READ_TOKENS):
        rows = [[windows[number]] for number in numbers]
        batch = question_batch(rows, [(0, 0)] * len(rows), model.framing.tokenizer.pad).to(device_of(model))
        logits_B2L = span_logits(model(batch), batch).cpu().numpy()
        for number, logits_2L in zip(numbers, logits_B2L, strict=True):
            found[number] = logits_2L[:, : len(windows[number].row.ids)]
    return [found[number] for number in range(len(windows))]


def best_answers(
    windows: Sequence[Window], logits: Sequence[Logits], seen: NDArray[np.bool_], model: Answerer, nbest: int
) -> Found:
    """The best answers over all windows; each token may begin one in the window where most stands around it."""
    place = np.arange(len(seen))
    around = np.array([np.minimum(place - window.start, window.stop - 1 - place) for window in windows])
    chosen = around.argmax(axis=0)
    candidates = list[tuple[float, int, int]]()
    totals = [-math.inf]
    for number, (window, logits_2L) in enumerate(zip(windows, logits, strict=True)):
        part = slice(window.start, window.stop)
        first_L, last_L = logits_2L[:, window.first : window.first + window.stop - window.start]
        s_LL = np.where(seen[part] & (chosen[part] == number), first_L, -np.inf)[:, None] + np.where(
            seen[part], last_L, -np.inf
        )
        s_LL = np.where(_band(len(first_L), model.settings.longest_answer), s_LL, -np.inf)
        totals.append(float(np.logaddexp.reduce(s_LL, axis=None)))
        for flat in np.argsort(-s_LL, axis=None, kind="stable")[:nbest].tolist():
            i, j = divmod(flat, len(first_L))
            candidates.append((float(s_LL[i, j]), window.start + i, window.start + j))
    best = sorted((one for one in candidates if one[0] > -math.inf), key=lambda one: (-one[0], one[1:]))[:nbest]
    null = _null(windows, logits)
    log_z = float(np.logaddexp.reduce([*totals, null] if model.may_be_silent else totals))
    answers = tuple((first, last, score - log_z) for score, first, last in best)
    return Found(answers, null - best[0][0] if best else math.inf, null - log_z)


def answer_probability(
    model: Answerer, found: Found, read: Sequence[tuple[Window, Logits]], tokens: tuple[int, int] | None
) -> float:
    """P of the answer from one token to another, as `best_answers` has it for the best; of none, where it is None."""
    if tokens is None:
        return math.exp(found.silence)
    first, last = tokens
    window, logits_2L = max(read, key=lambda one: min(first - one[0].start, one[0].stop - 1 - first))
    if last >= window.stop or last - first >= model.settings.longest_answer:
        return 0.0
    log_z = _null(*zip(*read, strict=True)) - found.silence
    places = first - window.start + window.first, last - window.start + window.first
    return math.exp(float(logits_2L[0, places[0]] + logits_2L[1, places[1]]) - log_z)


def _null(windows: Sequence[Window], logits: Sequence[Logits]) -> float:
    """s_null of the window that is least sure of holding no answer."""
    return min(float(one.sum(axis=0)[window.silent]) for window, one in zip(windows, logits, strict=True))


def _band(length: int, longest: int) -> NDArray[np.bool_]:
    """Where the last token is not before the first, and not too far behind it."""
    ahead = np.arange(length) - np.arange(length)[:, None]
    return (ahead >= 0) & (ahead < longest)


@dataclass(frozen=True)
class Answered:
    """A question, its text, and what the model answers; none where there is no answer."""

    input: str
    context: str
    answers: tuple[tuple[Span, float], ...]
    """The best ones with their log P; the places are in the context as it was typed."""
    silent: bool
    """Whether no answer is given."""
    no_answer: float | None
    """How much likelier no answer is than the best one; None for a model that always answers."""
    silence: float
    """log P of no answer."""
    search: None = None

    @property
    def span(self) -> Span | None:
        return None if self.silent else self.answers[0][0]

    @property
    def output(self) -> str:
        return "" if self.span is None else self.context[self.span.start : self.span.end]

    def to_json(self) -> dict[str, Any]:
        span = self.span
        place = {"start": None, "end": None} if span is None else span._asdict()
        score = self.silence if span is None else self.answers[0][1]
        found = {"input": self.input, "output": self.output, **place, "score": score, "no_answer": self.no_answer}
        return found if len(self.answers) < 2 else found | {"nbest": [*map(self._told, self.answers)]}

    def lines(self, nbest: int) -> Iterator[str]:
        """The answer; where several were asked for, each with its probability."""
        if nbest == 1:
            yield self.output or "(no answer)"
            return
        shown = [(score, self.context[span.start : span.end]) for span, score in self.answers]
        silence = [] if self.no_answer is None else [(self.silence, "(no answer)")]
        for score, text in sorted([*shown, *silence], key=lambda one: -one[0]):
            yield f"{math.exp(score):.4f}\t{text}"

    def _told(self, answer: tuple[Span, float]) -> dict[str, Any]:
        span, score = answer
        return {"output": self.context[span.start : span.end], **span._asdict(), "score": score}


def answered(input: str, texts: SpannedTexts, number: int, found: Found, model: Answerer) -> Answered:
    """What was found, in characters; two tokens of one character may say the same twice."""
    spans = dict[Span, float]()
    for first, last, score in found.answers:
        spans.setdefault(texts.span(number, first, last), score)
    no_answer = found.no_answer if model.may_be_silent else None
    silent = not spans or (no_answer is not None and no_answer > model.settings.threshold)
    return Answered(input, texts.texts[number], tuple(spans.items()), silent, no_answer, found.silence)


def question_inputs(file: TextFile, corpus: QuestionedText) -> Iterator[FileInput] | None:
    """The questions of SQuAD's JSON or of a table, each with its text, as they may be typed; None where each line is
    one, as in a .tsv without these columns."""
    if file.suffixes[0] == ".json":
        return (FileInput(_typed(*asked), where, fault) for *asked, where, fault in squad_inputs(file))
    columns: dict[str, Key] = {"question": corpus.question, "context": corpus.context}
    if not is_table(file) or (file.suffixes[0] == ".tsv" and not has_columns(file, columns)):
        return None
    return (
        FileInput("" if row.fault else _typed(*row.values), file.where(row.line), row.fault)
        for row in table_rows(file, columns)
    )


def _typed(question: str, context: str) -> str:
    return json.dumps({"question": question, "context": context}, ensure_ascii=False)


def question_in(text: str, place: str) -> tuple[str, str] | Problem:
    """What was typed -> question and context: between them a tab, or both in a JSON object."""
    hint = 'question, tab, text; or {"question": "...", "context": "..."}'
    if text.lstrip().startswith("{"):
        try:
            tree = json.loads(text)
            question, context = tree["question"], tree["context"]
        except (ValueError, KeyError, RecursionError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else f"not valid JSON: {error}"
            return Problem(place, what, hint)
        if not isinstance(question, str) or not isinstance(context, str):
            return Problem(place, "question and context are not both texts", hint)
        return question, context
    question, tab, context = text.partition("\t")
    return (question, context) if tab else Problem(place, "there is a question, but no text that it is about", hint)
