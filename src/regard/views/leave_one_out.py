"""How much the answer of a classifier, tagger, ... depends on each word: the input is read again without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.dataset import Dataset
from regard.errors import DecodeError
from regard.models.headed import Headed
from regard.runs import Run
from regard.tasks.question_answering import Answered, question_in
from regard.tasks.task import Inputs
from regard.text.normalise import Span, Words, one_line, word_spans
from regard.views.report import Bars, HeatMap, HeatMaps, Numbers, Part, Table

MOST_WORDS = 512
"""Longest text in words: each word costs one more reading of it."""
NAMED = 3
"""Words that are named for each tag."""


@dataclass(frozen=True, eq=False)
class Occlusion:
    """The model's answers for a text, and how much the value of each falls without each of its words.

    Erasure of a word (Li et al. 2016, arXiv:1612.08220, section 3.1), as a difference of probabilities:

        fall(w) = S(x) - S(x without w)             S: the probability of the answer to x, or the number
    """

    answers: tuple[str, ...]
    """What is explained: a label, an answer, a number; for a tagger, every word with its tag."""
    values: tuple[float, ...]
    """S(x) of each."""
    words: tuple[str, ...]
    """The words that were left out, one at a time."""
    falls_WA: Numbers
    """Below 0 where a value rises. The fall of a word's own tag is 0."""

    def to_json(self) -> dict[str, Any]:
        values = {"answers": list(self.answers), "values": list(self.values)}
        return values | {"words": list(self.words), "falls": self.falls_WA.tolist()}

    def parts(self, about: str) -> list[Part]:
        """A bar for each word; for a tagger, the words that each tag depends on most, and a map of all."""
        words = [one_line(word) for word in self.words]
        if len(self.answers) == 1:
            [name], [value] = self.answers, self.values
            title = f"how much {name} = {value:.3f} falls without each word · {about}"
            falls = [_rounded(fall) for fall in self.falls_WA[:, 0]]
            # An axis of at least a tenth of the value keeps noise from looking like a reason.
            return [Bars(words, {"fall": falls}, "fall; below 0 it rises", title, span=abs(value) / 10)]
        rows = [
            [one_line(answer), f"{value:.3f}", _most(words, falls_W) or "no single word"]
            for answer, value, falls_W in zip(self.answers, self.values, self.falls_WA.T, strict=True)
        ]
        table = Table(["word/tag", "probability", "falls most without"], rows)
        title = "how much the probability of each tag falls without each word"
        heat_map = HeatMap(words, [*map(one_line, self.answers)], self.falls_WA, f"{title} · {about}")
        return [table, HeatMaps([heat_map], title=title)]


def _most(words: Sequence[str], falls_W: Numbers) -> str:
    most = np.argsort(-falls_W, kind="stable")[:NAMED]
    return "  ".join(f"{words[w]} {falls_W[w]:+.3f}" for w in most if falls_W[w] >= 0.0005)


def _rounded(fall: float) -> float:
    return round(float(fall), 3) + 0.0  # which has no negative zero


# ------------------------------------------------------------------------------------------------ by kind of answer


def leave_one_out(run: Run, model: Headed, text: str) -> Occlusion:
    """The answer of a model with a head, and how much of it depends on each word."""
    answers: dict[str, Callable[[Run, Any, str], Occlusion]] = {"tagging": _tags, "question_answering": _span}
    return answers.get(run.recipe.task, _label)(run, model, text)


def _label(run: Run, model: Headed, text: str) -> Occlusion:
    """A label, a choice or a number."""

    def predict(*texts: str) -> Sequence[Any]:
        predictions: Sequence[Any] = run.task.predict(model, Inputs.of(texts))
        return predictions

    def value_of(prediction: Any) -> float:
        return float(prediction.output if label is None else prediction.probabilities[label])

    [whole] = predict(text)
    fields = [text] if run.task.arrangement == "single" else text.split("\t")
    inputs = _readable(run, model, shortened(fields, "punctuation"), "\t".join)
    others = predict(*("\t".join(shorter.fields) for shorter in inputs))
    label = whole.output if hasattr(whole, "probabilities") else None
    name, value = "the number" if label is None else f"P({label})", value_of(whole)
    falls_WA = np.array([[value - value_of(other)] for other in others])
    return Occlusion((name,), (value,), tuple(shorter.word for shorter in inputs), falls_WA)


def _span(run: Run, model: Headed, text: str) -> Occlusion:
    """The answer to a question, or that there is none. The words of the answer itself stay in the text."""
    [whole] = run.task.predict(model, Inputs.of([text]))
    fields = question_in(text, "input")
    assert isinstance(whole, Answered)
    span = whole.span or Span(0, 0)
    outside = [shorter for shorter in shortened(fields, "punctuation") if not shorter.overlaps(span)]
    inputs = _readable(run, model, outside, _as_object)
    rows = [(fields, span.start), *((shorter.fields, shorter.moved(fields, span)) for shorter in inputs)]
    answers = [json.dumps([] if whole.none else [(start, whole.output)]) for _, start in rows]
    questions, contexts = ([texts[column] for texts, _ in rows] for column in (0, 1))
    task, columns = run.task, {"context": contexts, "question": questions, "answers": answers}
    examples = Dataset.of(task, columns, str)
    found = task.answers_to(model, examples, 1)
    values = [task.answer_probability(best, read, task.answer_tokens(examples, row)) for row, best, read in found]
    name = "P(no answer)" if whole.none else f"P({whole.output})"
    falls_WA = np.array([[values[0] - value] for value in values[1:]])
    return Occlusion((name,), (values[0],), tuple(shorter.word for shorter in inputs), falls_WA)


def _tags(run: Run, model: Headed, text: str) -> Occlusion:
    """The tag of every word."""
    words = [text[slice(*span)] for span in run.task.split(text)]
    _check_count(len(words))
    sentences = [words, *(words[:out] + words[out + 1 :] for out in range(len(words)))]
    p_whole, *p_without = [np.exp(log_p) for log_p in run.task.tag_words(model, run.task.encode_words(sentences))]
    tags = p_whole.argmax(-1)
    values = p_whole.max(-1)
    falls_WA = np.zeros((len(words), len(words)))
    for out, p in enumerate(p_without):
        others = np.delete(np.arange(len(words)), out)
        falls_WA[out, others] = values[others] - p[np.arange(len(others)), tags[others]]
    answers = tuple(f"{word}/{run.task.labels[tag]}" for word, tag in zip(words, tags, strict=True))
    return Occlusion(answers, tuple(map(float, values)), tuple(words), falls_WA)


# ------------------------------------------------------------------------------------------------- shortened inputs


@dataclass(frozen=True)
class Shortened:
    """An input without one word."""

    fields: tuple[str, ...]
    """Its texts, one of them without the word."""
    word: str
    field: int
    """The number of that text."""
    start: int
    """Where the word was in it."""

    def overlaps(self, answer: Span) -> bool:
        """Whether the word is part of an answer, which is in the second text."""
        return self.field == 1 and self.start < answer.end and self.start + len(self.word) > answer.start

    def moved(self, whole: Sequence[str], answer: Span) -> int:
        """Where the answer begins without the word."""
        before = self.field == 1 and self.start < answer.start
        return answer.start - (len(whole[1]) - len(self.fields[1]) if before else 0)


def shortened(fields: Sequence[str], words: Words) -> list[Shortened]:
    """The texts of an input without each of their words."""
    inputs = []
    for number, text in enumerate(fields):
        for span in word_spans(text, words):
            texts = (*fields[:number], without(text, span), *fields[number + 1 :])
            inputs.append(Shortened(texts, text[slice(*span)], number, span.start))
    _check_count(len(inputs))
    return inputs


def without(text: str, span: Span) -> str:
    """The text without a word and one of the spaces around it, so that a full stop still follows a word directly."""
    before, after = text[: span.start], text[span.end :]
    if (not before or before[-1].isspace()) and after[:1].isspace():
        return before + after[1:]
    alone = not after or (text[span.start].isalnum() and not after[0].isalnum())
    return before[:-1] + after if alone and before[-1:].isspace() else before + after


def _readable(
    run: Run, model: Headed, inputs: Sequence[Shortened], join: Callable[[Sequence[str]], str]
) -> list[Shortened]:
    """Those that the model can still read: a text without its only word is empty."""
    texts = [join(shorter.fields) for shorter in inputs]
    bad = run.task.encode_inputs(model, Inputs.of(texts)).unreadable
    _check_count(1 + (len(bad) < len(texts)))
    return [shorter for row, shorter in enumerate(inputs) if row not in bad]


def _check_count(words: int) -> None:
    if words < 2:
        hint = "give two words or more; predict gives the answer for one"
        raise DecodeError("without its only word the text is empty", where="explain", hint=hint)
    if words > MOST_WORDS:
        what = f"the text has {words:,} words, each of which would be left out once"
        raise DecodeError(what, where="explain", hint=f"at most {MOST_WORDS}: give a part of it")


def _as_object(fields: Sequence[str]) -> str:
    return json.dumps(dict(zip(("question", "context"), fields, strict=True)))
