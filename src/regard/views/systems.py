"""What is compared: runs, and the outputs of other systems, measured on the same sentences, documents or examples.

A system that writes texts is decoded once, and its outputs are measured against references. Any other is measured unit
by unit: each document or example has a row of numbers, and a metric is a function of their sums.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from regard.data.batches import Batch
from regard.data.conll import entities_in, is_chunk_tag
from regard.data.dataset import Dataset
from regard.data.images import Picture
from regard.errors import ConfigError, DataError
from regard.layers.attention import recording
from regard.models.base import Generator, count_parameters, device_of
from regard.objectives.cross_entropy import perplexity
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.settings import Progress, summed
from regard.tasks.language_modeling import RECONSTRUCTION, UNKNOWN_NOTE
from regard.tasks.task import padded
from regard.tasks.text_to_text import Source
from regard.text.files import open_text
from regard.text.normalise import fold_white_space, nfc
from regard.views.labels import label, number_text
from regard.views.report import HeatMap
from regard.views.search_errors import (
    Tally,
    decode_best,
    judge,
    length_buckets,
    lengths_of,
    score_references,
    sentence_chrf,
)
from regard.views.significance import (
    Metric,
    Rows,
    for_metrics,
    mcnemar,
    paired_tests_of_sums,
    paired_tests_of_texts,
    sacrebleu_metrics,
)

Table = list[dict[str, Any]]
"""Each row maps columns to values, so that JSON and CSV are the same."""

DIFFER_MOST = 20
"""Units on which the systems differ most that are shown."""
SHOWN_AT = (0.1, 0.5, 0.9)
"""Which sentences are shown with their attention: those at these quantiles of length."""
LONGEST_MAP = 40
"""Source tokens beyond which a heat map no longer fits beside another."""
SPEED = ("decoding_seconds", "sentences_per_second", "tokens_per_second")
MOST_CLASSES = 64
"""Classes of which all pairs are counted for F1."""


@dataclass(frozen=True, eq=False)
class System:
    """One column of the comparison."""

    name: str
    outputs: Sequence[str]
    """What it writes or predicts for every unit."""
    run: Run | None = None
    """With the search of this comparison; None for outputs that came from a file."""
    parameters: int | None = None
    speed: Mapping[str, float | None] = field(default_factory=dict)
    """Seconds that it took here, without loading the model, and units a second."""
    tally: Tally | None = None
    """Its search errors and model errors, where it searches."""
    alignments: Mapping[int, HeatMap] = field(default_factory=dict)
    """Attention over the source, for the sentences that are shown; none for a model without attention."""

    @property
    def recipe(self) -> AnyRecipe | None:
        return None if self.run is None else self.run.recipe


@dataclass(frozen=True, eq=False)
class Measured:
    """Systems measured: all that differs between systems that write texts and others."""

    unit: Literal["sentences", "documents", "examples"]
    systems: Sequence[System]
    scores: Mapping[str, Mapping[str, float]]
    """By the system's name, then by metric."""
    tables: Mapping[str, Table]
    """The significance tests, and tables that only this kind of system has."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else JSON says beside the tables."""
    note: str | None = None
    """What a reader must know of the scores."""

    @property
    def count(self) -> int:
        """Of units."""
        return len(self.systems[0].outputs)

    @property
    def decodes(self) -> bool:
        return self.unit == "sentences"


def check_same(runs: Mapping[str, Run], texts: Sequence[object], unit: str) -> None:
    """Refuse runs that would be measured on other texts than the first."""
    first = next(iter(runs.values()))
    for run, own in zip(runs.values(), texts, strict=False):
        if own != texts[0]:
            hint = f"give the {unit} to compare on with --file; a split drawn by the seed differs from run to run"
            raise DataError(f"its examples are not those of {first.folder}", where=str(run.folder), hint=hint)


def differ_most(gains: Sequence[Sequence[float]] | Sequence[Rows]) -> list[int]:
    """The units with the largest difference of the best and the worst system, if there is any.

    `gains` says for each system how well it does each unit, the higher the better.
    """
    distances = np.ptp(np.array(gains), axis=0)
    return [int(row) for row in np.argsort(-distances, kind="stable")[:DIFFER_MOST] if distances[row] > 0]


# --------------------------------------------------------------------------------------------- systems that write texts


def measure_texts(
    runs: Mapping[str, Run],
    datasets: Sequence[Dataset],
    hypotheses: Mapping[str, str | Path],
    baseline: str,
    load: Callable[[Run], Generator],
    progress: Progress,
) -> Measured:
    """Every run decodes once; outputs, also those in files, are measured as the first run's recipe says."""
    if any(run.recipe.search.sample for run in runs.values()):
        raise ConfigError("samples cannot be compared", where="search.sample", hint="--set search.sample=false")
    inputs = [run.task.by_input(dataset) for run, dataset in zip(runs.values(), datasets, strict=True)]
    sentences = [_sentences(dataset, own) for dataset, own in zip(datasets, inputs, strict=True)]
    check_same(runs, sentences, "sentences")
    sources, references = zip(*sentences[0], strict=True)
    others = [read_hypotheses(name, file, references) for name, file in hypotheses.items()]
    first = next(iter(runs.values()))
    task, config = first.task, first.recipe.evaluation
    texts = sources if task.lengths_of == "source" else [own[0] for own in references]
    tokens = [
        [len(task.source(dataset, rows[0])) for rows in own] for dataset, own in zip(datasets, inputs, strict=True)
    ]
    shown, systems = _shown(texts, tokens), []
    for (name, run), dataset in zip(runs.items(), datasets, strict=True):
        moved = summed(partial(progress, name), len(sources))
        systems.append(decode_run(name, run, load(run), dataset, shown, moved))
    systems += others

    outputs = {system.name: system.outputs for system in systems}
    every = {name: task.metrics(own, for_metrics(references), config) for name, own in outputs.items()}
    metrics = [name for name, value in every[baseline].items() if isinstance(value, float)]
    progress("testing", 0, len(metrics))
    measures, moved = sacrebleu_metrics(metrics, task, config), summed(partial(progress, "testing"), len(metrics))
    chrf = {name: sentence_chrf(first, own, references) for name, own in outputs.items()}
    unit, lengths = lengths_of(texts)
    tables = {
        "significance": paired_tests_of_texts(outputs, references, measures, baseline, moved),
        "lengths": _lengths_table(outputs, references, lengths, partial(task.metrics, config=config), metrics),
        "errors": [{"system": system.name, **system.tally.row} for system in systems if system.tally is not None],
        "examples": _sentences_table(shown, outputs, sentences[0], chrf),
        "differ_most": _sentences_table(differ_most([*chrf.values()]), outputs, sentences[0], chrf),
    }
    texts_of = every[baseline].items()
    signatures = {name.removesuffix("_signature"): text for name, text in texts_of if isinstance(text, str)}
    facts = {"signatures": signatures, "length_unit": unit, "lengths_of": task.lengths_of}
    scores = {name: {metric: own[metric] for metric in metrics} for name, own in every.items()}
    return Measured("sentences", systems, scores, tables, facts)


def _sentences(dataset: Dataset, inputs: Sequence[Sequence[int]]) -> list[tuple[str, tuple[str, ...]]]:
    """The source and all references of each input, in Unicode's NFC, which models write."""
    sources, targets = dataset.texts["source"], dataset.texts["target"]
    return [(nfc(sources[rows[0]]), tuple(nfc(targets[row]) for row in rows)) for rows in inputs]


def named_files(options: Sequence[str]) -> dict[str, str]:
    """The files that `--hypotheses NAME=FILE` names."""
    files: dict[str, str] = {}
    for option in options:
        name, equals, file = option.partition("=")
        if not (name and equals and file):
            hint = "NAME=FILE, for example other=out.txt"
            raise DataError(f"{option!r} names no system", where="--hypotheses", hint=hint)
        if name in files:
            raise DataError(f"the name {name!r} is given twice", where="--hypotheses", hint="give another name")
        files[name] = file
    return files


def read_hypotheses(name: str, file: str | Path, references: Sequence[Sequence[str]]) -> System:
    """The outputs of another system, one a line."""
    lines = [nfc(line.strip()) for line in open_text(str(file), Path()).lines()]
    if len(lines) != len(references):
        what = f"{len(lines):,} lines for {len(references):,} inputs"
        several = "; one with several references is one input" if any(len(own) > 1 for own in references) else ""
        raise DataError(what, where=str(file), hint=f"one output a line, in the order of the inputs{several}")
    return System(name, lines, speed=dict.fromkeys(SPEED))


def decode_run(
    name: str, run: Run, model: Generator, dataset: Dataset, shown: Sequence[int], moved: Callable[[int], None]
) -> System:
    """The run's outputs, the time they took, its search and model errors, and some alignments."""
    inputs, search = run.task.by_input(dataset), run.recipe.search
    encoded = [run.task.source(dataset, rows[0]) for rows in inputs]
    # A device gets ready with its first sentence, which is not timed: the first run is not to pay for it.
    decode_best(run, model, [min(encoded, key=len)], search)
    started = time.perf_counter()
    written = decode_best(run, model, encoded, search, moved)
    seconds = time.perf_counter() - started
    tokens = sum(len(hypothesis.tokens) for hypothesis in written)
    speed = dict(zip(SPEED, (seconds, len(written) / seconds, tokens / seconds), strict=True))
    judged = judge(run, score_references(run, model, dataset, inputs), written)
    attended = shown if model.alignment else ()
    alignments = {row: alignment_of(run, model, encoded[row], written[row].tokens, name) for row in attended}
    outputs = [nfc(sentence.output) for sentence in judged]
    return System(name, outputs, run, count_parameters(model), speed, Tally.of(judged), alignments)


def alignment_of(run: Run, model: Generator, source: Source, target_ids: Sequence[int], title: str) -> HeatMap:
    """Attention over the source, the mean over layers and heads (Bahdanau et al. 2015, arXiv:1409.0473, figure 3)."""
    target = run.tokenizers["target"]
    batch = Batch(run.task.source_batch([source]), padded([[target.begin, *target_ids]], target.pad))
    with torch.inference_mode(), recording() as recorded:
        model(batch.to(device_of(model)))
    weights = [weights for name, weights in recorded.by_name(model).items() if fnmatch(name, model.alignment)]
    weights_TS = torch.cat(weights, dim=1)[0].mean(0).float().cpu().numpy()
    if isinstance(source, Picture):
        columns = source.names()
    else:
        tokenizer = run.tokenizers["source"]
        columns = tokenizer.pieces([*source, tokenizer.end])
    return HeatMap([*map(label, target.pieces(target_ids))], [*map(label, columns)], weights_TS, title)


def _shown(texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Short, medium and long sentences, among those whose heat map is small enough for every run."""
    fitting = [row for row in range(len(texts)) if all(lengths[row] < LONGEST_MAP for lengths in tokens)]
    ordered = sorted(fitting, key=lambda row: len(texts[row]))
    return list(dict.fromkeys(ordered[round(share * (len(ordered) - 1))] for share in SHOWN_AT)) if ordered else []


def _lengths_table(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    lengths: Sequence[int],
    measure: Callable[[Sequence[str], Sequence[Any]], Mapping[str, float]],
    metrics: Sequence[str],
) -> Table:
    """The metrics of every system on the sentences of each length."""
    table: Table = []
    for bucket in length_buckets(lengths):
        rows, expected = bucket.rows, for_metrics([references[row] for row in bucket.rows])
        ends = {"from": bucket.shortest, "to": bucket.longest, "mean_length": bucket.mean, "sentences": len(rows)}
        for name, own in outputs.items():
            scores = measure([own[row] for row in rows], expected)
            table.append({**ends, "system": name, **{metric: scores[metric] for metric in metrics}})
    return table


def _sentences_table(
    rows: Sequence[int],
    outputs: Mapping[str, Sequence[str]],
    sentences: Sequence[tuple[str, Sequence[str]]],
    chrf: Mapping[str, Sequence[float]],
) -> Table:
    """Some sentences, counted from 1, with every system's output."""
    return [
        {"sentence": row + 1, "source": sentences[row][0], "reference": " / ".join(sentences[row][1]), "system": name,
         "output": own[row], "sentence_chrf": chrf[name][row]}
        for row in rows
        for name, own in outputs.items()
    ]  # fmt: skip


# ------------------------------------------------------------------------------------ systems measured unit by unit


def measure_units(
    runs: Mapping[str, Run], examples: Sequence[Any], baseline: str, load: Callable[[Run], Any], progress: Progress
) -> Measured:
    """Every run is measured once, unit by unit (`Task.by_unit`)."""
    rewriting = [run for run in runs.values() if getattr(run.task, "rewrites", False)]
    if 0 < len(rewriting) < len(runs):
        what = "it writes texts that it has read (model.objective: autoencoder), others predict what they have not"
        raise DataError(what, where=str(rewriting[0].folder), hint="compare it with other autoencoders")
    systems, counts, texts = list[System](), dict[str, Counts](), list[list[str]]()
    for (name, run), own in zip(runs.items(), examples, strict=True):
        model, started = load(run), time.perf_counter()
        predictions = run.task.by_unit(model, own, summed(partial(progress, name), len(own)))
        seconds = time.perf_counter() - started
        if predictions is None:
            what = f"runs of the task {run.task.name} cannot be compared"
            raise DataError(what, where=str(run.folder), hint="regard evaluate measures each of them")
        texts.append([f"{prediction['input']}" for prediction in predictions])
        check_same(runs, texts, "texts")
        counts[name] = counts_of(predictions)
        unknown = {"unknown": own.text.unknown_share} if "nats" in predictions[0] else {}
        speed = {**unknown, "measuring_seconds": seconds, "per_second": len(predictions) / seconds}
        systems.append(System(name, counts[name].outputs, run, count_parameters(model), speed))
    progress("testing", 0, 1)
    base, rows = counts[baseline], {name: own.rows for name, own in counts.items()}
    metrics = {f"{RECONSTRUCTION}{name}" if rewriting else name: metric for name, metric in base.metrics.items()}
    if any(own.classes != base.classes for own in counts.values()):  # their F1 would be of other classes
        metrics.pop("f1_macro", None)
        rows = {name: own[:, :2] for name, own in rows.items()}
    tables = {
        "significance": paired_tests_of_sums(metrics, rows, baseline),
        "mcnemar": [
            {"system": name, **mcnemar(int((base.right > own.right).sum()), int((own.right > base.right).sum()))}
            for name, own in counts.items()
            if base.right is not None and own.right is not None and name != baseline
        ],
        "differ_most": [
            {"number": row + 1, "text": texts[0][row], "system": name, "says": own.outputs[row]}
            for row in differ_most([own.gains for own in counts.values()])
            for name, own in counts.items()
        ],
    }
    scores = {name: {metric: float(of(own.sum(0))) for metric, of in metrics.items()} for name, own in rows.items()}
    note = UNKNOWN_NOTE if any(system.speed.get("unknown") for system in systems) else None
    return Measured(
        "documents" if runs[baseline].task.reads_raw_text else "examples", systems, scores, tables, note=note
    )


@dataclass(frozen=True, eq=False)
class Counts:
    """What one run does with every unit."""

    rows: Rows
    """[units, K]: what the metrics are computed from."""
    metrics: Mapping[str, Metric]
    """The first one decides."""
    gains: Rows
    """[units]: how well each unit is done, the higher the better."""
    outputs: Sequence[str]
    """What the run predicts for each unit, as it is shown."""
    right: Rows | None = None
    """[units]: 1 where the run is right, for tasks that are right or wrong."""
    classes: Sequence[str] = ()
    """The classes whose pairs are counted for F1, in all columns of `rows` but the first two."""


Predictions = Sequence[Mapping[str, Any]]
"""Of each unit what `Task.by_unit` says."""


def counts_of(predictions: Predictions) -> Counts:
    """By what the predictions have: of texts their cost, of classes accuracy and F1, of numbers the correlation."""
    first = predictions[0]
    if "nats" in first:
        return _language(predictions)
    if "masked" in first:
        return _masked(predictions)
    if "right" not in first:
        return _numbers(predictions)
    if "tags" in first:
        return _tags(predictions)
    return _classes(predictions) if "label" in first and "f1" not in first else _answers(predictions)


def _column(predictions: Predictions, key: str) -> Rows:
    return np.array([prediction[key] for prediction in predictions], dtype=np.float64)


def _share(sums: Rows) -> Rows:
    share: Rows = sums[..., 1] / sums[..., 0]
    return share


def _language(predictions: Predictions) -> Counts:
    """Perplexity a word, the end of a document counted as one, and bits a character: both are independent of the
    tokenizer, if the losses include what it costs to spell out unknown tokens."""
    losses, texts = _column(predictions, "nats"), [prediction["input"] for prediction in predictions]
    words = np.array([len(text.split()) + 1 for text in texts], dtype=np.float64)
    characters = np.array([len(fold_white_space(text)) for text in texts], dtype=np.float64)
    metrics: dict[str, Metric] = {
        "word_perplexity": lambda sums: np.exp(np.minimum(sums[..., 0] / sums[..., 1], 700.0)),
        "bits_per_character": lambda sums: sums[..., 0] / math.log(2) / np.maximum(1.0, sums[..., 2]),
    }
    outputs = [f"perplexity {number_text(perplexity(mean), 1)}" for mean in losses / words]
    return Counts(np.stack([losses, words, characters], axis=1), metrics, -losses / words, outputs)


def _masked(predictions: Predictions) -> Counts:
    """The share of masked tokens that are predicted, and their loss."""
    rows = np.stack([_column(predictions, key) for key in ("loss", "correct", "masked")], axis=1)
    metrics: dict[str, Metric] = {
        "masked_accuracy": lambda sums: sums[..., 1] / np.maximum(1.0, sums[..., 2]),
        "loss": lambda sums: sums[..., 0] / np.maximum(1.0, sums[..., 2]),
    }
    outputs = [f"{right:.0f} of {masked:.0f} found, loss {loss / max(1, masked):.2f}" for loss, right, masked in rows]
    return Counts(rows, metrics, -rows[:, 0] / np.maximum(1.0, rows[:, 2]), outputs)


def _numbers(predictions: Predictions) -> Counts:
    true, predicted = (_column(predictions, key) for key in ("label", "output"))
    rows = np.stack([np.ones_like(true), true, predicted, true**2, predicted**2, true * predicted], axis=1)
    return Counts(rows, {"pearson": correlation}, -np.abs(true - predicted), [f"{value:.3f}" for value in predicted])


def correlation(sums: Rows) -> Rows:
    """Pearson's, of n, sum x, sum y, sum x^2, sum y^2, sum x y; 0 where one of the two does not vary."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.sqrt(np.maximum(0, (n * xx - x * x) * (n * yy - y * y)))
    r: Rows = np.divide(n * xy - x * y, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return r


def _tags(predictions: Predictions) -> Counts:
    """Of each sentence its words and the right tags among them; entities that are predicted, expected, and both."""
    pairs = [(prediction["tags"], prediction["expected_tags"]) for prediction in predictions]
    counts = []
    for tags, true in pairs:
        predicted, expected = {*entities_in(tags)}, {*entities_in(true)}
        counts.append([len(true), sum(map(eq, tags, true)), len(predicted), len(expected), len(predicted & expected)])
    rows, metrics = np.array(counts, dtype=np.float64), {"accuracy": _share}
    if all(is_chunk_tag(tag) for both in pairs for tags in both for tag in tags):
        metrics = {"f1": lambda sums: 2 * sums[..., 4] / np.maximum(1.0, sums[..., 2] + sums[..., 3]), **metrics}
    right = (rows[:, 0] == rows[:, 1]).astype(np.float64)
    outputs = [f"{prediction['output']}" for prediction in predictions]
    return Counts(rows, metrics, rows[:, 1] - rows[:, 0], outputs, right)


def _answers(predictions: Predictions) -> Counts:
    """Exact matches and the mean of the answers' F1, or accuracy alone where there is no F1."""
    right, has_f1 = _column(predictions, "right"), "f1" in predictions[0]
    f1 = _column(predictions, "f1") if has_f1 else np.zeros_like(right)
    metrics: dict[str, Metric] = {"accuracy": _share}
    if has_f1:
        metrics = {"f1": lambda sums: sums[..., 2] / sums[..., 0], "exact_match": _share}
    outputs = [f"{prediction['output']}" for prediction in predictions]
    return Counts(np.stack([np.ones_like(right), right, f1], axis=1), metrics, right + f1, outputs, right)


def _classes(predictions: Predictions) -> Counts:
    """Each row counts one pair of a true and a predicted class, so that F1 is a function of sums, too."""
    pairs = [(f"{prediction['label']}", f"{prediction['output']}") for prediction in predictions]
    named = predictions[0].get("probabilities")
    classes = sorted({*(label for pair in pairs for label in pair), *(named if isinstance(named, dict) else ())})
    right = _column(predictions, "right")
    rows, metrics = np.stack([np.ones_like(right), right], axis=1), {"accuracy": _share}
    if len(classes) <= MOST_CLASSES:
        places = [classes.index(true) * len(classes) + classes.index(output) for true, output in pairs]
        rows = np.concatenate([rows, np.eye(len(classes) ** 2)[places]], axis=1)
        metrics["f1_macro"] = lambda sums: f1_of(sums[..., 2:].reshape(*sums.shape[:-1], len(classes), len(classes)))
    outputs = [output if output == true else f"{output} ({true})" for true, output in pairs]
    return Counts(rows, metrics, right, outputs, right, classes)


def f1_of(confusion: Rows) -> Rows:
    """The mean F1 of the classes that occur or are predicted; true classes are rows, predicted ones columns."""
    right, both = np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(-1) + confusion.sum(-2)
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
    mean: Rows = f1.sum(-1) / np.maximum(1, (both > 0).sum(-1))
    return mean
