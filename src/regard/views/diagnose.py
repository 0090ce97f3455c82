"""`diagnose`: is each error the search's or the model's; by length, and for wider and narrower beams."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, DataError
from regard.models.base import Generator, device_of
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.settings import (
    Progress,
    device_named,
    examples_of,
    measured_on,
    measured_text,
    opened_pairs,
    summed,
    with_search,
)
from regard.search import SearchConfig
from regard.tasks.text_to_text import LengthsOf
from regard.views.advice import MARGIN, Sweep, Width, advice, resampled, sweep_metric
from regard.views.lengths import LengthBucket, Unit, lengths_in, unit_of
from regard.views.metrics import count_text, percent, title
from regard.views.report import Bars, Cell, Curves, Report, Section, Series, Table, Text, Value
from regard.views.search_errors import (
    UNKNOWN_NOTE,
    VERDICTS,
    Judged,
    Outcome,
    ReferenceWatch,
    Scored,
    Share,
    Tally,
    Verdict,
    decode_best,
    judge,
    score_references,
    tally_by_length,
)
from regard.views.significance import for_metrics

BEAMS = (1, 2, 3, 5, 10, 20)
"""The widths that a diagnosis tries."""
EXAMPLES, IN_TERMINAL = 20, 3
"""Errors of each kind that are shown, and how many of them in the terminal."""
WARM_UP = 16
"""Sentences that are decoded before any are timed: the first ones on a device wait for it to get ready."""
KINDS: dict[Verdict, str] = {"search": "search errors", "model": "model errors"}
EXPLAINED = (
    "An output that is worse than its reference (its own chrF is below 100) is an error. Where the reference scores "
    "higher than the output, under the objective that the search maximises, the search has missed it; otherwise the "
    "model prefers the wrong one, or its vocabulary cannot write the reference. Shares come with their 95 % interval "
    "(Wilson), of errors among the sentences and of each kind among the errors."
)


@dataclass(frozen=True)
class Example:
    """An error, and what became of its reference in the search."""

    judged: Judged
    outcome: Outcome
    token: str
    """The reference's token at that step, as it is shown."""

    def to_json(self) -> dict[str, Any]:
        return {**self.judged.to_json(), "fate": {**asdict(self.outcome), "token": self.token}}

    @property
    def outcome_text(self) -> str:
        """What became of the reference, as half a sentence."""
        step, at = self.outcome.step, f"at step {self.outcome.step}, {self.token!r}"
        match self.outcome.kind:
            case "fell":
                rank = f"rank {self.outcome.rank:,} for {count_text(self.outcome.slots, 'open slots')}"
                return f"fell off the beam {at}: {rank}"
            case "forbidden":
                return f"left the beam {at}, which may not be written there"
            case "finished":
                return f"was written to its end, step {step}, and another one won"
            case "left":
                return f"was still in the beam at step {step}, without a chance to win"

    def table(self) -> Table:
        judged, scored = self.judged, self.judged.scored
        rows: list[list[Value]] = [
            ["source", "", "", scored.source],
            ["reference", Cell(scored.objective, ".3f"), Cell(scored.log_p, ".1f"), scored.reference],
            ["output", Cell(judged.written.objective, ".3f"), Cell(judged.written.score, ".1f"), judged.output],
        ]
        heading = f"{scored.where}, chrF {judged.chrf:.1f}: the reference {self.outcome_text}"
        notes = [f"note: {UNKNOWN_NOTE}"] if scored.unknown else []
        return Table(["", "objective", "log P", ""], rows, title=heading, notes=notes)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found. `to_json` has all of it but the sentences that are no examples."""

    run: str
    search: SearchConfig
    judged: tuple[Judged, ...]
    """Every sentence."""
    metrics: Mapping[str, float]
    """The task's own, over all outputs."""
    examples: Mapping[Verdict, tuple[Example, ...]]
    """The worst errors of each kind, the worst first."""
    beam_sweep: Sweep | None
    seconds: Mapping[str, float]
    """How long each part took."""
    measured_on: Mapping[str, Any]
    """Which split or files the sentences are (runs/settings.py)."""
    lengths_of: LengthsOf = "source"

    @cached_property
    def tally(self) -> Tally:
        return Tally.of(self.judged)

    @cached_property
    def _texts(self) -> list[str]:
        """The texts whose lengths count."""
        return [getattr(sentence.scored, self.lengths_of) for sentence in self.judged]

    @cached_property
    def unit(self) -> Unit:
        """What their lengths are counted in."""
        return unit_of(self._texts)

    @cached_property
    def by_length(self) -> tuple[tuple[LengthBucket, Tally], ...]:
        return tally_by_length(self.judged, lengths_in(self.unit, self._texts))

    @cached_property
    def errors(self) -> tuple[Judged, ...]:
        return tuple(sentence for sentence in self.judged if sentence.error)

    @property
    def raw_search_errors(self) -> int:
        """Errors that would be the search's by log P alone."""
        return sum(error.raw_verdict == "search" for error in self.errors)

    @property
    def unreachable(self) -> dict[Verdict, dict[str, int]]:
        """Errors whose reference the search could not have given, by verdict and reason."""
        reasons = [(error.verdict, error.unreachable) for error in self.errors]
        return {kind: dict(Counter(why for verdict, why in reasons if why and verdict == kind)) for kind in VERDICTS}

    @cached_property
    def advice(self) -> tuple[str, ...]:
        return tuple(advice(self.tally, self.errors, self.search.beam, self.beam_sweep))

    def to_json(self) -> dict[str, Any]:
        sweep, raw = self.beam_sweep, self.raw_search_errors
        examples = {f"{kind}_errors": [one.to_json() for one in worst] for kind, worst in self.examples.items()}
        return {
            "run": self.run,
            **self.measured_on,
            **self.tally.to_json(),
            "raw": {"search_errors": raw, "model_errors": len(self.errors) - raw},
            "unreachable": self.unreachable,
            **self.metrics,
            "not_exact": sum(not sentence.exact for sentence in self.judged),
            "advice": list(self.advice),
            "beam": self.search.beam,
            "search": self.search.model_dump(),
            "lengths_of": self.lengths_of,
            "unit": self.unit,
            "by_length": [{"from": bucket.shortest, "to": bucket.longest, **tally.to_json()}
                          for bucket, tally in self.by_length],
            "beam_sweep": sweep.to_json() if sweep else [],
            "compared_by": sweep.metric if sweep else None,
            "enough_beam": sweep.enough.beam if sweep else None,
            "examples": examples,
            "seconds": dict(self.seconds),
        }  # fmt: skip

    def report(self) -> Report:
        metrics = ", ".join(f"{title(name)} {value:.2f}" for name, value in self.metrics.items())
        measured = f"{count_text(self.tally.sentences, 'sentences')} of {measured_text(self.measured_on)}"
        sections = [self._counts(), self._lengths()]
        if self.beam_sweep:
            sections.append(_beams(self.beam_sweep, self.search.beam))
        sections += [
            Section(f"The worst {KINDS[kind]}", [one.table() for one in worst], in_terminal=IN_TERMINAL)
            for kind, worst in self.examples.items()
            if worst
        ]
        opening = f"{measured}, beam {self.search.beam}: {metrics}."
        return Report(f"Diagnosis of {Path(self.run).name}", sections, opening, self.advice)

    def _counts(self) -> Section:
        tally, raw = self.tally, self.raw_search_errors
        alone: dict[str, Value] = {"errors": "", "search_errors": raw, "model_errors": tally.errors - raw}
        rows: list[list[Value]] = [["sentences", tally.sentences, "", ""]]
        rows += [
            [name.replace("_", " "), share.count, share_text(share), alone[name]]
            for name, share in tally.shares.items()
        ]
        rows += [
            [f"{KINDS[kind]} whose reference no search could have given: {reason}", count, "", ""]
            for kind, reasons in self.unreachable.items()
            for reason, count in reasons.items()
        ]
        table = Table(["", "count", "share, 95 %", "by log P alone"], rows)
        return Section("Search errors and model errors", [table, Text([EXPLAINED], tone="muted")], in_terminal=1)

    def _lengths(self) -> Section:
        columns = [self.unit, "sentences", "sentence chrF", "errors", "search errors", "model errors"]
        rows: list[list[Value]] = [
            [bucket.name, tally.sentences, Cell(tally.chrf, ".1f"), *map(share_text, tally.shares.values())]
            for bucket, tally in self.by_length
        ]
        shares = {
            name: [100 * getattr(tally, f"{kind}_errors") / tally.sentences for _, tally in self.by_length]
            for kind, name in KINDS.items()
        }
        names = [bucket.name for bucket, _ in self.by_length]
        bars = Bars(names, shares, "% of the sentences", stacked=True, span=100.0)
        heading = f"By {self.lengths_of} length in {self.unit}"
        return Section(heading, [Table(columns, rows), bars], in_terminal=1)


def share_text(share: Share) -> str:
    low, high = share.interval
    return f"{percent(share.share)} ({100 * low:.0f}–{100 * high:.0f})" if share.of else "–"


def _beams(sweep: Sweep, beam: int) -> Section:
    """What the widths are compared by comes first, so that a narrow terminal has room for it."""
    names = sorted(sweep.widths[0].metrics, key=lambda name: name != sweep.metric)
    rows: list[list[Value]] = []
    for width in sweep.widths:
        behind = sweep.behind(width)
        mark = "*" * (width is sweep.enough) + "<" * (width.beam == beam)
        first, *others = (Cell(width.metrics[name], ".2f") for name in names)
        rows.append(
            [f"{mark} {width.beam}", first, width.tally.search_errors, Cell(width.seconds, ".2f"), *others,
             f"{behind.difference:.2f} ({behind.low:.2f}–{behind.high:.2f})"]
        )  # fmt: skip
    columns = ["beam", title(names[0]), "search errors", "seconds", *map(title, names[1:])]
    sentences = count_text(sweep.widths[0].tally.sentences, "sentences")
    note = f"< in use; * from here on wider no longer pays in {title(sweep.metric)}, as far as {sentences} can show"
    table = Table([*columns, f"{title(sweep.metric)} behind the best"], rows, notes=[note])
    why = (
        f"* is the narrowest beam that is not behind the best one, {sweep.best.beam}, by more than {MARGIN} points of "
        f"{title(sweep.metric)}, with an interval above 0 (paired bootstrap, 95 %)."
    )
    places = [float(place) for place in range(len(rows))]  # evenly, since each beam is about twice the one before
    ticks = [(place, str(width.beam)) for place, width in zip(places, sweep.widths, strict=True)]
    quality = Series(title(sweep.metric), places, [sweep.quality(width) for width in sweep.widths])
    seconds = Series("seconds", places, [width.seconds for width in sweep.widths])
    curves = [
        Curves([quality], "beam", quality.name, x_ticks=ticks),
        Curves([seconds], "beam", "seconds", x_ticks=ticks, y_range=(0.0, None)),
    ]
    return Section("Other beams", [table, Text([why], tone="muted"), *curves], in_terminal=1)


# ---------------------------------------------------------------------------------------------------------- the verb


def diagnose(
    run: str | Path | Run,
    *,
    split: str | None = None,
    files: Sequence[str] = (),
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    limit: int | None = None,
    sweep: Sequence[int] = BEAMS,
    progress: Progress = lambda what, done, total: None,
) -> Diagnosis:
    """Judge the sentences of a split or of files, all or the first `limit`. An empty `sweep` tries no other beams.

    An output that is worse than its reference is a search error where the reference scores higher under the objective
    that the search maximises, since a better search would have preferred it. Else it is a model error.
    """
    run = opened_pairs(run, "diagnose")
    recipe = with_search(run.recipe, beam, 1, length_penalty, overrides)
    if recipe.search.sample:
        raise ConfigError("samples are not searched for", where="search.sample", hint="--set search.sample=false")
    if limit is not None and limit < 1:
        raise DataError(f"{limit} sentences are none to diagnose", where="--limit", hint="1 or more")
    dataset = examples_of(run.under(recipe), split, files)
    bench = _Bench(run, recipe, run.load_model(checkpoint, device_named(device)), progress)
    with bench.timed("scoring"):
        scored = score_references(run, bench.model, dataset, run.task.by_input(dataset)[:limit], recipe.search)
    warm_up = [sentence.source_ids for sentence in scored[:WARM_UP]]
    decode_best(run, bench.model, warm_up, recipe.search, lambda done: None)
    tried = {width: bench.try_width(scored, width) for width in sorted({*sweep, recipe.search.beam})}
    measured, judged = tried[recipe.search.beam]
    with bench.timed("watching"):
        examples = {verdict: bench.examples(_worst(judged, verdict)) for verdict in VERDICTS}
    widths = Sweep(sweep_metric(run.task), tuple(width for width, _ in tried.values())) if sweep else None
    return Diagnosis(
        str(run.folder), recipe.search, tuple(judged), measured.metrics, examples, widths, bench.seconds,
        measured_on(run, split, files), run.task.lengths_of,
    )  # fmt: skip


def _worst(judged: Sequence[Judged], verdict: Verdict) -> list[Judged]:
    """The errors of a kind with the lowest chrF; among equals those with the largest difference of the objective."""
    errors = [sentence for sentence in judged if sentence.error and sentence.verdict == verdict]
    return sorted(errors, key=lambda one: (one.chrf, -abs(one.scored.objective - one.written.objective)))[:EXAMPLES]


@dataclass(frozen=True, eq=False)
class _Bench:
    """A run's model, ready to be tried, and a clock."""

    run: Run
    recipe: AnyRecipe
    model: Generator
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - started

    def try_width(self, scored: Sequence[Scored], beam: int) -> tuple[Width, list[Judged]]:
        """What a width of the beam gives, in all and sentence by sentence."""
        part = f"beam {beam}"
        moved = summed(partial(self.progress, part), len(scored))
        sources, config = [sentence.source_ids for sentence in scored], self.recipe.evaluation
        with self.timed(part):
            search = with_search(self.recipe, beam, 1, None, []).search
            written = decode_best(self.run, self.model, sources, search, moved)
        with self.timed(f"measuring {part}"):
            judged = judge(self.run, scored, written, lowercase=getattr(config, "lowercase", False))
            outputs, references = [one.output for one in judged], [one.scored.references for one in judged]
            metrics = self.run.task.metrics(outputs, for_metrics(references), config)
            draws = resampled(outputs, references, self.run.task, config)
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        return Width(beam, self.seconds[part], numbers, draws, Tally.of(judged)), judged

    def examples(self, judged: Sequence[Judged]) -> tuple[Example, ...]:
        """Search once more for these, and follow their references."""
        outcomes: dict[int, Outcome] = {}
        watches: dict[tuple[int, ...], ReferenceWatch] = {}
        theta = self.recipe.search.repetition_penalty

        def watch(rows: list[int]) -> ReferenceWatch:
            references = [judged[row].scored.tokens for row in rows]
            return watches.setdefault(tuple(rows), ReferenceWatch(references, device_of(self.model), theta))

        sources = [sentence.scored.source_ids for sentence in judged]
        for rows, _ in self.run.task.decode(self.model, sources, self.recipe.search, watch=watch):
            outcomes.update(zip(rows, watches[tuple(rows)].outcomes, strict=True))
        target = self.run.tokenizers["target"]
        return tuple(
            Example(sentence, outcomes[row], target.pieces([sentence.scored.tokens[outcomes[row].step - 1]])[0])
            for row, sentence in enumerate(judged)
        )
