"""Texts with gaps -> the same texts with the gaps filled, and what else might stand there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batch import MaskedBatch, Tokens
from regard.data.tokenizers import Tokenizer
from regard.data.vocabularies import MARK
from regard.errors import DecodeError, Problem, first_of
from regard.models.base import device_of
from regard.models.bert import BERT
from regard.objectives.masked_lm import masked_states
from regard.tasks.continuing import refuse_longer
from regard.tasks.inputs import by_length, padded

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
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Filled:
    """A text, and what the model puts into its gaps."""

    input: str
    output: str
    gaps: tuple[Gap, ...]
    search: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        gaps = [{"tokens": list(gap.tokens), "probabilities": list(gap.probabilities)} for gap in self.gaps]
        return {"input": self.input, "output": self.output, "masks": gaps}

    def lines(self, nbest: int) -> Iterator[str]:
        """The filled text; or, where several were asked for, the candidates of each gap with their probabilities."""
        if nbest == 1:
            yield self.output
            return
        for number, gap in enumerate(self.gaps, 1):
            for token, probability in zip(gap.tokens[:nbest], gap.probabilities, strict=False):
                yield f"{number}\t{probability:.4f}\t{token}"


def encode_gaps(model: BERT, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str]) -> list[list[int]]:
    """[CLS] text [SEP] of each text, with the mask token in its gaps."""
    problems = [
        Problem(place, f"there is no {GAP} in the text", f"write {GAP} where a word is to be found")
        for text, place in zip(texts, places, strict=True)
        if GAP not in text
    ]
    if problems:
        raise DecodeError(problems=first_of(problems))
    rows = [[tokenizer.begin, *with_gaps(tokenizer, text), tokenizer.end] for text in texts]
    refuse_longer(rows, model.longest, places)
    return rows


def with_gaps(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text around its gaps."""
    assert tokenizer.mask is not None
    before, *others = text.split(GAP)
    ids = tokenizer.encode(before.rstrip()) if before.strip() else []
    for part in others:
        ids.append(tokenizer.mask)
        if part.strip():
            ids += _going_on(tokenizer, part)
    return ids


def _going_on(tokenizer: Tokenizer, part: str) -> list[int]:
    """The tokens of what stands after a gap: without the mark of a space where there is none, as in `[MASK].`"""
    first, *others = tokenizer.encode(part.strip())
    spelt = tokenizer.tokens([first])[0]
    if part[0].isspace() or not spelt.startswith(MARK):
        return [first, *others]
    return others if spelt == MARK else [tokenizer.id_of(spelt.removeprefix(MARK), default=first), *others]


@torch.inference_mode()
def filled(model: BERT, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str], nbest: int) -> list[Filled]:
    """Every gap by itself: the tokens are the most probable ones given the text with all its gaps."""
    rows = encode_gaps(model, tokenizer, texts, places)
    found: dict[int, Filled] = {}
    for numbers in by_length([len(row) for row in rows], FILL_TOKENS):
        text = padded([rows[number] for number in numbers], tokenizer.pad)
        batch = _batch(text, tokenizer).to(device_of(model))
        log_p_PV = model.readout(masked_states(model(batch).hidden_BTD, batch)).float().log_softmax(-1)
        log_p_PV[:, sorted(tokenizer.special)] = -torch.inf
        values_PK, tokens_PK = log_p_PV.exp().topk(min(nbest if nbest > 1 else SHOWN, tokenizer.size))
        gaps = iter(zip(values_PK.tolist(), tokens_PK.tolist(), strict=True))
        for number in numbers:
            count = rows[number].count(tokenizer.mask)  # type: ignore[arg-type]
            found[number] = _filled(tokenizer, texts[number], rows[number], [next(gaps) for _ in range(count)])
    return [found[number] for number in range(len(texts))]


def _batch(text: Tokens, tokenizer: Tokenizer) -> MaskedBatch:
    assert tokenizer.mask is not None
    places_P = text.ids_BL.flatten().eq(tokenizer.mask).nonzero()[:, 0]
    return MaskedBatch(text, torch.zeros_like(text.ids_BL), places_P, torch.zeros_like(places_P))


def _filled(
    tokenizer: Tokenizer, text: str, row: Sequence[int], gaps: Sequence[tuple[list[float], list[int]]]
) -> Filled:
    best = iter(tokens[0] for _, tokens in gaps)
    ids = [next(best) if token == tokenizer.mask else token for token in row]
    told = tuple(Gap(tuple(tokenizer.pieces(tokens)), tuple(values)) for values, tokens in gaps)
    return Filled(text, tokenizer.decode(ids), told)
