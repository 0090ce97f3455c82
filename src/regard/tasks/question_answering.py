"""Extractive question answering: a question and a text in, the span of the text that answers it
out.

Devlin et al. 2019, arXiv:1810.04805, sections 4.2 and 4.3, with S and E the head's two rows, T the
tokens' vectors:

    s_ij   = S . T_i + E . T_j, i <= j                     the score of the answer from token i to token j
    s_null = S . C + E . C                                 that there is none, from the first token C
    answer i to j with the highest s_ij, unless s_null > s_ij + threshold

A language model reads question and text from left to right, in the order of GPT's figure 1 (Radford
et al. 2018). So T_i depends on the question and the text up to token i, but not on how an answer
that begins there continues: only E . T_j does. That there is no answer can be known at the last
token alone, so C is that one.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from regard.config import Config
from regard.data.batches import LabelledBatch
from regard.data.dataset import ColumnReport, Columns, Dataset, Encoding, Where, token_report
from regard.data.example import Example
from regard.data.framing import Framed, labelled_batch, windows
from regard.data.prepare import Prepared
from regard.data.squad import QuestionData, QuestionInputs, answers_in
from regard.data.store import Integers, TokenColumn
from regard.errors import InputError, Problem
from regard.models.headed import HeadConfig, Headed, QuestionHead, TokenHead
from regard.objectives.labels import SpanCrossEntropy
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.examples import EncodedExample, ExampleAnswers
from regard.tasks.headed import (
    TOKEN_MODELS,
    HeadedMetrics,
    HeadedNetwork,
    HeadedRecipe,
    Heads,
    Line,
    Measure,
    complete_headed,
    framing_of,
    head_vectors,
    token_logits,
    unknown_texts,
    with_head,
)
from regard.tasks.occlusion import falls_of_one, inputs_without_words, predictions
from regard.tasks.reading import nothing_known, problem_in_text
from regard.tasks.task import Start, Task
from regard.tasks.views import Views, WordFalls
from regard.text.normalise import Span, fold_white_space, trimmed
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

QUESTIONS_PER_BATCH = 256
"""Questions whose windows are read together."""
Logits = NDArray[np.float32]
Script = Literal["squad", "korquad"]


class AnswerEvaluation(Config):
    """How answers are chosen and compared."""

    script: Script = "squad"
    """The script whose rules compare answers: `squad` compares words without English articles,
    `korquad` characters."""
    longest_answer: int = Field(30, ge=1)
    """The most tokens that an answer may have."""
    threshold: float = 0.0
    """How much likelier no answer must be than the best one, in logits, to give none. `evaluate`
    says which is best."""


class SpanHeadConfig(HeadConfig):
    """A head that marks where an answer begins and where it ends."""

    no_answer: bool | None = None
    """Whether a question may have no answer. Default: whether one of the training data has none;
    the run keeps it."""


class Window(NamedTuple):
    """A row that holds a question and a part of its text."""

    row: Framed
    first: int
    """The place in the row of the part's first token."""
    start: int
    """The number of that token in the text."""
    stop: int
    """The number of the token after the part."""
    no_answer: int
    """The place in the row that stands for no answer."""

    def places_of(self, answer: tuple[int, int] | None) -> tuple[int, int]:
        """Where an answer begins and ends in the row: at `no_answer`, if the row does not hold all
        of it."""
        if answer is None or answer[0] < self.start or answer[1] >= self.stop:
            return self.no_answer, self.no_answer
        return answer[0] - self.start + self.first, answer[1] - self.start + self.first


Read = Sequence[tuple[Window, Logits]]
"""The rows of a question, each with [2, L]: the logits of every token being the first of the
answer, and the last."""


class Best(NamedTuple):
    """The best answers to a question, as first and last tokens of its text with log P."""

    answers: tuple[tuple[int, int, float], ...]
    # s_null - s_ij of the best one: the log-odds of no answer against the best answer
    log_odds: float
    log_p_none: float
    """Log P of no answer."""


Result = tuple[Best, list[float], Line]
"""The best answers to a question, the loss of each of its rows, and its line of the file of
predictions."""


class QuestionAnswering(Task):
    """Questions about texts, measured by exact match and F1 as the official scripts of SQuAD and
    KorQuAD count them."""

    name = "question_answering"
    data = QuestionData
    head = SpanHeadConfig
    evaluation = AnswerEvaluation
    models = TOKEN_MODELS
    start = Start(completes_model=True)
    vocabularies = ("text",)
    higher_is_better = ("exact_match", "f1")
    unit = "windows"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0, "best": "f1"}
    }

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        columns = ("question", "context")
        encoding = self.make_encoding(recipe, tokenizers)
        inputs = QuestionInputs(self.name, self.corpora, recipe.data.encoding, columns)
        answers = SpanAnswers(encoding, inputs)
        names = (*self.lower_is_better, *self.higher_is_better)
        self.inputs = inputs
        self.encoding = encoding
        self.network = HeadedNetwork(recipe, tokenizers, SpanHeads(recipe))
        self.answers = answers
        self.metrics = HeadedMetrics(recipe, answers, SpanMeasure(recipe), names)
        self.views = Views(
            vectors=head_vectors(recipe, tokenizers),
            occlude_words=partial(occlude_words_of_answer, answers),
        )

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        return complete_headed(tree, cls.data)

    @classmethod
    def learn_tokenizers(
        cls, recipe: Any, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        texts = [*dict.fromkeys(train["context"]), *train["question"]]
        return train_tokenizers(recipe.tokenizer, {"text": texts}, base)

    @classmethod
    def settle(cls, recipe: Any, train: Mapping[str, Sequence[str]], where: Where) -> Any:
        """The recipe with whether a question may have no answer."""
        if recipe.head.no_answer is not None:
            return recipe
        return with_head(
            recipe, no_answer=any(not answers_in(answers) for answers in train["answers"])
        )

    @classmethod
    def make_encoding(cls, recipe: Any, tokenizers: Tokenizers) -> SpanEncoding:
        return SpanEncoding(recipe, tokenizers)

    def objective(self, model: Headed) -> SpanCrossEntropy:
        return SpanCrossEntropy(model, auxiliary=self.recipe.head.auxiliary)


class SpanEncoding(Encoding):
    """Questions and texts, with the tokens of the first answer."""

    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        self.framing = framing_of(recipe, tokenizers)

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        """`context` and `question` as tokens, `starts` and `ends` the characters of the context's
        tokens, `answer` the first and last token of the first answer."""
        contexts = list(dict.fromkeys(texts["context"]))
        spans = dict(zip(contexts, self.tokenizers["text"].token_spans(contexts), strict=True))
        encoded = [spans[context] for context in texts["context"]]
        columns: dict[str, list[list[int]]] = {
            "context": [ids for ids, _ in encoded],
            "starts": [[span.start for span in own] for _, own in encoded],
            "ends": [[span.end for span in own] for _, own in encoded],
            "question": self.tokenizers["text"].encode_batch(texts["question"]),
        }
        if "answers" in texts:
            rows = zip(texts["context"], texts["answers"], encoded, strict=True)
            columns["answer"] = [
                _answer_tokens(context, answers, own) for context, answers, (_, own) in rows
            ]
        return columns

    def tokenizer_of(self, column: str) -> Tokenizer | None:
        return self.tokenizers["text"] if column in ("context", "question") else None

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """The tokens of the questions, and of the texts, each counted once."""
        firsts = {
            context: row for row, context in reversed(list(enumerate(examples.texts["context"])))
        }
        column = examples.columns["context"]
        tokenizer = self.tokenizers["text"]
        distinct = TokenColumn.of([column[row].tolist() for row in sorted(firsts.values())])
        columns = {"context": distinct, "question": examples.columns["question"]}
        return {name: token_report(column, tokenizer) for name, column in columns.items()}

    @property
    def longest_question(self) -> int:
        """Tokens of a question that are read: at least half of the row is the text's."""
        return min(
            int(self.recipe.data.max_question),
            (self.framing.longest - self.framing.special(2)) // 2,
        )

    def windows(self, examples: Dataset, row: int) -> list[Window]:
        """The rows of an example: the question is read whole in each, the text through windows."""
        framing = self.framing
        texts = examples.texts
        question = framing.spelled(
            examples.columns["question"][row].tolist(), texts["question"], row
        )
        context = framing.spelled(examples.columns["context"][row].tolist(), texts["context"], row)
        question = question[: self.longest_question]
        room = framing.longest - framing.special(2) - len(question)
        rows = []
        for start, stop in windows(len(context), room, framing.stride):
            framed = framing.frame(question, context[start:stop])
            no_answer = len(framed.tokens) - 1 if self.recipe.model.causal else 0
            rows.append(Window(framed, len(question) + framing.before(2), start, stop, no_answer))
        return rows

    def answer_tokens(self, examples: Dataset, row: int) -> tuple[int, int] | None:
        """The first and last token of the first answer; None if there is none."""
        answer = examples.columns["answer"][row].tolist()
        return (answer[0], answer[1]) if answer else None

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """All rows of a question together."""
        questions = np.minimum(examples.columns["question"].lengths, self.longest_question).tolist()
        contexts = examples.columns["context"].lengths.tolist()
        pairs = zip(questions, contexts, strict=True)
        positions = [
            self.framing.positions(context, question + self.framing.special(2))
            for question, context in pairs
        ]
        return np.array(positions, dtype=np.int32)

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> LabelledBatch:
        """Rows with the places of the answer; a row without the whole answer has none."""
        read = list[list[Window]]()
        labels = list[tuple[int, int]]()
        for row in rows.tolist():
            read.append(self.windows(examples, row))
            labels += [window.places_of(self.answer_tokens(examples, row)) for window in read[-1]]
        framed = [[window.row for window in own] for own in read]
        batch = labelled_batch(
            framed, torch.tensor(labels), self.framing.tokenizer.pad, tuple(rows.tolist())
        )
        return replace(batch, tokens=len(labels))

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        tokenizer = self.framing.tokenizer
        answer = self.answer_tokens(examples, row)
        context = examples.columns["context"][row].tolist()
        return {
            "question": tokenizer.pieces(examples.columns["question"][row].tolist()),
            "context": tokenizer.pieces(context),
            "answer": []
            if answer is None
            else tokenizer.pieces(context[answer[0] : answer[1] + 1]),
        }

    def fields_of(self, examples: Dataset, row: int) -> list[tuple[str, list[int]]]:
        """The texts of an example, each with its tokens."""
        return [
            (examples.texts[name][row], examples.columns[name][row].tolist())
            for name in ("context", "question")
        ]


class SpanHeads(Heads):
    """A head that marks where answers begin and end."""

    by_token = True
    smooths = False

    def __init__(self, recipe: HeadedRecipe) -> None:
        self.recipe = recipe

    def make(self, width: int) -> TokenHead | QuestionHead:
        """If tokens see only a few others, none of the text would know the question: the head
        compares them."""
        model = self.recipe.model
        dropout = self.recipe.head.dropout
        if model.local:
            return QuestionHead(width, 2, dropout=dropout)
        return TokenHead(width, 2, dropout=dropout, pooler=model.head_layer(width, None))

    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        """There is no linear model."""

    def check(self, data: Prepared[Dataset]) -> None:
        """Any model can be under the head."""


class SpanAnswers(ExampleAnswers[SpanEncoding]):
    """The best spans for each question."""

    def __init__(self, encoding: SpanEncoding, inputs: QuestionInputs) -> None:
        super().__init__(encoding)
        self.inputs = inputs
        self.recipe = encoding.recipe

    def encoded_texts(self, given: Example) -> dict[str, str]:
        InputError.raise_if([self.inputs.wrong_number(given)])
        question, context = given.texts
        texts = {"question": question, "context": context}
        InputError.raise_if(
            problem_in_text(text, f"{given.place} ({name})") for name, text in texts.items()
        )
        return texts

    def encoded_problems(self, examples: Dataset, row: int) -> list[Problem]:
        names = [
            name for name in ("context", "question") if not examples.columns[name].lengths[row]
        ]
        return [
            nothing_known(examples.texts[name][row], f"{examples.where(row)} ({name})")
            for name in names
        ]

    def results(self, model: Headed, examples: Dataset, progress: Done = ignore) -> list[Result]:
        """The best answers to every question; if the right one is known, also the losses and the
        line."""
        results = list[Result]()
        nbest = self.recipe.search.nbest
        for row, best, read in self.answers_to(model, examples, nbest, progress):
            if "answer" in examples.columns:
                losses = _losses(read, self.encoding.answer_tokens(examples, row))
                results.append((best, losses, self._line(examples, row, best)))
            else:
                results.append((best, [], {}))
        return results

    def _line(self, examples: Dataset, row: int, best: Best) -> Line:
        """`answer` is the best one even if none is given, `answer_f1` its F1: what a threshold
        is chosen by."""
        question = Example.of_text(examples.texts["question"][row], examples.where(row))
        answered = self.prediction(question, examples, row, (best, [], {}))
        expected = [text for _, text in answers_in(examples.texts["answers"][row])]
        place = {"start": None, "end": None} if answered.span is None else answered.span._asdict()
        answer = answered.context[slice(*answered.answers[0][0])] if answered.answers else ""
        script = self.recipe.evaluation.script
        exact = exact_match(answered.output, expected, script)
        return {
            "id": examples.texts["id"][row],
            "input": answered.input,
            "context": answered.context,
            "output": answered.output,
            **place,
            "expected": expected,
            "right": bool(exact),
            "exact_match": exact,
            "f1": f1(answered.output, expected, script),
            "no_answer": answered.no_answer,
            "answer": answer,
            "answer_f1": f1(answer, expected, script),
        }

    def answers_to(
        self, model: Headed, examples: Dataset, nbest: int, progress: Done = ignore
    ) -> Iterator[tuple[int, Best, Read]]:
        """The number of each question, its best answers, and its rows with their logits."""
        for start in range(0, len(examples), QUESTIONS_PER_BATCH):
            rows = range(start, min(start + QUESTIONS_PER_BATCH, len(examples)))
            read = [self.encoding.windows(examples, row) for row in rows]
            framed = [window.row for own in read for window in own]
            logits = dict(token_logits(model, framed, self.encoding.framing.tokenizer.pad))
            numbers = count()
            for row, own in zip(rows, read, strict=True):
                visible = examples.columns["starts"][row] < examples.columns["ends"][row]
                pairs = [(window, logits[next(numbers)].T.numpy()) for window in own]
                yield row, self.best_answers(pairs, visible, nbest), pairs
            progress(len(rows))

    def best_answers(self, read: Read, visible: NDArray[np.bool_], nbest: int) -> Best:
        """The best answers over all windows. An answer is scored in one of them: of those that hold
        it whole, in the one with the most text around its first token.

        `visible` are the tokens that stand for more than white space: an answer begins and ends
        with such.
        """
        place = np.arange(len(visible))
        around = np.array(
            [np.minimum(place - window.start, window.stop - 1 - place) for window, _ in read]
        )
        chosen = around.argmax(axis=0)
        candidates = list[tuple[float, int, int]]()
        totals = [-math.inf]
        stop_before = 0
        for number, (window, logits_2L) in enumerate(read):
            part = slice(window.start, window.stop)
            first_L, last_L = logits_2L[:, window.first : window.first + window.stop - window.start]
            first_L, last_L = np.where(visible[part], (first_L, last_L), -np.inf)
            length_LL = 1 + np.arange(len(first_L)) - np.arange(len(first_L))[:, None]
            allowed_LL = (length_LL > 0) & (length_LL <= self.recipe.evaluation.longest_answer)
            # if the window with the most text around a first token ends too early, the next that
            # holds the last
            chosen_L1 = chosen[part, None]
            held_only_here_L = place[part] >= stop_before
            allowed_LL &= (chosen_L1 == number) | ((chosen_L1 < number) & held_only_here_L)
            stop_before = window.stop
            s_LL = np.where(allowed_LL, first_L[:, None] + last_L, -np.inf)
            totals.append(float(np.logaddexp.reduce(s_LL, axis=None)))
            for flat in np.argsort(-s_LL, axis=None, kind="stable")[:nbest].tolist():
                i, j = divmod(flat, len(first_L))
                candidates.append((float(s_LL[i, j]), window.start + i, window.start + j))
        allowed = [candidate for candidate in candidates if candidate[0] > -math.inf]
        best = sorted(allowed, key=lambda candidate: (-candidate[0], candidate[1:]))[:nbest]
        null = _null(read)
        log_z = float(
            np.logaddexp.reduce([*totals, null] if self.recipe.head.no_answer else totals)
        )
        answers = tuple((first, last, score - log_z) for score, first, last in best)
        return Best(answers, null - best[0][0] if best else math.inf, null - log_z)

    def answer_probability(self, best: Best, read: Read, tokens: tuple[int, int] | None) -> float:
        """P of the answer from one token to another, as `best_answers` has it for the best; of
        none, if it is None."""
        if tokens is None:
            return math.exp(best.log_p_none)
        first, last = tokens
        whole = [pair for pair in read if pair[0].start <= first and last < pair[0].stop]
        if not whole or last - first >= self.recipe.evaluation.longest_answer:
            return 0.0
        window, logits_2L = max(
            whole, key=lambda pair: min(first - pair[0].start, pair[0].stop - 1 - first)
        )
        log_z = _null(read) - best.log_p_none
        i, j = window.places_of(tokens)
        return math.exp(float(logits_2L[0, i] + logits_2L[1, j]) - log_z)

    def prediction(self, given: Example, examples: Dataset, row: int, result: Result) -> Answered:
        """The best answers in characters; two tokens of one character may give the same span
        twice."""
        best, *_ = result
        starts = examples.columns["starts"][row]
        ends = examples.columns["ends"][row]
        spans = dict[Span, float]()
        for first, last, score in best.answers:
            spans.setdefault(Span(int(starts[first]), int(ends[last])), score)
        log_odds = best.log_odds if self.recipe.head.no_answer else None
        none = not spans or (log_odds is not None and log_odds > self.recipe.evaluation.threshold)
        context = examples.texts["context"][row]
        answers = tuple(spans.items())
        return Answered(given.text, context, answers, none, log_odds, best.log_p_none)

    def notes(
        self, encoded: EncodedInputs[EncodedExample], predictions: Sequence[Prediction]
    ) -> list[Note]:
        return unknown_texts(encoded, self.encoding.fields_of, self.encoding.framing)


class SpanMeasure(Measure):
    """Exact match and F1 of answers."""

    def __init__(self, recipe: HeadedRecipe) -> None:
        self.recipe = recipe

    def scores(self, examples: Dataset, results: Sequence[Result]) -> dict[str, Any]:
        """The loss of a row, exact match and F1; if a question may have no answer, also what
        `_unanswered_scores` has."""
        lines = [line for _, _, line in results]
        losses = [loss for _, own, _ in results for loss in own]
        metrics = {"loss": float(np.mean(losses)), **_means(lines)}
        return metrics | (_unanswered_scores(lines) if self.recipe.head.no_answer else {})

    def line(self, examples: Dataset, row: int, result: Result) -> Line:
        return result[2]


def _unanswered_scores(lines: Sequence[Line]) -> dict[str, float]:
    """The scores of questions with and without an answer apart, and what the best threshold would
    give."""
    answerable = [line for line in lines if line["expected"]]
    others = [line for line in lines if not line["expected"]]
    metrics = dict[str, float]()
    if answerable:
        metrics |= {f"answerable_{name}": value for name, value in _means(answerable).items()}
    if others:
        metrics["unanswerable_right"] = _means(others)["exact_match"]
    threshold, best = best_threshold(
        [line["no_answer"] for line in lines],
        [line["answer_f1"] for line in lines],
        [not line["expected"] for line in lines],
    )
    return metrics | {"best_threshold": threshold, "best_f1": best}


def occlude_words_of_answer(answers: SpanAnswers, model: Headed, given: Example) -> WordFalls:
    """How much the answer to a question, or the decision that there is none, depends on each word.
    The words of the answer itself stay in the text."""
    [whole] = predictions(answers, model, [given])
    question, context = given.texts
    start = 0 if whole.span is None else whole.span.start
    shorter = inputs_without_words(answers, answers.inputs, model, (question, context), whole.span)
    read = [(question, context), *(one.example.texts for one in shorter)]
    moved = [
        len(context) - len(left) if one.span.start < start else 0
        for one, (_, left) in zip(shorter, read[1:], strict=True)
    ]
    columns = {
        "context": [context for _, context in read],
        "question": [question for question, _ in read],
        "answers": [
            json.dumps([] if whole.none else [(start - by, whole.output)]) for by in (0, *moved)
        ],
    }
    examples = Dataset.of(answers.encoding, columns, str)
    values = [
        answers.answer_probability(best, logits, answers.encoding.answer_tokens(examples, row))
        for row, best, logits in answers.answers_to(model, examples, 1)
    ]
    return falls_of_one("P(no answer)" if whole.none else f"P({whole.output})", values, shorter)


def _answer_tokens(context: str, answers: str, spans: Sequence[Span]) -> list[int]:
    """The first and the last token that overlap with the first answer; nothing if no token
    does."""
    for start, text in answers_in(answers)[:1]:
        answer = trimmed(context, start, start + len(text))
        inside = [
            number
            for number, span in enumerate(spans)
            if span.start < answer.end and span.end > answer.start and span.start < span.end
        ]
        return [inside[0], inside[-1]] if inside else []
    return []


def _losses(read: Read, tokens: tuple[int, int] | None) -> list[float]:
    """-(log P_start + log P_end) / 2 of the right answer, in each row of a question."""
    losses = []
    for window, logits_2L in read:
        log_z_2 = np.logaddexp.reduce(logits_2L.astype(np.float64), axis=1)
        right_2 = logits_2L[[0, 1], window.places_of(tokens)]
        losses.append(float(np.mean(log_z_2 - right_2)))
    return losses


def _null(read: Read) -> float:
    """s_null of the window that is least sure of holding no answer."""
    return min(float(logits_2L.sum(axis=0)[window.no_answer]) for window, logits_2L in read)


def _means(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {name: float(np.mean([line[name] for line in lines])) for name in ("exact_match", "f1")}


@dataclass(frozen=True)
class Answered(Prediction):
    """A question, its text, and what the model answers; nothing if there is no answer."""

    context: str
    answers: tuple[tuple[Span, float], ...]
    """The best ones with their log P; the places are in the context as it was typed."""
    none: bool
    """Whether no answer is given."""
    no_answer: float | None
    """Log-odds of no answer against the best answer; None for a model that always answers."""
    log_p_none: float
    """Log P of no answer."""

    @property
    def span(self) -> Span | None:
        return None if self.none else self.answers[0][0]

    @property
    def output(self) -> str:
        return "" if self.span is None else self.context[self.span.start : self.span.end]

    def content(self) -> dict[str, Any]:
        span = self.span
        place = {"start": None, "end": None} if span is None else span._asdict()
        score = self.log_p_none if span is None else self.answers[0][1]
        best = {
            "input": self.input,
            "output": self.output,
            **place,
            "score": score,
            "no_answer": self.no_answer,
        }
        if len(self.answers) < 2:
            return best
        nbest = [
            {"output": self.context[slice(*span)], **span._asdict(), "score": p}
            for span, p in self.answers
        ]
        return best | {"nbest": nbest}

    def lines(self, nbest: int) -> Iterator[str]:
        if nbest == 1:
            yield self.output or "(no answer)"
            return
        shown = [(score, self.context[slice(*span)]) for span, score in self.answers]
        none = [] if self.no_answer is None else [(self.log_p_none, "(no answer)")]
        for score, text in sorted([*shown, *none], key=lambda pair: -pair[0]):
            yield f"{math.exp(score):.4f}\t{text}"


# Answers as the scripts of SQuAD and KorQuAD compare them

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_BRACKETS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalised(text: str, script: Script) -> str:
    """Lower case, without punctuation and more than one space; English without articles."""
    if script == "korquad":
        return fold_white_space(text.translate(_BRACKETS).lower().translate(_PUNCTUATION))
    return fold_white_space(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)))


def exact_match(answer: str, expected: Sequence[str], script: Script = "squad") -> float:
    """1 if the answer is one of those expected."""
    return _best(lambda ours, theirs: float(ours == theirs), answer, expected, script)


def f1(answer: str, expected: Sequence[str], script: Script = "squad") -> float:
    """2 P R / (P + R) of the words, or characters, each counted as often as both have it."""

    def overlap(ours: str, theirs: str) -> float:
        parts = [
            Counter(side.replace(" ", "") if script == "korquad" else side.split())
            for side in (ours, theirs)
        ]
        if not all(parts):  # if one side has no answer, only equals agree
            return float(ours == theirs)
        return 2 * (parts[0] & parts[1]).total() / (parts[0].total() + parts[1].total())

    return _best(overlap, answer, expected, script)


def _best(
    compare: Callable[[str, str], float], answer: str, expected: Sequence[str], script: Script
) -> float:
    """As in the script of SQuAD 2.0, an expected answer of which nothing is left does not count."""
    there = list(filter(None, (normalised(text, script) for text in expected))) or [""]
    ours = normalised(answer, script)
    return max(compare(ours, theirs) for theirs in there)


def best_threshold(
    no_answer: Sequence[float], scores: Sequence[float], unanswered: Sequence[bool]
) -> tuple[float, float]:
    """The threshold above which not to answer that gives the highest mean score, and that mean.

    `scores` are of the answers, `no_answer` says how much likelier none is; as find_best_thresh of
    SQuAD 2.0 does it, but half-way to the next question.
    """
    gains = defaultdict[float, float](float)
    for value, score, none in zip(no_answer, scores, unanswered, strict=True):
        gains[value] += score - none
    values = sorted(gains)
    total = best = float(sum(unanswered))
    threshold = values[0] - 1.0
    for value, above in zip(values, [*values[1:], values[-1] + 2.0], strict=True):
        total += gains[value]
        if total > best:
            best = total
            threshold = (value + above) / 2
    return threshold, best / len(scores)
