"""The search, from a model and sources to hypotheses: the loop, its strategies (beam search,
sampling) and a record."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Ragged
from regard.engine.live_rows import DelayedCounts, keeps_finished, slots_to_compute
from regard.errors import DecodeError
from regard.layers.attention import recording
from regard.models.base import Generator
from regard.search.config import SearchConfig
from regard.search.hypotheses import (
    NEVER,
    Choice,
    Finished,
    Hypothesis,
    Live,
    best,
    objective_of,
    penalise_repetition,
    source_attention,
)
from regard.search.observers import Observer
from regard.search.rules import SPECIAL_TOKENS, UNCONSTRAINED, Constraints, Rules, SpecialTokens
from regard.search.scoring import log_probabilities
from regard.search.stopping import stop_if_given_up


@torch.inference_mode()
def search(
    model: Generator,
    source: Ragged,
    config: SearchConfig,
    *,
    constraints: Constraints = UNCONSTRAINED,
    special: SpecialTokens = SPECIAL_TOKENS,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The best `config.nbest` hypotheses (or as many samples) for each source, best first by
    `objective_of`.

    `constraints` has the tokens of `config.prefix` and `config.banned`, for which a tokenizer is
    needed.
    """
    assert not model.training, "the model is in training mode, with dropout"
    if len(source) == 0:
        return []
    if model.longest is not None:
        config = config.model_copy(
            update={"max_length": min(config.max_length or model.longest, model.longest)}
        )
    rules = Rules(source, config, constraints, special)
    strategy = (Sampling if config.sample else Beam)(source, config, rules.limits.longest)
    finished = _write(model, source, config, rules, strategy, special, observer)
    hypotheses = finished.best(config.nbest)
    if not all(hypotheses):
        hint = (
            "unless the model is broken, relax the rules: min_length, no_repeat_ngram, "
            "banned, prefix"
        )
        raise DecodeError(
            "every output that the rules allow has probability 0", where="search", hint=hint
        )
    return hypotheses


def _write(
    model: Generator,
    source: Ragged,
    config: SearchConfig,
    rules: Rules,
    strategy: Beam | Sampling,
    special: SpecialTokens,
    observer: Observer | None,
) -> Finished:
    """Run the model until every sentence is done."""
    theta = config.repetition_penalty
    covers = config.coverage_penalty > 0
    longest = max(rules.limits.longest)
    counts_of = DelayedCounts(source.device, wait=observer is not None)
    state = model.begin(source, strategy.rows, longest)
    first_BW = torch.full((len(source), strategy.rows), special.begin, device=source.device)
    log_p_BWV, state, attended_BWS = _step(model, first_BW, state, covers)
    zeros_BW = log_p_BWV.new_zeros(first_BW.shape)
    sentences_B = torch.arange(len(source), device=zeros_BW.device)
    own_BW = zeros_BW if theta > 1 else None  # the ranking differs from log P
    total_BW = zeros_BW.clone()
    if isinstance(strategy, Beam):
        total_BW[:, 1:] = NEVER  # one empty hypothesis per sentence: W equal ones would stay equal
    live = Live(sentences_B, first_BW[..., None][..., :0], total_BW, own_BW, attended_BWS)
    finished = Finished(strategy.rows, longest, config, source.lengths_B, like=log_p_BWV)
    while True:
        stop_if_given_up()
        own_BWV = log_p_BWV.clone() if theta > 1 or observer is not None else None
        ranks_BWV = rules.rule_out(penalise_repetition(log_p_BWV, live.history_BWT, theta), live)
        choice = strategy.choose(ranks_BWV, live, finished)
        if observer is not None and own_BWV is not None:
            observer.step(own_BWV, rules, live, choice)
        continued = choice.continued(live, own_BWV)
        ended_BW = (choice.tokens_BW == special.end) & (choice.total_BW > NEVER)
        remaining = continued.without(ended_BW)
        length = continued.history_BWT.shape[-1]
        if length >= min(rules.limits.shortest):
            finished.add(continued, ended_BW)
        if finished.some and isinstance(strategy, Beam):  # a sample is always written to its end
            remaining = remaining.without(strategy.is_done(remaining, finished)[:, None])
        counts = _live_counts(choice, remaining, counts_of, last=length == longest)
        if not any(counts):
            return finished
        reorders = isinstance(strategy, Beam)
        width = live.total_BW.shape[1]
        live, rows_BW = _compact(remaining, choice.parents_BW, counts, width, reorders)
        if rows_BW is not None:
            state = state.select(rows_BW)
        log_p_BWV, state, attended_BWS = _step(model, live.history_BWT[..., -1], state, covers)
        if attended_BWS is not None and live.attended_BWS is not None:
            live = replace(live, attended_BWS=live.attended_BWS + attended_BWS)


def _step(
    model: Generator, tokens_BW: Tensor, state: Any, covers: bool
) -> tuple[Tensor, Any, Tensor | None]:
    """log P of every next token, and the attention to the source [B, W, S] if coverage is
    needed."""
    weights_BWS = None
    if covers:
        with recording() as recorded:
            logits_RV, state = model.step(tokens_BW.flatten(), state)
        # A model may treat the W hypotheses of a source as W queries, or as rows of their own.
        weights_BWS = source_attention(model, recorded).reshape(*tokens_BW.shape, -1)
    else:
        logits_RV, state = model.step(tokens_BW.flatten(), state)
    return log_probabilities(logits_RV).reshape(*tokens_BW.shape, -1), state, weights_BWS


def _live_counts(
    choice: Choice, remaining: Live, counts_of: DelayedCounts, *, last: bool
) -> list[int]:
    """The number of live hypotheses of each sentence.

    The counts may be those of the step before. Counts never grow, so the cost is at most one wasted
    step.
    """
    counts_B = (remaining.total_BW > NEVER).sum(-1)
    counts_B = counts_B.masked_fill(choice.total_BW.isnan().any(-1), -1)
    counts = counts_of(counts_B, last=last)
    if counts is None:
        return [remaining.total_BW.shape[1]] * len(counts_B)
    if min(counts) < 0:
        hint = (
            "its weights are broken, or too large for this precision: try another checkpoint or "
            "fp32"
        )
        raise DecodeError("the model's probabilities are NaN", where="search", hint=hint)
    return counts


def _compact(
    remaining: Live, parents_BW: Tensor, counts: list[int], width: int, reorders: bool
) -> tuple[Live, Tensor | None]:
    """Remove empty slots and finished sentences; also the state's rows to select, None if they all
    stay in place. `reorders`: whether a step may continue a hypothesis in another slot than its
    own."""
    device = parents_BW.device
    live_sentences = sum(count > 0 for count in counts)
    sentences = len(parents_BW)  # `counts` may be of the step before, which had more
    new_width = slots_to_compute(max(counts), width, device) if reorders else width
    in_place = not reorders or width == new_width == parents_BW.shape[1] == 1
    if min(counts) == width == parents_BW.shape[1]:  # no slot is empty
        if in_place:
            return remaining, None
        first_B1 = torch.arange(0, sentences * width, width, device=device)[:, None]
        return remaining, first_B1 + parents_BW
    alive_BW = (remaining.total_BW > NEVER).int()
    all_stay = keeps_finished(live_sentences, sentences, device, in_place=in_place)
    if all_stay:
        groups_B1 = torch.arange(sentences, device=device)[:, None]
    else:
        groups_B1 = alive_BW.amax(-1).argsort(descending=True, stable=True)[:live_sentences, None]
    slots_BW = alive_BW.argsort(descending=True, stable=True) if reorders else parents_BW
    slots_BW = slots_BW[groups_B1[:, 0], :new_width]
    live = remaining.pick(groups_B1, slots_BW)
    if all_stay and in_place:
        return live, None
    return live, groups_B1 * width + parents_BW[groups_B1, slots_BW]


# Strategies


class Beam:
    """Takes the most probable continuations; a hypothesis that ends keeps its slot.

    Candidates are ranked by log P, with the repetition penalty. A sentence with w open slots takes
    the best w of its live hypotheses x vocabulary; a `</s>` among them closes a slot, so that the
    live beam shrinks. Length normalisation and coverage rank only finished hypotheses.
    """

    def __init__(self, source: Ragged, config: SearchConfig, limits: Sequence[int]) -> None:
        self.rows = config.beam
        self._config = config
        self._limits_B = torch.tensor(limits, device=source.device)

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        """The continuations to take. Overwrites `log_p_BWV`, in which NEVER marks tokens that are
        ruled out."""
        # First the best continuations of each hypothesis, as many as may be taken in all: M.
        log_p_RM, tokens_RM = best(log_p_BWV.flatten(0, 1), min(self.rows, log_p_BWV.shape[-1]))
        if self.rows == 1:  # a sentence that is finished has no live hypothesis
            return Choice(torch.zeros_like(tokens_RM), tokens_RM, log_p_RM + live.total_BW)
        log_p_BWM = log_p_RM.reshape(*live.total_BW.shape, -1)
        total_BM = (log_p_BWM + live.total_BW[..., None]).flatten(1)
        total_BW, index_BW = best(total_BM, min(self.rows, total_BM.shape[1]))
        open_B = self.rows - finished.count_B[live.sentences_B]
        closed_BW = torch.arange(total_BW.shape[1], device=total_BW.device) >= open_B[:, None]
        tokens_BW = tokens_RM.reshape(total_BM.shape).gather(1, index_BW)
        return Choice(
            index_BW // log_p_RM.shape[-1], tokens_BW, total_BW.masked_fill(closed_BW, NEVER)
        )

    def is_done(self, live: Live, finished: Finished) -> Tensor:
        """Whether no live hypothesis can still be among a sentence's n best: see `objective_of`."""
        bound_B = objective_of(
            self._config, live.total_BW.amax(-1), self._limits_B[live.sentences_B]
        )
        return bound_B <= finished.objective_to_beat(live.sentences_B, self._config.nbest)


class Sampling:
    """Continues each hypothesis by one sampled token; its score is the model's log P."""

    def __init__(self, source: Ragged, config: SearchConfig, limits: Sequence[int]) -> None:
        """The noise of a sentence, uniform in [0, 1), depends on the seed and its own tokens only,
        not on the batch."""
        self.rows = config.nbest
        self._cut = (config.temperature, config.top_k, config.top_p)
        noise_BWT = torch.zeros(len(source), self.rows, max(limits))
        salt = config.seed.to_bytes(16, "big")
        for b, (content, limit) in enumerate(zip(source.contents(), limits, strict=True)):
            digest = hashlib.blake2b(content, digest_size=8, salt=salt).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
            noise_BWT[b, :, :limit] = torch.rand(self.rows, limit, generator=generator)
        self._noise_BWT = noise_BWT.to(source.device)

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        sorted_BWV, order_BWV = log_p_BWV.sort(dim=-1, descending=True, stable=True)
        noise_BW = self._noise_BWT[live.sentences_B, :, live.history_BWT.shape[-1]]
        rank_BW1 = draw_index(truncated(sorted_BWV, *self._cut), noise_BW)[..., None]
        total_BW = live.total_BW + sorted_BWV.gather(-1, rank_BW1)[..., 0]
        slots_BW = torch.arange(self.rows, device=total_BW.device).expand_as(total_BW)
        return Choice(slots_BW, order_BWV.gather(-1, rank_BW1)[..., 0], total_BW)


def truncated(log_p_V: Tensor, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """The distribution to sample from, from log probabilities [..., V] in descending order; 0 for
    tokens cut off.

    Temperature first, then the k most probable tokens, then the smallest set of them with
    probability p (nucleus sampling, Holtzman et al. 2020, arXiv:1904.09751, section 3.1). The most
    probable token always stays.
    """
    logits_V = (log_p_V - log_p_V[..., :1]) / temperature
    if top_k is not None:
        logits_V[..., top_k:] = -torch.inf
    p_V = logits_V.softmax(-1)
    if top_p < 1:
        before_V = p_V.cumsum(-1) - p_V
        before_V[..., 0] = 0
        p_V = p_V.masked_fill(before_V >= top_p, 0)
    return p_V


def draw_index(p_V: Tensor, noise: Tensor) -> Tensor:
    """The index where the cumulative sum of the weights [..., V] exceeds the noise, uniform in [0,
    1), times the total.

    The weights are in descending order, so the positive ones come first; the index is limited to
    them, because of rounding in the sums.
    """
    cumulative_V = p_V.cumsum(-1)
    exceeded = (cumulative_V <= noise[..., None] * cumulative_V[..., -1:]).sum(-1)
    positive = (p_V > 0).sum(-1)
    return torch.minimum(exceeded, positive - 1).clamp_(min=0)
