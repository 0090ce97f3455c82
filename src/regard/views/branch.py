"""What a run writes token by token: how likely each token was, which others were likely there, and
what it writes after other first tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import MaskedBatch
from regard.data.images import Picture
from regard.data.inputs import Given
from regard.errors import DecodeError, refuse
from regard.models.base import device_of
from regard.recipes.search_options import SearchOptions, with_search
from regard.runs import Run
from regard.search.hypotheses import Hypothesis
from regard.search.scoring import log_probabilities
from regard.tasks.written import Source, WrittenTexts
from regard.views.attention import Attention, AttentionKind, TextPieces
from regard.views.explain import Texts, padded_pieces, pair_reading, pieces_of, record
from regard.views.explanation import Explanation
from regard.views.labels import token_label
from regard.views.report import HeatMap

CANDIDATES_PER_STEP = 5
"""Number of likeliest tokens per step."""
NO_SAMPLING = ("search.sample=false",)


@dataclass(frozen=True)
class Candidate:
    """A token that may be written, as the vocabulary spells it and as it is shown."""

    token: str
    label: str
    probability: float


@dataclass(frozen=True)
class BranchStep:
    """One token of an output, and the likeliest tokens at its place."""

    chosen: Candidate
    candidates: Sequence[Candidate]


@dataclass(frozen=True)
class Branch:
    """An output, or the beginning of one."""

    output: str
    steps: Sequence[BranchStep]
    next: Sequence[Candidate]
    """The likeliest tokens after an output that has not ended; empty if it has."""
    attention: HeatMap | None
    """Where the model looked at each token that it wrote, and at the next one: mean over layers and
    heads."""
    picture: Picture | None
    """The source if it is an image."""

    @property
    def score(self) -> float:
        return sum(float(np.log(step.chosen.probability)) for step in self.steps)


def branch(run: Run, text: Given, tokens: Sequence[str] = (), *, goes_on: bool = True) -> Branch:
    """The output that begins with these tokens, spelt as `predict --json` shows them.

    The search of the run completes it; if it does not go on, the tokens alone are followed.
    """
    run = run.under(with_search(run.recipe, SearchOptions(None, 1, overrides=NO_SAMPLING)))
    written = run.task.views.written
    if written is None or not run.recipe.model.generates:
        refuse({"tokens": tokens}, f"a run of the task {run.recipe.task} does not write text")
    assert written is not None
    model: Any = run.load_model()
    inputs = run.task.inputs.given(text)
    if len(inputs) != 1:
        what = f"one input is continued, but there are {len(inputs):,}"
        raise DecodeError(what, where="input", hint="give one")
    [given] = inputs
    ids = written.tokenizer.token_ids(tokens)
    end = written.special.end
    if end in ids[:-1]:
        raise DecodeError("nothing follows the end of an output", where="tokens")
    encoded = written.encode_inputs(model, [given])
    [source] = encoded.readable()
    if goes_on and ids[-1:] != [end]:
        wording = replace(encoded.wording, prefixes=[ids]) if ids else encoded.wording
        [best] = written.predict_encoded(model, replace(encoded, wording=wording))
        ids = written.tokenizer.token_ids(best.nbest[0].tokens)
    output = written.text_of(given.text, source, Hypothesis(tuple(ids), 0.0, 0.0))
    reading, places = _reading(run, model, source, ids, Texts(given.text, output))
    return _followed(written, model, reading, ids, places)


def _reading(
    run: Run, model: Any, source: Source, ids: Sequence[int], texts: Texts
) -> tuple[Explanation, list[int]]:
    """The tokens as the model reads them, and the place of the state that predicts each, and the
    one after them."""
    written = run.task.views.written
    assert written is not None
    end = written.special.end
    whole = [*ids] if ids[-1:] == [end] else [*ids, end]
    if run.task.views.targets is not None:
        return pair_reading(run, model, source, whole, texts), [*range(len(whole))]
    assert isinstance(source, list)
    row = [*source, *whole[:-1]]
    if model.longest is not None:  # the last of its positions predicts nothing that it could read
        row = row[: model.longest]
    first = len(source) - 1
    return _text_reading(run, model, row, texts), [*range(first, len(row))]


def _text_reading(run: Run, model: Any, row: Sequence[int], texts: Texts) -> Explanation:
    """A text that a language model reads."""
    tokenizer = run.tokenizers["text"]
    tokens, pieces = padded_pieces(tokenizer, row, 0)
    none = torch.zeros(0, dtype=torch.long)
    batch = MaskedBatch(tokens, torch.zeros_like(tokens.ids_BL), none, none).to(device_of(model))
    return Explanation(
        texts.input,
        texts.output,
        run.recipe.model.kind,
        model,
        batch,
        partial(model.states, batch),
        lambda _: (),
        inputs=pieces,
        target=pieces_of(tokenizer, [*row[1:], tokenizer.end]),
    )


@torch.inference_mode()
def _followed(
    written: WrittenTexts, model: Any, reading: Explanation, ids: Sequence[int], places: list[int]
) -> Branch:
    hidden_BTD, attentions = record(model, reading)
    p_PV = log_probabilities(model.readout(hidden_BTD[0, places])).exp().cpu()
    steps = [*_steps(written, p_PV, ids)]
    next_tokens: Sequence[Candidate] = ()
    if ids[-1:] != [written.special.end] and len(places) > len(ids):
        next_tokens = _likeliest(written, p_PV[len(ids)])
    looked = _looked(attentions.values(), places, reading.target)
    return Branch(reading.output, steps, next_tokens, looked, reading.picture)


def _steps(written: WrittenTexts, p_PV: Tensor, ids: Sequence[int]) -> Iterator[BranchStep]:
    for token, p_V in zip(ids, p_PV, strict=False):
        yield BranchStep(_candidate(written, token, p_V), _likeliest(written, p_V))


def _likeliest(written: WrittenTexts, p_V: Tensor) -> list[Candidate]:
    best = p_V.topk(min(CANDIDATES_PER_STEP, len(p_V))).indices.tolist()
    return [_candidate(written, token, p_V) for token in best]


def _candidate(written: WrittenTexts, token: int, p_V: Tensor) -> Candidate:
    [spelt] = written.tokenizer.tokens([token])
    [piece] = written.tokenizer.pieces([token])
    return Candidate(spelt, token_label(piece), float(p_V[token]))


def _looked(
    attentions: Iterable[Attention], places: Sequence[int], target: TextPieces
) -> HeatMap | None:
    """The mean of the attentions over the source, else of those over the text so far."""
    by_kind: dict[AttentionKind, list[Attention]] = {}
    for attention in attentions:
        by_kind.setdefault(attention.kind, []).append(attention)
    chosen = by_kind.get("alignment") or by_kind.get("decoder")
    if not chosen:
        return None
    rows = [place for place in places if place < chosen[0].weights.shape[1]]
    mean_QK = np.mean([one.weights.mean(0) for one in chosen], 0)[rows]
    queries = [token_label(target.texts[row]) for row in rows]
    return HeatMap(queries, [*map(token_label, chosen[0].keys.texts)], mean_QK, "")
