"""What to do after a diagnosis: what other beams give, and what to change, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import Config
from regard.tasks import TextToText
from regard.text.normalise import nfc
from regard.views.metrics import count_text, percent, title
from regard.views.search_errors import SAME_TOKENS, Judged, Tally
from regard.views.significance import sacrebleu_metric, score_of, statistics_of, streams_of

MARGIN = 0.1
"""Points of a metric from 0 to 100 that nobody would notice."""
RESAMPLES = 1000
FEW = 30
"""Errors below which shares say little."""
NOTEWORTHY = 0.1
"""The share of the errors from which on a cause is worth a sentence."""

REMEDIES = {
    SAME_TOKENS: "the output has the same tokens, which spell it otherwise; the tokenizer changes case or signs",
    "maximum length": "it is too long, so raise search.max_length_ratio, search.max_length_offset or search.max_length",
    "minimum length": "it is too short, so lower search.min_length or search.min_length_ratio",
}
"""What to do about rules that forbid a reference."""
MORE = "more data or a larger model"
VOCABULARY = "use a larger vocabulary, or one of sub-words or bytes"
PENALTY = "try a lower --length-penalty"
BECAUSE = {
    VOCABULARY: "because the reference holds unknown tokens, which no search could write",
    PENALTY: "only by the length normalisation, since the model gives the reference the higher log P",
}
"""Why each of these helps."""


# ------------------------------------------------------------------------------------------------------ other beams


@dataclass(frozen=True, eq=False)
class Width:
    """What one width of the beam gives."""

    beam: int
    seconds: float
    """To decode all sentences."""
    metrics: Mapping[str, float]
    """The task's own, over all outputs."""
    resampled: NDArray[np.float64]
    """The metric that the widths are compared by, on resamples of the sentences."""
    tally: Tally


@dataclass(frozen=True)
class Behind:
    """How many points a width is behind another, with the 95 % interval."""

    difference: float
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether the difference is both significant and large enough to be noticed."""
        return self.difference > MARGIN and self.low > 0


@dataclass(frozen=True, eq=False)
class Sweep:
    """Several widths, narrowest first."""

    metric: str
    """What they are compared by."""
    widths: tuple[Width, ...]

    def quality(self, width: Width) -> float:
        return width.metrics[self.metric]

    @cached_property
    def best(self) -> Width:
        """The highest quality; among equals the narrowest."""
        return max(self.widths, key=lambda width: (self.quality(width), -width.beam))

    @cached_property
    def enough(self) -> Width:
        """From here on wider no longer pays: the narrowest that is not behind the best in a way that matters."""
        return next(width for width in self.widths if not self.behind(width).matters)

    def best_above(self, beam: int) -> Width | None:
        """The best of the wider ones; None where there is none."""
        wider = [width for width in self.widths if width.beam > beam]
        return max(wider, key=lambda width: (self.quality(width), -width.beam), default=None)

    def at(self, beam: int) -> Width:
        return next(width for width in self.widths if width.beam == beam)

    def behind(self, width: Width, other: Width | None = None) -> Behind:
        """A width against another or the best one: all are measured on the same draws, so this is a paired test."""
        other = other or self.best
        low, high = np.quantile(other.resampled - width.resampled, [0.025, 0.975])
        return Behind(self.quality(other) - self.quality(width), float(low), float(high))

    def to_json(self) -> list[dict[str, Any]]:
        return [self._row(width) for width in self.widths]

    def _row(self, width: Width) -> dict[str, Any]:
        behind = self.behind(width)
        return {
            "beam": width.beam,
            **width.metrics,
            "behind_best": {"difference": behind.difference, "low": behind.low, "high": behind.high},
            "enough": width is self.enough,
            "errors": width.tally.errors,
            "search_errors": width.tally.search_errors,
            "model_errors": width.tally.model_errors,
            "seconds": width.seconds,
        }


def sweep_metric(task: TextToText) -> str:
    """What the widths of a beam are compared by: chrF, which is fair to short outputs, or the task's first metric."""
    better = [name for name, higher in task.higher_is_better.items() if higher]
    return "chrf" if "chrf" in better else better[0]


def resampled(
    outputs: Sequence[str], references: Sequence[Sequence[str]], task: TextToText, config: Config
) -> NDArray[np.float64]:
    """The metric on so many sentences drawn with replacement, 1,000 times (Koehn 2004). The seed is fixed, so the same
    rows are drawn of all outputs for the same references."""
    metric = sacrebleu_metric(sweep_metric(task), task, config, {})
    streams = streams_of([[*map(nfc, texts)] for texts in references])
    statistics = statistics_of(metric, [*map(nfc, outputs)], streams)
    generator, size = np.random.default_rng(1), len(statistics)
    draws = [statistics[generator.integers(0, size, size)].sum(axis=0) for _ in range(RESAMPLES)]
    return score_of(metric, np.stack(draws))


# ------------------------------------------------------------------------------------------------------------ advice


def advice(tally: Tally, errors: Sequence[Judged], beam: int, sweep: Sweep | None) -> Iterator[str]:
    """One sentence or two for each thing that is worth doing, the most important first."""
    causes, lead = Counter(map(_cause, errors)), ""
    if not tally.errors:
        yield "No output is worse than its reference: there is nothing to mend here."
    elif tally.search_errors >= tally.model_errors:
        yield _search(tally, beam, sweep)
    else:
        lead = max((MORE, *BECAUSE), key=lambda remedy: causes[remedy])
        yield _model(tally, lead, causes[lead], beam, sweep)
    if sweep:
        yield from _width(beam, sweep)
    if tally.errors:
        yield from _unreachable(errors)
        yield from _other_causes(tally, {remedy: causes[remedy] for remedy in BECAUSE if remedy != lead})
    if 0 < tally.errors < FEW:
        low, high = map(percent, tally.shares["search_errors"].interval)
        few = f"There {'is' if tally.errors == 1 else 'are'} only {count_text(tally.errors, 'errors')}"
        yield f"{few}: the true share of search errors may be anywhere from {low} to {high}."


def _cause(error: Judged) -> str | None:
    """The remedy of a model error; None for a search error."""
    if error.verdict == "search":
        return None
    if error.scored.unknown:
        return VOCABULARY
    return PENALTY if error.raw_verdict == "search" else MORE


def _search(tally: Tally, beam: int, sweep: Sweep | None) -> str:
    share = f"{percent(tally.shares['search_errors'].share)} search errors"
    if sweep is None:
        return f"{share}: raise the beam above {beam}."
    if sweep.enough.beam > beam:
        return f"{share}: raise the beam to {sweep.enough.beam}{_gain(sweep, beam, sweep.enough)}."
    wider = sweep.best_above(beam)
    if wider is None:
        return f"{share}: raise the beam above {beam}, the widest that was tried."
    behind = sweep.behind(sweep.at(beam), wider)
    if behind.matters:
        return f"{share}: raise the beam to {wider.beam}{_gain(sweep, beam, wider)}."
    if behind.difference > MARGIN:
        sentences = count_text(tally.sentences, "sentences")
        chance = f"with {sentences} that may be chance. Measure more of them, or try that beam"
        return f"{share}: a beam of {wider.beam} writes better{_gain(sweep, beam, wider)}, but {chance}."
    widest = sweep.widths[-1]
    share += f", but no beam up to {widest.beam} writes better by more than {MARGIN} points of {title(sweep.metric)}"
    if 2 * widest.tally.search_errors < tally.search_errors:
        return f"{share}: what the model prefers to the references is as wrong. More data or a larger model."
    return f"{share}: the references lie too far off the beam. Train longer, so that the model rates how they begin."


def _model(tally: Tally, remedy: str, count: int, beam: int, sweep: Sweep | None) -> str:
    """`count` errors have the cause that `remedy` removes, which most model errors have."""
    sentence = f"{percent(tally.shares['model_errors'].share)} model errors"
    if remedy != MORE:
        sentence += f", {count:,} of them {BECAUSE[remedy]}"
    sentence += f": {remedy}. No beam, however wide, would prefer these references"
    if sweep and sweep.enough.beam > beam:
        what_for = "for the others" if tally.search_errors else "for outputs that come closer to them"
        return f"{sentence}; {what_for} raise the beam to {sweep.enough.beam}{_gain(sweep, beam, sweep.enough)}."
    return f"{sentence}."


def _gain(sweep: Sweep, beam: int, then: Width) -> str:
    now = sweep.at(beam)
    qualities = f"{title(sweep.metric)} {sweep.quality(now):.1f} -> {sweep.quality(then):.1f}"
    return f" ({qualities}, {then.seconds / now.seconds:.1f} times the time)"


def _width(beam: int, sweep: Sweep) -> Iterator[str]:
    """Few sentences prove little: what is not significant is not called equal."""
    now, enough = sweep.at(beam), sweep.enough
    if enough.beam < beam:
        share = enough.seconds / now.seconds
        quicker = f", which takes {percent(share)} of the time" if share < 1 else ""
        qualities = f"{title(sweep.metric)} {sweep.quality(now):.2f} and {sweep.quality(enough):.2f}"
        better = f"a beam of {beam} writes better than one of {enough.beam}{quicker} ({qualities})"
        yield f"{count_text(now.tally.sentences, 'sentences')} cannot show that {better}."
    widest = sweep.widths[-1]
    if sweep.best is not widest and sweep.behind(widest).matters:
        yield (
            f"Beams wider than {sweep.best.beam} make it worse: they find what the model prefers, and that is wrong. "
            "Look at the length normalisation before anything else."
        )


def _unreachable(errors: Sequence[Judged]) -> Iterator[str]:
    reasons = Counter(error.unreachable for error in errors if error.unreachable and not error.scored.unknown)
    for reason, count in reasons.items():
        if count >= NOTEWORTHY * len(errors):
            remedy = REMEDIES.get(reason, f"look at the search's rule: {reason}")
            yield f"In {percent(count / len(errors))} of the errors no search could give the reference: {remedy}."


def _other_causes(tally: Tally, counts: Mapping[str, int]) -> Iterator[str]:
    """Model errors that more training would not remove, by what would."""
    for remedy, count in counts.items():
        if count >= NOTEWORTHY * tally.errors:
            are = "is" if count == 1 else "are"
            yield f"{count_text(count, 'errors')} {are} the model's {BECAUSE[remedy]}: {remedy}."
