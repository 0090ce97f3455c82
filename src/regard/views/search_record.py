"""Whole searches as one value: JSON (docs/search-record.md), and for people a tree and a ranking of
the outputs; and the fate of a reference in a search.

And what becomes of a reference in a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any, Literal

import torch
from torch import Tensor

from regard.data.example import Example
from regard.models.base import Generator, device_of
from regard.runs import Run
from regard.search.config import SearchConfig
from regard.search.hypotheses import NEVER, Choice, Live, penalise_repetition
from regard.search.rules import Rules
from regard.search.scoring import token_scores
from regard.tasks.written import Source
from regard.views.labels import token_label
from regard.views.report import Branch, Cell, Report, Result, Section, Table, Tone, Tree, muted

TREE_NOTE = (
    "Each token follows the one that it continues, with log P of all tokens so far. Dashed lines "
    "lead to candidates that were dropped, thick lines to the best output."
)
JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The fate of a reference in the search.

    `fell`: at this step it ranked behind the open slots; `forbidden`: at this step its token may
    not be written; `finished`: it was written to its end, and another one won; `left`: it was still
    in the beam when the search was over, with no chance to win.
    """

    kind: Literal["fell", "forbidden", "finished", "left"]
    step: int
    """From 1: the number of the token in the reference, `</s>` included."""
    rank: int | None = None
    """Its rank among all candidates of the step, from 1; None where it may not be written."""
    slots: int = 0
    """How many candidates the step took."""
    token: str = ""
    """The reference's token at that step, as it is shown."""


class ReferenceWatch:
    """Observer of the search of a batch that finds the outcome of each sentence's reference."""

    def __init__(
        self, references: Sequence[Sequence[int]], device: torch.device, theta: float
    ) -> None:
        """`references` end in `</s>`; `theta` is the search's repetition penalty."""
        self._theta = theta
        self._lengths = [len(ids) for ids in references]
        rows = [[*ids, *[-1] * (max(self._lengths) - len(ids))] for ids in references]
        self._reference_BT = torch.tensor(rows, device=device)
        self._decided: dict[int, Outcome] = {}
        self._reached = [0] * len(references)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome for each sentence, once the search is over."""
        return [
            self._decided.get(b, Outcome("left", reached))
            for b, reached in enumerate(self._reached)
        ]

    def step(self, log_p_BWV: Tensor, rules: Rules, live: Live, choice: Choice) -> None:
        written = live.history_BWT.shape[-1]
        if written >= self._reference_BT.shape[1]:
            return
        allowed_BWV = rules.reasons(log_p_BWV, live) == 0
        reference_BT = self._reference_BT[live.sentences_B, : written + 1]
        follows_BW = (live.history_BWT == reference_BT[:, None, :written]).all(-1) & (
            live.total_BW > NEVER
        )
        slot_B = follows_BW.int().argmax(-1)
        token_B = reference_BT[:, written]
        ranks_BWV = (
            penalise_repetition(log_p_BWV.clone(), live.history_BWT, self._theta)
            + live.total_BW[..., None]
        )
        candidates_BM = ranks_BWV.masked_fill(~allowed_BWV, NEVER).flatten(1)
        place_B1 = (slot_B * log_p_BWV.shape[-1] + token_B.clamp(min=0))[:, None]
        allowed_B = allowed_BWV.flatten(1).gather(1, place_B1)[:, 0]
        taken_BW = choice.total_BW > NEVER
        kept_B = (
            taken_BW
            & (choice.parents_BW == slot_B[:, None])
            & (choice.tokens_BW == token_B[:, None])
        ).any(-1)
        # Among equals the first comes first.
        total_B1 = candidates_BM.gather(1, place_B1)
        before_BM = torch.arange(candidates_BM.shape[1], device=place_B1.device) < place_B1
        ranks_B = 1 + ((candidates_BM > total_B1) | ((candidates_BM == total_B1) & before_BM)).sum(
            -1
        )
        columns = (
            live.sentences_B,
            follows_BW.any(-1),
            kept_B,
            allowed_B,
            ranks_B,
            taken_BW.sum(-1),
        )
        step = written + 1
        for b, followed, kept, allowed, rank, slots in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            if not followed or b in self._decided or step > self._lengths[b]:
                continue
            self._reached[b] = step
            if not allowed:
                self._decided[b] = Outcome("forbidden", step, None, slots)
            elif not kept or step == self._lengths[b]:
                self._decided[b] = Outcome("finished" if kept else "fell", step, rank, slots)


@dataclass(frozen=True)
class Reference:
    """A text that the search might have given, its scores, and what became of it."""

    tokens: Sequence[str]
    token_scores: Sequence[float]
    score: float
    objective: float
    outcome: Outcome

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"outcome": asdict(self.outcome)}


@dataclass(frozen=True, repr=False)
class SearchRecord(Result):
    """The result of `predict --record`."""

    run: str
    search: SearchConfig
    inputs: Sequence[JsonObject]
    reference: Reference | None = None
    """The reference of the only input."""

    def to_json(self) -> dict[str, Any]:
        content = {"run": self.run, "search": self.search.model_dump(), "inputs": [*self.inputs]}
        return content | ({} if self.reference is None else {"reference": self.reference.to_json()})

    def report(self) -> Report:
        kind = "samples" if self.search.sample else f"beam {self.search.beam}"
        opening = (
            f"{kind}, normalisation {self.search.normalisation}, length penalty "
            f"{self.search.length_penalty:g}."
        )
        sections = [
            Section(
                record["input"],
                [search_tree(record, self.reference), ranking(record), muted(TREE_NOTE)],
                in_terminal=2,
            )
            for record in self.inputs
        ]
        return Report("The search, step by step", sections, opening)


def search_tree(record: JsonObject, reference: Reference | None = None) -> Tree:
    """The hypotheses kept at each step, and the candidates that were dropped; those that a rule
    excludes are left out."""
    way = _way(record, reference)
    best = {hypothesis["id"] for hypothesis in record["ranking"][:1]}
    for candidate in [
        candidate for step in reversed(record["steps"]) for candidate in step["candidates"]
    ]:
        best |= {candidate["parent"]} if candidate["id"] in best else set()
    places = dict[int, int]()
    branches = list[Branch]()
    for step, own in zip_longest(record["steps"], way):
        shown = [
            candidate
            for candidate in step["candidates"]
            if candidate["fate"] != "ruled out" or candidate is own
        ]
        for candidate in [
            *shown,
            *([own] if own and all(candidate is not own for candidate in shown) else []),
        ]:
            left = candidate["fate"] in ("pruned", "ruled out")
            tone: Tone = "good" if candidate["id"] in best else "muted" if left else ""
            rank = f", rank {candidate['rank']:,}" if candidate["rank"] else ""
            why = f": {candidate['why']}" if candidate["why"] else ""
            note = (
                f"log P {candidate['log_p']:.3f}, in all {candidate['total']:.3f}{rank}; "
                f"{candidate['fate']}{why}"
            )
            parent = places.get(candidate["parent"])
            text = token_label(candidate["token"])
            places[candidate["id"] or -1] = len(branches)
            total = f"{candidate['total']:.2f}"
            branches.append(
                Branch(parent, step["step"], text, total, tone, note, marked=candidate is own)
            )
    return Tree(branches)


def _way(record: JsonObject, reference: Reference | None) -> list[JsonObject]:
    """The reference's candidate at each step, as far as it was in the beam. The last may be so far
    behind that it was not recorded."""
    way = list[JsonObject]()
    current = 0
    for step, token in zip(record["steps"], reference.tokens if reference else (), strict=False):
        for candidate in step["candidates"]:
            if (candidate["parent"], candidate["token"]) == (current, token):
                way.append(candidate)
                break
        else:
            assert reference is not None
            scores = reference.token_scores[: step["step"]]
            way.append(
                {
                    "parent": current,
                    "token": token,
                    "log_p": scores[-1],
                    "total": sum(scores),
                    "id": None,
                    "rank": reference.outcome.rank,
                    "fate": "pruned",
                    "why": "far behind",
                }
            )
        if not (current := way[-1]["id"] or 0):
            break
    return way


def ranking(record: JsonObject) -> Table:
    """The outputs in the order of the objective, with the rank that each has by log P alone."""
    by_score = sorted(record["ranking"], key=lambda hypothesis: -hypothesis["score"])
    rows = [
        [
            rank,
            by_score.index(hypothesis) + 1,
            hypothesis["objective"],
            hypothesis["score"],
            len(hypothesis["tokens"]),
            Cell(hypothesis["output"], tone="good" if hypothesis["given"] else ""),
        ]
        for rank, hypothesis in enumerate(record["ranking"], 1)
    ]
    columns = ["rank", "rank by log P", "objective", "log P", "tokens", "output"]
    return Table(
        columns, rows, title="Outputs, after length normalisation and before it", formats=[".3f"]
    )


def outcomes_of(
    run: Run,
    model: Generator,
    sources: Sequence[Source],
    references: Sequence[Sequence[int]],
    search: SearchConfig,
) -> list[Outcome]:
    """The outcome of each reference, tokens that end in `</s>`, in the search for its source."""
    outcomes = dict[int, Outcome]()
    watches = list[ReferenceWatch]()

    def watch(rows: list[int]) -> ReferenceWatch:
        watches.append(
            ReferenceWatch(
                [references[row] for row in rows], device_of(model), search.repetition_penalty
            )
        )
        return watches[-1]

    for rows, _ in run.task.views.target_texts.decode(model, sources, search, watch=watch):
        outcomes.update(zip(rows, watches[-1].outcomes, strict=True))
    return [outcomes[row] for row in range(len(sources))]


def follow_reference(run: Run, model: Generator, text: str, reference: str) -> Reference:
    """The outcome of a text in the search for an input of a run that writes texts."""
    written = run.task.views.target_texts
    target = run.tokenizers["target"]
    config = run.recipe.search
    source = written.sources.read_one(Example.of_text(text, "input"))
    ids = [token for token in written.target_ids(reference) if token != target.end]
    [hypothesis] = written.hypotheses(model, [source], [ids], config)
    [scores] = token_scores(model, written.pairs(model, [source], [ids]))
    [outcome] = outcomes_of(run, model, [source], [hypothesis.tokens], config)
    tokens = target.tokens(hypothesis.tokens)
    shown = replace(outcome, token=tokens[outcome.step - 1] if outcome.step else "")
    return Reference(tokens, scores, hypothesis.score, hypothesis.objective, shown)
