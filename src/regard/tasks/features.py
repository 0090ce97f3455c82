"""Texts -> the vectors that a pre-trained model has for their tokens, or for each text as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import MaskedBatch, TextBatch, Tokens
from regard.errors import DecodeError
from regard.models.base import Contextual, Pooling, device_of
from regard.tasks.inputs import Inputs, Note, by_length, encode_inputs, padded, refuse_longer
from regard.tasks.task import Task
from regard.text.tokenizers import Tokenizer, unknown_in

READ_TOKENS = 8_192
"""Padded tokens that are read at once."""


@dataclass(frozen=True)
class Features:
    """The vectors of some texts: of their tokens, those of text i in the rows offsets[i] to offsets[i + 1], or of each
    text as a whole."""

    inputs: tuple[str, ...]
    vectors: NDArray[np.float32]
    """[tokens, D], or [texts, D] where there is one vector a text."""
    tokens: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()
    """What a user should know about the inputs."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a .npz file of them holds."""
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "inputs": np.array(self.inputs)}
        if self.offsets:
            arrays |= {"tokens": np.array(self.tokens), "offsets": np.array(self.offsets, dtype=np.int64)}
        return arrays


def features(
    task: Task, model: Contextual, inputs: Inputs, *, layer: int = -1, pooling: Pooling | None = None
) -> Features:
    """A vector for each token of each text, or with `pooling` one for each text, from one of the model's layers.

    Layer 0 is the embeddings, -1 the last one. Special tokens are read around a text, but have no vectors here.
    """
    tokenizer, texts = task.tokenizers["text"], tuple(inputs.texts)
    encoded = encode_inputs(tokenizer, [tokenizer.fold(text) for text in texts], inputs.places, letters=model.letters)
    rows = [[_first(model, tokenizer), *ids, tokenizer.end] for ids in encoded]
    longest = getattr(model, "longest", None)
    if longest is not None:
        refuse_longer(rows, longest, inputs.places)
    notes = tuple(task.text_notes(inputs, rows))
    by_number = dict(_read(model, tokenizer, rows, layer, pooling))
    vectors = [by_number[number] for number in range(len(rows))]
    if pooling is not None:
        return Features(texts, np.stack(vectors), notes=notes)
    tokens = tuple(token for ids in encoded for token in _tokens(tokenizer, ids))
    offsets = np.cumsum([0, *map(len, encoded)]).tolist()
    return Features(texts, np.concatenate(vectors), tokens, tuple(offsets), notes)


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What the vectors are of: a token as the vocabulary spells it, or the word that was read in spite of it."""
    spelt = tokenizer.tokens(ids)
    for place, token in unknown_in(ids):
        spelt[place] = token.word
    return spelt


def _first(model: Contextual, tokenizer: Tokenizer) -> int:
    """What a text begins with: [CLS], or for a language model the `</s>` of the text before."""
    return tokenizer.begin if model.config.segments else tokenizer.end


@torch.inference_mode()
def _read(
    model: Contextual, tokenizer: Tokenizer, rows: Sequence[Sequence[int]], layer: int, pooling: Pooling | None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    for numbers in by_length([len(row) for row in rows], READ_TOKENS):
        text = padded([rows[number] for number in numbers], tokenizer.pad).to(device_of(model))
        batch = _batch(model, text)
        try:
            vectors = model.features(batch, layer) if pooling is None else model.sentence(batch, layer, pooling)
        except IndexError:
            last = len(model.layers_of(batch)) - 1
            raise DecodeError(f"there is no layer {layer}", where="--layer", hint=f"0 to {last}, or -1") from None
        for number, vector in zip(numbers, vectors.float().cpu().numpy(), strict=True):
            yield number, vector if pooling is not None else vector[1 : len(rows[number]) - 1]


def _batch(model: Contextual, text: Tokens) -> TextBatch | MaskedBatch:
    if not model.config.segments:
        return TextBatch(text)
    nothing = text.ids_BL.new_empty(0)
    return MaskedBatch(text, torch.zeros_like(text.ids_BL), nothing, nothing)
