"""A comparison in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from regard.runs.splits import measured_text
from regard.views.compare import Comparison
from regard.views.compare_text import (
    findings,
    how_many,
    main_metric,
    mcnemar_text,
    mean_and_spread,
    title,
    unknown_text,
    verdict,
)
from regard.views.compare_units import UnitComparison
from regard.views.old_page import shown
from regard.views.terminal_table import Column, console_of, fitting


def show(found: Comparison | UnitComparison) -> None:
    """Print the systems with their metrics, then a sentence for each test. Seeds of one system are one row."""
    unit, count = ("sentences", len(found.texts)) if isinstance(found, Comparison) else (found.unit, found.units)
    console = console_of()
    columns = columns_of(found, unit)
    table, left_out = fitting(console, Column("system", list(found.groups), justify="left"), columns)
    console.print(f"{how_many(count, unit)} of {measured_text(found.measured_on)}", markup=False)
    console.print(table)
    if any("*" in cell for column in columns for cell in column.cells):
        console.print(f"* differs significantly from {found.baseline}", markup=False)
    if len(found.groups) < len(found.systems):
        console.print("± is the standard deviation over the seeds")
    if left_out:
        console.print(f"too wide for this terminal: {', '.join(left_out)} (--json, --csv and --out have all)")
    sentences = [*findings(found), *(mcnemar_text(row, found.baseline) for row in found.tables.get("mcnemar", []))]
    for sentence in sentences:
        console.print(f"  {sentence}", markup=False)
    if isinstance(found, UnitComparison) and found.note is not None:
        console.print(f"note: {found.note}", markup=False)


def columns_of(found: Comparison | UnitComparison, unit: str) -> list[Column]:
    """What is told of every group, the most important first."""
    systems = {row["system"]: row for row in found.tables["systems"]}
    groups = {name: [systems[one] for one in names] for name, names in found.groups.items()}
    stars = {
        (row["system"], row["metric"])
        for row in found.tables["significance"]
        if row["system"] != found.baseline and verdict(found, row) in ("better", "worse")
    }
    main = main_metric(found.metrics)
    speed = "sentences_per_second" if isinstance(found, Comparison) else "per_second"
    return [
        *(_scores(found, metric, stars) for metric in sorted(found.metrics, key=lambda metric: metric != main)),
        *(
            [Column("unknown", [unknown_text(rows[0]["unknown"]) for rows in groups.values()])]
            if isinstance(found, UnitComparison) and found.note is not None
            else []
        ),
        Column("parameters", [shown(rows[0]["parameters"]) for rows in groups.values()]),
        Column(f"{unit} / s", [_mean([row[speed] for row in rows]) for rows in groups.values()]),
    ]


def _scores(found: Comparison | UnitComparison, metric: str, stars: set[tuple[str, str]]) -> Column:
    """A group of seeds has no star: each of them was tested alone."""
    cells = []
    for row in found.tables["groups"]:
        [first, *others] = found.groups[row["group"]]
        star = "*" if not others and (first, metric) in stars else " "
        cells.append(mean_and_spread(row, metric) + star)
    return Column(title(metric), cells)


def _mean(values: Sequence[Any]) -> str:
    return shown(None if None in values else mean(values))
