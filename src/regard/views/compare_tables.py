"""The tables of a comparison: lists of rows, each a mapping from column to value, so that JSON and CSV are the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from regard.config import Config
from regard.tasks import TextToText
from regard.views.lengths import Unit, length_buckets, lengths_in
from regard.views.old_page import write_page
from regard.views.paired import Tested
from regard.views.systems import System, Texts, learning_curve, training_time
from regard.views.verdicts import for_metrics

Table = list[dict[str, Any]]
Found = Mapping[str, Mapping[str, Any]]
"""The task's metrics by the system's name."""


class Tabled:
    """A comparison: all that it found is in its tables."""

    tables: Mapping[str, Table]

    def to_csv(self) -> dict[str, str]:
        """Each table as CSV, by its name. It begins with a byte order mark: without it Excel garbles Korean."""
        return {name: "\ufeff" + _csv(table) for name, table in self.tables.items()}

    def write_csv(self, folder: str | Path) -> None:
        """A file a table; each is written whole or not at all."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in self.to_csv().items():
            write_page(Path(folder) / f"{name}.csv", text, option="--csv")


def _csv(table: Table) -> str:
    """The rows under the names of all columns that any of them has."""
    columns = list(dict.fromkeys(column for row in table for column in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue()


def measured(metrics: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of the numbers among a task's metrics, and the signatures that say how they were computed."""
    numbers = tuple(name for name, value in metrics.items() if isinstance(value, float))
    return numbers, {name.removesuffix("_signature"): text for name, text in metrics.items() if isinstance(text, str)}


def systems_table(
    systems: Sequence[System], groups: Mapping[str, Sequence[str]], found: Found, metrics: Sequence[str]
) -> Table:
    """What each system is, how good and how fast."""
    group_of = {name: group for group, names in groups.items() for name in names}
    return [
        {
            "system": one.name,
            "group": group_of[one.name],
            "run": str(one.run.folder) if one.run else None,
            "model": one.recipe.model.kind if one.recipe else None,
            "seed": one.recipe.training.seed if one.recipe else None,
            "beam": one.recipe.search.beam if one.recipe else None,
            "parameters": one.parameters,
            **{metric: found[one.name][metric] for metric in metrics},
            **training_time(one),
            **one.speed,
        }
        for one in systems
    ]


def groups_table(groups: Mapping[str, Sequence[str]], found: Found, metrics: Sequence[str]) -> Table:
    """Mean and spread over the seeds: the sample's standard deviation, the lowest and the highest."""
    return [
        {"group": group, "runs": len(names), **{key: value for metric in metrics for key, value in
         _spread(metric, [found[name][metric] for name in names]).items()}}
        for group, names in groups.items()
    ]  # fmt: skip


def _spread(metric: str, values: Sequence[float]) -> dict[str, float | None]:
    deviation = stdev(values) if len(values) > 1 else None
    return {metric: mean(values), f"{metric}_deviation": deviation,
            f"{metric}_lowest": min(values), f"{metric}_highest": max(values)}  # fmt: skip


def significance_table(tests: Sequence[Tested], systems: Sequence[System]) -> Table:
    """The tests metric by metric, in the order of the systems."""
    order = [one.name for one in systems]
    metrics = list(dict.fromkeys(one.metric for one in tests))
    ordered = sorted(tests, key=lambda one: (metrics.index(one.metric), order.index(one.system)))
    return [
        {
            "metric": one.metric,
            "system": one.system,
            "score": one.score,
            "interval": one.interval,
            "difference": one.difference,
            "p_bootstrap": one.p_bootstrap,
            "p_randomisation": one.p_randomisation,
            "significant": one.significant,
        }
        for one in ordered
    ]


def lengths_table(
    systems: Sequence[System],
    texts: Texts,
    unit: Unit,
    task: type[TextToText],
    config: Config,
    metrics: Sequence[str],
) -> Table:
    """The task's metrics of every system on the sentences of each length."""
    table: Table = []
    for bucket in length_buckets(lengths_in(unit, texts.measured(task.lengths_of))):
        references = for_metrics([texts.references[row] for row in bucket.rows])
        for one in systems:
            found = task.metrics([one.outputs[row] for row in bucket.rows], references, config)
            place = {"from": bucket.shortest, "to": bucket.longest, "mean_length": bucket.mean}
            counted = {"sentences": len(bucket.rows), "system": one.name}
            table.append(place | counted | {metric: found[metric] for metric in metrics})
    return table


def curves_table(systems: Sequence[System]) -> Table:
    """The validations of every run while it was trained."""
    return [{"system": one.name} | line for one in systems for line in learning_curve(one)]


def errors_table(systems: Sequence[System]) -> Table:
    """Whose fault the errors of every run are."""
    return [
        {
            "system": one.name,
            "sentences": one.tally.sentences,
            "errors": one.tally.errors,
            "search_errors": one.tally.search_errors,
            "model_errors": one.tally.model_errors,
            "search_errors_low": one.tally.shares["search_errors"].interval[0],
            "search_errors_high": one.tally.shares["search_errors"].interval[1],
        }
        for one in systems
        if one.tally is not None
    ]


def sentences_table(
    rows: Sequence[int], systems: Sequence[System], texts: Texts, chrf: Mapping[str, Sequence[float]]
) -> Table:
    """Some sentences with every system's output; sentences are counted from 1."""
    return [
        {
            "sentence": row + 1,
            "source": texts.sources[row],
            "reference": " / ".join(texts.references[row]),
            "system": one.name,
            "output": one.outputs[row],
            "sentence_chrf": chrf[one.name][row],
        }
        for row in rows
        for one in systems
    ]
