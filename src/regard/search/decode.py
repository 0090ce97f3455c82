"""The search loop, from a model and sources to hypotheses; the same for greedy search, beam search and sampling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.errors import DecodeError
from regard.layers.attention import recording
from regard.models.base import Generator
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Choice, Finished, Hypothesis, Live, Observer
from regard.search.ranking import Ranking, penalise_repetition, require_source_attention, source_attention
from regard.search.rules import UNCONSTRAINED, Constraints, Limits, Rules, rules_for
from regard.search.scoring import log_probabilities
from regard.search.strategies import Beam, Sampling, Strategy, noise_of
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
