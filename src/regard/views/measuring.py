"""Systems measured on the same units: those that write texts by their outputs, others unit by unit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.batches import Batch
from regard.data.dataset import Dataset
from regard.data.images import Picture
from regard.errors import ConfigError, DataError
from regard.layers.attention import recording
from regard.models.base import Generator, count_parameters, device_of
from regard.runs import Run
from regard.runs.examples import ReportProgress
from regard.tasks.answers import Done, summed
from regard.tasks.language_modeling import RECONSTRUCTION, UNKNOWN_NOTE
from regard.tasks.reading import padded
from regard.tasks.written import Source
from regard.text.files import open_text
from regard.text.normalise import nfc
from regard.views import metric_sums, search_errors, significance
from regard.views.labels import token_label
from regard.views.metric_sums import Floats, UnitCounts
from regard.views.report import HeatMap
from regard.views.search_errors import Tally, metrics_of
from regard.views.significance import mcnemar
from regard.views.systems import SHARED_FIELDS, Measurements, System, TableRows, Unit, check_same

MAX_DIFFERING_UNITS = 20
"""How many of the units on which the systems differ most are shown."""
SHOWN_QUANTILES = (0.1, 0.5, 0.9)
"""Which sentences are shown with their attention: those at these quantiles of length."""
MAX_MAP_TOKENS = 40
"""Source tokens beyond which a heat map no longer fits beside another."""
SPEED_FIELDS = ("decoding_seconds", "sentences_per_second", "tokens_per_second")


def differ_most(gains: Sequence[Sequence[float]] | Sequence[Floats]) -> list[int]:
    """The units with the largest difference of the best and the worst system, if there is any.

    `gains` says for each system how well it does each unit, the higher the better.
    """
    distances = np.ptp(np.array(gains), axis=0)
    return [
        int(row)
        for row in np.argsort(-distances, kind="stable")[:MAX_DIFFERING_UNITS]
        if distances[row] > 0
    ]


def measure_texts(
    runs: Mapping[str, Run],
    datasets: Sequence[Dataset],
    hypotheses: Mapping[str, str | Path],
    baseline: str,
    load: Callable[[Run], Generator],
    progress: ReportProgress,
) -> Measurements:
    """Decode with every run once, and measure all outputs, also those in files, as the first run's
    recipe says."""
    if any(run.recipe.search.sample for run in runs.values()):
        raise ConfigError(
            "samples cannot be compared", where="search.sample", hint="--set search.sample=false"
        )
    tokens = [
        _source_lengths(run, dataset) for run, dataset in zip(runs.values(), datasets, strict=True)
    ]
    sentences = [_sentences(run, own) for run, own in zip(runs.values(), datasets, strict=True)]
    check_same(runs, [{"input": own} for own in sentences])
    sources, references = zip(*sentences[0], strict=True)
    others = [read_hypotheses(name, file, references) for name, file in hypotheses.items()]
    first = next(iter(runs.values()))
    text_metrics = first.task.views.compared_texts
    lengths_of = text_metrics.targets.sources.lengths_of
    texts = sources if lengths_of == "source" else [own[0] for own in references]
    shown = _shown(texts, tokens)
    systems = [
        decode_run(
            name, run, load(run), dataset, shown, summed(partial(progress, name), len(sources))
        )
        for (name, run), dataset in zip(runs.items(), datasets, strict=True)
    ] + others

    outputs = {system.name: system.outputs for system in systems}
    scores = {name: metrics_of(first, own, references) for name, own in outputs.items()}
    metrics = [*scores[baseline]]
    progress("testing", 0, len(metrics))
    measures = metric_sums.text_metrics(
        metrics, text_metrics.text_scores, first.recipe.evaluation, text_metrics.bleu_orders
    )
    moved = summed(partial(progress, "testing"), len(metrics))
    chrf = {
        name: search_errors.sentence_chrf(first, own, references) for name, own in outputs.items()
    }
    differing = differ_most([*chrf.values()])
    unit, lengths = search_errors.lengths_of(texts)
    tables: dict[str, TableRows] = {
        "significance": significance.paired_tests_of_texts(
            outputs, references, measures, baseline, moved
        ),
        "lengths": _by_length(first, outputs, references, lengths),
        "errors": [
            {"system": system.name, **system.tally.row}
            for system in systems
            if system.tally is not None
        ],
        "examples": _sentence_rows(shown, sources, references, outputs, chrf),
        "differ_most": _sentence_rows(differing, sources, references, outputs, chrf),
    }
    baseline_scores = text_metrics.text_scores(outputs[baseline], references)
    signatures = {
        name.removesuffix("_signature"): text
        for name, text in baseline_scores.items()
        if isinstance(text, str)
    }
    facts = {"signatures": signatures, "length_unit": unit, "lengths_of": lengths_of}
    return Measurements("sentences", systems, scores, tables, facts, None)


def _source_lengths(run: Run, dataset: Dataset) -> list[int]:
    """The positions of each source."""
    sources = run.task.views.target_texts.sources
    return [len(sources.of(dataset, rows[0])) for rows in sources.groups(dataset)]


def _sentences(run: Run, dataset: Dataset) -> list[tuple[str, list[str]]]:
    """Each source with all its references, in Unicode's NFC, which models write."""
    sources = dataset.texts["source"]
    targets = dataset.texts["target"]
    return [
        (nfc(sources[rows[0]]), [nfc(targets[row]) for row in rows])
        for rows in run.task.views.target_texts.sources.groups(dataset)
    ]


def _by_length(
    run: Run,
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    lengths: Sequence[int],
) -> TableRows:
    """The metrics of every system on the sentences of each length."""
    return [
        {
            "from": bucket.shortest,
            "to": bucket.longest,
            "mean_length": bucket.mean,
            "sentences": len(bucket.rows),
            "system": name,
            **metrics_of(
                run, [own[row] for row in bucket.rows], [references[row] for row in bucket.rows]
            ),
        }
        for bucket in search_errors.length_buckets(lengths)
        for name, own in outputs.items()
    ]


def _sentence_rows(
    rows: Sequence[int],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
    chrf: Mapping[str, Sequence[float]],
) -> TableRows:
    """What every system writes for some sentences."""
    return [
        {
            "sentence": row + 1,
            "source": sources[row],
            "reference": " / ".join(references[row]),
            "system": name,
            "output": own[row],
            "sentence_chrf": chrf[name][row],
        }
        for row in rows
        for name, own in outputs.items()
    ]


def named_files(options: Sequence[str]) -> dict[str, str]:
    """The files that `--hypotheses NAME=FILE` names."""
    files: dict[str, str] = {}
    for option in options:
        name, equals, file = option.partition("=")
        if not (name and equals and file):
            hint = "NAME=FILE, for example other=out.txt"
            raise DataError(f"{option!r} does not name a system", where="--hypotheses", hint=hint)
        if name in files:
            raise DataError(
                f"the name {name!r} is given twice", where="--hypotheses", hint="give another name"
            )
        files[name] = file
    return files


def read_hypotheses(name: str, file: str | Path, references: Sequence[Sequence[str]]) -> System:
    """The outputs of another system, one per line."""
    lines = [nfc(line.strip()) for line in open_text(str(file), Path()).lines()]
    if len(lines) != len(references):
        what = f"{len(lines):,} lines for {len(references):,} inputs"
        several = (
            "; one with several references is one input"
            if any(len(own) > 1 for own in references)
            else ""
        )
        raise DataError(
            what, where=str(file), hint=f"one output per line, in the order of the inputs{several}"
        )
    return System(name, lines, speed=dict.fromkeys(SPEED_FIELDS))


def decode_run(
    name: str, run: Run, model: Generator, dataset: Dataset, shown: Sequence[int], moved: Done
) -> System:
    """The run's outputs, the time they took, its search and model errors, and some alignments."""
    of_run = run.task.views.target_texts.sources
    inputs = of_run.groups(dataset)
    search = run.recipe.search
    encoded = [of_run.of(dataset, rows[0]) for rows in inputs]
    # A device gets ready with its first sentence, which is not timed: the first run is not to pay
    # for it.
    search_errors.decode_best(run, model, [min(encoded, key=len)], search)
    started = time.perf_counter()
    written = search_errors.decode_best(run, model, encoded, search, moved)
    seconds = time.perf_counter() - started
    tokens = sum(len(hypothesis.tokens) for hypothesis in written)
    speed = dict(
        zip(SPEED_FIELDS, (seconds, len(written) / seconds, tokens / seconds), strict=True)
    )
    judged = search_errors.judge(
        run, search_errors.score_references(run, model, dataset, inputs), written
    )
    attended = shown if model.alignment else ()
    alignments = {
        row: alignment_of(run, model, encoded[row], written[row].tokens, name) for row in attended
    }
    outputs = [nfc(sentence.output) for sentence in judged]
    return System(name, outputs, run, count_parameters(model), speed, Tally.of(judged), alignments)


def alignment_of(
    run: Run, model: Generator, source: Source, target_ids: Sequence[int], title: str
) -> HeatMap:
    """Attention over the source, the mean over layers and heads (Bahdanau et al. 2015,
    arXiv:1409.0473, figure 3)."""
    target = run.tokenizers["target"]
    batch = Batch(
        run.task.views.target_texts.sources.batch([source]),
        padded([[target.begin, *target_ids]], target.pad),
    )
    with torch.inference_mode(), recording() as recorded:
        model(batch.to(device_of(model)))
    weights = [
        weights
        for name, weights in recorded.by_name(model).items()
        if fnmatch(name, model.alignment)
    ]
    weights_TS = torch.cat(weights, dim=1)[0].mean(0).float().cpu().numpy()
    columns = (
        source.names() if isinstance(source, Picture) else run.tokenizers["source"].pieces(source)
    )
    return HeatMap(
        [*map(token_label, target.pieces(target_ids))],
        [*map(token_label, columns)],
        weights_TS,
        title,
    )


def _shown(texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Short, medium and long sentences, among those whose heat map is small enough for every
    run."""
    fitting = [
        row
        for row in range(len(texts))
        if all(lengths[row] <= MAX_MAP_TOKENS for lengths in tokens)
    ]
    ordered = sorted(fitting, key=lambda row: len(texts[row]))
    return (
        list(dict.fromkeys(ordered[round(share * (len(ordered) - 1))] for share in SHOWN_QUANTILES))
        if ordered
        else []
    )


def measure_units(
    runs: Mapping[str, Run],
    examples: Sequence[Any],
    baseline: str,
    load: Callable[[Run], nn.Module],
    progress: ReportProgress,
) -> Measurements:
    """Measure every run once, unit by unit (`Metrics.by_unit`)."""
    rewriting = [run for run in runs.values() if run.task.views.rewrites]
    if 0 < len(rewriting) < len(runs):
        what = (
            "it reconstructs texts that it has read (model.objective: autoencoder), the others "
            "predict unseen texts"
        )
        raise DataError(
            what, where=str(rewriting[0].folder), hint="compare it with other autoencoders"
        )
    systems = list[System]()
    counts = dict[str, UnitCounts]()
    units = list[dict[str, list[Any]]]()
    for (name, run), own in zip(runs.items(), examples, strict=True):
        model = load(run)
        started = time.perf_counter()
        predictions = run.task.metrics.by_unit(
            model, own, summed(partial(progress, name), len(own))
        )
        seconds = time.perf_counter() - started
        if predictions is None:
            what = f"runs of the task {run.recipe.task} cannot be compared"
            raise DataError(
                what, where=str(run.folder), hint="regard evaluate measures each of them"
            )
        units.append(
            {name: [prediction.get(name) for prediction in predictions] for name in SHARED_FIELDS}
        )
        check_same(runs, units)
        counts[name] = metric_sums.counts_of(predictions)
        unknown = {"unknown": own.text.unknown_share} if "nats" in predictions[0] else {}
        speed = {**unknown, "measuring_seconds": seconds, "per_second": len(predictions) / seconds}
        systems.append(System(name, counts[name].outputs, run, count_parameters(model), speed))
    progress("testing", 0, 1)
    base = counts[baseline]
    rows = {name: own.rows for name, own in counts.items()}
    metrics = {
        f"{RECONSTRUCTION}{name}" if rewriting else name: metric
        for name, metric in base.metrics.items()
    }
    # their F1 would be of other classes
    if any(own.classes != base.classes for own in counts.values()):
        metrics.pop("f1_macro", None)
        rows = {name: own[:, :2] for name, own in rows.items()}
    tables = {
        "significance": significance.paired_tests_of_sums(metrics, rows, baseline),
        "mcnemar": [
            {
                "system": name,
                **mcnemar(int((base.right > own.right).sum()), int((own.right > base.right).sum())),
            }
            for name, own in counts.items()
            if base.right is not None and own.right is not None and name != baseline
        ],
        "differ_most": [
            {
                "number": row + 1,
                "text": f"{units[0]['input'][row]}",
                "system": name,
                "says": own.outputs[row],
            }
            for row in differ_most([own.gains for own in counts.values()])
            for name, own in counts.items()
        ],
    }
    scores = {
        name: {metric: float(of(own.sum(0))) for metric, of in metrics.items()}
        for name, own in rows.items()
    }
    note = UNKNOWN_NOTE if any(system.speed.get("unknown") for system in systems) else None
    unit: Unit = runs[baseline].task.views.unit
    return Measurements(unit, systems, scores, tables, {}, note)
