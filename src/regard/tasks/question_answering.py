"""Extractive question answering: a question and a text in, the stretch of the text that answers it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard.data.corpora import Part
from regard.data.file_inputs import FileInput
from regard.data.prepare import Prepared
from regard.data.questions import (
    Asking,
    QuestionExamples,
    Window,
    places_of,
    prepare_questions,
    question_examples,
    read_questions,
)
from regard.data.squad import QuestionData, QuestionedText, open_questions
from regard.errors import Problem
from regard.models.headed import HeadConfig, QuestionHead, TokenHead
from regard.objectives.labels import SpanCrossEntropy
from regard.tasks.answer_scores import best_threshold, exact_match, f1
from regard.tasks.answerer import (
    Answered,
    Answerer,
    AnswerEvaluation,
    Found,
    Logits,
    answered,
    best_answers,
    question_in,
    question_inputs,
    row_logits,
)
from regard.tasks.headed import HeadedTask
from regard.tasks.inputs import encode_inputs, only_file, refuse
from regard.tasks.task import Progress
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizer, Tokenizers

AT_ONCE = 256
"""Questions whose windows are read together."""


class SpanHeadConfig(HeadConfig):
    """A head that marks where an answer begins and where it ends."""

    no_answer: bool | None = None
    """Whether a question may have no answer. Default: whether one of the training data has none; the run keeps it."""


class QuestionAnswering(HeadedTask):
    """Questions about texts, measured by exact match and F1 as the official scripts of SQuAD and KorQuAD count them."""

    name = "question_answering"
    data = QuestionData
    head = SpanHeadConfig
    by_token = True
    evaluation = AnswerEvaluation
    higher_is_better: ClassVar[Mapping[str, bool]] = {"loss": False, "exact_match": True, "f1": True}
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0, "best": "f1"}}

    @classmethod
    def asking(cls, recipe: Any, tokenizer: Tokenizer) -> Asking:
        return Asking(cls.framing(recipe, tokenizer), recipe.data.max_question, last=recipe.model.causal)

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[QuestionExamples]:
        return prepare_questions(
            recipe.data,
            recipe.tokenizer,
            lambda tokenizer: cls.asking(recipe, tokenizer),
            base=base,
            seed=recipe.training.seed,
            tokenizers=tokenizers,
            progress=progress,
        )

    @classmethod
    def settled(cls, tree: dict[str, Any], data: Prepared[QuestionExamples]) -> dict[str, Any]:
        given = tree["head"]["no_answer"]
        found = bool(data.train.frequencies()[0]) if given is None else given
        return tree | {"head": tree["head"] | {"no_answer": found}}

    @classmethod
    def make_head(cls, width: int, recipe: Any) -> TokenHead | QuestionHead:
        """Convolutions see a few tokens, so that no token of the text would know what is asked."""
        return (QuestionHead if recipe.model.kind == "cnn" else TokenHead)(width, 2, dropout=recipe.head.dropout)

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Answerer:
        tokenizer = tokenizers["text"]
        model = Answerer(cls.base(recipe, tokenizer), recipe.head, lambda width: cls.make_head(width, recipe))
        model.framing, model.asking = cls.framing(recipe, tokenizer), cls.asking(recipe, tokenizer)
        model.may_be_silent, model.settings = bool(recipe.head.no_answer), recipe.evaluation
        return model

    @classmethod
    def adjust(cls, model: Answerer, recipe: Any) -> None:
        model.settings = recipe.evaluation

    @classmethod
    def objective(cls, model: Answerer, recipe: Any) -> SpanCrossEntropy:
        return SpanCrossEntropy(model, recipe.head.auxiliary)

    @classmethod
    def validate(cls, model: Answerer, recipe: Any, data: Prepared[QuestionExamples]) -> dict[str, Any]:
        losses, told = measured(model, data.validation, recipe.evaluation)
        return {"loss": float(np.mean(losses)), **_means(told)}

    @classmethod
    def read(
        cls, recipe: Any, corpora: Sequence[QuestionedText], part: Part, base: Path, tokenizers: Tokenizers
    ) -> QuestionExamples:
        readers = [open_questions(corpus, base, part) for corpus in corpora]
        return read_questions(readers, recipe.data, cls.asking(recipe, tokenizers["text"]))

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[QuestionedText], file: TextFile) -> Iterator[FileInput] | None:
        return question_inputs(file, cls.corpus_of([file.name], own))

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[QuestionedText]) -> QuestionedText:
        file = only_file(files)
        like = next((corpus for corpus in own if corpus.file is not None), QuestionedText(file=file))
        return like.model_copy(update={"file": file, "size": None})

    @classmethod
    def evaluate(
        cls,
        model: Answerer,
        recipe: Any,
        examples: QuestionExamples,
        tokenizers: Tokenizers,
        progress: Callable[[int], None],
    ) -> dict[str, Any]:
        """Exact match and F1; where no answer may be right, also apart, and what the best threshold would give."""
        cls.adjust(model, recipe)
        losses, told = measured(model, examples, recipe.evaluation, progress)
        found = {"questions": len(examples), "loss": float(np.mean(losses)), **_means(told)}
        if model.may_be_silent:
            found |= _with_and_without(told) | _at_best(told)
        return {**found, "predictions": told}

    @classmethod
    def check_texts(cls, model: Answerer, texts: Sequence[str], places: Sequence[str]) -> None:
        _typed(model, texts, places)

    @classmethod
    def answers(
        cls, model: Answerer, texts: Sequence[str], places: Sequence[str], nbest: int, progress: Callable[[int], None]
    ) -> list[Answered]:
        typed = _typed(model, texts, places)
        contexts, questions = zip(*typed, strict=True)
        unknown = ["[]"] * len(typed), [""] * len(typed)
        examples = question_examples((contexts, questions, *unknown), model.asking, lambda row: places[row])
        return [
            answered(texts[row], examples.texts, int(examples.numbers[row]), found, model)
            for row, found, _ in answers_to(model, examples, nbest, progress)
        ]


def _typed(model: Answerer, texts: Sequence[str], places: Sequence[str]) -> list[tuple[str, str]]:
    """The contexts and questions that were typed, or one DecodeError that names those that cannot be read."""
    found = [question_in(text, place) for text, place in zip(texts, places, strict=True)]
    refuse([one for one in found if isinstance(one, Problem)])
    pairs = [(one[1], one[0]) for one in found if not isinstance(one, Problem)]
    for name, sides in zip(("context", "question"), zip(*pairs, strict=True), strict=True):
        named, framing = [f"{place} ({name})" for place in places], model.framing
        encode_inputs(framing.tokenizer, sides, named, longest=None, letters=framing.letters, unknown=True)
    return pairs


def answers_to(
    model: Answerer, examples: QuestionExamples, nbest: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, Found, list[tuple[Window, Logits]]]]:
    """The number of each question, its best answers, and its rows with their logits."""
    for start in range(0, len(examples), AT_ONCE):
        rows = range(start, min(start + AT_ONCE, len(examples)))
        windows = [examples.windows(row) for row in rows]
        logits = iter(row_logits(model, [window for own in windows for window in own]))
        for row, own in zip(rows, windows, strict=True):
            theirs = [next(logits) for _ in own]
            seen = examples.texts.seen(int(examples.numbers[row]))
            yield row, best_answers(own, theirs, seen, model, nbest), list(zip(own, theirs, strict=True))
        progress(len(rows))


def measured(
    model: Answerer,
    examples: QuestionExamples,
    settings: AnswerEvaluation,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[list[float], list[dict[str, Any]]]:
    """The loss of every row, and a line of the file of predictions for every question."""
    losses, told = list[float](), list[dict[str, Any]]()
    for row, found, read in answers_to(model, examples, 1, progress):
        tokens = examples.answer_tokens(row)
        losses += [_loss(logits_2L, places_of(window, tokens)) for window, logits_2L in read]
        question = examples.questions[row]
        said = answered(question, examples.texts, int(examples.numbers[row]), found, model)
        told.append(_told(examples, row, said, settings))
    return losses, told


def _loss(logits_2L: Logits, places: tuple[int, int]) -> float:
    """-(log P_start + log P_end) / 2"""
    log_z_2 = np.logaddexp.reduce(logits_2L.astype(np.float64), axis=1)
    return float(np.mean(log_z_2 - logits_2L[[0, 1], places]))


def _told(examples: QuestionExamples, row: int, said: Answered, settings: AnswerEvaluation) -> dict[str, Any]:
    """`answer` is the best one even where none is given, `answer_f1` its F1: what a threshold is chosen by."""
    expected = examples.expected(row)
    place = {"start": None, "end": None} if said.span is None else said.span._asdict()
    best = said.context[slice(*said.answers[0][0])] if said.answers else ""
    exact = exact_match(said.output, expected, settings.script)
    return {
        "where": examples.where(row),
        "id": examples.names[row],
        "input": said.input,
        "context": said.context,
        "output": said.output,
        **place,
        "expected": expected,
        "right": bool(exact),
        "exact_match": exact,
        "f1": f1(said.output, expected, settings.script),
        "no_answer": said.no_answer,
        "answer": best,
        "answer_f1": f1(best, expected, settings.script),
    }


def _means(told: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in told])) for name in ("exact_match", "f1")}


def _with_and_without(told: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The same of the questions that have an answer, and the share of right silence on those that have none."""
    answerable, others = ([one for one in told if bool(one["expected"]) is has] for has in (True, False))
    found = {f"answerable_{name}": value for name, value in _means(answerable).items()} if answerable else {}
    return found | ({"unanswerable_right": _means(others)["exact_match"]} if others else {})


def _at_best(told: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    unanswered = [not one["expected"] for one in told]
    scores = [one["answer_f1"] for one in told]
    threshold, best = best_threshold([one["no_answer"] for one in told], scores, unanswered)
    return {"best_threshold": threshold, "best_f1": best}
