"""Search: from a model and a source to hypotheses. The same loop writes for greedy search, beam search and sampling."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.errors import DecodeError
from regard.models.base import Generator
from regard.search.beam import Beam
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Choice, Finished, Hypothesis, Live
from regard.search.limits import ANY_WORDING, Limits, Wording
from regard.search.looking import must_look, step_looking
from regard.search.objective import Objective
from regard.search.repetition import penalised
from regard.search.rules import Rules, rules_for
from regard.search.sampling import Sampling, noise_of
from regard.search.scoring import log_probabilities
from regard.search.watch import Watch
from regard.text.vocabularies import BEGIN, END, PAD, UNK


class Strategy(Protocol):
    """How the next tokens are chosen."""

    rows: int
    """Hypotheses for each sentence."""
    reorders: bool
    """Whether a step may continue a hypothesis in another slot than its own."""

    def start(self, total_BW: Tensor) -> Tensor:
        """The log P that the search begins with, out of zeros."""
        ...

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        """The continuations to take. May overwrite `log_p_BWV`, in which NEVER stands for what may not be chosen."""
        ...

    def settled(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Whether a sentence needs no further step, given the log P of what would go on."""
        ...


@torch.inference_mode()
def search(
    model: Generator,
    source: Tokens,
    config: SearchConfig,
    *,
    wording: Wording = ANY_WORDING,
    begin_id: int = BEGIN,
    end_id: int = END,
    pad_id: int | None = PAD,
    unknown_id: int | None = UNK,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """The best `config.nbest` hypotheses (or so many samples) for each source, best first by the objective.

    `wording` has the tokens of `config.prefix` and `config.banned`, which need a tokenizer.
    """
    assert not model.training, "searching with a model in training mode would search its dropout"
    if len(source) == 0:
        return []
    if config.coverage_penalty > 0:
        must_look(model)
    rules = rules_for(source, config, wording, begin_id=begin_id, end_id=end_id, pad_id=pad_id, unknown_id=unknown_id)
    finished = _write(model, source, config, rules, begin_id=begin_id, end_id=end_id, watch=watch)
    hypotheses = finished.best(config.nbest)
    if not all(hypotheses):
        hint = "unless the model is broken, fewer rules leave more: min_length, no_repeat_ngram, banned, prefix"
        raise DecodeError("every output that is allowed has the probability 0", where="search", hint=hint)
    return hypotheses


def _strategy(source: Tokens, config: SearchConfig, limits: Limits) -> Strategy:
    if not config.sample:
        longest_B = torch.tensor(limits.longest, device=source.ids_BL.device)
        return Beam(config.beam, config.nbest, longest_B, Objective.of(config))
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
    watch: Watch | None,
) -> Finished:
    """Step the model until nothing is left to go on. The host waits for the device once a step, in `_live_counts`."""
    strategy, longest = _strategy(source, config, rules.limits), max(rules.limits.longest)
    theta, looks = config.repetition_penalty, config.coverage_penalty > 0
    state = model.begin(source, strategy.rows, longest)
    first_BW = torch.full((len(source), strategy.rows), begin_id, device=source.ids_BL.device)
    log_p_BWV, state, looked_BWS = _step(model, first_BW, state, looks)
    live = _empty(strategy, log_p_BWV, looked_BWS, ranks_apart=theta > 1)
    finished = Finished(strategy.rows, longest, Objective.of(config), source.lengths_B, like=log_p_BWV)
    while True:
        own_BWV = log_p_BWV.clone() if theta > 1 or watch is not None else None
        ranks_BWV = rules.rule_out(penalised(log_p_BWV, live.history_BWT, theta), live)
        choice = strategy.choose(ranks_BWV, live, finished)
        if watch is not None and own_BWV is not None:
            watch.step(own_BWV, rules.rule_out(torch.zeros_like(own_BWV), live) > NEVER, live, choice)
        going_on = _set_aside(choice.continued(live, own_BWV), finished, strategy, end_id)
        counts = _live_counts(choice, going_on)
        if not any(counts):
            return finished
        live, rows_BW = _compact(going_on, choice.parents_BW, counts, live.total_BW.shape[1], strategy.reorders)
        if rows_BW is not None:
            state = state.select(rows_BW)
        log_p_BWV, state, looked_BWS = _step(model, live.history_BWT[..., -1], state, looks)
        live = live.having_looked(looked_BWS)


def _step(model: Generator, tokens_BW: Tensor, state: Any, looks: bool) -> tuple[Tensor, Any, Tensor | None]:
    """log P of every next token, and where the model looked if that is asked for."""
    looked_BWS = None
    if looks:
        logits_RV, state, looked_BWS = step_looking(model, tokens_BW, state)
    else:
        logits_RV, state = model.step(tokens_BW.flatten(), state)
    return log_probabilities(logits_RV).reshape(*tokens_BW.shape, -1), state, looked_BWS


def _empty(strategy: Strategy, log_p_BWV: Tensor, looked_BWS: Tensor | None, ranks_apart: bool) -> Live:
    """Hypotheses that hold nothing yet; with a log P of their own where the ranking goes by something else."""
    shape = log_p_BWV.shape[:2]
    return Live(
        torch.arange(shape[0], device=log_p_BWV.device),
        torch.empty(*shape, 0, dtype=torch.long, device=log_p_BWV.device),
        strategy.start(log_p_BWV.new_zeros(shape)),
        log_p_BWV.new_zeros(shape) if ranks_apart else None,
        looked_BWS,
    )


def _set_aside(continued: Live, finished: Finished, strategy: Strategy, end_id: int) -> Live:
    """Move what has ended to `finished`; what goes on keeps its slot among the continuations."""
    ended_BW = (continued.history_BWT[..., -1] == end_id) & (continued.total_BW > NEVER)
    finished.add(continued, ended_BW)
    going_on = continued.without(ended_BW)
    settled_B = strategy.settled(going_on.total_BW, going_on.sentences_B, finished)
    return going_on.without(settled_B[:, None])


def _live_counts(choice: Choice, going_on: Live) -> list[int]:
    """How many hypotheses of each sentence go on, on the host."""
    counts_B = (going_on.total_BW > NEVER).sum(-1)
    broken_B = choice.total_BW.isnan().any(-1)
    counts: list[int] = counts_B.masked_fill(broken_B, -1).tolist()
    if min(counts) < 0:
        raise DecodeError(
            "the model's probabilities are not numbers",
            where="search",
            hint="its weights are broken, or too large for this precision: try another checkpoint or fp32",
        )
    return counts


def _compact(
    going_on: Live, parents_BW: Tensor, counts: list[int], width: int, reorders: bool
) -> tuple[Live, Tensor | None]:
    """Leave out what does not go on; with the state's rows to select, or None where they may stay as they are.

    Where each hypothesis stays in its slot, finished sentences leave only once they are a quarter of the batch, since
    selecting copies the state. On a GPU a step costs about the same for half as many rows, and a captured one is for as
    many as it was captured with: there what has ended stays until it is half.
    """
    on_gpu, going = parents_BW.device.type == "cuda", sum(count > 0 for count in counts)
    new_width = max(counts) if reorders else width
    if on_gpu and new_width <= width < 2 * new_width:
        new_width = width
    in_place = not reorders or width == new_width == parents_BW.shape[1] == 1
    alive_BW = (going_on.total_BW > NEVER).int()
    if all_stay := going > (0.5 if on_gpu else 0.75 if in_place else 1.0) * len(counts):
        groups_B1 = torch.arange(len(counts), device=parents_BW.device)[:, None]
    else:
        groups_B1 = alive_BW.amax(-1).argsort(descending=True, stable=True)[:going, None]
    slots_BW = alive_BW.argsort(descending=True, stable=True) if reorders else parents_BW
    slots_BW = slots_BW[groups_B1[:, 0], :new_width]
    live = going_on.pick(groups_B1, slots_BW)
    return live, None if all_stay and in_place else groups_B1 * width + parents_BW[groups_B1, slots_BW]
