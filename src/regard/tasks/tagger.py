"""Words tagged, and the entities that their tags make, each where it stands in the text as it was typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import LabelledBatch
from regard.data.framing import padded_rows
from regard.data.schemes import Entity, entities_in, is_chunk_tag
from regard.data.tagged import Marked, Marking
from regard.models.base import device_of
from regard.models.headed import Headed
from regard.tasks.inputs import by_length
from regard.text.offsets import Span, Words, word_spans

TAG_TOKENS = 8_192
"""Padded tokens that are read at once."""
LogProbabilities = NDArray[np.float32]


class Tagger(Headed):
    """A model with a tag for each word."""

    marking: Marking
    """How words become rows."""
    words: Words
    """How a text that is typed becomes words."""

    @property
    def finds_entities(self) -> bool:
        """Whether its tags mark entities."""
        return all(map(is_chunk_tag, self.labels))


@torch.inference_mode()
def tag_words(
    model: Tagger, sentences: Sequence[Sequence[Sequence[int]]], progress: Callable[[int], None] = lambda done: None
) -> list[LogProbabilities]:
    """log P of every tag for each word, [words, Y], from the tokens of each word."""
    rows = [(number, marked) for number, words in enumerate(sentences) for marked in model.marking.rows(words)]
    found = [np.zeros((len(words), len(model.labels)), dtype=np.float32) for words in sentences]
    left = np.bincount([number for number, _ in rows], minlength=len(sentences))
    for numbers in by_length([len(marked.row.ids) for _, marked in rows], TAG_TOKENS):
        log_p_BLY = _read(model, [rows[number][1] for number in numbers])
        for number, log_p_LY in zip(numbers, log_p_BLY, strict=True):
            sentence, marked = rows[number]
            found[sentence][marked.words] = log_p_LY[marked.places]
            left[sentence] -= 1
            progress(int(left[sentence] == 0))
    return found


def _read(model: Tagger, marked: Sequence[Marked]) -> LogProbabilities:
    text, segments_BL = padded_rows([one.row for one in marked], model.framing.tokenizer.pad)
    owners_B = torch.arange(len(marked))
    batch = LabelledBatch(text, segments_BL, owners_B, owners_B).to(device_of(model))
    log_p_BLY: LogProbabilities = model(batch).float().log_softmax(-1).cpu().numpy()
    return log_p_BLY


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text, and its tag."""

    span: Span
    tag: str
    probability: float


@dataclass(frozen=True)
class FoundEntity:
    """An entity of a text: `input[start:end]` is its text."""

    type: str
    start: int
    end: int
    text: str
    probability: float
    """That of all its tags, each given the text."""


@dataclass(frozen=True)
class TaggedInput:
    """A text, the tags of its words, and the entities that these make."""

    input: str
    words: tuple[TaggedWord, ...]
    finds_entities: bool
    search: None = None

    @property
    def entities(self) -> list[FoundEntity]:
        """In their order; none where tags mark none."""
        return [*map(self._found, entities_in([word.tag for word in self.words]))] if self.finds_entities else []

    @property
    def output(self) -> str:
        """The text with its entities in brackets; where tags mark none, with a tag behind each word."""
        if not self.finds_entities:
            return " ".join(f"{self._text(word.span)}/{word.tag}" for word in self.words)
        return bracketed(self.input, [(entity.type, Span(entity.start, entity.end)) for entity in self.entities])

    def to_json(self) -> dict[str, Any]:
        words = [
            {"text": self._text(word.span), **word.span._asdict(), "tag": word.tag, "probability": word.probability}
            for word in self.words
        ]
        found = {"input": self.input, "output": self.output}
        return found | ({"entities": [*map(asdict, self.entities)]} if self.finds_entities else {}) | {"words": words}

    def lines(self, nbest: int) -> Iterator[str]:
        yield self.output

    def _text(self, span: Span) -> str:
        return self.input[span.start : span.end]

    def _found(self, entity: Entity) -> FoundEntity:
        words = self.words[entity.start : entity.end]
        span = Span(words[0].span.start, words[-1].span.end)
        return FoundEntity(entity.type, *span, self._text(span), prod(word.probability for word in words))


def bracketed(text: str, entities: Sequence[tuple[str, Span]]) -> str:
    """`[PER Anna Kim] lives in [LOC Oslo].`"""
    parts, done = [], 0
    for type, span in entities:
        parts += [text[done : span.start], f"[{type} {text[span.start : span.end]}]"]
        done = span.end
    return "".join([*parts, text[done:]])


def tagged_inputs(model: Tagger, texts: Sequence[str], progress: Callable[[int], None]) -> list[TaggedInput]:
    """Each text with the likeliest tag of every word."""
    spans = [word_spans(text, model.words) for text in texts]
    words = [[text[span.start : span.end] for span in own] for text, own in zip(texts, spans, strict=True)]
    found = []
    for text, own, log_p_WY in zip(texts, spans, tag_words(model, model.marking.encode(words), progress), strict=True):
        best_W = log_p_WY.argmax(-1)
        p_W = np.exp(np.take_along_axis(log_p_WY, best_W[:, None], -1))[:, 0]
        tagged = zip(own, best_W.tolist(), p_W.tolist(), strict=True)
        found.append(
            TaggedInput(
                text, tuple(TaggedWord(span, model.labels[tag], p) for span, tag, p in tagged), model.finds_entities
            )
        )
    return found
