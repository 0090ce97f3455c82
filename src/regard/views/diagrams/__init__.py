"""The drawing of a run with a sentence flowing through it; DIAGRAMS has one function per family of
models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.data.example import without_faults
from regard.data.inputs import Given
from regard.errors import DecodeError
from regard.runs import Run
from regard.views.diagrams.captioner import draw_captioner
from regard.views.diagrams.counting import draw_bag_of_words, draw_ngram
from regard.views.diagrams.diagram import Diagram
from regard.views.diagrams.memory_network import draw_memory_network
from regard.views.diagrams.memory_words import draw_memory_words
from regard.views.diagrams.recurrent import draw_bahdanau, draw_luong, draw_rnn
from regard.views.diagrams.stacks import draw_text_model, draw_transformer
from regard.views.diagrams.words import draw_cnn, draw_word_vectors
from regard.views.explanation import Explanation
from regard.views.labels import shorten

MAX_CLAIMED_CHARACTERS = 120
"""Characters of an output that the title of the drawing has."""
DIAGRAMS: dict[str, Callable[[Explanation], Diagram]] = {
    "bag_of_words": draw_bag_of_words,
    "ngram": draw_ngram,
    "word2vec": draw_text_model,
    "glove": draw_text_model,
    "fasttext": draw_text_model,
    "rnn": draw_rnn,
    "bahdanau": draw_bahdanau,
    "luong": draw_luong,
    "self_attention": draw_transformer,
    "transformer": draw_transformer,
    "captioner": draw_captioner,
    "memory_network": draw_memory_network,
    "memory_lm": draw_memory_words,
    "lstm_lm": draw_text_model,
    "elmo": draw_text_model,
    "gpt": draw_text_model,
    "bert": draw_text_model,
    "mpnet": draw_text_model,
    "deberta": draw_text_model,
    "modernbert": draw_text_model,
    "bilstm": draw_text_model,
    "cnn": draw_cnn,
}
"""`model.kind` -> what draws it with the explanation of a sentence."""


def diagram(explanation: Explanation) -> Diagram:
    """The model of an explanation, with its sentence."""
    kind = explanation.model_kind
    if kind not in DIAGRAMS:
        raise DecodeError(f"there is no drawing of {kind}", where="--view diagram")
    return _with_the_whole_output(DIAGRAMS[kind](explanation), explanation)


def _with_the_whole_output(drawing: Diagram, explanation: Explanation) -> Diagram:
    """A drawing that was written token by token: its last moment says the whole output."""
    written = [moment for moment in drawing.moments if moment.role == "target"]
    if len(written) < 2 or len(written) != len(explanation.steps) or not explanation.output:
        return drawing
    claim = f"The whole output is written: “{shorten(explanation.output, MAX_CLAIMED_CHARACTERS)}”"
    return replace(
        drawing, moments=[*drawing.moments[:-1], replace(drawing.moments[-1], claims=[claim])]
    )


def explains_nothing(run: Run) -> bool:
    """Whether the run only has vectors of words, which `explain` has nothing to say about."""
    return run.recipe.model.pretraining == "surrounding" and not run.task.network.has_head


def diagram_of_vectors(run: Run, text: Given) -> Diagram:
    """A run that only has vectors of words, with the words of a text."""
    model: Any = run.load_model()
    tokenizer = run.tokenizers["text"]
    given = without_faults(run.task.inputs.given(text))
    if len(given) != 1 or not given[0].text.strip():
        raise DecodeError("one text is needed", where="input")
    ids = tokenizer.encode(given[0].text)
    return draw_word_vectors(model, tokenizer.pieces(ids), ids)
