"""The pictures of a comparison: quality by length, learning curves, errors."""

from __future__ import annotations

import math
from statistics import mean

from regard.views.compare import Comparison
from regard.views.compare_text import title
from regard.views.compare_units import UnitComparison
from regard.views.plot import Series, bars, line_plot


def length_plots(found: Comparison) -> dict[str, str]:
    """Quality by length, one picture a metric: the classic one, which falls where there is no attention."""
    rows = found.tables["lengths"]
    marks = list(dict.fromkeys((row["mean_length"], f"{row['from']}–{row['to']}") for row in rows))
    return {
        metric: line_plot(
            [_series(found, "lengths", group, "mean_length", metric) for group in found.groups],
            x_label=f"{found.lengths_of} length ({found.length_unit})",
            y_label=title(metric),
            y_range=(0, None),
            x_ticks=marks,
        )
        for metric in found.metrics
    }


def curve_plots(found: Comparison | UnitComparison) -> list[str]:
    """Loss and metrics of the validations, over the steps of the training."""
    drawn = [name for name in ("loss", *found.metrics) if any(name in row for row in found.tables["curves"])]
    runs = [
        group for group, names in found.groups.items() if any(row["system"] in names for row in found.tables["curves"])
    ]
    return [
        line_plot(
            [_series(found, "curves", group, "step", name) for group in runs],
            x_label="training step",
            y_label=f"validation {title(name)}",
            y_range=(None if name == "loss" else 0, None),
        )
        for name in drawn
    ]


def error_plot(found: Comparison) -> str:
    """How many errors each run makes, and whose fault they are."""
    rows = found.tables["errors"]
    kinds = {f"{kind} errors": [float(row[f"{kind}_errors"]) for row in rows] for kind in ("search", "model")}
    return bars([row["system"] for row in rows], kinds, x_label="", y_label="sentences", stacked=True)


def _series(found: Comparison | UnitComparison, table: str, group: str, x: str, y: str) -> Series:
    """The means over the systems of a group, between the lowest and the highest where there are several."""
    values: dict[float, list[float]] = {}
    for row in found.tables[table]:
        if row["system"] in found.groups[group] and math.isfinite(row.get(y, math.nan)):
            values.setdefault(row[x], []).append(row[y])
    places = sorted(values)
    several = len(found.groups[group]) > 1
    return Series(
        group,
        places,
        [mean(values[place]) for place in places],
        [min(values[place]) for place in places] if several else None,
        [max(values[place]) for place in places] if several else None,
    )
