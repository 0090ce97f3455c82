"""A diagnosis in words and in the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.runs.splits import measured_text
from regard.views.advice import percent
from regard.views.beam_sweep import Sweep
from regard.views.compare_text import how_many, title
from regard.views.diagnose import Diagnosis, Example
from regard.views.tallies import Share
from regard.views.terminal_table import Column, fitting
from regard.views.verdicts import UNKNOWN_NOTE, Verdict

SHOWN = 3
"""Examples of each kind in the terminal; JSON and the page have more."""
LONGEST = 150
"""Characters of a text in the terminal."""
LOOK: dict[str, Any] = {"box": box.SIMPLE_HEAD, "title_justify": "left", "title_style": "bold", "padding": (0, 1)}
KINDS: dict[Verdict, str] = {"search": "search errors", "model": "model errors"}


def show(found: Diagnosis, console: Console) -> None:
    """The counts, by length, the beams, a few examples, and what follows."""
    console.print(f"{how_many(found.tally.sentences, 'sentences')} of {measured_text(found.measured_on)}", markup=False)
    console.print(_counts(found), by_length_table(found), sep="\n")
    if found.beam_sweep:
        console.print(sweep_table(console, found.beam_sweep, found.search.beam))
    for kind, examples in found.examples.items():
        if examples:
            console.print(Text(f"the worst {KINDS[kind]}", style="bold"))
            for example in examples[:SHOWN]:
                console.print(_example(example))
    console.print(Text("what to do", style="bold"))
    for sentence in found.advice:
        console.print(Text(f"  {sentence}"))


def share_text(share: Share) -> str:
    low, high = share.interval
    return f"{percent(share.share)} ({100 * low:.0f}–{100 * high:.0f})" if share.of else "–"


def fate_text(example: Example) -> str:
    """What became of the reference in the search, as half a sentence."""
    fate = example.fate
    at = f"at step {fate.step}, {example.token!r}"
    match fate.kind:
        case "fell":
            slots = f"{fate.slots} open slot{'' if fate.slots == 1 else 's'}"
            return f"fell off the beam {at}: rank {fate.rank:,} for {slots}"
        case "forbidden":
            return f"left the beam {at}, which may not be written there"
        case "finished":
            return f"was written to its end, step {fate.step}, and another one won"
        case "left":
            return f"was still in the beam at step {fate.step}, without a chance to win"


def metrics_text(found: Diagnosis) -> str:
    return ", ".join(f"{title(name)} {value:.2f}" for name, value in found.metrics.items())


def _counts(found: Diagnosis) -> Table:
    tally, raw = found.tally, found.raw_search_errors
    table = Table(title=f"{found.run}: beam {found.search.beam}, {metrics_text(found)}", **LOOK)
    for heading in ("", "count", "share, 95 %", "by log P alone"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("sentences", f"{tally.sentences:,}", "", "")
    for name, alone in (("errors", ""), ("search_errors", f"{raw:,}"), ("model_errors", f"{tally.errors - raw:,}")):
        share = tally.shares[name]
        table.add_row(name.replace("_", " "), f"{share.count:,}", share_text(share), alone)
    for kind, reasons in found.unreachable.items():
        for reason, count in reasons.items():
            table.add_row(f"  {kind} errors where the reference is out of reach: {reason}", f"{count:,}", "", "")
    return table


def by_length_table(found: Diagnosis) -> Table:
    table = Table(title=f"by {found.lengths_of} length in {found.unit}", **LOOK)
    for heading in (found.unit, "sentences", "sentence chrF", "errors", "search errors", "model errors"):
        table.add_column(heading, justify="right")
    for bucket in found.by_length:
        shares = (share_text(share) for share in bucket.tally.shares.values())
        table.add_row(bucket.sources.name, f"{bucket.tally.sentences:,}", f"{bucket.tally.chrf:.1f}", *shares)
    return table


def sweep_table(console: Console, sweep: Sweep, beam: int) -> Table:
    """Widths of the beam; what they are compared by comes first, so that a narrow terminal has room for it."""
    known = f"as far as {how_many(sweep.widths[0].tally.sentences, 'sentences')} can show"
    caption = f"< in use; * from here on wider no longer pays in {title(sweep.metric)}, {known}"
    marks = ["*" * (width is sweep.enough) + "<" * (width.beam == beam) for width in sweep.widths]
    names = Column("beam", [f"{mark} {width.beam}" for mark, width in zip(marks, sweep.widths, strict=True)])

    def measured(metric: str) -> Column:
        return Column(title(metric), [f"{width.metrics[metric]:.2f}" for width in sweep.widths])

    errors = Column("search errors", [f"{width.tally.search_errors:,}" for width in sweep.widths])
    seconds = Column("seconds", [f"{width.seconds:.2f}" for width in sweep.widths])
    others = [measured(metric) for metric in sweep.widths[0].metrics if metric != sweep.metric]
    look = LOOK | {"title": "for other beams", "caption": caption, "caption_justify": "left"}
    return fitting(console, names, [measured(sweep.metric), errors, seconds, *others], **look)[0]


def _example(example: Example) -> Text:
    one, wanted = example.judged, example.judged.wanted
    scored = ((wanted.objective, wanted.log_p), (one.written.objective, one.written.score))
    reference, output = (f"objective {objective:.3f}, log P {log_p:.1f}" for objective, log_p in scored)
    rows = [("source", "", wanted.source), ("reference", reference, wanted.reference), ("output", output, one.output)]
    note = f"\n    note: {UNKNOWN_NOTE}" if wanted.unknown else ""
    return Text(
        f"  {wanted.where}, chrF {one.chrf:.1f}: the reference {fate_text(example)}\n"
        + "\n".join(f"    {name:11}{scores:33}{_cut(text)}" for name, scores, text in rows)
        + note
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
