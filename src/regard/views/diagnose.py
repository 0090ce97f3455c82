"""`diagnose`: whose fault each error is, the search's or the model's; by length, and for wider and narrower beams."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, DataError
from regard.models.base import Generator, device_of
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.settings import Progress, device_named, opened_pairs, summed, with_search
from regard.runs.splits import SplitName, examples_of, measured_on
from regard.search import Hypothesis, SearchConfig
from regard.tasks.text_to_text import LengthsOf
from regard.views.advice import advice
from regard.views.beam_sweep import Sweep, Width, metric_of, resampled
from regard.views.fates import Fate, ReferenceWatch
from regard.views.lengths import Unit, lengths_in, unit_of
from regard.views.references import wanted_of
from regard.views.tallies import Bucket, Tally, by_length
from regard.views.verdicts import VERDICTS, Judged, Verdict, Wanted, for_metrics, sentence_chrf

BEAMS = (1, 2, 3, 5, 10, 20)
"""The widths that a diagnosis tries."""
EXAMPLES = 20
"""Errors of each kind that are shown."""
WARM_UP = 16
"""Sentences that are decoded before any are timed: the first ones on a device wait for it to get ready."""


@dataclass(frozen=True)
class Example:
    """An error, and what became of its reference in the search."""

    judged: Judged
    fate: Fate
    token: str
    """The reference's token at that step, as it is shown."""

    def to_json(self) -> dict[str, Any]:
        return {**self.judged.to_json(), "fate": {**self.fate.to_json(), "token": self.token}}


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found. `to_json` has all of it but the sentences that are no examples."""

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
    """Which split or files the sentences are (runs/splits.py)."""
    lengths_of: LengthsOf = "source"

    @cached_property
    def tally(self) -> Tally:
        return Tally.of(self.judged)

    @cached_property
    def measured(self) -> list[str]:
        """The texts whose lengths count."""
        return [getattr(one.wanted, self.lengths_of) for one in self.judged]

    @cached_property
    def unit(self) -> Unit:
        """What their lengths are counted in."""
        return unit_of(self.measured)

    @cached_property
    def by_length(self) -> tuple[Bucket, ...]:
        return by_length(self.judged, lengths_in(self.unit, self.measured))

    @cached_property
    def errors(self) -> tuple[Judged, ...]:
        return tuple(one for one in self.judged if one.error)

    @property
    def raw_search_errors(self) -> int:
        """Errors that would be the search's by log P alone."""
        return sum(one.raw_verdict == "search" for one in self.errors)

    @property
    def unreachable(self) -> dict[Verdict, dict[str, int]]:
        """Errors whose reference the search could not have given, by verdict and reason."""
        return {
            verdict: dict(Counter(one.unreachable for one in self.errors if one.unreachable and one.verdict == verdict))
            for verdict in VERDICTS
        }

    @cached_property
    def advice(self) -> tuple[str, ...]:
        return tuple(advice(self.tally, self.errors, self.search.beam, self.beam_sweep))

    def to_json(self) -> dict[str, Any]:
        sweep, raw = self.beam_sweep, self.raw_search_errors
        return {
            "run": self.run,
            **self.measured_on,
            **self.tally.to_json(),
            "raw": {"search_errors": raw, "model_errors": len(self.errors) - raw},
            "unreachable": self.unreachable,
            **self.metrics,
            "not_exact": sum(not one.exact for one in self.judged),
            "advice": list(self.advice),
            "beam": self.search.beam,
            "search": self.search.model_dump(),
            "lengths_of": self.lengths_of,
            "unit": self.unit,
            "by_length": [bucket.to_json() for bucket in self.by_length],
            "beam_sweep": sweep.to_json() if sweep else [],
            "compared_by": sweep.metric if sweep else None,
            "enough_beam": sweep.enough.beam if sweep else None,
            "examples": {f"{kind}_errors": [one.to_json() for one in found] for kind, found in self.examples.items()},
            "seconds": dict(self.seconds),
        }


def diagnose(
    run: str | Path | Run,
    *,
    split: SplitName | None = None,
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

    An output that is worse than its reference is the search's fault where the reference scores higher under the
    objective that the search maximises, since a better search would have preferred it. Else it is the model's.
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
        wanted = wanted_of(run, bench.model, dataset, run.task.by_input(dataset)[:limit], recipe.search)
    bench.warm_up(wanted)
    tried = {width: bench.tried(wanted, width) for width in sorted({*sweep, recipe.search.beam})}
    measured, judged = tried[recipe.search.beam]
    with bench.timed("watching"):
        examples = {verdict: bench.examples(_worst(judged, verdict)) for verdict in VERDICTS}
    widths = Sweep(metric_of(run.task), tuple(width for width, _ in tried.values())) if sweep else None
    found = (tuple(judged), measured.metrics, examples, widths, bench.seconds, measured_on(run, split, files))
    return Diagnosis(str(run.folder), recipe.search, *found, lengths_of=run.task.lengths_of)


def _worst(judged: Sequence[Judged], verdict: Verdict) -> list[Judged]:
    """The errors of a kind with the lowest chrF; among equals those of which the search or the model was surest."""
    errors = [one for one in judged if one.error and one.verdict == verdict]
    return sorted(errors, key=lambda one: (one.chrf, -abs(one.wanted.objective - one.written.objective)))[:EXAMPLES]


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

    def warm_up(self, wanted: Sequence[Wanted]) -> None:
        self._decoded(wanted[:WARM_UP], self.recipe.search, lambda done: None)

    def tried(self, wanted: Sequence[Wanted], beam: int) -> tuple[Width, list[Judged]]:
        """What a width of the beam gives, in all and sentence by sentence."""
        part = f"beam {beam}"
        moved = summed(partial(self.progress, part), len(wanted))
        with self.timed(part):
            written = self._decoded(wanted, with_search(self.recipe, beam, 1, None, []).search, moved)
        with self.timed(f"measuring {part}"):
            outputs = [self.run.tokenizers["target"].decode(one.tokens) for one in written]
            references, evaluation = [one.references for one in wanted], self.recipe.evaluation
            metrics = self.run.task.metrics(outputs, for_metrics(references), evaluation)
            chrf = sentence_chrf(outputs, references, lowercase=evaluation.lowercase)
            drawn = resampled(outputs, references, self.run.task, evaluation)
        judged = [Judged(*one) for one in zip(wanted, written, outputs, chrf, strict=True)]
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        return Width(beam, self.seconds[part], numbers, drawn, Tally.of(judged)), judged

    def _decoded(
        self, wanted: Sequence[Wanted], config: SearchConfig, moved: Callable[[int], None]
    ) -> list[Hypothesis]:
        found: dict[int, Hypothesis] = {}
        for rows, nbest in self.run.task.decode(self.model, [one.source_ids for one in wanted], config):
            found.update((row, best[0]) for row, best in zip(rows, nbest, strict=True))
            moved(len(rows))
        return [found[row] for row in range(len(wanted))]

    def examples(self, judged: Sequence[Judged]) -> tuple[Example, ...]:
        """Search once more for these, and watch what becomes of their references."""
        fates: dict[int, Fate] = {}
        watches: dict[tuple[int, ...], ReferenceWatch] = {}

        def watch(rows: list[int]) -> ReferenceWatch:
            references = [judged[row].wanted.tokens for row in rows]
            watches[tuple(rows)] = ReferenceWatch(
                references, device_of(self.model), self.recipe.search.repetition_penalty
            )
            return watches[tuple(rows)]

        sources = [one.wanted.source_ids for one in judged]
        for rows, _ in self.run.task.decode(self.model, sources, self.recipe.search, watch=watch):
            fates.update(zip(rows, watches[tuple(rows)].fates, strict=True))
        return tuple(self._example(one, fates[row]) for row, one in enumerate(judged))

    def _example(self, judged: Judged, fate: Fate) -> Example:
        return Example(judged, fate, self.run.tokenizers["target"].pieces([judged.wanted.tokens[fate.step - 1]])[0])
