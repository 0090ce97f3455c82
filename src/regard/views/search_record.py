"""Whole searches as one value: JSON (docs/search-record.md), and for people a tree and the ranking of what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

from regard.models.base import device_of
from regard.runs import Run
from regard.search.config import SearchConfig
from regard.search.hypotheses import score
from regard.tasks.task import encode_target, readable
from regard.text.files import FileInput
from regard.views.labels import label
from regard.views.report import Branch, Cell, Report, Result, Section, Table, Tone, Tree, Value, muted
from regard.views.search_errors import Outcome, ReferenceWatch

HINT = (
    "Each token stands after the one that it continues, with log P of all tokens up to it. A dashed line leads to a "
    "candidate that was not kept, a thick one to the best output."
)
Json = Mapping[str, Any]


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
    """What `predict --record` writes."""

    run: str
    search: SearchConfig
    inputs: Sequence[Json]
    """For each input the record of its search."""
    reference: Reference | None = None
    """Of the only input."""

    def to_json(self) -> dict[str, Any]:
        content = {"run": self.run, "search": self.search.model_dump(), "inputs": [*self.inputs]}
        return content | ({} if self.reference is None else {"reference": self.reference.to_json()})

    def report(self) -> Report:
        kind = "samples" if self.search.sample else f"beam {self.search.beam}"
        opening = f"{kind}, normalisation {self.search.normalisation}, length penalty {self.search.length_penalty:g}."
        sections = [
            Section(one["input"], [search_tree(one, self.reference), ranking(one), muted(HINT)], in_terminal=2)
            for one in self.inputs
        ]
        return Report("The search, step by step", sections, opening)


def search_tree(record: Json, reference: Reference | None = None) -> Tree:
    """What was kept at each step, and the candidates that were not; those that a rule excludes are left out."""
    way, best = _way(record, reference), {one["id"] for one in record["ranking"][:1]}
    for candidate in [one for step in reversed(record["steps"]) for one in step["candidates"]]:
        best |= {candidate["parent"]} if candidate["id"] in best else set()
    places, branches = dict[int, int](), list[Branch]()
    for step, own in zip_longest(record["steps"], way):
        shown = [one for one in step["candidates"] if one["fate"] != "ruled out" or one is own]
        for one in [*shown, *([own] if own and all(one is not own for one in shown) else [])]:
            left = one["fate"] in ("pruned", "ruled out")
            tone: Tone = "good" if one["id"] in best else "muted" if left else ""
            rank, why = f", rank {one['rank']:,}" if one["rank"] else "", f": {one['why']}" if one["why"] else ""
            note = f"log P {one['log_p']:.3f}, in all {one['total']:.3f}{rank}; {one['fate']}{why}"
            text, parent, value = label(one["token"]), places.get(one["parent"]), f"{one['total']:.2f}"
            places[one["id"] or -1] = len(branches)
            branches.append(Branch(parent, step["step"], text, value, tone, note, marked=one is own))
    return Tree(branches)


def _way(record: Json, reference: Reference | None) -> list[Json]:
    """The reference's candidate at each step, as far as it was in the beam. The last may be so far behind that it was
    not recorded."""
    way, current = list[Json](), 0
    for step, token in zip(record["steps"], reference.tokens if reference else (), strict=False):
        for candidate in step["candidates"]:
            if (candidate["parent"], candidate["token"]) == (current, token):
                way.append(candidate)
                break
        else:
            assert reference is not None
            scores = reference.token_scores[: step["step"]]
            way.append({"parent": current, "token": token, "log_p": scores[-1], "total": sum(scores), "id": None,
                        "rank": reference.outcome.rank, "fate": "pruned", "why": "far behind"})  # fmt: skip
        if not (current := way[-1]["id"] or 0):
            break
    return way


def ranking(record: Json) -> Table:
    """The outputs in the order of the objective, with the rank that each has by log P alone."""
    by_score = sorted(record["ranking"], key=lambda one: -one["score"])
    rows: list[list[Value]] = [
        [
            rank, by_score.index(one) + 1, Cell(one["objective"], ".3f"), Cell(one["score"], ".3f"), len(one["tokens"]),
            Cell(one["output"], tone="good" if one["given"] else ""),
        ]
        for rank, one in enumerate(record["ranking"], 1)
    ]  # fmt: skip
    columns = ["rank", "rank by log P", "objective", "log P", "tokens", "output"]
    return Table(columns, rows, title="Outputs, after length normalisation and before it")


def follow_reference(run: Run, model: Any, text: str, reference: str) -> Reference:
    """What becomes of a text in the search for an input of a run that writes texts."""
    task, target, config = run.task, run.tokenizers["target"], run.recipe.search
    [source] = readable(task.encode_sources([FileInput(text, "input")]))
    ids = [token for token in encode_target(target, reference) if token != target.end]
    [hypothesis] = task.hypotheses(model, [source], [ids], config)
    [scores] = score(model, task.pairs(model, [source], [ids]))
    watch = ReferenceWatch([hypothesis.tokens], device_of(model), config.repetition_penalty)
    for _ in task.decode(model, [source], config, watch=lambda rows: watch):
        pass
    [outcome] = watch.outcomes
    tokens = target.tokens(hypothesis.tokens)
    shown = replace(outcome, token=tokens[outcome.step - 1] if outcome.step else "")
    return Reference(tokens, scores, hypothesis.score, hypothesis.objective, shown)
