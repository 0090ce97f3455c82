"""Search: from a model and a source to hypotheses. The same loop writes for greedy search, beam search and sampling."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from regard.data.batch import BEGIN, END, PAD, UNK, Tokens
from regard.errors import DecodeError
from regard.models.base import Generator
from regard.search.beam import Beam
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Choice, Finished, Hypothesis, Live
from regard.search.rules import Rules, length_limits
from regard.search.sampling import Sampling, noise_of
from regard.search.scoring import log_probabilities


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
    begin_id: int = BEGIN,
    end_id: int = END,
    pad_id: int | None = PAD,
    unknown_id: int | None = UNK,
) -> list[list[Hypothesis]]:
    """The best `config.nbest` hypotheses (or so many samples) for each source, best first by the objective."""
    assert not model.training, "searching with a model in training mode would search its dropout"
    if len(source) == 0:
        return []
    limits = length_limits(source.host_lengths_B.tolist(), config)
    banned = {begin_id, pad_id, None if config.unknown else unknown_id}
    rules = Rules(
        limits,
        min_length=config.min_length,
        end_id=end_id,
        banned={token for token in banned if token is not None},
        device=source.ids_BL.device,
    )
    strategy = _strategy(source, config, rules)
    finished = _write(model, source, strategy, rules, begin_id=begin_id, alpha=config.length_penalty)
    hypotheses = finished.best(config.nbest)
    if not all(hypotheses):
        raise DecodeError("the model gives every finished output the probability 0", where="search")
    return hypotheses


def _strategy(source: Tokens, config: SearchConfig, rules: Rules) -> Strategy:
    if not config.sample:
        return Beam(config.beam, config.nbest, rules.limits_B, config.length_penalty)
    noise_BWT = noise_of(source, config.nbest, rules.limits_B.tolist(), config.seed)
    return Sampling(noise_BWT, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)


def _write(
    model: Generator, source: Tokens, strategy: Strategy, rules: Rules, *, begin_id: int, alpha: float
) -> Finished:
    """Step the model until nothing is left to go on. The host waits for the device once a step, in `_live_counts`."""
    sentences, device = len(source), source.ids_BL.device
    state = model.begin(source, strategy.rows, rules.longest)
    tokens_BW = torch.full((sentences, strategy.rows), begin_id, device=device)
    logits_RV, state = model.step(tokens_BW.flatten(), state)
    log_p_RV = log_probabilities(logits_RV)
    live = Live(
        torch.arange(sentences, device=device),
        tokens_BW.new_empty(sentences, strategy.rows, 0),
        strategy.start(log_p_RV.new_zeros(sentences, strategy.rows)),
    )
    finished = Finished(sentences, strategy.rows, rules.longest, alpha=alpha, like=log_p_RV)
    while True:
        log_p_BWV = rules.rule_out(log_p_RV.reshape(*live.total_BW.shape, -1), live)
        choice = strategy.choose(log_p_BWV, live, finished)
        going_on = _set_aside(choice, live, finished, strategy, rules.end_id)
        counts = _live_counts(choice, going_on)
        if not any(counts):
            return finished
        live, rows_BW = _compact(going_on, choice.parents_BW, counts, live.total_BW.shape[1], strategy.reorders)
        if rows_BW is not None:
            state = state.select(rows_BW)
        logits_RV, state = model.step(live.history_BWT[..., -1].flatten(), state)
        log_p_RV = log_probabilities(logits_RV)


def _set_aside(choice: Choice, live: Live, finished: Finished, strategy: Strategy, end_id: int) -> Live:
    """Move what has ended to `finished`; what goes on keeps its slot among the continuations."""
    histories_BWT = choice.histories(live)
    ended_BW = (choice.tokens_BW == end_id) & (choice.total_BW > NEVER)
    finished.add(live.sentences_B, histories_BWT, choice.total_BW, ended_BW)
    total_BW = choice.total_BW.masked_fill(ended_BW, NEVER)
    settled_B = strategy.settled(total_BW, live.sentences_B, finished)
    return Live(live.sentences_B, histories_BWT, total_BW.masked_fill(settled_B[:, None], NEVER))


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
    selecting copies the state.
    """
    going = sum(count > 0 for count in counts)
    new_width = max(counts) if reorders else width
    in_place = not reorders or width == new_width == 1
    stays = in_place and going > 0.75 * len(counts)
    alive_BW = (going_on.total_BW > NEVER).int()
    if stays:
        groups_B1 = torch.arange(len(counts), device=parents_BW.device)[:, None]
    else:
        groups_B1 = alive_BW.amax(-1).argsort(descending=True, stable=True)[:going, None]
    slots_BW = alive_BW.argsort(descending=True, stable=True) if reorders else parents_BW
    slots_BW = slots_BW[groups_B1[:, 0], :new_width]
    live = Live(
        going_on.sentences_B[groups_B1[:, 0]],
        going_on.history_BWT[groups_B1, slots_BW],
        going_on.total_BW[groups_B1, slots_BW],
    )
    return live, None if stays else groups_B1 * width + parents_BW[groups_B1, slots_BW]
