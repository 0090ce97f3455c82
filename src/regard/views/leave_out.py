"""A text without one of its words, for each word: what the model then says of it (views/occlusion.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.dataset import Dataset
from regard.errors import DecodeError, Problem
from regard.models.headed import Headed
from regard.runs import Run
from regard.tasks.classification import Classified
from regard.tasks.inputs import Inputs
from regard.tasks.multiple_choice import Chosen
from regard.tasks.question_answering import Answered, QuestionAnswering, question_in
from regard.tasks.regression import Estimated
from regard.tasks.tagging import Tagging
from regard.tasks.task import Prediction
from regard.text.offsets import Span, Words, word_spans
from regard.views.occlusion import Occlusion

MOST = 512
"""Words of a text that are left out one by one."""


@dataclass(frozen=True)
class Shortened:
    """An input without one word."""

    fields: tuple[str, ...]
    """Its texts, one of them without the word."""
    word: str
    field: int
    """The number of that text."""
    start: int
    """Where the word stood there."""

    def touches(self, answer: Span) -> bool:
        """Whether the word has a part in an answer, which stands in the second text."""
        return self.field == 1 and self.start < answer.end and self.start + len(self.word) > answer.start


def leave_one_out(run: Run, model: Headed, text: str) -> Occlusion:
    """What the model says of a text, and how much of it hangs on each word."""
    if isinstance(run.task, Tagging):
        return _of_tags(run, model, text)
    if isinstance(run.task, QuestionAnswering):
        return _of_answer(run, model, text)
    return _of_label(run, model, text)


def _of_label(run: Run, model: Headed, text: str) -> Occlusion:
    """Of a label, a choice or a number."""
    [whole] = run.task.predict(model, Inputs.of([text]))
    fields = [text] if run.task.arrangement == "single" else text.split("\t")
    kept = _readable(run, model, shortened(fields, "punctuation"), "\t".join)
    found = run.task.predict(model, Inputs.of(["\t".join(one.fields) for one in kept]))
    name, value_of = _asked_of(whole)
    value = value_of(whole)
    falls_WA = np.array([[value - value_of(one)] for one in found])
    return Occlusion((name,), (value,), tuple(one.word for one in kept), falls_WA)


def _asked_of(whole: Prediction) -> tuple[str, Callable[[Any], float]]:
    """What is explained of a prediction, by name; and its value in another prediction."""
    if isinstance(whole, Estimated):
        return "the number", lambda one: float(one.output)
    assert isinstance(whole, Classified | Chosen)
    label = whole.output
    return f"P({label})", lambda one: float(one.probabilities[label])


def _of_answer(run: Run, model: Headed, text: str) -> Occlusion:
    """Of the answer to a question, or of there being none. The words of the answer itself stay."""
    [whole] = run.task.predict(model, Inputs.of([text]))
    asked = question_in(text, "input")
    assert isinstance(whole, Answered)
    assert not isinstance(asked, Problem)
    span = whole.span or Span(0, 0)
    others = [one for one in shortened(asked, "punctuation") if not one.touches(span)]
    kept = _readable(run, model, others, _typed)
    rows = [(asked, span.start), *((one.fields, span.start - _before(one, asked, span)) for one in kept)]
    answers = [json.dumps([] if whole.none else [(start, whole.output)]) for _, start in rows]
    columns = {
        "context": [context for (_, context), _ in rows],
        "question": [question for (question, _), _ in rows],
        "answers": answers,
    }
    examples, task = Dataset.of(run.task, columns, str), run.task
    found = list(task.answers_to(model, examples, 1))
    values = [task.answer_probability(one, read, task.answer_tokens(examples, row)) for row, one, read in found]
    name = "P(no answer)" if whole.none else f"P({whole.output})"
    falls_WA = np.array([[values[0] - value] for value in values[1:]])
    return Occlusion((name,), (values[0],), tuple(one.word for one in kept), falls_WA)


def _before(one: Shortened, whole: Sequence[str], span: Span) -> int:
    """By how much what is left out moves the answer to the front."""
    return len(whole[1]) - len(one.fields[1]) if one.field == 1 and one.start < span.start else 0


def _of_tags(run: Run, model: Headed, text: str) -> Occlusion:
    """Of the tag of every word."""
    words = [text[slice(*span)] for span in run.task.split(text)]
    _refuse_number(len(words))
    sentences = [words, *(words[:out] + words[out + 1 :] for out in range(len(words)))]
    p_whole, *p_without = [np.exp(one) for one in run.task.tag_words(model, run.task.marking.encode(sentences))]
    tags = p_whole.argmax(-1)
    values = p_whole.max(-1)
    falls_WA = np.zeros((len(words), len(words)))
    for out, p in enumerate(p_without):
        others = np.delete(np.arange(len(words)), out)
        falls_WA[out, others] = values[others] - p[np.arange(len(others)), tags[others]]
    answers = tuple(f"{word}/{run.task.labels[tag]}" for word, tag in zip(words, tags, strict=True))
    return Occlusion(answers, tuple(map(float, values)), tuple(words), falls_WA)


def shortened(fields: Sequence[str], words: Words) -> list[Shortened]:
    """The texts of an input without each of their words."""
    found = []
    for number, text in enumerate(fields):
        for span in word_spans(text, words):
            others = (*fields[:number], without(text, span), *fields[number + 1 :])
            found.append(Shortened(others, text[slice(*span)], number, span.start))
    _refuse_number(len(found))
    return found


def without(text: str, span: Span) -> str:
    """The text less a word and one of the blanks around it, as one would type it: a stop stands right after a word."""
    before, after = text[: span.start], text[span.end :]
    if (not before or before[-1].isspace()) and after[:1].isspace():
        return before + after[1:]
    alone = not after or (text[span.start].isalnum() and not after[0].isalnum())
    return before[:-1] + after if alone and before[-1:].isspace() else before + after


def _readable(
    run: Run, model: Headed, inputs: Sequence[Shortened], join: Callable[[Sequence[str]], str]
) -> list[Shortened]:
    """Those of which something is left that the model can read."""
    texts = [join(one.fields) for one in inputs]

    bad = run.task.encode_inputs(model, Inputs.of(texts)).unreadable
    _refuse_number(1 + (len(bad) < len(texts)))
    return [one for row, one in enumerate(inputs) if row not in bad]


def _refuse_number(words: int) -> None:
    if words < 2:
        hint = "give two words or more; predict says what it makes of one"
        raise DecodeError("without its only word nothing is left of the text", where="explain", hint=hint)
    if words > MOST:
        what = f"the text has {words:,} words, each of which would be left out once"
        raise DecodeError(what, where="explain", hint=f"at most {MOST}: give a part of it")


def _typed(fields: Sequence[str]) -> str:
    return json.dumps(dict(zip(("question", "context"), fields, strict=True)))
