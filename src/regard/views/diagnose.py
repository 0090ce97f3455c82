"""`diagnose`: tell search errors from model errors, by length and for wider and narrower beams, and
advise what to do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError, ConfigError, DataError
from regard.models.base import Generator
from regard.recipes.search_options import SearchOptions, with_search
from regard.runs import Run
from regard.runs.examples import (
    ReportProgress,
    examples_of,
    measured_on,
    measured_text,
    unknown_note,
)
from regard.search.config import SearchConfig
from regard.tasks.answers import summed
from regard.tasks.sources import LengthsOf
from regard.text.normalise import nfc
from regard.views import search_errors
from regard.views.advice import (
    advice,
)
from regard.views.beam_sweep import BeamResult, Sweep
from regard.views.labels import count_text, metric_title
from regard.views.metric_sums import TextMeasure, text_metrics
from regard.views.report import Bars, Cell, Report, Result, Section, Table, muted
from regard.views.search_errors import (
    ERROR_KINDS,
    Bucket,
    JudgedOutput,
    ScoredReference,
    Tally,
    Verdict,
)
from regard.views.search_record import Outcome, outcomes_of
from regard.views.significance import resamples

SWEPT_BEAMS = (1, 2, 3, 5, 10, 20)
"""The widths of the beam that a diagnosis tries by default."""
EXAMPLES_PER_KIND = 20
EXAMPLES_IN_TERMINAL = 3
"""Errors of each kind that are shown, and how many of them in the terminal."""
WARM_UP_SENTENCES = 16
"""Sentences decoded before any are timed, since a device is slow for the first ones."""


VERDICTS_NOTE = (
    "An output that is worse than its reference (its own chrF is below 100) is an error. If the "
    "reference scores higher than the output, under the objective that the search maximises, the "
    "search has missed it; otherwise the model prefers the wrong one, or its vocabulary cannot "
    "write the reference. If a rule of the search, such as its maximum length, forbids the "
    "reference, the error is neither: it is a rule error. Shares come with their 95 % interval "
    "(Wilson), of errors among the sentences and of each kind among the errors."
)


def _example(judged: JudgedOutput, outcome: Outcome) -> Table:
    """One error, with the fate of its reference in the search."""
    scored = judged.scored
    at = f"at step {outcome.step}, {outcome.token!r}"
    slots = count_text(outcome.slots, "open slots")
    became = {
        "fell": f"fell off the beam {at}: rank {outcome.rank or 0:,} for {slots}",
        "forbidden": f"left the beam {at}, which may not be written there",
        "finished": f"was written to its end, step {outcome.step}, and another one won",
        "left": f"was still in the beam at step {outcome.step}, without a chance to win",
    }[outcome.kind]
    best = scored.best
    written = judged.written
    rows = [
        [Cell("source", ours=True), "", "", scored.source],
        [Cell("reference", ours=True), best.objective, best.score, scored.reference],
        [Cell("output", ours=True), written.objective, written.score, judged.output],
    ]
    heading = f"{scored.where}, chrF {judged.chrf:.1f}: the reference {became}"
    notes = [f"note: {search_errors.UNKNOWN_REFERENCE_NOTE}"] if scored.unknown else []
    return Table(
        ["", "objective", "log P", ""], rows, title=heading, notes=notes, formats=["", ".3f", ".1f"]
    )


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Result):
    """The result of `diagnose`. `to_json` has all of it except the sentences that are not
    examples."""

    run: str
    search: SearchConfig
    judged: Sequence[JudgedOutput]
    metrics: Mapping[str, float]
    """The task's metrics over all outputs."""
    examples: Mapping[Verdict, Sequence[tuple[JudgedOutput, Outcome]]]
    """The worst errors of each kind, the worst first, and what became of their references in the
    search."""
    beam_sweep: Sweep | None
    seconds: Mapping[str, float]
    measured_on: Mapping[str, Any]
    """Which split or files the sentences are (runs/examples.py)."""
    lengths_of: LengthsOf

    @cached_property
    def tally(self) -> Tally:
        return Tally.of(self.judged)

    @cached_property
    def by_length(self) -> tuple[str, list[tuple[Bucket, Tally]]]:
        """The unit of length, and the errors among the sentences of each length."""
        texts = [getattr(sentence.scored, self.lengths_of) for sentence in self.judged]
        unit, lengths = search_errors.lengths_of(texts)
        buckets = search_errors.length_buckets(lengths)
        return unit, [
            (bucket, Tally.of([self.judged[row] for row in bucket.rows])) for bucket in buckets
        ]

    @cached_property
    def errors(self) -> list[JudgedOutput]:
        return [sentence for sentence in self.judged if sentence.error]

    @property
    def raw(self) -> dict[str, int]:
        """Errors of each kind by log P alone."""
        verdicts = Counter(error.raw_verdict for error in self.errors)
        return {f"{kind}_errors": verdicts[kind] for kind in ERROR_KINDS}

    @property
    def kinds(self) -> dict[Verdict, str]:
        """The kinds of errors that the report shows: rule errors only if there are any."""
        return {
            kind: name
            for kind, name in ERROR_KINDS.items()
            if kind != "rule" or self.tally.rule_errors
        }

    @property
    def unreachable(self) -> dict[Verdict, dict[str, int]]:
        """Errors whose reference the search could not have given, by verdict and reason."""
        reasons = [(error.verdict, error.unreachable) for error in self.errors]
        return {
            kind: dict(Counter(why for verdict, why in reasons if why and verdict == kind))
            for kind in ERROR_KINDS
        }

    @cached_property
    def advice(self) -> list[str]:
        return list(advice(self.tally, self.errors, self.search.beam, self.beam_sweep))

    def to_json(self) -> dict[str, Any]:
        sweep = self.beam_sweep
        unit, by_length = self.by_length
        examples = {
            f"{kind}_errors": [
                {**judged.to_json(), "fate": asdict(outcome)} for judged, outcome in worst
            ]
            for kind, worst in self.examples.items()
        }
        return {
            "run": self.run,
            **self.measured_on,
            **self.tally.to_json(),
            "raw": self.raw,
            "unreachable": self.unreachable,
            **self.metrics,
            "not_exact": sum(not sentence.exact for sentence in self.judged),
            "advice": self.advice,
            "beam": self.search.beam,
            "search": self.search.model_dump(),
            "lengths_of": self.lengths_of,
            "unit": unit,
            "by_length": [
                {"from": bucket.shortest, "to": bucket.longest, **tally.to_json()}
                for bucket, tally in by_length
            ],
            "beam_sweep": sweep.to_json() if sweep else [],
            "compared_by": sweep.metric if sweep else None,
            "enough_beam": sweep.enough.beam if sweep else None,
            "examples": examples,
            "seconds": dict(self.seconds),
        }

    def report(self) -> Report:
        metrics = ", ".join(
            f"{metric_title(name)} {value:.2f}" for name, value in self.metrics.items()
        )
        measured = (
            f"{count_text(self.tally.sentences, 'sentences')} of {measured_text(self.measured_on)}"
        )
        worst = [
            Section(
                f"The worst {ERROR_KINDS[kind]}",
                [_example(*example) for example in examples],
                in_terminal=EXAMPLES_IN_TERMINAL,
            )
            for kind, examples in self.examples.items()
            if examples
        ]
        sweep = [self.beam_sweep.section()] if self.beam_sweep else []
        opening = f"{measured}, beam {self.search.beam}: {metrics}."
        sections = [self._counts(), self._lengths(), *sweep, *worst]
        looks = [*unknown_note(self.measured_on), *self.advice]
        return Report(f"Diagnosis of {Path(self.run).name}", sections, opening, looks)

    def _counts(self) -> Section:
        tally = self.tally
        names = ["errors", *(f"{kind}_errors" for kind in self.kinds)]
        rows = [[Cell("sentences", ours=True), tally.sentences, "", ""]]
        rows += [
            [
                Cell(name.replace("_", " "), ours=True),
                tally.counts[name],
                tally.share_texts[name],
                self.raw.get(name, ""),
            ]
            for name in names
        ]
        rows += [
            [
                Cell(
                    f"{ERROR_KINDS[kind]} whose reference no search could have given: {reason}",
                    ours=True,
                ),
                count,
                "",
                "",
            ]
            for kind, reasons in self.unreachable.items()
            for reason, count in reasons.items()
        ]
        table = Table(["", "count", "share, 95 %", "by log P alone"], rows)
        return Section(
            "Search errors and model errors", [table, muted(VERDICTS_NOTE)], in_terminal=1
        )

    def _lengths(self) -> Section:
        unit, by_length = self.by_length
        rows = [
            [
                bucket.name,
                tally.sentences,
                tally.chrf,
                *islice(tally.share_texts.values(), 1 + len(self.kinds)),
            ]
            for bucket, tally in by_length
        ]
        shares = {
            name: [100 * tally.counts[f"{kind}_errors"] / tally.sentences for _, tally in by_length]
            for kind, name in self.kinds.items()
        }
        table = Table(
            [unit, "sentences", "sentence chrF", "errors", *self.kinds.values()],
            rows,
            formats=[".1f"],
        )
        bars = Bars(
            [bucket.name for bucket, _ in by_length], shares, "% of the sentences", span=100.0
        )
        return Section(f"By {self.lengths_of} length in {unit}", [table, bars], in_terminal=1)


def diagnose(  # noqa: PLR0913  (one keyword per option, as in the command)
    run: str | Path | Run,
    *,
    split: str | None = None,
    files: Sequence[str] = (),
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    limit: int | None = None,
    sweep: Sequence[int] = SWEPT_BEAMS,
    accept_recipe: bool = False,
    progress: ReportProgress = lambda what, done, total: None,
) -> Diagnosis:
    """Judge the sentences of a split or of files, all or the first `limit`. An empty `sweep` tries
    no other beams.

    An output that is worse than its reference is a search error if the reference scores higher
    under the objective that the search maximises, since a better search would have preferred it,
    and a rule error where a rule of the search forbids the reference. Else it is a model error.
    """
    run = Run.open(run, accept_recipe)
    if run.task.views.text_metrics is None:
        what = (
            f"diagnose compares outputs with references, which a run of {run.recipe.task} "
            "does not have"
        )
        raise CheckpointError(
            what, where=str(run.folder), hint="evaluate and predict serve every task"
        )
    options = SearchOptions(beam, 1, length_penalty, overrides=tuple(overrides))
    run = run.under(with_search(run.recipe, options))
    search = run.recipe.search
    seconds = dict[str, float]()
    if search.sample:
        raise ConfigError(
            "sampling is not a search", where="search.sample", hint="--set search.sample=false"
        )
    if limit is not None and limit < 1:
        raise DataError(f"{limit} sentences cannot be diagnosed", where="--limit", hint="1 or more")
    dataset = examples_of(run, split, files)
    model = cast(Generator, run.load_model(checkpoint, device))
    with _timed(seconds, "scoring"):
        scored = search_errors.score_references(
            run, model, dataset, run.task.views.target_texts.sources.groups(dataset)[:limit]
        )
    search_errors.decode_best(
        run, model, [sentence.source_ids for sentence in scored[:WARM_UP_SENTENCES]], search
    )
    tried = {
        width: _try_width(run, model, scored, width, seconds, progress)
        for width in sorted({*sweep, search.beam})
    }
    measured, judged = tried[search.beam]
    with _timed(seconds, "watching"):
        examples = {verdict: _examples(run, model, judged, verdict) for verdict in ERROR_KINDS}
    widths = (
        Sweep(
            sweep_metric(run.task.higher_is_better),
            [width for width, _ in tried.values()],
            search.beam,
        )
        if sweep
        else None
    )
    return Diagnosis(
        str(run.folder),
        search,
        judged,
        measured.metrics,
        examples,
        widths,
        seconds,
        measured_on(run, split, files, dataset),
        run.task.views.target_texts.sources.lengths_of,
    )


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[part] = time.perf_counter() - started


def _try_width(
    run: Run,
    model: Generator,
    scored: Sequence[ScoredReference],
    beam: int,
    seconds: dict[str, float],
    progress: ReportProgress,
) -> tuple[BeamResult, list[JudgedOutput]]:
    """Decode with one width of the beam: the result as a whole, and the judged sentences."""
    part = f"beam {beam}"
    moved = summed(partial(progress, part), len(scored))
    with _timed(seconds, part):
        search = with_search(run.recipe, SearchOptions(beam, 1)).search
        written = search_errors.decode_best(
            run, model, [sentence.source_ids for sentence in scored], search, moved
        )
    with _timed(seconds, f"measuring {part}"):
        judged = search_errors.judge(run, scored, written)
        outputs, references = zip(
            *((sentence.output, sentence.scored.references) for sentence in judged), strict=True
        )
        metrics = search_errors.metrics_of(run, outputs, references)
        name = sweep_metric(run.task.higher_is_better)
        compared = run.task.views.compared_texts
        [measure] = text_metrics(
            [name], compared.text_scores, run.recipe.evaluation, compared.bleu_orders
        ).values()
        draws = resampled(outputs, references, measure)
    return BeamResult(beam, seconds[part], metrics, draws, Tally.of(judged)), judged


def _examples(
    run: Run, model: Generator, judged: Sequence[JudgedOutput], verdict: Verdict
) -> list[tuple[JudgedOutput, Outcome]]:
    """The errors of one kind with the lowest chrF; ties go to the largest difference of the
    objective.

    The search runs once more for these, to follow their references.
    """
    errors = [sentence for sentence in judged if sentence.error and sentence.verdict == verdict]
    errors.sort(
        key=lambda error: (error.chrf, -abs(error.scored.best.objective - error.written.objective))
    )
    worst = errors[:EXAMPLES_PER_KIND]
    sources = [error.scored.source_ids for error in worst]
    references = [error.scored.best.tokens for error in worst]
    outcomes = outcomes_of(run, model, sources, references, run.recipe.search)
    tokens = [ids[outcome.step - 1] for ids, outcome in zip(references, outcomes, strict=True)]
    names = [run.tokenizers["target"].pieces([token])[0] for token in tokens]
    followed = zip(worst, outcomes, names, strict=True)
    return [(error, replace(outcome, token=name)) for error, outcome, name in followed]


def sweep_metric(higher_is_better: Sequence[str]) -> str:
    """The metric by which widths of the beam are compared: chrF, which is fair to short outputs, or
    the first metric."""
    return "chrf" if "chrf" in higher_is_better else higher_is_better[0]


def resampled(
    outputs: Sequence[str], references: Sequence[Sequence[str]], measure: TextMeasure
) -> NDArray[np.float64]:
    """The metric on 1,000 resamples of the sentences, drawn with replacement (Koehn 2004). The seed
    is fixed, so outputs for the same references are resampled alike."""
    statistics, value = measure
    rows = statistics([*map(nfc, outputs)], [[*map(nfc, texts)] for texts in references])
    return value(np.concatenate([weights @ rows for weights in resamples(len(rows), seed=1)]))
