"""Noise for denoising: a text, and what a model reads of it to restore it.

Lewis et al. 2020, "BART", arXiv:1910.13461, section 2.2, has five ways to corrupt a text:
    token masking          random tokens become [MASK]
    token deletion         random tokens are removed: the model also has to find where
    text infilling         spans, whose lengths are drawn from Poisson(3), each become one [MASK];
                           a span of length 0 inserts one
    sentence permutation   the sentences are shuffled
    document rotation      the text begins with a random token, and what stood before it comes last
The paper's final models shuffle all sentences and infill 30 % of the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import Batch, Padded
from regard.data.epochs import Examples
from regard.data.raw import RawTokens, cut
from regard.data.segments import Draws
from regard.data.store import Integers

NOISE_DRAWS = 3
"""Names the random numbers of noise among those for other purposes (data/segments.py)."""
TRIES_PER_TOKEN = 10
"""Places that are tried for spans, for each token of a text, before its infilling ends."""


@dataclass(frozen=True)
class Noise:
    """How much of each kind of noise a text gets, in the order in which it is added."""

    mask: int
    """The token [MASK]."""
    permutation: float = 1.0
    rotation: float = 0.0
    infilling: float = 0.3
    span: float = 3.0
    deletion: float = 0.0
    masking: float = 0.0

    def __call__(self, sentences: Sequence[Sequence[int]], draws: Draws) -> list[int]:
        """The tokens that are read in place of these sentences."""
        if draws(1)[0] < self.permutation:
            order = np.argsort(draws(len(sentences)), kind="stable")
            sentences = [sentences[number] for number in order.tolist()]
        tokens = [token for sentence in sentences for token in sentence]
        if draws(1)[0] < self.rotation:
            start = int(draws(1)[0] * len(tokens))
            tokens = tokens[start:] + tokens[:start]
        if self.infilling:
            tokens = self.infilled(tokens, draws)
        if self.deletion:
            kept = draws(len(tokens)) >= self.deletion
            tokens = [token for token, stays in zip(tokens, kept, strict=True) if stays]
        if self.masking:
            hidden = draws(len(tokens)) < self.masking
            tokens = [
                self.mask if is_hidden else token
                for token, is_hidden in zip(tokens, hidden, strict=True)
            ]
        return tokens

    def infilled(self, tokens: Sequence[int], draws: Draws) -> list[int]:
        """The tokens with spans of them replaced by one mask each, until the spans have `infilling`
        of all tokens. Spans do not overlap; no text becomes longer."""
        # the expected number of tokens is exactly that share
        budget = int(self.infilling * len(tokens) + draws(1)[0])
        covered = [False] * len(tokens)
        masks_before = [0] * (len(tokens) + 1)
        removed = 0
        inserted = 0
        for _ in range(TRIES_PER_TOKEN * len(tokens)):
            if removed >= budget:
                break
            length = min(poisson(self.span, float(draws(1)[0])), budget - removed)
            start = int(draws(1)[0] * (len(tokens) - length + 1))
            if any(covered[start : start + length]) or (length == 0 and inserted >= removed):
                continue
            covered[start : start + length] = [True] * length
            masks_before[start] += 1
            removed += length
            inserted += length == 0
        filled = list[int]()
        for place, token in enumerate(tokens):
            filled += [self.mask] * masks_before[place]
            if not covered[place]:
                filled.append(token)
        return filled + [self.mask] * masks_before[len(tokens)]


def poisson(mean: float, u: float) -> int:
    """The inverse of the distribution function of Poisson(mean), at u from 0 to 1."""
    value = 0
    p = math.exp(-mean)
    cumulated = p
    while u > cumulated and p > 0:
        value += 1
        p *= mean / value
        cumulated += p
    return value


class NoisyTexts(Examples):
    """Documents, or pieces of long ones, each of which is read with noise and to be restored. The
    noise of an example is drawn anew in each epoch, and depends on the seed, the epoch and the
    number of the example alone."""

    def __init__(self, text: RawTokens, noise: Noise, max_length: int) -> None:
        self.text = text
        self.noise = noise
        begins, ends = text.bounds[:-1], text.bounds[1:] - 1
        # one position is for </s> or <s>
        self.starts, self.stops, documents = cut(begins, ends, max_length - 1)
        self.corpora = text.corpora[documents]
        self.weights = text.weights
        self.left_out = text.pieces.left_out

    @property
    def lengths(self) -> NDArray[np.int32]:
        return (self.stops - self.starts + 1).astype(np.int32)

    def where(self, example: int) -> str:
        return self.text.place(int(self.text.document_at(self.starts[example])))

    def frequencies(self) -> NDArray[np.int64]:
        return self.text.frequencies()

    def target(self, example: int) -> list[int]:
        """The tokens to restore."""
        ids: list[int] = self.text.values[self.starts[example] : self.stops[example]].tolist()
        return ids

    def source(self, example: int, seed: int = 0, epoch: int = 0) -> list[int]:
        """The tokens with noise; at least one, since a model cannot read nothing."""
        limits = self.text.sentences
        start, stop = int(self.starts[example]), int(self.stops[example])
        first = int(np.searchsorted(limits, start, side="right"))
        after = int(np.searchsorted(limits, stop, side="left"))
        bounds = [start, *limits[first:after].tolist(), stop]
        sentences = [self.text.values[begin:end].tolist() for begin, end in pairwise(bounds)]
        draws = Draws(seed, epoch, NOISE_DRAWS, example)
        return self.noise(sentences, draws) or [self.noise.mask]

    def batch(self, examples: Integers, seed: int = 0, epoch: int = 0) -> Batch:
        """A source up to `</s>`, a target from `<s>` to `</s>`, as for translation."""
        tokenizer = self.text.tokenizer
        source = partial(self.source, seed=seed, epoch=epoch)
        numbers = tuple(examples.tolist())
        sources = [[*source(number), tokenizer.end] for number in numbers]
        targets = [[tokenizer.begin, *self.target(number), tokenizer.end] for number in numbers]
        predicted = sum(map(len, targets)) - len(targets)
        return Batch(
            padded_rows(sources, tokenizer.pad),
            padded_rows(targets, tokenizer.pad),
            examples=numbers,
            tokens=predicted,
        )

    def pieces(self, example: int) -> dict[str, list[str]]:
        pieces = self.text.tokenizer.pieces
        return {"text": pieces(self.target(example)), "noisy": pieces(self.source(example))}


def padded_rows(rows: Sequence[Sequence[int]], pad: int) -> Padded:
    lengths = [len(row) for row in rows]
    ids_BL = torch.full((len(rows), max(lengths)), pad)
    for number, row in enumerate(rows):
        ids_BL[number, : len(row)] = torch.tensor(row)
    return Padded.of(ids_BL, torch.tensor(lengths))
