"""What follows from a diagnosis, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from regard.views.beam_sweep import Sweep
from regard.views.compare_text import title
from regard.views.references import UNKNOWN
from regard.views.tallies import Tally
from regard.views.verdicts import SPELT_OTHERWISE, Judged

FEW = 30
"""Errors below which shares say little."""
NOTEWORTHY = 0.1
"""The share of the errors from which on a cause is worth a sentence."""

REMEDIES = {
    UNKNOWN: "it holds unknown tokens, so use a larger vocabulary, or one of sub-words or bytes",
    SPELT_OTHERWISE: "the output has the same tokens, which spell it otherwise; the tokenizer changes case or signs",
    "maximum length": "it is too long, so raise search.max_length_ratio, search.max_length_offset or search.max_length",
    "minimum length": "it is too short, so lower search.min_length or search.min_length_ratio",
}
"""What to do about what keeps the search from a reference."""


def advice(tally: Tally, errors: Sequence[Judged], beam: int, sweep: Sweep | None) -> Iterator[str]:
    """One sentence or two for each thing that is worth doing, the most important first."""
    if not tally.errors:
        yield "No output is worse than its reference: there is nothing to mend here."
    elif tally.search_errors >= tally.model_errors:
        yield _search(tally, beam, sweep)
    else:
        yield _model(tally, beam, sweep)
    if sweep:
        yield from _width(beam, sweep)
    if tally.errors:
        yield from _unreachable(errors)
        yield from _normalisation(errors)
    if 0 < tally.errors < FEW:
        low, high = tally.shares["search_errors"].interval
        yield (
            f"There are only {tally.errors} errors: the true share of search errors may be anywhere from "
            f"{percent(low)} to {percent(high)}."
        )


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _search(tally: Tally, beam: int, sweep: Sweep | None) -> str:
    found = f"{percent(tally.shares['search_errors'].share)} search errors"
    if sweep is None:
        return f"{found}: raise the beam above {beam}."
    if sweep.enough.beam > beam:
        return f"{found}: raise the beam to {sweep.enough.beam}{_gain(sweep, beam)}."
    widest = sweep.widths[-1]
    if widest.beam == beam:
        return f"{found}: raise the beam above {beam}, the widest that was tried."
    found += f", but no beam up to {widest.beam} writes better"
    if 2 * widest.tally.search_errors < tally.search_errors:
        return f"{found}: what the model prefers to the references is as wrong. More data or a larger model."
    return f"{found}: the references lie too far off the beam. Train longer, so that the model rates how they begin."


def _model(tally: Tally, beam: int, sweep: Sweep | None) -> str:
    found = f"{percent(tally.shares['model_errors'].share)} model errors: more data or a larger model. No search mends"
    if sweep and sweep.enough.beam > beam:
        return f"{found} these; for the others raise the beam to {sweep.enough.beam}{_gain(sweep, beam)}."
    return f"{found} what the model itself prefers."


def _gain(sweep: Sweep, beam: int) -> str:
    now, then = sweep.at(beam), sweep.enough
    qualities = f"{title(sweep.metric)} {sweep.quality(now):.1f} -> {sweep.quality(then):.1f}"
    return f" ({qualities}, {then.seconds / now.seconds:.1f} times the time)"


def _width(beam: int, sweep: Sweep) -> Iterator[str]:
    if sweep.enough.beam < beam:
        share = sweep.enough.seconds / sweep.at(beam).seconds
        quicker = f", and takes {percent(share)} of the time" if share < 1 else ""
        yield f"A beam of {sweep.enough.beam} is no worse than {beam} here{quicker}."
    widest = sweep.widths[-1]
    if sweep.best is not widest and sweep.behind(widest).matters:
        yield (
            f"Beams wider than {sweep.best.beam} make it worse: they find what the model prefers, and that is wrong. "
            "Look at the length normalisation before anything else."
        )


def _unreachable(errors: Sequence[Judged]) -> Iterator[str]:
    for reason, count in Counter(one.unreachable for one in errors if one.unreachable).items():
        if count >= NOTEWORTHY * len(errors):
            remedy = REMEDIES.get(reason, f"look at the search's rule: {reason}")
            yield f"In {percent(count / len(errors))} of the errors no search could give the reference: {remedy}."


def _normalisation(errors: Sequence[Judged]) -> Iterator[str]:
    """Errors that are the model's only because of the length normalisation."""
    count = sum(one.verdict == "model" and one.raw_verdict == "search" for one in errors)
    if count >= NOTEWORTHY * len(errors):
        yield (
            f"In {count} errors the model gives the reference the higher log P, and only the length normalisation "
            "prefers the output: try a lower --length-penalty."
        )
