"""What a run's vocabulary lacks in a text that its model is to read."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import Problem
from regard.runs.run import Run
from regard.tasks import PRETRAINING
from regard.tasks.headed import HeadedTask
from regard.tasks.inputs import is_foreign, nothing_known, problem_in_text
from regard.tasks.labelling import TextLabelling
from regard.tasks.masked_language_modeling import GAP
from regard.tasks.question_answering import QuestionAnswering, question_in
from regard.text.spelling import encode_spelled
from regard.text.tokenizers import Tokenizer

NAMED, SHOWN = 3, 20
"""How many words a message names, and how many characters of each it shows."""


def unknown(run: Run, texts: Sequence[str], places: Sequence[str]) -> list[str]:
    """A sentence for each text that holds what the model knows nothing of; one that reads letters knows every word.

    A run with a head has an answer to every text: it is told of those in which nothing at all is known.
    """
    if isinstance(run.task, HeadedTask):
        return _foreign(run, texts, places)
    if not isinstance(run.task, PRETRAINING) or run.recipe.model.letters is not None:
        return []
    tokenizer = run.tokenizers["text"]
    plain = [tokenizer.fold(text.replace(GAP, " ")) for text in texts]
    rows = zip(places, plain, tokenizer.encode_batch(plain), strict=True)
    counted = [(place, text, ids.count(tokenizer.unk)) for place, text, ids in rows]
    [read] = tokenizer.tokens([tokenizer.unk])
    return [
        f"{place} has {_tokens(count)} not in the vocabulary ({_words(tokenizer, text)}): the model reads {read} there"
        for place, text, count in counted
        if count
    ]


def _foreign(run: Run, texts: Sequence[str], places: Sequence[str]) -> list[str]:
    read = [(one, place) for text, place in zip(texts, places, strict=True) for one in _fields(run, text, place)]
    tokenizer = run.tokenizers["text"]
    encoded = encode_spelled(tokenizer, [text for text, _ in read], run.recipe.model.letters)
    foreign = (one for one, ids in zip(read, encoded, strict=True) if is_foreign(tokenizer, ids))
    return [str(nothing_known(text, place)) for text, place in foreign]


def _fields(run: Run, text: str, place: str) -> Sequence[str]:
    """A text, two of them, a text and its choices, or a question and its text; none that cannot be read."""
    fields: Sequence[str] | Problem = [text]
    if isinstance(run.task, QuestionAnswering):
        fields = question_in(text, place)
    elif isinstance(run.task, TextLabelling) and len(run.task.text_columns) > 1:
        fields = text.split("\t")
    return [] if isinstance(fields, Problem) or any(problem_in_text(one, place) for one in fields) else fields


def _tokens(count: int) -> str:
    return "1 token that is" if count == 1 else f"{count:,} tokens that are"


def _words(tokenizer: Tokenizer, text: str) -> str:
    """The first words with an unknown token, as they were typed."""
    words = list(dict.fromkeys(text.split(" ")))
    found = [word for word, ids in zip(words, tokenizer.encode_batch(words), strict=True) if tokenizer.unk in ids]
    shown = [repr(word if len(word) <= SHOWN else f"{word[:SHOWN]}...") for word in found]
    return ", ".join([*shown[:NAMED], *(["..."] if shown[NAMED:] else [])])
