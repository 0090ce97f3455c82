"""From what a user typed to what a model reads: checked, and batched by length with the order kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from regard.data.batch import Tokens
from regard.data.tokenizers import Tokenizer
from regard.errors import DecodeError, Problem

LONGEST = 2048
"""Longest input in tokens: beyond it a line break is missing rather than a sentence long."""


def encode_inputs(tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, or one DecodeError that names every text that cannot be read."""
    encoded = tokenizer.encode_batch(list(texts))
    problems = [
        problem
        for text, ids, place in zip(texts, encoded, places, strict=True)
        if (problem := _problem(tokenizer, text, ids, place))
    ]
    if problems:
        raise DecodeError(problems=problems)
    return encoded


def _problem(tokenizer: Tokenizer, text: str, ids: list[int], place: str) -> Problem | None:
    if not text.strip():
        return Problem(place, "the input is empty", "give at least one word")
    if len(ids) > LONGEST:
        return Problem(place, f"the input has {len(ids):,} tokens", f"at most {LONGEST:,}: split it into sentences")
    if tokenizer.is_foreign(ids):
        shown = text.strip()[:20]
        return Problem(place, f"the tokenizer knows nothing in {shown!r}", "it was trained on text in another script")
    return None


def padded(rows: Sequence[Sequence[int]], pad: int) -> Tokens:
    """Rows of ids as one padded batch."""
    lengths_B = torch.tensor([len(row) for row in rows])
    ids_BL = torch.full((len(rows), int(lengths_B.max())), pad)
    for number, row in enumerate(rows):
        ids_BL[number, : len(row)] = torch.tensor(row)
    return Tokens.of(ids_BL, lengths_B)


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers in batches of about equal length, longest first, at most `batch_tokens` padded tokens each."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
