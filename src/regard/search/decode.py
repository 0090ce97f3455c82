"""The search, from a model and sources to hypotheses: the loop, its strategies (beam search,
sampling) and a record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.data.batches import Ragged
from regard.errors import DecodeError
from regard.layers.attention import recording
from regard.models.base import Generator
from regard.search.config import SearchConfig
from regard.search.hypotheses import (
    NEVER,
    SPECIAL,
    UNCONSTRAINED,
    Choice,
    Constraints,
    Finished,
    Hypothesis,
    Limits,
    Live,
    Rules,
    Special,
    log_probabilities,
    objective_of,
    penalise_repetition,
    source_attention,
)
from regard.search.stopping import stop_if_given_up
from regard.text.tokenizers import Tokenizer

FEW = 8  # up to this number, repeated maxima are faster than a sort
BLOCK = 64  # scores of which a CPU first takes the maximum


class Observer(Protocol):
    """Called after every search step. Without an observer the search computes nothing for it."""

    def step(self, log_p_BWV: Tensor, rules: Rules, live: Live, choice: Choice) -> None:
        """One step, before finished hypotheses are removed.

        `log_p_BWV` is the model's log P of each next token, whatever the rules. `live.sentences_B`
        are indices in the batch that the search was given.
        """
        ...


@torch.inference_mode()
def search(
    model: Generator,
    source: Ragged,
    config: SearchConfig,
    *,
    constraints: Constraints = UNCONSTRAINED,
    special: Special = SPECIAL,
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
    special: Special,
    observer: Observer | None,
) -> Finished:
    """Run the model until every sentence is done."""
    theta = config.repetition_penalty
    covers = config.coverage_penalty > 0
    longest = max(rules.limits.longest)
    counts_of = LiveCounts(late=source.device.type == "cuda" and observer is None)
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
        counts = counts_of(choice, remaining, last=length == longest)
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


class LiveCounts:
    """The number of live hypotheses of each sentence, on the host.

    `late`: of the step before, so that the host need not wait for the GPU. There are never more of
    them later, so at worst a step is computed in vain.
    """

    def __init__(self, late: bool) -> None:
        self._late = late
        self._before: tuple[Tensor, torch.cuda.Event] | None = None

    def __call__(self, choice: Choice, remaining: Live, last: bool) -> list[int]:
        counts_B = (remaining.total_BW > NEVER).sum(-1)
        counts_B = counts_B.masked_fill(choice.total_BW.isnan().any(-1), -1)
        if self._late and not last:
            host_B = torch.empty_like(counts_B, device="cpu", pin_memory=True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            host_B.copy_(counts_B, non_blocking=True)
            copied.record()
            before = self._before
            self._before = (host_B, copied)
            if before is None:
                return [remaining.total_BW.shape[1]] * len(counts_B)
            counts_B, copied = before
            copied.synchronize()
        counts: list[int] = counts_B.tolist()
        if min(counts) < 0:
            hint = (
                "its weights are broken, or too large for this precision: try another "
                "checkpoint or fp32"
            )
            raise DecodeError("the model's probabilities are NaN", where="search", hint=hint)
        return counts


def _compact(
    remaining: Live, parents_BW: Tensor, counts: list[int], width: int, reorders: bool
) -> tuple[Live, Tensor | None]:
    """Remove empty slots and finished sentences; also the state's rows to select, None if they all
    stay in place. `reorders`: whether a step may continue a hypothesis in another slot than its
    own.

    Selecting copies the state. So if each hypothesis stays in its slot, finished sentences are
    removed only once they are a quarter of the batch. On a GPU a step costs about the same for half
    as many rows, and a captured step has a fixed number of rows: there they are removed once they
    are half.
    """
    on_gpu = parents_BW.device.type == "cuda"
    live_sentences = sum(count > 0 for count in counts)
    sentences = len(parents_BW)  # `counts` may be of the step before, which had more
    new_width = max(counts) if reorders else width
    if on_gpu and new_width <= width < 2 * new_width:
        new_width = width
    in_place = not reorders or width == new_width == parents_BW.shape[1] == 1
    if min(counts) == width == parents_BW.shape[1]:  # no slot is empty
        if in_place:
            return remaining, None
        first_B1 = torch.arange(0, sentences * width, width, device=parents_BW.device)[:, None]
        return remaining, first_B1 + parents_BW
    alive_BW = (remaining.total_BW > NEVER).int()
    if all_stay := live_sentences > (0.5 if on_gpu else 0.75 if in_place else 1.0) * sentences:
        groups_B1 = torch.arange(sentences, device=parents_BW.device)[:, None]
    else:
        groups_B1 = alive_BW.amax(-1).argsort(descending=True, stable=True)[:live_sentences, None]
    slots_BW = alive_BW.argsort(descending=True, stable=True) if reorders else parents_BW
    slots_BW = slots_BW[groups_B1[:, 0], :new_width]
    live = remaining.pick(groups_B1, slots_BW)
    return live, None if all_stay and in_place else groups_B1 * width + parents_BW[
        groups_B1, slots_BW
    ]


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
        total_BM = (log_p_RM.view(*live.total_BW.shape, -1) + live.total_BW[..., None]).flatten(1)
        total_BW, index_BW = best(total_BM, min(self.rows, total_BM.shape[1]))
        open_B = self.rows - finished.count_B[live.sentences_B]
        closed_BW = torch.arange(total_BW.shape[1], device=total_BW.device) >= open_B[:, None]
        tokens_BW = tokens_RM.view_as(total_BM).gather(1, index_BW)
        return Choice(
            index_BW // log_p_RM.shape[-1], tokens_BW, total_BW.masked_fill(closed_BW, NEVER)
        )

    def is_done(self, live: Live, finished: Finished) -> Tensor:
        """Whether no live hypothesis can still be among a sentence's n best: see `objective_of`."""
        bound_B = objective_of(
            self._config, live.total_BW.amax(-1), self._limits_B[live.sentences_B]
        )
        return bound_B <= finished.objective_to_beat(live.sentences_B, self._config.nbest)


def best(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and their indices, in descending order; of equal scores the
    first comes first.

    `topk` does not say which of several equal scores it takes, and in half precision scores are
    often equal. So the scores that equal the last one taken are found again by index; for a few,
    repeated maxima are faster. Overwrites the scores.
    """
    size = scores_BM.shape[1]
    # Twice the scores that are left by `_best_by_blocks`, which asks for the best of these again.
    if scores_BM.device.type == "cpu" and size >= BLOCK * max(2 * count, BLOCK):
        return _best_by_blocks(scores_BM, count)
    if count <= FEW:
        highest = [scores_BM.max(dim=-1, keepdim=True)]
        if count == 1:
            return highest[0].values, highest[0].indices
        for _ in range(count - 1):
            scores_BM.scatter_(1, highest[-1].indices, NEVER)
            highest.append(scores_BM.max(dim=-1, keepdim=True))
        return torch.cat([top.values for top in highest], 1), torch.cat(
            [top.indices for top in highest], 1
        )
    values_BW, index_BW = scores_BM.topk(count)
    last_B1 = values_BW[:, -1:]
    from_the_end_M = torch.arange(size, 0, -1, dtype=torch.int32, device=scores_BM.device)
    first_equal_BW = (
        size - torch.where(scores_BM == last_B1, from_the_end_M, 0).topk(count).values.long()
    )
    above_BW = values_BW > last_B1
    number_BW = (~above_BW).cumsum(-1).sub_(1).clamp_(min=0)
    index_BW = torch.where(above_BW, index_BW, first_equal_BW.gather(1, number_BW)).clamp_(
        max=size - 1
    )
    order_BW = index_BW.argsort(-1)
    order_BW = order_BW.gather(
        1, values_BW.gather(1, order_BW).argsort(dim=-1, descending=True, stable=True)
    )
    return values_BW.gather(1, order_BW), index_BW.gather(1, order_BW)


def _best_by_blocks(scores_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`best` in one pass over the scores: the highest are in the blocks with the highest maxima, or
    in the rest."""
    whole = scores_BM.shape[1] // BLOCK * BLOCK
    maxima_BN = scores_BM[:, :whole].view(len(scores_BM), -1, BLOCK).amax(-1)
    first_BW = best(maxima_BN, count)[1].sort().values * BLOCK
    index_BK = (first_BW[..., None] + torch.arange(BLOCK)).flatten(1)
    rest_BK = torch.arange(whole, scores_BM.shape[1]).expand(len(scores_BM), -1)
    index_BK = torch.cat([index_BK, rest_BK], 1)
    values_BW, found_BW = best(scores_BM.gather(1, index_BK), count)
    return values_BW, index_BK.gather(1, found_BW)


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
        rank_BW1 = draw(truncated(sorted_BWV, *self._cut), noise_BW)[..., None]
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


def draw(p_V: Tensor, noise: Tensor) -> Tensor:
    """The index where the cumulative sum of the weights [..., V] exceeds the noise, uniform in [0,
    1), times the total.

    The weights are in descending order, so the positive ones come first; the index is limited to
    them, because of rounding in the sums.
    """
    cumulative_V = p_V.cumsum(-1)
    exceeded = (cumulative_V <= noise[..., None] * cumulative_V[..., -1:]).sum(-1)
    positive = (p_V > 0).sum(-1)
    return torch.minimum(exceeded, positive - 1).clamp_(min=0)


# Observers: the best output so far, and the record of a search


report_to: ContextVar[Callable[[str], None] | None] = ContextVar("reporting", default=None)


@contextmanager
def reporting(report: Callable[[str], None]) -> Iterator[None]:
    """Predictions in this context report the best output so far of their first input while it is
    written."""
    token = report_to.set(report)
    try:
        yield
    finally:
        report_to.reset(token)


class BestSoFar:
    """An `Observer` of one sentence that reports its best output so far when that changes: the
    first live one; then the best that has ended, so that the last one is the output of the
    search."""

    def __init__(
        self,
        source: Ragged,
        config: SearchConfig,
        end_id: int,
        text_of: Callable[[Hypothesis], str],
        report: Callable[[str], None],
    ) -> None:
        self._config = config
        self._source_lengths_B = source.lengths_B
        self._end_id = end_id
        self._text_of = text_of
        self._report = report
        self._best: Hypothesis | None = None

    def step(self, log_p_BWV: Tensor, rules: Rules, live: Live, choice: Choice) -> None:
        continued = choice.continued(live, log_p_BWV)
        objective_BW = continued.objective_BW(self._config, self._source_lengths_B)
        columns = continued.history_BWT, continued.score_BW, objective_BW, choice.total_BW
        rows = zip(*(column[0].tolist() for column in columns), strict=True)
        taken = [
            Hypothesis(tuple(ids), score, objective)
            for ids, score, objective, total in rows
            if total > NEVER
        ]
        ended = [hypothesis for hypothesis in taken if hypothesis.tokens[-1] == self._end_id]
        if ended:
            best = max(ended, key=lambda hypothesis: hypothesis.objective)
            if self._best is None or best.objective > self._best.objective:
                self._best = best
                self._report(self._text_of(best))
        elif self._best is None and taken:
            self._report(self._text_of(taken[0]))


@dataclass
class SentenceRecord:
    """The search for one sentence so far."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    ended: list[tuple[int, Hypothesis]] = field(default_factory=list)
    """Finished hypotheses with their numbers, in the order in which they ended."""
    live: list[int] = field(
        default_factory=list
    )  # the numbers of the live hypotheses, in the order of their slots
    numbered: int = 0


class Recorder:
    """An `Observer` that records the candidates of every step and what became of them. Keys:
    docs/search-record.md."""

    def __init__(
        self, source: Ragged, config: SearchConfig, tokenizer: Tokenizer, end_id: int
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._end_id = end_id
        self._rows = config.nbest if config.sample else config.beam
        self._source_lengths_B = source.lengths_B
        self._records = [SentenceRecord() for _ in range(len(source))]
        self._limits = Limits([], [])

    def step(self, log_p_BWV: Tensor, rules: Rules, live: Live, choice: Choice) -> None:
        self._limits = rules.limits
        theta = self._config.repetition_penalty
        ranks_BWV = (
            penalise_repetition(log_p_BWV.clone(), live.history_BWT, theta)
            + live.total_BW[..., None]
        )
        continued = choice.continued(live, log_p_BWV)
        objective_BW = continued.objective_BW(self._config, self._source_lengths_B)
        hypotheses = (
            continued.history_BWT.tolist(),
            continued.score_BW.tolist(),
            objective_BW.tolist(),
        )
        indices = (choice.parents_BW * log_p_BWV.shape[-1] + choice.tokens_BW).tolist()
        alive = (live.total_BW > NEVER).tolist()
        taken = (choice.total_BW > NEVER).tolist()
        values = (
            log_p_BWV,
            log_p_BWV + live.score_BW[..., None],
            ranks_BWV,
            rules.reasons(log_p_BWV, live),
        )
        columns = [value.cpu() for value in values]
        for b, sentence in enumerate(live.sentences_B.tolist()):
            slots = [slot for slot, is_alive in enumerate(alive[b]) if is_alive]
            outputs = zip(*(part[b] for part in hypotheses), strict=True)
            chosen = {
                index: Hypothesis(tuple(ids), score, objective)
                for index, (ids, score, objective), is_taken in zip(
                    indices[b], outputs, taken[b], strict=True
                )
                if is_taken
            }
            if slots:
                self._add(
                    self._records[sentence],
                    slots,
                    chosen,
                    [column[b] for column in columns],
                    rules.names,
                )

    def _add(
        self,
        record: SentenceRecord,
        slots: list[int],
        taken: dict[int, Hypothesis],
        columns_WV: Sequence[Tensor],
        names: Sequence[str],
    ) -> None:
        """Record a step, given the slots with a hypothesis, the candidates taken by their index in
        W x V, and for all candidates log P, log P of the whole hypothesis, the value that ranks it,
        and the rule against it."""
        vocabulary = columns_WV[0].shape[-1]
        *values, ranks_M, reasons_M = (part.flatten() for part in columns_WV)
        parents = dict(zip(slots, record.live or [0] * len(slots), strict=True))
        numbers = {index: record.numbered + n for n, index in enumerate(taken, start=1)}
        candidates = []
        for index, rank in _ranked(ranks_M, reasons_M, taken, 2 * self._rows):
            slot, token = divmod(index, vocabulary)
            why: str | None = "not drawn" if self._config.sample else "rank beyond the open slots"
            fate = "pruned"
            if index in taken:
                fate = "finished" if token == self._end_id else "kept"
                why = None
            elif reasons_M[index]:
                fate = "ruled out"
                why = names[int(reasons_M[index]) - 1]
            log_p, total, ranked_by = (float(value_M[index]) for value_M in (*values, ranks_M))
            candidates.append(
                {
                    "parent": parents[slot],
                    "token": self._tokenizer.tokens([token])[0],
                    "log_p": log_p,
                    "total": total,
                    "ranked_by": ranked_by,
                    "rank": rank,
                    "fate": fate,
                    "why": why,
                    "id": numbers.get(index),
                }
            )
        slots_open = len(slots) if self._config.sample else self._rows - len(record.ended)
        record.steps.append(
            {"step": len(record.steps) + 1, "open": slots_open, "candidates": candidates}
        )
        ended = {
            index for index, hypothesis in taken.items() if hypothesis.tokens[-1] == self._end_id
        }
        record.ended += [(numbers[index], taken[index]) for index in taken if index in ended]
        record.live = [number for index, number in numbers.items() if index not in ended]
        record.numbered += len(numbers)

    def records(self) -> list[dict[str, Any]]:
        """The record of each sentence, after the search."""
        return [
            {
                "shortest": least,
                "longest": most,
                "steps": record.steps,
                "ranking": self._ranking(record),
            }
            for record, least, most in zip(
                self._records, self._limits.shortest, self._limits.longest, strict=True
            )
        ]

    def _ranking(self, record: SentenceRecord) -> list[dict[str, Any]]:
        """All finished outputs, best first. What was kept last could not win any more."""
        for candidate in record.steps[-1]["candidates"]:
            if candidate["fate"] == "kept":
                candidate |= {"fate": "pruned", "why": "cannot win any more"}
        return [
            {
                "id": number,
                "output": self._tokenizer.decode(hypothesis.tokens),
                "tokens": self._tokenizer.tokens(hypothesis.tokens),
                "score": hypothesis.score,
                "objective": hypothesis.objective,
                "given": place < self._config.nbest,
            }
            for place, (number, hypothesis) in enumerate(
                sorted(record.ended, key=lambda ended: -ended[1].objective)
            )
        ]


def _ranked(
    ranks_M: Tensor, reasons_M: Tensor, taken: Iterable[int], count: int
) -> list[tuple[int, int | None]]:
    """The indices of the candidates to record, best first, and their ranks among those that the
    rules allow.

    These are what was taken, the best that the rules allow, and what would be among the best
    without the rules.
    """
    allowed_M = ranks_M.masked_fill(reasons_M > 0, NEVER)
    recorded = set(taken)
    for candidates_M in (allowed_M, ranks_M):
        recorded.update(
            best(candidates_M[None].clone(), min(count, len(candidates_M)))[1][0].tolist()
        )
    ranked = []
    for _, index in sorted(
        (-float(ranks_M[index]), index) for index in recorded if ranks_M[index] > NEVER
    ):
        ahead = (allowed_M > allowed_M[index]).sum() + (allowed_M[:index] == allowed_M[index]).sum()
        ranked.append((index, None if allowed_M[index] == NEVER else int(ahead) + 1))
    return ranked
