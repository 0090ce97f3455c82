"""The search loop, from a model and sources to hypotheses; the same for greedy search, beam search and sampling."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.data.batches import Tokens
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
    Observer,
    Ranking,
    log_probabilities,
    penalise_repetition,
    require_source_attention,
    source_attention,
)
from regard.search.rules import UNCONSTRAINED, Constraints, Limits, Rules, rules_for
from regard.text.vocabularies import BEGIN, END, PAD, UNK


@torch.inference_mode()
def search(
    model: Generator,
    source: Tokens,
    config: SearchConfig,
    *,
    constraints: Constraints = UNCONSTRAINED,
    begin_id: int = BEGIN,
    end_id: int = END,
    pad_id: int | None = PAD,
    unknown_id: int | None = UNK,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The best `config.nbest` hypotheses (or as many samples) for each source, best first by `Ranking`.

    `constraints` has the tokens of `config.prefix` and `config.banned`, for which a tokenizer is needed.
    """
    assert not model.training, "the model is in training mode, with dropout"
    if len(source) == 0:
        return []
    if config.coverage_penalty > 0:
        require_source_attention(model)
    ids = {"begin_id": begin_id, "end_id": end_id}
    rules = rules_for(source, config, constraints, **ids, pad_id=pad_id, unknown_id=unknown_id)
    finished = _write(model, source, config, rules, **ids, observer=observer)
    hypotheses = finished.best(config.nbest)
    if not all(hypotheses):
        hint = "unless the model is broken, relax the rules: min_length, no_repeat_ngram, banned, prefix"
        raise DecodeError("every output that the rules allow has probability 0", where="search", hint=hint)
    return hypotheses


def _strategy(source: Tokens, config: SearchConfig, limits: Limits) -> Strategy:
    if not config.sample:
        longest_B = torch.tensor(limits.longest, device=source.ids_BL.device)
        return Beam(config.beam, config.nbest, longest_B, Ranking.of(config))
    noise_BWT = noise_of(source, config.nbest, limits.longest, config.seed)
    return Sampling(noise_BWT, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)


def _write(
    model: Generator,
    source: Tokens,
    config: SearchConfig,
    rules: Rules,
    *,
    begin_id: int,
    end_id: int,
    observer: Observer | None,
) -> Finished:
    """Run the model until every sentence is done. The host waits for the device once per step, in `_live_counts`."""
    strategy, longest = _strategy(source, config, rules.limits), max(rules.limits.longest)
    theta, covers = config.repetition_penalty, config.coverage_penalty > 0
    state = model.begin(source, strategy.rows, longest)
    first_BW = torch.full((len(source), strategy.rows), begin_id, device=source.ids_BL.device)
    log_p_BWV, state, weights_BWS = _step(model, first_BW, state, covers)
    live = _empty(strategy, log_p_BWV, weights_BWS, separate_score=theta > 1)
    finished = Finished(strategy.rows, longest, Ranking.of(config), source.lengths_B, like=log_p_BWV)
    while True:
        own_BWV = log_p_BWV.clone() if theta > 1 or observer is not None else None
        ranks_BWV = rules.rule_out(penalise_repetition(log_p_BWV, live.history_BWT, theta), live)
        choice = strategy.choose(ranks_BWV, live, finished)
        if observer is not None and own_BWV is not None:
            observer.step(own_BWV, rules.rule_out(torch.zeros_like(own_BWV), live) > NEVER, live, choice)
        remaining = _collect_finished(choice.continued(live, own_BWV), finished, strategy, end_id)
        counts = _live_counts(choice, remaining)
        if not any(counts):
            return finished
        live, rows_BW = _compact(remaining, choice.parents_BW, counts, live.total_BW.shape[1], strategy.reorders)
        if rows_BW is not None:
            state = state.select(rows_BW)
        log_p_BWV, state, weights_BWS = _step(model, live.history_BWT[..., -1], state, covers)
        live = live.add_attention(weights_BWS)


def _step(model: Generator, tokens_BW: Tensor, state: Any, covers: bool) -> tuple[Tensor, Any, Tensor | None]:
    """log P of every next token, and the attention to the source [B, W, S] if coverage is needed."""
    weights_BWS = None
    if covers:
        with recording() as recorded:
            logits_RV, state = model.step(tokens_BW.flatten(), state)
        # A model may treat the W hypotheses of a source as W queries, or as rows of their own.
        weights_BWS = source_attention(model, recorded).reshape(*tokens_BW.shape, -1)
    else:
        logits_RV, state = model.step(tokens_BW.flatten(), state)
    return log_probabilities(logits_RV).reshape(*tokens_BW.shape, -1), state, weights_BWS


def _empty(strategy: Strategy, log_p_BWV: Tensor, weights_BWS: Tensor | None, separate_score: bool) -> Live:
    """Empty hypotheses; with a separate log P if the ranking differs from it."""
    shape = log_p_BWV.shape[:2]
    return Live(
        torch.arange(shape[0], device=log_p_BWV.device),
        torch.empty(*shape, 0, dtype=torch.long, device=log_p_BWV.device),
        strategy.start(log_p_BWV.new_zeros(shape)),
        log_p_BWV.new_zeros(shape) if separate_score else None,
        weights_BWS,
    )


def _collect_finished(continued: Live, finished: Finished, strategy: Strategy, end_id: int) -> Live:
    """Add hypotheses that have ended to `finished`; the others keep their slots."""
    ended_BW = (continued.history_BWT[..., -1] == end_id) & (continued.total_BW > NEVER)
    finished.add(continued, ended_BW)
    remaining = continued.without(ended_BW)
    done_B = strategy.is_done(remaining.total_BW, remaining.sentences_B, finished)
    return remaining.without(done_B[:, None])


def _live_counts(choice: Choice, remaining: Live) -> list[int]:
    """The number of live hypotheses of each sentence, on the host."""
    counts_B = (remaining.total_BW > NEVER).sum(-1)
    broken_B = choice.total_BW.isnan().any(-1)
    counts: list[int] = counts_B.masked_fill(broken_B, -1).tolist()
    if min(counts) < 0:
        raise DecodeError(
            "the model's probabilities are NaN",
            where="search",
            hint="its weights are broken, or too large for this precision: try another checkpoint or fp32",
        )
    return counts


def _compact(
    remaining: Live, parents_BW: Tensor, counts: list[int], width: int, reorders: bool
) -> tuple[Live, Tensor | None]:
    """Remove empty slots and finished sentences; also the state's rows to select, None if they all stay in place.

    Selecting copies the state. So if each hypothesis stays in its slot, finished sentences are removed only once they
    are a quarter of the batch. On a GPU a step costs about the same for half as many rows, and a captured step has a
    fixed number of rows: there they are removed once they are half.
    """
    on_gpu, live_sentences = parents_BW.device.type == "cuda", sum(count > 0 for count in counts)
    new_width = max(counts) if reorders else width
    if on_gpu and new_width <= width < 2 * new_width:
        new_width = width
    in_place = not reorders or width == new_width == parents_BW.shape[1] == 1
    alive_BW = (remaining.total_BW > NEVER).int()
    if all_stay := live_sentences > (0.5 if on_gpu else 0.75 if in_place else 1.0) * len(counts):
        groups_B1 = torch.arange(len(counts), device=parents_BW.device)[:, None]
    else:
        groups_B1 = alive_BW.amax(-1).argsort(descending=True, stable=True)[:live_sentences, None]
    slots_BW = alive_BW.argsort(descending=True, stable=True) if reorders else parents_BW
    slots_BW = slots_BW[groups_B1[:, 0], :new_width]
    live = remaining.pick(groups_B1, slots_BW)
    return live, None if all_stay and in_place else groups_B1 * width + parents_BW[groups_B1, slots_BW]


FEW = 8
"""Up to this number, repeated maxima are faster than a sort."""


class Strategy(Protocol):
    """Chooses the next tokens."""

    rows: int
    """Hypotheses per sentence."""
    reorders: bool
    """Whether a step may continue a hypothesis in another slot than its own."""

    def start(self, total_BW: Tensor) -> Tensor:
        """log P of the slots at the beginning, made from zeros."""
        ...

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        """The continuations to take. May overwrite `log_p_BWV`, in which NEVER marks tokens that are ruled out."""
        ...

    def is_done(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Whether a sentence needs no further step, given log P of its live hypotheses."""
        ...


class Beam:
    """Takes the most probable continuations; a hypothesis that ends keeps its slot.

    Candidates are ranked by log P, with the repetition penalty. A sentence with w open slots takes the best w of its
    live hypotheses x vocabulary; a `</s>` among them closes a slot, so that the live beam shrinks. Length normalisation
    and coverage rank only finished hypotheses.
    """

    reorders = True

    def __init__(self, beam: int, nbest: int, limits_B: Tensor, ranking: Ranking) -> None:
        self.rows = beam
        self._nbest = nbest
        self._limits_B = limits_B
        self._ranking = ranking

    def start(self, total_BW: Tensor) -> Tensor:
        """One empty hypothesis per sentence: W equal ones would stay equal."""
        total_BW[:, 1:] = NEVER
        return total_BW

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        total_BWM, tokens_BWM = self._best_of_each(log_p_BWV, live)
        total_BM, tokens_BM, each = total_BWM.flatten(1), tokens_BWM.flatten(1), total_BWM.shape[-1]
        total_BW, index_BW = best(total_BM, min(self.rows, total_BM.shape[1]))
        open_B = self.rows - finished.count(live.sentences_B)
        closed_BW = torch.arange(total_BW.shape[1], device=total_BW.device) >= open_B[:, None]
        return Choice(index_BW // each, tokens_BM.gather(1, index_BW), total_BW.masked_fill(closed_BW, NEVER))

    def _best_of_each(self, log_p_BWV: Tensor, live: Live) -> tuple[Tensor, Tensor]:
        """The totals and tokens of the best continuations of each hypothesis, as many as may be taken in all."""
        log_p_RV = log_p_BWV.flatten(0, 1)
        log_p_RM, tokens_RM = best(log_p_RV, min(self.rows, log_p_RV.shape[1]))
        shape = (*live.total_BW.shape, -1)
        return log_p_RM.view(shape) + live.total_BW[..., None], tokens_RM.view(shape)

    def is_done(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Whether no live hypothesis can still be among a sentence's n best."""
        bound_B = self._ranking.upper_bound(total_BW.amax(-1), self._limits_B[sentences_B])
        return bound_B <= finished.objective_to_beat(sentences_B, self._nbest)


def best(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and their indices, in descending order; of equal scores the first comes first.

    `topk` does not say which of several equal scores it takes, and in half precision scores are often equal. So the
    scores that equal the last one taken are found again by index; for a few, repeated maxima are faster. Overwrites
    the scores.
    """
    if count <= FEW:
        highest = []
        for _ in range(count):
            highest.append(scores_BM.max(dim=-1, keepdim=True))
            scores_BM.scatter_(1, highest[-1].indices, NEVER)
        return torch.cat([top.values for top in highest], 1), torch.cat([top.indices for top in highest], 1)
    size = scores_BM.shape[1]
    values_BW, index_BW = scores_BM.topk(count)
    last_B1 = values_BW[:, -1:]
    from_the_end_M = torch.arange(size, 0, -1, dtype=torch.int32, device=scores_BM.device)
    first_equal_BW = size - torch.where(scores_BM == last_B1, from_the_end_M, 0).topk(count).values.long()
    above_BW = values_BW > last_B1
    number_BW = (~above_BW).cumsum(-1).sub_(1).clamp_(min=0)
    index_BW = torch.where(above_BW, index_BW, first_equal_BW.gather(1, number_BW)).clamp_(max=size - 1)
    order_BW = index_BW.argsort(-1)
    order_BW = order_BW.gather(1, values_BW.gather(1, order_BW).argsort(dim=-1, descending=True, stable=True))
    return values_BW.gather(1, order_BW), index_BW.gather(1, order_BW)


class Sampling:
    """Continues each hypothesis by one sampled token; its score is the model's log P."""

    reorders = False

    def __init__(
        self, noise_BWT: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
    ) -> None:
        self.rows = noise_BWT.shape[1]
        self._noise_BWT = noise_BWT
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p

    def start(self, total_BW: Tensor) -> Tensor:
        """All W samples start from the empty hypothesis."""
        return total_BW

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        sorted_BWV, order_BWV = log_p_BWV.sort(dim=-1, descending=True, stable=True)
        p_BWV = truncated(sorted_BWV, self._temperature, self._top_k, self._top_p)
        noise_BW = self._noise_BWT[live.sentences_B, :, live.history_BWT.shape[-1]]
        rank_BW1 = draw(p_BWV, noise_BW)[..., None]
        total_BW = live.total_BW + sorted_BWV.gather(-1, rank_BW1)[..., 0]
        slots_BW = torch.arange(self.rows, device=total_BW.device).expand_as(total_BW)
        return Choice(slots_BW, order_BWV.gather(-1, rank_BW1)[..., 0], total_BW)

    def is_done(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Never: every sample is written to its end."""
        return torch.zeros_like(sentences_B, dtype=torch.bool)


def truncated(log_p_V: Tensor, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """The distribution to sample from, from log probabilities [..., V] in descending order; 0 for tokens cut off.

    Temperature first, then the k most probable tokens, then the smallest set of them with probability p (nucleus
    sampling, Holtzman et al. 2020, arXiv:1904.09751, section 3.1). The most probable token always stays.
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


def draw(p_V: Tensor, noise: Tensor) -> Tensor:
    """The index where the cumulative sum of the weights [..., V] exceeds the noise, uniform in [0, 1), times the total.

    The weights are in descending order, so the positive ones come first; the index is limited to them, because of
    rounding in the sums.
    """
    cumulative_V = p_V.cumsum(-1)
    exceeded = (cumulative_V <= noise[..., None] * cumulative_V[..., -1:]).sum(-1)
    positive = (p_V > 0).sum(-1)
    return torch.minimum(exceeded, positive - 1).clamp_(min=0)


def noise_of(source: Tokens, rows: int, limits: Sequence[int], seed: int) -> Tensor:
    """Uniform noise [B, W, T] in [0, 1) for each token of each sample.

    The noise of a sentence depends on the seed and its own tokens only, not on the rest of the batch.
    """
    noise_BWT = torch.zeros(len(source), rows, max(limits))
    ids_BL, lengths = source.ids_BL.cpu().long(), source.host_lengths_B.tolist()
    for b, limit in enumerate(limits):
        digest = hashlib.blake2b(
            ids_BL[b, : lengths[b]].numpy().tobytes(), digest_size=8, salt=seed.to_bytes(16, "big")
        )
        generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big") >> 1)
        noise_BWT[b, :, :limit] = torch.rand(rows, limit, generator=generator)
    return noise_BWT.to(source.ids_BL.device)
