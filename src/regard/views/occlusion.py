"""How much a model's answer depends on each word of its input: the input is read again without
it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.data.dataset import Dataset
from regard.data.example import Example
from regard.errors import DecodeError
from regard.models.headed import Headed
from regard.tasks.task import Task
from regard.text.normalise import Span, one_line, word_spans
from regard.views.report import (
    Bars,
    Cell,
    HeatMap,
    HeatMaps,
    Numbers,
    Part,
    Table,
)

WORDS_PER_TAG = 3
"""Number of words named per tag."""


@dataclass(frozen=True, eq=False)
class Occlusion:
    """The model's answers for a text, and how much the value of each falls without each of its
    words.

    Erasure of a word (Li et al. 2016, arXiv:1612.08220, section 3.1), as a difference of
    probabilities:

        fall(w) = S(x) - S(x without w)             S: the probability of the answer to x, or the number
    """

    answers: tuple[str, ...]
    """The explained answers: one label, text or number; for a tagger, every word with its tag."""
    values: tuple[float, ...]
    """S(x) of each answer."""
    words: tuple[str, ...]
    """The words left out, one at a time."""
    falls_WA: Numbers
    """Negative if the value rises. The fall of a word's own tag is 0."""

    def to_json(self) -> dict[str, Any]:
        return {
            "answers": self.answers,
            "values": self.values,
            "words": self.words,
            "falls": self.falls_WA.tolist(),
        }

    def parts(self, about: str) -> list[Part]:
        """A bar for each word; for a tagger, the words that each tag depends on most, and a map of
        all."""
        words = [one_line(word) for word in self.words]
        if not words:
            note = "There is no word that can be left out: the text would be empty without it."
            rows = [
                [one_line(answer), value]
                for answer, value in zip(self.answers, self.values, strict=True)
            ]
            return [Table(["answer", "value"], rows, about, notes=[note], formats=[".3f"])]
        if len(self.answers) == 1:
            [name] = self.answers
            [value] = self.values
            title = f"how much {name} = {value:.3f} falls without each word · {about}"
            falls = [
                round(float(fall), 3) + 0.0 for fall in self.falls_WA[:, 0]
            ]  # + 0.0: no negative zero
            # An axis of at least a tenth of the value keeps noise from looking like a reason.
            return [
                Bars(words, {"fall": falls}, "fall; below 0 it rises", title, span=abs(value) / 10)
            ]
        table_rows = []
        for answer, value, falls_W in zip(self.answers, self.values, self.falls_WA.T, strict=True):
            most = [
                w
                for w in np.argsort(-falls_W, kind="stable")[:WORDS_PER_TAG]
                if falls_W[w] >= 0.0005
            ]
            named = "  ".join(f"{words[w]} {falls_W[w]:+.3f}" for w in most)
            table_rows.append([one_line(answer), value, named or Cell("no single word", ours=True)])
        table = Table(
            ["word/tag", "probability", "falls most without"], table_rows, formats=[".3f"]
        )
        title = "how much the probability of each tag falls without each word"
        heat_map = HeatMap(
            words, [*map(one_line, self.answers)], self.falls_WA, f"{title} · {about}"
        )
        return [table, HeatMaps([heat_map], title=title)]


MAX_OCCLUDED_WORDS = 512
"""Maximum length of a text in words, since each word costs one more reading of the text."""


def label_occlusion(task: Any, model: Headed, given: Example) -> Occlusion:
    """The occlusion of a label, a choice or a number."""
    inputs = _shortened(task, model, given.texts)
    [whole] = task.answers.predict(model, [given])
    shorter = [shortened.example for shortened in inputs]
    others = task.answers.predict(model, shorter) if inputs else []
    if hasattr(whole, "probabilities"):
        values = [prediction.probabilities[whole.output] for prediction in (whole, *others)]
        return _occlusion(f"P({whole.output})", values, inputs)
    return _occlusion("the number", [prediction.output for prediction in (whole, *others)], inputs)


def answer_occlusion(task: Any, model: Headed, given: Example) -> Occlusion:
    """The occlusion of the answer to a question, or of the decision that there is none. The words
    of the answer itself stay in the text."""
    [whole] = task.answers.predict(model, [given])
    fields = given.texts
    start = 0 if whole.span is None else whole.span.start
    inputs = _shortened(task, model, fields, whole.span)
    questions, contexts = zip(
        fields, *(shortened.example.texts for shortened in inputs), strict=True
    )
    moved = [
        len(fields[1]) - len(context) if shortened.span.start < start else 0
        for shortened, context in zip(inputs, contexts[1:], strict=True)
    ]
    answers = [json.dumps([] if whole.none else [(start - by, whole.output)]) for by in (0, *moved)]
    examples = Dataset.of(
        task, {"context": contexts, "question": questions, "answers": answers}, str
    )
    values = [
        task.answer_probability(best, read, task.answer_tokens(examples, row))
        for row, best, read in task.answers_to(model, examples, 1)
    ]
    return _occlusion("P(no answer)" if whole.none else f"P({whole.output})", values, inputs)


def tag_occlusion(task: Any, model: Headed, given: Example) -> Occlusion:
    """The occlusion of the tag of every word."""
    text, spans = task.split(given)
    words = [text[slice(*span)] for span in spans]
    _check_count(len(words))
    sentences = [
        words,
        *(words[:out] + words[out + 1 :] for out in range(len(words)) if len(words) > 1),
    ]
    whole, *without = task.tag_words(model, task.encode_words(sentences))
    p_without = [np.exp(shortened.log_p_WY) for shortened in without]
    tags = np.array(whole.best)
    values = np.array(whole.probabilities)
    falls_WA = np.zeros((len(words), len(words)))
    for out, p in enumerate(p_without):
        others = np.delete(np.arange(len(words)), out)
        falls_WA[out, others] = values[others] - p[np.arange(len(others)), tags[others]]
    answers = tuple(f"{word}/{task.labels[tag]}" for word, tag in zip(words, tags, strict=True))
    kept = len(p_without)
    return Occlusion(answers, tuple(map(float, values)), tuple(words[:kept]), falls_WA[:kept])


class InputWithoutWord(NamedTuple):
    """An input without one word."""

    example: Example
    word: str
    span: Span


def _shortened(
    task: Task, model: Headed, fields: Sequence[str], answer: Span | None = None
) -> list[InputWithoutWord]:
    """The input without each word, as far as the model can still read it; an answer in the second
    text stays."""
    words = [
        (number, span)
        for number, text in enumerate(fields)
        for span in word_spans(text, "punctuation")
    ]
    _check_count(len(words))
    inputs = []
    for number, span in words:
        if number == 0 or answer is None or span.start >= answer.end or span.end <= answer.start:
            texts = [*fields[:number], without(fields[number], span), *fields[number + 1 :]]
            example = task.inputs.of_texts(texts, "input")
            inputs.append(InputWithoutWord(example, fields[number][slice(*span)], span))
    examples = [shortened.example for shortened in inputs]
    unreadable = task.answers.encode_inputs(model, examples).unreadable
    return [shortened for row, shortened in enumerate(inputs) if row not in unreadable]


def _occlusion(name: str, values: Sequence[float], inputs: Sequence[InputWithoutWord]) -> Occlusion:
    """The occlusion of one answer, given its value for the text and for the text without each
    word."""
    falls_WA = np.array([[values[0] - value] for value in values[1:]])
    return Occlusion(
        (name,), (float(values[0]),), tuple(shortened.word for shortened in inputs), falls_WA
    )


def without(text: str, span: Span) -> str:
    """The text without a word and one of the spaces around it, so that a full stop still follows a
    word directly."""
    before = text[: span.start]
    after = text[span.end :]
    if (not before or before[-1].isspace()) and after[:1].isspace():
        return before + after[1:]
    alone = not after or (text[span.start].isalnum() and not after[0].isalnum())
    return before[:-1] + after if alone and before[-1:].isspace() else before + after


def _check_count(words: int) -> None:
    if words > MAX_OCCLUDED_WORDS:
        what = f"the text has {words:,} words, each of which would be left out once"
        raise DecodeError(
            what, where="explain", hint=f"at most {MAX_OCCLUDED_WORDS}: give a part of it"
        )
