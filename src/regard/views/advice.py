"""What follows from a diagnosis, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from regard.views.beam_sweep import MARGIN, Sweep, Width
from regard.views.compare_text import how_many, title
from regard.views.tallies import Tally
from regard.views.verdicts import SPELT_OTHERWISE, Judged

FEW = 30
"""Errors below which shares say little."""
NOTEWORTHY = 0.1
"""The share of the errors from which on a cause is worth a sentence."""

REMEDIES = {
    SPELT_OTHERWISE: "the output has the same tokens, which spell it otherwise; the tokenizer changes case or signs",
    "maximum length": "it is too long, so raise search.max_length_ratio, search.max_length_offset or search.max_length",
    "minimum length": "it is too short, so lower search.min_length or search.min_length_ratio",
}
"""What to do about what keeps the search from a reference."""
MORE = "more data or a larger model"
VOCABULARY = "use a larger vocabulary, or one of sub-words or bytes"
PENALTY = "try a lower --length-penalty"
BECAUSE = {
    VOCABULARY: "because the reference holds unknown tokens, which no search could write",
    PENALTY: "only by the length normalisation, since the model gives the reference the higher log P",
}
"""Why each of these helps."""


def advice(tally: Tally, errors: Sequence[Judged], beam: int, sweep: Sweep | None) -> Iterator[str]:
    """One sentence or two for each thing that is worth doing, the most important first."""
    causes, lead = Counter(map(cause, errors)), ""
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
        few = f"There {'is' if tally.errors == 1 else 'are'} only {how_many(tally.errors, 'errors')}"
        yield f"{few}: the true share of search errors may be anywhere from {low} to {high}."


def cause(error: Judged) -> str | None:
    """Of a model error that is not for the model to learn, what to do about it; of another one, to teach it more."""
    if error.verdict == "search":
        return None
    if error.wanted.unknown:
        return VOCABULARY
    return PENALTY if error.raw_verdict == "search" else MORE


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _search(tally: Tally, beam: int, sweep: Sweep | None) -> str:
    found = f"{percent(tally.shares['search_errors'].share)} search errors"
    if sweep is None:
        return f"{found}: raise the beam above {beam}."
    if sweep.enough.beam > beam:
        return f"{found}: raise the beam to {sweep.enough.beam}{_gain(sweep, beam, sweep.enough)}."
    wider = sweep.best_above(beam)
    if wider is None:
        return f"{found}: raise the beam above {beam}, the widest that was tried."
    behind = sweep.behind(sweep.at(beam), wider)
    if behind.matters:
        return f"{found}: raise the beam to {wider.beam}{_gain(sweep, beam, wider)}."
    if behind.difference > MARGIN:
        chance = (
            f"with {how_many(tally.sentences, 'sentences')} that may be chance. Measure more of them, or try that beam"
        )
        return f"{found}: a beam of {wider.beam} writes better{_gain(sweep, beam, wider)}, but {chance}."
    widest = sweep.widths[-1]
    found += f", but no beam up to {widest.beam} writes better by more than {MARGIN} points of {title(sweep.metric)}"
    if 2 * widest.tally.search_errors < tally.search_errors:
        return f"{found}: what the model prefers to the references is as wrong. More data or a larger model."
    return f"{found}: the references lie too far off the beam. Train longer, so that the model rates how they begin."


def _model(tally: Tally, remedy: str, count: int, beam: int, sweep: Sweep | None) -> str:
    """The remedy is that of the cause that most model errors have, so many of them."""
    found = f"{percent(tally.shares['model_errors'].share)} model errors"
    if remedy != MORE:
        found += f", {count:,} of them {BECAUSE[remedy]}"
    found += f": {remedy}. No beam, however wide, would prefer these references"
    if sweep and sweep.enough.beam > beam:
        what_for = "for the others" if tally.search_errors else "for outputs that come closer to them"
        return f"{found}; {what_for} raise the beam to {sweep.enough.beam}{_gain(sweep, beam, sweep.enough)}."
    return f"{found}."


def _gain(sweep: Sweep, beam: int, then: Width) -> str:
    now = sweep.at(beam)
    qualities = f"{title(sweep.metric)} {sweep.quality(now):.1f} -> {sweep.quality(then):.1f}"
    return f" ({qualities}, {then.seconds / now.seconds:.1f} times the time)"


def _width(beam: int, sweep: Sweep) -> Iterator[str]:
    """What is not certain is no proof of the contrary: few sentences show little."""
    now, enough = sweep.at(beam), sweep.enough
    if enough.beam < beam:
        share = enough.seconds / now.seconds
        quicker = f", which takes {percent(share)} of the time" if share < 1 else ""
        found = f"{title(sweep.metric)} {sweep.quality(now):.2f} and {sweep.quality(enough):.2f}"
        better = f"a beam of {beam} writes better than one of {enough.beam}{quicker} ({found})"
        yield f"{how_many(now.tally.sentences, 'sentences')} cannot show that {better}."
    widest = sweep.widths[-1]
    if sweep.best is not widest and sweep.behind(widest).matters:
        yield (
            f"Beams wider than {sweep.best.beam} make it worse: they find what the model prefers, and that is wrong. "
            "Look at the length normalisation before anything else."
        )


def _unreachable(errors: Sequence[Judged]) -> Iterator[str]:
    reasons = Counter(one.unreachable for one in errors if one.unreachable and not one.wanted.unknown)
    for reason, count in reasons.items():
        if count >= NOTEWORTHY * len(errors):
            remedy = REMEDIES.get(reason, f"look at the search's rule: {reason}")
            yield f"In {percent(count / len(errors))} of the errors no search could give the reference: {remedy}."


def _other_causes(tally: Tally, counts: Mapping[str, int]) -> Iterator[str]:
    """Model errors that are not for the model to learn, by what to do about them."""
    for remedy, count in counts.items():
        if count >= NOTEWORTHY * tally.errors:
            are = "is" if count == 1 else "are"
            yield f"{how_many(count, 'errors')} {are} the model's {BECAUSE[remedy]}: {remedy}."
