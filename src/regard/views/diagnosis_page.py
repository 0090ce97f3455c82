"""A diagnosis as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.runs.splits import measured_text
from regard.views.beam_sweep import MARGIN, Sweep, Width
from regard.views.compare_text import how_many, title
from regard.views.diagnose import Diagnosis, Example
from regard.views.diagnosis_text import KINDS, fate_text, metrics_text, share_text
from regard.views.old_page import Cell, Html, Section, bullets, columns, figure, page, paragraph, section, table
from regard.views.plot import Series, bars, line_plot
from regard.views.verdicts import UNKNOWN_NOTE, Verdict


def diagnosis_page(found: Diagnosis) -> Html:
    """The whole page."""
    sections = [_counts(found), _by_length(found)]
    if found.beam_sweep:
        sections.append(_sweep(found.beam_sweep, found.search.beam))
    sections += [_examples(kind, examples) for kind, examples in found.examples.items() if examples]
    on = f"{how_many(found.tally.sentences, 'sentences')} of {measured_text(found.measured_on)}"
    opening = f"{on}, beam {found.search.beam}: {metrics_text(found)}."
    return page(f"Diagnosis of {Path(found.run).name}", paragraph(opening), bullets(found.advice), *sections)


def _counts(found: Diagnosis) -> Section:
    tally, raw = found.tally, found.raw_search_errors
    alone = {"errors": None, "search_errors": raw, "model_errors": tally.errors - raw}
    rows = [(name.replace("_", " "), one.count, share_text(one), alone[name]) for name, one in tally.shares.items()]
    lost = [
        (f"{KINDS[kind]}: {reason}", count)
        for kind, reasons in found.unreachable.items()
        for reason, count in reasons.items()
    ]
    return section(
        "Whose fault",
        paragraph(
            "An output that is worse than its reference (its own chrF is below 100) is an error. Where the reference "
            "scores higher than the output, under the objective that the search maximises, the search has missed it; "
            "otherwise the model prefers the wrong one, or its vocabulary cannot write the reference. Shares come with "
            "their 95 % interval (Wilson), of errors among the sentences and of each kind among the errors.",
            kind="muted",
        ),
        table(["", "count", "share, 95 %", "by log P alone"], [("sentences", tally.sentences, None, None), *rows]),
        table(["errors whose reference no search could have given", "count"], lost) if lost else "",
    )


def _by_length(found: Diagnosis) -> Section:
    buckets = found.by_length
    shares = {
        "search errors": [100 * one.tally.search_errors / one.tally.sentences for one in buckets],
        "model errors": [100 * one.tally.model_errors / one.tally.sentences for one in buckets],
    }
    picture = bars(
        [bucket.sources.name for bucket in buckets], shares, stacked=True, y_range=(0.0, 100.0),
        x_label=f"{found.lengths_of} length in {found.unit}", y_label="% of the sentences",
    )  # fmt: skip
    head = [found.unit, "sentences", "sentence chrF", "errors", "search errors", "model errors"]
    rows: list[list[Cell]] = [
        [one.sources.name, one.tally.sentences, one.tally.chrf, *map(share_text, one.tally.shares.values())]
        for one in buckets
    ]
    return section(f"By {found.lengths_of} length", figure(picture), table(head, rows))


def _sweep(sweep: Sweep, beam: int) -> Section:
    why = (
        f"In use is {beam}. From {sweep.enough.beam} on wider no longer pays, as far as "
        f"{how_many(sweep.widths[0].tally.sentences, 'sentences')} can show: that is the narrowest beam that is not "
        f"behind the best one, {sweep.best.beam}, by more than {MARGIN} points of {title(sweep.metric)}, with an "
        "interval above 0 (paired bootstrap, 95 %)."
    )
    names = list(sweep.widths[0].metrics)
    rows = [_width(sweep, width, names) for width in sweep.widths]
    head = ["beam", *map(title, names), f"{title(sweep.metric)} behind the best", "search errors", "seconds"]
    return section("Other beams", paragraph(why), columns(*map(figure, _pictures(sweep))), table(head, rows))


def _width(sweep: Sweep, width: Width, names: Sequence[str]) -> list[Cell]:
    behind = sweep.behind(width)
    distance = f"{behind.difference:.2f} ({behind.low:.2f}–{behind.high:.2f})"
    numbers = [width.metrics[name] for name in names]
    return [width.beam, *numbers, distance, width.tally.search_errors, width.seconds]


def _pictures(sweep: Sweep) -> Iterator[str]:
    """Quality and time over the beam; the widths stand evenly, since each is about twice the one before."""
    places = [float(number) for number in range(len(sweep.widths))]
    ticks = [(place, str(width.beam)) for place, width in zip(places, sweep.widths, strict=True)]
    for name, values, lowest in (
        (title(sweep.metric), [sweep.quality(width) for width in sweep.widths], None),
        ("seconds", [width.seconds for width in sweep.widths], 0.0),
    ):
        yield line_plot(
            [Series(name, places, values)], x_label="beam", y_label=name, x_ticks=ticks, y_range=(lowest, None),
            width=520, height=320,
        )  # fmt: skip


def _examples(kind: Verdict, examples: Sequence[Example]) -> Section:
    return section(f"The worst {KINDS[kind]}", *map(_example, examples))


def _example(example: Example) -> Html:
    one, wanted = example.judged, example.judged.wanted
    rows: list[list[Cell]] = [
        ["source", wanted.source, "", ""],
        ["reference", wanted.reference, wanted.objective, wanted.log_p],
        ["output", one.output, one.written.objective, one.written.score],
    ]
    caption = f"{wanted.where} · chrF {one.chrf:.1f} · the reference {fate_text(example)}"
    caption += f" · {UNKNOWN_NOTE}" if wanted.unknown else ""
    return table(["", "", "objective", "log P"], rows, caption=caption)
