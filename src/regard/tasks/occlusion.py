"""How much an answer depends on each word of its input: the input is read again without it.

Erasure of a word (Li et al. 2016, arXiv:1612.08220, section 3.1), as a difference of probabilities:

    fall(w) = S(x) - S(x without w)             S: the probability of the answer to x, or the number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.data.example import Example
from regard.data.inputs import Inputs
from regard.errors import DecodeError
from regard.models.headed import Headed
from regard.tasks.answers import Answers, Prediction
from regard.tasks.views import WordFalls
from regard.text.normalise import Span, word_spans

MAX_OCCLUDED_WORDS = 512
"""Maximum length of a text in words, since each word costs one more reading of the text."""


class InputWithoutWord(NamedTuple):
    """An input without one word."""

    example: Example
    word: str
    span: Span


def occlude_words(answers: Answers, inputs: Inputs, model: Headed, given: Example) -> WordFalls:
    """How much each word matters for a label, a choice or a number."""
    shorter = inputs_without_words(answers, inputs, model, given.texts)
    [whole] = predictions(answers, model, [given])
    others = predictions(answers, model, [one.example for one in shorter]) if shorter else []
    if hasattr(whole, "probabilities"):
        values = [prediction.probabilities[whole.output] for prediction in (whole, *others)]
        return falls_of_one(f"P({whole.output})", values, shorter)
    return falls_of_one(
        "the number", [prediction.output for prediction in (whole, *others)], shorter
    )


def predictions(answers: Answers, model: Headed, inputs: Sequence[Example]) -> Sequence[Any]:
    """A prediction for each input."""
    given: Sequence[Prediction] = answers.predict_encoded(
        model, answers.encode_inputs(model, inputs)
    )
    return given


def inputs_without_words(
    answers: Answers,
    inputs: Inputs,
    model: Headed,
    texts: Sequence[str],
    answer: Span | None = None,
) -> list[InputWithoutWord]:
    """The input without each word, as far as the model can still read it; an answer in the second
    text stays."""
    words = [
        (number, span)
        for number, text in enumerate(texts)
        for span in word_spans(text, "punctuation")
    ]
    check_word_count(len(words))
    shorter = []
    for number, span in words:
        if number == 0 or answer is None or span.start >= answer.end or span.end <= answer.start:
            left = [*texts[:number], without(texts[number], span), *texts[number + 1 :]]
            example = inputs.of_texts(left, "input")
            shorter.append(InputWithoutWord(example, texts[number][slice(*span)], span))
    unreadable = answers.encode_inputs(model, [one.example for one in shorter]).unreadable
    return [one for row, one in enumerate(shorter) if row not in unreadable]


def falls_of_one(
    answer: str, values: Sequence[float], shorter: Sequence[InputWithoutWord]
) -> WordFalls:
    """How much each word matters for one answer, given its value for the text and for the text without
    each word."""
    falls_WA = np.array([[values[0] - value] for value in values[1:]])
    words = tuple(one.word for one in shorter)
    return WordFalls((answer,), (float(values[0]),), words, falls_WA)


def without(text: str, span: Span) -> str:
    """The text without a word and one of the spaces around it, so that a full stop still follows a
    word directly."""
    before = text[: span.start]
    after = text[span.end :]
    if (not before or before[-1].isspace()) and after[:1].isspace():
        return before + after[1:]
    alone = not after or (text[span.start].isalnum() and not after[0].isalnum())
    return before[:-1] + after if alone and before[-1:].isspace() else before + after


def check_word_count(words: int) -> None:
    if words > MAX_OCCLUDED_WORDS:
        what = f"the text has {words:,} words, each of which would be left out once"
        hint = f"at most {MAX_OCCLUDED_WORDS}: give a part of it"
        raise DecodeError(what, where="explain", hint=hint)
