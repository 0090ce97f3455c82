"""A record of a whole search: the candidates of every step, and what became of them. Keys: docs/search-record.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from regard.data.batches import Tokens
from regard.search.config import SearchConfig
from regard.search.decode import best
from regard.search.hypotheses import NEVER, Choice, Hypothesis, Live, Ranking, penalise_repetition
from regard.search.rules import Rules

Outcome = Literal["kept", "finished", "pruned", "ruled out"]
RECORDED = 2
"""How many of the best candidates are recorded in each step, in multiples of the beam."""
BEYOND = "rank beyond the open slots"
NOT_DRAWN = "not drawn"
SETTLED = "cannot win any more"


class Detokenizer(Protocol):
    """The methods of a tokenizer that a record needs."""

    def tokens(self, ids: Sequence[int]) -> list[str]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass
class Candidate:
    """One possible continuation, and what became of it."""

    parent: int
    """The `id` of the hypothesis that it continues; 0 is the empty one."""
    token: int
    log_p: float
    total: float
    """The model's log P of the whole hypothesis."""
    ranked_by: float
    """The same with the repetition penalty."""
    rank: int | None
    """Its rank among all candidates that the rules allow."""
    fate: Outcome
    why: str | None = None
    id: int | None = None
    """The number of the hypothesis that it became."""


@dataclass
class SentenceRecord:
    """The search for one sentence."""

    shortest: int
    longest: int
    steps: list[tuple[int, list[Candidate]]] = field(default_factory=list)
    """The number of open slots, and the candidates, best first."""
    ended: list[tuple[int, Hypothesis]] = field(default_factory=list)
    """Finished hypotheses with their numbers, in the order in which they ended."""
    live: list[int] = field(default_factory=list)
    """The numbers of the live hypotheses, in the order of their slots."""
    numbered: int = 0

    def end(self) -> None:
        """The search of this sentence is over: what was kept last could not win any more."""
        for candidate in self.steps[-1][1] if self.steps else []:
            if candidate.fate == "kept":
                candidate.fate, candidate.why = "pruned", SETTLED

    def to_json(self, tokenizer: Detokenizer, nbest: int) -> dict[str, Any]:
        ranking = sorted(self.ended, key=lambda entry: -entry[1].objective)
        return {
            "shortest": self.shortest,
            "longest": self.longest,
            "steps": [
                {
                    "step": number,
                    "open": slots,
                    "candidates": [
                        asdict(candidate) | {"token": tokenizer.tokens([candidate.token])[0]}
                        for candidate in candidates
                    ],
                }
                for number, (slots, candidates) in enumerate(self.steps, start=1)
            ],
            "ranking": [
                {
                    "id": number,
                    "output": tokenizer.decode(hypothesis.tokens),
                    "tokens": tokenizer.tokens(hypothesis.tokens),
                    "score": hypothesis.score,
                    "objective": hypothesis.objective,
                    "given": place < nbest,
                }
                for place, (number, hypothesis) in enumerate(ranking)
            ],
        }


@dataclass(frozen=True)
class _Step:
    """One step of one sentence, on the host. M indexes the candidates: slots x vocabulary."""

    alive: list[int]
    """The slots with a hypothesis."""
    taken: list[tuple[int, Hypothesis]]
    """The candidates that were taken: their indices, and the hypotheses as if they ended here."""
    log_p_M: Tensor
    total_M: Tensor
    ranks_M: Tensor
    reasons_M: Tensor


class Recorder:
    """An `Observer` that records the search of each sentence."""

    def __init__(self, source: Tokens, config: SearchConfig, rules: Rules, end_id: int) -> None:
        limits = zip(rules.limits.shortest, rules.limits.longest, strict=True)
        self._records = [SentenceRecord(shortest, longest) for shortest, longest in limits]
        self._config, self._rules, self._end_id = config, rules, end_id
        self._source_lengths_B = source.lengths_B
        self._rows = config.nbest if config.sample else config.beam

    def records(self) -> list[SentenceRecord]:
        """The record of each sentence, after the search."""
        for record in self._records:
            record.end()
        return self._records

    def step(self, log_p_BWV: Tensor, allowed_BWV: Tensor, live: Live, choice: Choice) -> None:
        steps = dict(zip(live.sentences_B.tolist(), self._steps(log_p_BWV, live, choice), strict=True))
        for number, record in enumerate(self._records):
            if number in steps and steps[number].alive:
                self._add(record, steps[number], log_p_BWV.shape[-1])
            else:
                record.end()

    def _steps(self, log_p_BWV: Tensor, live: Live, choice: Choice) -> list[_Step]:
        history_BWT, theta = live.history_BWT, self._config.repetition_penalty
        ranks_BWV = penalise_repetition(log_p_BWV.clone(), history_BWT, theta) + live.total_BW[..., None]
        values = (log_p_BWV, log_p_BWV + live.score_BW[..., None], ranks_BWV, self._rules.reasons(log_p_BWV, live))
        columns = [value.flatten(1).cpu() for value in values]
        continued = choice.continued(live, log_p_BWV)
        objective_BW = continued.objective_BW(Ranking.of(self._config), self._source_lengths_B)
        indices = (choice.parents_BW * log_p_BWV.shape[-1] + choice.tokens_BW).tolist()
        hypotheses = (continued.history_BWT.tolist(), continued.score_BW.tolist(), objective_BW.tolist())
        alive, taken = (live.total_BW > NEVER).tolist(), (choice.total_BW > NEVER).tolist()
        return [
            _Step(
                [w for w, is_alive in enumerate(alive[b]) if is_alive],
                [
                    (index, Hypothesis(tuple(tokens), score, objective))
                    for index, tokens, score, objective, is_taken in zip(
                        indices[b], *(part[b] for part in hypotheses), taken[b], strict=True
                    )
                    if is_taken
                ],
                *(column[b] for column in columns),
            )
            for b in range(len(alive))
        ]

    def _add(self, record: SentenceRecord, step: _Step, vocabulary: int) -> None:
        """Record the candidates of one step, and number the hypotheses that they become."""
        parents = dict(zip(step.alive, record.live or [0] * len(step.alive), strict=True))
        slots = len(step.alive) if self._config.sample else self._rows - len(record.ended)
        numbers = {index: record.numbered + n for n, (index, _) in enumerate(step.taken, start=1)}
        candidates = []
        for index, rank in self._candidates(step):
            slot, token = divmod(index, vocabulary)
            number = numbers.get(index)
            outcome, why = self._outcome(number, token, int(step.reasons_M[index]))
            log_p, total, ranked_by = (float(values[index]) for values in (step.log_p_M, step.total_M, step.ranks_M))
            candidates.append(Candidate(parents[slot], token, log_p, total, ranked_by, rank, outcome, why, number))
        record.steps.append((slots, candidates))
        ends = {index: hypothesis for index, hypothesis in step.taken if hypothesis.tokens[-1] == self._end_id}
        record.ended += [(numbers[index], hypothesis) for index, hypothesis in ends.items()]
        record.live = [number for index, number in numbers.items() if index not in ends]
        record.numbered += len(numbers)

    def _outcome(self, number: int | None, token: int, reason: int) -> tuple[Outcome, str | None]:
        if number is not None:
            return ("finished" if token == self._end_id else "kept"), None
        if reason:
            return "ruled out", self._rules.names[reason - 1]
        return "pruned", NOT_DRAWN if self._config.sample else BEYOND

    def _candidates(self, step: _Step) -> list[tuple[int, int | None]]:
        """The indices of the candidates to record with their ranks, best first.

        These are what was taken, the best that the rules allow, and what would be among the best without the rules.
        """
        count = min(RECORDED * self._rows, len(step.ranks_M))
        allowed_M = step.ranks_M.masked_fill(step.reasons_M > 0, NEVER)
        recorded = {index for index, _ in step.taken}
        for ranks_M in (allowed_M, step.ranks_M):
            recorded.update(best(ranks_M[None].clone(), count)[1][0].tolist())
        ordered = sorted((-float(step.ranks_M[index]), index) for index in recorded if step.ranks_M[index] > NEVER)
        return [(index, self._rank(allowed_M, index)) for _, index in ordered]

    @staticmethod
    def _rank(allowed_M: Tensor, index: int) -> int | None:
        if allowed_M[index] == NEVER:
            return None
        ahead = int((allowed_M > allowed_M[index]).sum()) + int((allowed_M[:index] == allowed_M[index]).sum())
        return ahead + 1
