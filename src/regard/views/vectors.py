"""The vectors that a model has for texts: one per token, or one per text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import MaskedBatch, TextBatch
from regard.data.example import Example
from regard.data.framing import Framing
from regard.errors import DecodeError, InputError, Problem, first_of
from regard.models.base import Contextual, Pooling, device_of, pool, refused_pooling
from regard.tasks import reading
from regard.tasks.answers import Note
from regard.tasks.views import TextVectors
from regard.text.spelling import Token, ids_of, unknown_in
from regard.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Features:
    """The vectors of some texts: of their tokens, those of text i in the rows offsets[i] to
    offsets[i + 1], or of each text as a whole. A text that was skipped has no tokens, or a vector
    of NaN."""

    inputs: tuple[str, ...]
    vectors: NDArray[np.float32]  # [tokens, D], or [texts, D] with one vector per text
    tokens: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()  # what a user should know about the inputs
    skipped: tuple[Problem, ...] = ()  # why each text that was skipped cannot be read

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of a .npz file."""
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "inputs": np.array(self.inputs)}
        if self.offsets:
            arrays |= {
                "tokens": np.array(self.tokens),
                "offsets": np.array(self.offsets, dtype=np.int64),
            }
        return arrays


def text_vectors(
    vectors_of: TextVectors,
    model: Contextual,
    inputs: Sequence[Example],
    *,
    layer: int = -1,
    pooling: Pooling | None = None,
    normalize: bool = False,
    skip_bad: bool = False,
    gaps: bool = False,
) -> Features:
    """A vector for each token of each text, or with `pooling` one for each text, from one of the
    model's layers; with `normalize` each of length 1.

    Layer 0 is the embeddings, -1 the last one. Special tokens are read around a text, but have no
    vectors here: BERT reads [CLS] before it, a language model the `</s>` of the text before. A long
    text is cut. One that cannot be read is an InputError; with `skip_bad` it is skipped. With
    `gaps` a masked model reads [MASK] in a text as its token.
    """
    texts = tuple(given.text for given in inputs)
    problems = [reading.problem_in(given) for given in inputs]
    read = [row for row, problem in enumerate(problems) if problem is None]
    skipped = [*filter(None, problems)]
    if not read or (skipped and not skip_bad):
        raise InputError(problems=first_of(skipped) or [Problem("--features", "there is no text")])
    inputs = [inputs[row] for row in read]
    tokenizer = vectors_of.tokenizer
    encoded = _encoded(vectors_of, model, inputs, gaps=gaps)
    framing = _framing(vectors_of, model)
    _check_chosen(model, framing, layer, pooling)
    notes = _notes(vectors_of, inputs, encoded, framing)
    encoded = [tokens[: framing.room] for tokens in encoded]
    rows = [framing.frame(tokens).tokens for tokens in encoded]
    states = _states(model, rows, tokenizer.pad, layer, pooling)
    if pooling is None:  # without special tokens and padding
        first = framing.before(1)
        states = [own[first : first + len(ids)] for own, ids in zip(states, encoded, strict=True)]
    vectors = np.concatenate(states) if pooling is None else np.stack(states)
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    if pooling is not None:
        of_all = np.full((len(texts), vectors.shape[1]), np.nan, dtype=np.float32)
        of_all[read] = vectors
        return Features(texts, of_all, notes=notes, skipped=tuple(skipped))
    sizes = np.zeros(len(texts), dtype=np.int64)
    sizes[read] = [len(ids) for ids in encoded]
    tokens = [token for ids in encoded for token in _spelt(tokenizer, ids)]
    offsets = (0, *np.cumsum(sizes).tolist())
    return Features(texts, vectors, tuple(tokens), offsets, notes, tuple(skipped))


def _encoded(
    vectors_of: TextVectors, model: Contextual, inputs: Sequence[Example], *, gaps: bool
) -> list[list[Token]]:
    """The tokens of each text as in training; with `gaps` a masked model reads [MASK] as its
    token."""
    tokenizer = vectors_of.tokenizer
    texts = [tokenizer.fold(given.text) if vectors_of.folds else given.text for given in inputs]
    encoded = [
        tokens or [tokenizer.unk]
        for tokens in tokenizer.encode_spelled(texts, model.config.letters)
    ]
    if not gaps or vectors_of.encode_gaps is None:
        return encoded
    return [
        [*(vectors_of.encode_gaps(text) or tokens)]
        for text, tokens in zip(texts, encoded, strict=True)
    ]


def _framing(vectors_of: TextVectors, model: Contextual) -> Framing:
    """The special tokens around a text, and the length to which it is cut."""
    longest = vectors_of.longest or getattr(model, "longest", None) or reading.LONGEST
    segments = model.config.segments
    return Framing(vectors_of.tokenizer, segments, longest, source=vectors_of.source)


def _spelt(tokenizer: Tokenizer, tokens: Sequence[Token]) -> list[str]:
    """The tokens as texts; an unknown word that a model of characters has read is spelt out."""
    spelt = tokenizer.tokens(ids_of(tokens))
    for place, token in unknown_in(tokens):
        spelt[place] = token.word
    return spelt


def _check_chosen(model: Contextual, framing: Framing, layer: int, pooling: Pooling | None) -> None:
    """Refuse a layer that is not there, and the vector of a special token that has not read the
    text."""
    if not -model.depth - 1 <= layer <= model.depth:
        raise DecodeError(
            f"there is no layer {layer}", where="--layer", hint=f"0 to {model.depth}, or -1"
        )
    if what := refused_pooling(model.config, pooling):
        allowed = [name for name in get_args(Pooling) if not refused_pooling(model.config, name)]
        raise DecodeError(what, where="--pooling", hint=f"allowed: {', '.join(allowed)}")
    special = pooling == "last" or (pooling == "first" and framing.before(1) > 0)
    if special and layer in (0, -model.depth - 1):
        what = (
            f"in layer 0 the {pooling} vector is that of a special token, which has not "
            "read the text"
        )
        raise DecodeError(what, where="--pooling", hint="choose mean, or another layer")


def _notes(
    vectors_of: TextVectors,
    inputs: Sequence[Example],
    encoded: Sequence[Sequence[Token]],
    framing: Framing,
) -> tuple[Note, ...]:
    """Notes on texts that are cut or have no known token, then the task's notes on the others."""
    notes = list[Note]()
    others = list[int]()
    for number, (given, ids) in enumerate(zip(inputs, encoded, strict=True)):
        if len(ids) > framing.room:
            length = len(ids) + framing.special(1)
            what = (
                f"{given.place} has {length:,} tokens with the special ones: the model reads the "
                f"first {framing.longest:,}"
            )
            notes.append(Note("length", what))
        elif reading.is_foreign(framing.tokenizer, ids):
            notes.append(Note("unknown", str(reading.nothing_known(given.text, given.place))))
        else:
            others.append(number)
    rows = [framing.frame(encoded[number]).ids for number in others]
    if vectors_of.notes is not None:
        notes += vectors_of.notes([inputs[number] for number in others], rows)
    return tuple(notes)


@torch.inference_mode()
def _states(
    model: Contextual,
    rows: Sequence[Sequence[Token]],
    pad: int,
    layer: int,
    pooling: Pooling | None,
) -> list[NDArray[np.float32]]:
    """Per row, the vectors of its tokens followed by those of padding, or with `pooling` one
    vector."""
    states = dict[int, NDArray[np.float32]]()
    for numbers in reading.by_length([len(row) for row in rows], reading.read_tokens(model)):
        text = reading.padded([rows[number] for number in numbers], pad).to(device_of(model))
        batch: TextBatch | MaskedBatch = TextBatch(text)
        if model.config.segments:
            nothing = text.ids_BL.new_empty(0)
            batch = MaskedBatch(text, torch.zeros_like(text.ids_BL), nothing, nothing)
        x_BLD = model.layers_of(batch)[layer]
        chosen = x_BLD if pooling is None else pool(x_BLD, text, pooling)
        states |= dict(zip(numbers, chosen.float().cpu().numpy(), strict=True))
    return [states[number] for number in range(len(rows))]
