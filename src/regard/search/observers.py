"""Observers of a search: the best output so far, and a record of every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from regard.data.batches import Ragged
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Choice, Hypothesis, Live, best, penalise_repetition
from regard.search.rules import Limits, Rules
from regard.text.tokenizers import Tokenizer


class Observer(Protocol):
    """Called after every search step. Without an observer the search computes nothing for it."""

    def step(self, log_p_BWV: Tensor, rules: Rules, live: Live, choice: Choice) -> None:
        """One step, before finished hypotheses are removed.

        `log_p_BWV` is the model's log P of each next token, whatever the rules. `live.sentences_B`
        are indices in the batch that the search was given.
        """
        ...


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
