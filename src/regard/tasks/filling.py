"""Texts with gaps -> the same texts with the gaps filled, and what else might stand there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batch import MaskedBatch, Tokens
from regard.data.raw import one_blank
from regard.errors import DecodeError, Problem, first_of
from regard.models.base import device_of
from regard.models.bert import BERT
from regard.objectives.language_model import masked_states
from regard.tasks.inputs import by_length, padded, refuse_longer
from regard.text.tokenizers import Tokenizer

GAP = "[MASK]"
"""How a gap is typed, whatever the vocabulary calls it."""
SHOWN = 5
"""Tokens that are told for each gap when no number was asked for."""
FILL_TOKENS = 8_192
"""Padded tokens that are read at once."""


@dataclass(frozen=True)
class Gap:
    """What may stand in one gap, most probable first."""

    tokens: tuple[str, ...]
    """As the vocabulary spells them."""
    words: tuple[str, ...]
    """As they stand in a text."""
    probabilities: tuple[float, ...]
    outputs: tuple[str, ...]
    """The text with each of them, and the likeliest in the other gaps."""

    def to_json(self) -> dict[str, Any]:
        return {"tokens": list(self.tokens), "words": list(self.words), "probabilities": list(self.probabilities)}


@dataclass(frozen=True)
class Filled:
    """A text, and what the model puts into its gaps."""

    input: str
    output: str
    """The text as it was typed, with a word in each gap."""
    gaps: tuple[Gap, ...]
    search: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, "masks": [gap.to_json() for gap in self.gaps]}

    def lines(self, nbest: int) -> Iterator[str]:
        """The filled text with the probability of each word; or, where several were asked for, a line for each
        candidate of each gap: the number of the gap, the probability, the word and the text with it."""
        if nbest == 1:
            yield "\t".join([self.output, *(f"{gap.words[0]} {gap.probabilities[0]:.4f}" for gap in self.gaps)])
            return
        for number, gap in enumerate(self.gaps, 1):
            told = zip(gap.probabilities, gap.words, gap.outputs, strict=True)
            yield from (f"{number}\t{p:.4f}\t{word}\t{output}" for p, word, output in [*told][:nbest])


def encode_gaps(model: BERT, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str]) -> list[list[int]]:
    """[CLS] text [SEP] of each text, with the mask token in its gaps."""
    problems = [
        Problem(place, f"there is no {GAP} in the text", f"write {GAP} where a word is to be found")
        for text, place in zip(texts, places, strict=True)
        if GAP not in text
    ]
    if problems:
        raise DecodeError(problems=first_of(problems))
    rows = [[tokenizer.begin, *with_gaps(tokenizer, one_blank(text)), tokenizer.end] for text in texts]
    refuse_longer(rows, model.longest, places)
    return rows


def with_gaps(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text around its gaps. A gap takes the space before it, as the tokens that were hidden did."""
    assert tokenizer.mask is not None
    *parts, last = text.split(GAP)
    ids: list[int] = []
    for number, part in enumerate([*(part.rstrip() for part in parts), last]):
        ids += [tokenizer.mask] if number else []
        if part:
            ids += (tokenizer.continued if number else tokenizer).encode(part)
    return ids


@torch.inference_mode()
def filled(model: BERT, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str], nbest: int) -> list[Filled]:
    """Every gap by itself: the tokens are the most probable ones given the text with all its gaps.

    What is no word is not offered, and keeps its probability: those of the others need not sum to 1.
    """
    rows = encode_gaps(model, tokenizer, texts, places)
    not_offered = sorted(tokenizer.special | _blank(tokenizer))
    found: dict[int, Filled] = {}
    for numbers in by_length([len(row) for row in rows], FILL_TOKENS):
        text = padded([rows[number] for number in numbers], tokenizer.pad)
        batch = _batch(text, tokenizer).to(device_of(model))
        log_p_PV = model.readout(masked_states(model(batch).hidden_BTD, batch)).float().log_softmax(-1)
        log_p_PV[:, not_offered] = -torch.inf
        values_PK, tokens_PK = log_p_PV.exp().topk(
            min(nbest if nbest > 1 else SHOWN, tokenizer.size - len(not_offered))
        )
        gaps = iter(zip(values_PK.tolist(), tokens_PK.tolist(), strict=True))
        for number in numbers:
            count = rows[number].count(tokenizer.mask)  # type: ignore[arg-type]
            found[number] = _filled(tokenizer, texts[number], [next(gaps) for _ in range(count)])
    return [found[number] for number in range(len(texts))]


def _blank(tokenizer: Tokenizer) -> set[int]:
    """The tokens that write nothing but a space, such as the mark of a word's beginning alone."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    return {token for token, piece in enumerate(pieces) if len(piece) <= 2 and not _written(tokenizer, token).strip()}


def _batch(text: Tokens, tokenizer: Tokenizer) -> MaskedBatch:
    assert tokenizer.mask is not None
    places_P = text.ids_BL.flatten().eq(tokenizer.mask).nonzero()[:, 0]
    return MaskedBatch(text, torch.zeros_like(text.ids_BL), places_P, torch.zeros_like(places_P))


def _filled(tokenizer: Tokenizer, text: str, gaps: Sequence[tuple[list[float], list[int]]]) -> Filled:
    written = [[_written(tokenizer, token) for token in tokens] for _, tokens in gaps]
    best = [words[0] for words in written]
    told = tuple(
        Gap(
            tuple(tokenizer.pieces(tokens)),
            tuple(word.strip() for word in words),
            tuple(values),
            tuple(put_in(text, [*best[:number], word, *best[number + 1 :]]) for word in words),
        )
        for number, ((values, tokens), words) in enumerate(zip(gaps, written, strict=True))
    )
    return Filled(text, put_in(text, best), told)


def _written(tokenizer: Tokenizer, token: int) -> str:
    """A token as it is written after another one, with the space between the two where it begins a word."""
    return tokenizer.decode([token, token]).removeprefix(tokenizer.decode([token]))


def put_in(text: str, words: Sequence[str]) -> str:
    """The text as it was typed with a word in each gap: no space comes to those that are there, but between words."""
    before, *others = text.split(GAP)
    for word, after in zip(words, others, strict=True):
        before += (word if before[-1:].isalnum() else word.strip()) + after
    return before
