"""The advice of a diagnosis: sentences about the causes of errors that occur often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

from regard.views.beam_sweep import NOTICEABLE_DIFFERENCE, BeamResult, Sweep
from regard.views.labels import count_text, metric_title, percent
from regard.views.search_errors import (
    SAME_TOKENS,
    JudgedOutput,
    Tally,
)

MIN_ERRORS_FOR_SHARES = 30
"""With fewer errors than this, their shares say little."""
NOTEWORTHY_SHARE = 0.1
"""A cause is mentioned if it explains at least this share of the errors."""
RULE_REMEDIES = {
    SAME_TOKENS: "the output has the same tokens, which spell it otherwise; the tokenizer changes "
    "case or signs",
    "maximum length": "it is too long, so raise search.max_length_ratio, search.max_length_offset "
    "or search.max_length",
    "minimum length": "it is too short, so lower search.min_length or search.min_length_ratio",
}
"""How to change the rule of the search that forbids a reference."""
TRAIN_MORE = "longer training, more data or a larger model"
LARGER_VOCABULARY = "use a larger vocabulary, or one of sub-words or bytes"
LOWER_PENALTY = "try a lower --length-penalty"
REMEDY_REASONS = {
    LARGER_VOCABULARY: "because the reference contains unknown tokens, which no search could write",
    LOWER_PENALTY: "only by the length normalisation, since the model gives the reference the higher "
    "log P",
}
"""Why each remedy helps."""


def advice(
    tally: Tally, errors: Sequence[JudgedOutput], beam: int, sweep: Sweep | None
) -> Iterator[str]:
    """One or two sentences for each thing that is worth doing, the most important first."""
    yield from _rule_advice(errors)
    if not tally.errors:
        yield "No output is worse than its reference: there are no errors to correct."
    elif tally.errors == tally.rule_errors:
        return  # neither another beam nor a better model would help
    causes = _causes(errors)
    main_remedy = ""
    if tally.errors and tally.search_errors >= tally.model_errors:
        wider = _wider(tally, sweep) if sweep else f": raise the beam above {beam}."
        yield f"{percent(tally.shares['search_errors'].share)} search errors{wider}"
    elif tally.errors:
        main_remedy = max((TRAIN_MORE, *REMEDY_REASONS), key=lambda remedy: causes[remedy])
        yield _model_advice(tally, causes[main_remedy], main_remedy, sweep)
    if sweep:
        yield from _width(sweep)
    yield from _other_remedies(tally, causes, main_remedy)
    if 0 < tally.errors < MIN_ERRORS_FOR_SHARES:
        yield _few_errors(tally)


def _rule_advice(errors: Sequence[JudgedOutput]) -> Iterator[str]:
    """The rules of the search that forbid many references, and what to do about each."""
    reasons = Counter(
        error.unreachable for error in errors if error.unreachable and not error.scored.unknown
    )
    for reason, count in reasons.items():
        if count >= NOTEWORTHY_SHARE * len(errors):
            remedy = RULE_REMEDIES.get(reason, f"look at the search's rule: {reason}")
            yield (
                f"In {percent(count / len(errors))} of the errors no search could give the "
                f"reference: {remedy}."
            )


def _causes(errors: Sequence[JudgedOutput]) -> Counter[str]:
    """How many model errors each remedy would address."""
    causes = Counter[str]()
    for error in errors:
        if error.verdict == "model":
            by_length = LOWER_PENALTY if error.raw_verdict == "search" else TRAIN_MORE
            causes[LARGER_VOCABULARY if error.scored.unknown else by_length] += 1
    return causes


def _model_advice(tally: Tally, count: int, remedy: str, sweep: Sweep | None) -> str:
    """Advice if most errors are the model's; `count` of them are due to what `remedy` mends."""
    why = "" if remedy == TRAIN_MORE else f", {count:,} of them {REMEDY_REASONS[remedy]}"
    rest = ""
    if sweep and sweep.enough.beam > sweep.beam:
        others = "for the others" if tally.search_errors else "for outputs that come closer to them"
        rest = f"; {others} raise the beam to {_gain(sweep, sweep.enough)}"
    share = percent(tally.shares["model_errors"].share)
    return (
        f"{share} model errors{why}: {remedy}. No beam, however wide, would prefer these "
        f"references{rest}."
    )


def _other_remedies(tally: Tally, causes: Counter[str], main_remedy: str) -> Iterator[str]:
    """Remedies, besides the main one, for model errors that more training would not remove."""
    for remedy, reason in REMEDY_REASONS.items():
        count = causes[remedy]
        if remedy != main_remedy and count and count >= NOTEWORTHY_SHARE * tally.errors:
            are = "is" if count == 1 else "are"
            yield f"{count_text(count, 'errors')} {are} the model's {reason}: {remedy}."


def _few_errors(tally: Tally) -> str:
    """How little the share of search errors says if there are few errors."""
    _, low, high = map(percent, tally.shares["search_errors"])
    few = f"There {'is' if tally.errors == 1 else 'are'} only {count_text(tally.errors, 'errors')}"
    return f"{few}: the true share of search errors may be anywhere from {low} to {high}."


def _wider(tally: Tally, sweep: Sweep) -> str:
    """Advice about search errors: the rest of a sentence that begins with their share."""
    widest = sweep.widths[-1]
    if sweep.enough.beam > sweep.beam:
        return f": raise the beam to {_gain(sweep, sweep.enough)}."
    if widest is sweep.now:
        return f": raise the beam above {sweep.beam}, the widest that was tried."
    best = sweep.best_above(sweep.beam)
    behind = sweep.behind(sweep.now, best)
    if behind.matters:
        return f": raise the beam to {_gain(sweep, best)}."
    if behind.difference > NOTICEABLE_DIFFERENCE:
        chance = f"with {count_text(tally.sentences, 'sentences')} that may be chance"
        better = _gain(sweep, best, "writes better ")
        return f": a beam of {better}, but {chance}. Measure more of them, or try that beam."
    none = (
        f", but no beam up to {widest.beam} writes better by more than {NOTICEABLE_DIFFERENCE} points of "
        f"{metric_title(sweep.metric)}"
    )
    if 2 * widest.tally.search_errors < tally.search_errors:
        return (
            f"{none}, and the outputs that the model prefers to the references are just as "
            f"wrong: {TRAIN_MORE}."
        )
    return (
        f"{none}: the references leave the beam too early. Train longer, so that the model rates "
        "their beginnings higher."
    )


def _gain(sweep: Sweep, then: BeamResult, verb: str = "") -> str:
    now = sweep.now
    quality = sweep.quality
    qualities = f"{metric_title(sweep.metric)} {quality(now):.1f} -> {quality(then):.1f}"
    return f"{then.beam} {verb}({qualities}, {then.seconds / now.seconds:.1f} times the time)"


def _width(sweep: Sweep) -> Iterator[str]:
    """Advice about the width of the beam. A difference that is not significant is not called
    equality, since few sentences prove little."""
    now = sweep.now
    enough = sweep.enough
    if enough.beam < now.beam:
        share = enough.seconds / now.seconds
        quicker = f", which takes {percent(share)} of the time" if share < 1 else ""
        qualities = (
            f"{metric_title(sweep.metric)} {sweep.quality(now):.2f} and {sweep.quality(enough):.2f}"
        )
        if sweep.behind(now, enough).matters:
            yield (
                f"A beam of {now.beam} writes worse than one of {enough.beam}{quicker} "
                f"({qualities})."
            )
        else:
            better = (
                f"a beam of {now.beam} writes better than one of {enough.beam}{quicker} "
                f"({qualities})"
            )
            yield f"{count_text(now.tally.sentences, 'sentences')} cannot show that {better}."
    worse = [*takewhile(lambda width: sweep.behind(width).matters, reversed(sweep.widths))]
    if worse:
        beams = f"{worse[-1].beam} or more" if len(worse) > 1 else f"{worse[-1].beam}"
        reason = (
            "it finds what the model prefers, and that is wrong. Look at the length normalisation."
        )
        yield f"A beam of {beams} writes worse than one of {sweep.best.beam}: {reason}"
