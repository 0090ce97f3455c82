"""A whole search on record: every step's candidates, what became of each, and why. Keys: docs/search-record.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from regard.data.batch import Tokens
from regard.search.beam import best
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Choice, Hypothesis, Live
from regard.search.objective import Objective
from regard.search.repetition import penalised
from regard.search.rules import Rules

Fate = Literal["kept", "finished", "pruned", "ruled out"]
RUNNERS_UP = 2
"""How many candidates are on record at each step, in beams."""
BEYOND = "rank beyond the open slots"
NOT_DRAWN = "not drawn"
SETTLED = "cannot win any more"


class Spelling(Protocol):
    """What of a tokenizer it takes to read a record."""

    def tokens(self, ids: Sequence[int]) -> list[str]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass
class Candidate:
    """One way to go on, and what became of it."""

    parent: int
    """The `id` of the hypothesis that it continues; 0 is the empty one."""
    token: int
    log_p: float
    total: float
    """The model's own log P of the whole hypothesis."""
    ranked_by: float
    """The same with the repetition penalty."""
    rank: int | None
    """Among all candidates that the rules allow."""
    fate: Fate
    why: str | None = None
    id: int | None = None
    """The number of the hypothesis that it became."""


@dataclass
class SentenceRecord:
    """The search for one sentence."""

    shortest: int
    longest: int
    steps: list[tuple[int, list[Candidate]]] = field(default_factory=list)
    """How many slots were open, and the candidates, best first."""
    ended: list[tuple[int, Hypothesis]] = field(default_factory=list)
    """Numbers and hypotheses, in the order in which they ended."""
    live: list[int] = field(default_factory=list)
    """The numbers of the hypotheses that go on, in the order of their slots."""
    numbered: int = 0

    def settle(self) -> None:
        """The search goes on without what was kept last: nothing of it could win any more."""
        for candidate in self.steps[-1][1] if self.steps else []:
            if candidate.fate == "kept":
                candidate.fate, candidate.why = "pruned", SETTLED

    def to_json(self, spelling: Spelling, nbest: int) -> dict[str, Any]:
        ranking = sorted(self.ended, key=lambda one: -one[1].objective)
        return {
            "shortest": self.shortest,
            "longest": self.longest,
            "steps": [
                {
                    "step": number,
                    "open": slots,
                    "candidates": [asdict(one) | {"token": spelling.tokens([one.token])[0]} for one in candidates],
                }
                for number, (slots, candidates) in enumerate(self.steps, start=1)
            ],
            "ranking": [
                {
                    "id": number,
                    "output": spelling.decode(one.tokens),
                    "tokens": spelling.tokens(one.tokens),
                    "score": one.score,
                    "objective": one.objective,
                    "given": place < nbest,
                }
                for place, (number, one) in enumerate(ranking)
            ],
        }


@dataclass(frozen=True)
class _Seen:
    """What one step shows of one sentence, on the host."""

    alive: list[int]
    """The slots that hold a hypothesis."""
    taken: list[tuple[int, Hypothesis]]
    """The place among the candidates of each continuation that was taken, and what it would be if it ended here."""
    log_p_M: Tensor
    total_M: Tensor
    ranks_M: Tensor
    reasons_M: Tensor


class Recorder:
    """A `Watch` that keeps the search of each sentence."""

    def __init__(self, source: Tokens, config: SearchConfig, rules: Rules, end_id: int) -> None:
        limits = zip(rules.limits.shortest, rules.limits.longest, strict=True)
        self._records = [SentenceRecord(shortest, longest) for shortest, longest in limits]
        self._config, self._rules, self._end_id = config, rules, end_id
        self._source_lengths_B = source.lengths_B
        self._rows = config.nbest if config.sample else config.beam

    def records(self) -> list[SentenceRecord]:
        """Of each sentence, once the search is over."""
        for record in self._records:
            record.settle()
        return self._records

    def step(self, log_p_BWV: Tensor, allowed_BWV: Tensor, live: Live, choice: Choice) -> None:
        """The `Watch`'s: it sees each step."""
        present = dict(zip(live.sentences_B.tolist(), self._seen(log_p_BWV, live, choice), strict=True))
        for number, record in enumerate(self._records):
            if number in present and present[number].alive:
                self._note(record, present[number], log_p_BWV.shape[-1])
            else:
                record.settle()

    def _seen(self, log_p_BWV: Tensor, live: Live, choice: Choice) -> list[_Seen]:
        history_BWT, theta = live.history_BWT, self._config.repetition_penalty
        ranks_BWV = penalised(log_p_BWV.clone(), history_BWT, theta) + live.total_BW[..., None]
        values = (log_p_BWV, log_p_BWV + live.score_BW[..., None], ranks_BWV, self._rules.reasons(log_p_BWV, live))
        columns = [value.flatten(1).cpu() for value in values]
        continued = choice.continued(live, log_p_BWV)
        objective_BW = continued.objective_BW(Objective.of(self._config), self._source_lengths_B)
        places = (choice.parents_BW * log_p_BWV.shape[-1] + choice.tokens_BW).tolist()
        hypotheses = (continued.history_BWT.tolist(), continued.score_BW.tolist(), objective_BW.tolist())
        alive, taken = (live.total_BW > NEVER).tolist(), (choice.total_BW > NEVER).tolist()
        return [
            _Seen(
                [w for w, is_alive in enumerate(alive[b]) if is_alive],
                [
                    (place, Hypothesis(tuple(tokens), score, objective))
                    for place, tokens, score, objective, is_taken in zip(
                        places[b], *(part[b] for part in hypotheses), taken[b], strict=True
                    )
                    if is_taken
                ],
                *(column[b] for column in columns),
            )
            for b in range(len(alive))
        ]

    def _note(self, record: SentenceRecord, seen: _Seen, vocabulary: int) -> None:
        """Enter the candidates of one step, and number the hypotheses that come of them."""
        parents = dict(zip(seen.alive, record.live or [0] * len(seen.alive), strict=True))
        slots = len(seen.alive) if self._config.sample else self._rows - len(record.ended)
        numbers = {place: record.numbered + n for n, (place, _) in enumerate(seen.taken, start=1)}
        candidates = []
        for place, rank in self._worth_a_note(seen):
            slot, token = divmod(place, vocabulary)
            number = numbers.get(place)
            fate, why = self._fate(number, token, int(seen.reasons_M[place]))
            log_p, total, ranked_by = (float(one_M[place]) for one_M in (seen.log_p_M, seen.total_M, seen.ranks_M))
            candidates.append(Candidate(parents[slot], token, log_p, total, ranked_by, rank, fate, why, number))
        record.steps.append((slots, candidates))
        ends = {place: one for place, one in seen.taken if one.tokens[-1] == self._end_id}
        record.ended += [(numbers[place], one) for place, one in ends.items()]
        record.live = [number for place, number in numbers.items() if place not in ends]
        record.numbered += len(numbers)

    def _fate(self, number: int | None, token: int, reason: int) -> tuple[Fate, str | None]:
        if number is not None:
            return ("finished" if token == self._end_id else "kept"), None
        if reason:
            return "ruled out", self._rules.names[reason - 1]
        return "pruned", NOT_DRAWN if self._config.sample else BEYOND

    def _worth_a_note(self, seen: _Seen) -> list[tuple[int, int | None]]:
        """Places of the candidates to record with their ranks, best first.

        These are what was taken, the best that are allowed, and what would be among the best but for the rules.
        """
        count = min(RUNNERS_UP * self._rows, len(seen.ranks_M))
        allowed_M = seen.ranks_M.masked_fill(seen.reasons_M > 0, NEVER)
        noted = {place for place, _ in seen.taken}
        for ranks_M in (allowed_M, seen.ranks_M):
            noted.update(best(ranks_M[None].clone(), count)[1][0].tolist())
        ordered = sorted((-float(seen.ranks_M[place]), place) for place in noted if seen.ranks_M[place] > NEVER)
        return [(place, self._rank(allowed_M, place)) for _, place in ordered]

    @staticmethod
    def _rank(allowed_M: Tensor, place: int) -> int | None:
        if allowed_M[place] == NEVER:
            return None
        ahead = int((allowed_M > allowed_M[place]).sum()) + int((allowed_M[:place] == allowed_M[place]).sum())
        return ahead + 1
