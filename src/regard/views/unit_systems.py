"""Systems that are measured by sums over documents or labelled examples: language models, masked models, classifiers,
taggers, question answering, regression."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import eq
from typing import Any

import numpy as np

from regard.data.conll import entities_in, is_chunk_tag
from regard.errors import DataError
from regard.models.base import count_parameters
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.settings import device_named, examples_of, summed
from regard.tasks.by_document import document_losses, document_masks
from regard.tasks.headed import HeadedTask
from regard.tasks.language_modeling import RECONSTRUCTION, UNKNOWN_NOTE, LanguageModeling
from regard.tasks.masked_language_modeling import MaskedLanguageModeling
from regard.tasks.metrics import perplexity
from regard.text.normalise import fold_white_space
from regard.views.metrics import number_text
from regard.views.significance import McNemar, Metric, Rows, paired_tests_of_sums
from regard.views.systems import Measured, Plan, System, check_same
from regard.views.systems import Rows as Table

DIFFER_MOST = 20
"""Units on which the systems differ most that are shown."""
MOST_CLASSES = 64
"""Classes of which all pairs are counted for F1."""


@dataclass(frozen=True, eq=False)
class Counted:
    """What one run does with every unit."""

    texts: tuple[str, ...]
    rows: Rows
    """[units, K]: what the metrics are made of."""
    metrics: Mapping[str, Metric]
    """The first one decides."""
    gains: Rows
    """[units]: how well each unit is done, the higher the better."""
    outputs: tuple[str, ...]
    """What the run says of each unit."""
    right: Rows | None = None
    """[units]: 1 where the run is right, for tasks that are right or wrong."""
    classes: tuple[str, ...] = ()
    """The classes whose pairs are counted for F1, in all columns of `rows` but the first two."""
    unknown: float | None = None
    """The share of unknown tokens, where texts are predicted token by token."""


def measure_units(plan: Plan) -> Measured:
    """Every run is measured once, unit by unit."""
    _refuse_mixed(plan.runs)
    systems: list[System] = []
    counts: dict[str, Counted] = {}
    for name, run, recipe in zip(plan.names, plan.runs, plan.recipes, strict=True):
        examples = examples_of(run, plan.split, plan.files)
        model = run.load_model(plan.checkpoint, device_named(plan.device))
        started = time.perf_counter()
        counts[name] = own = _counts(run, recipe, model, examples, summed(partial(plan.progress, name), len(examples)))
        seconds = time.perf_counter() - started
        check_same(plan.runs, [one.texts for one in counts.values()], "texts")
        unknown = {} if own.unknown is None else {"unknown": own.unknown}
        speed = {**unknown, "measuring_seconds": seconds, "per_second": len(own.texts) / seconds}
        systems.append(System(name, own.outputs, run, recipe, count_parameters(model), speed))
    plan.progress("testing", 0, 1)
    base = counts[plan.baseline]
    metrics, rows = _shared(counts, base)
    scores = {name: {metric: float(of(own.sum(0))) for metric, of in metrics.items()} for name, own in rows.items()}
    unit = "documents" if base.right is None and "pearson" not in metrics else "examples"
    tables = {"mcnemar": mcnemar_table(counts, plan.baseline), "differ_most": _differ_most(counts)}
    note = UNKNOWN_NOTE if any(own.unknown for own in counts.values()) else None
    tests = paired_tests_of_sums(metrics, rows, plan.baseline)
    return Measured(unit, len(base.texts), tuple(systems), scores, tests, tables, note=note)


def _refuse_mixed(runs: Sequence[Run]) -> None:
    """An autoencoder has read the very text that it is measured on."""
    kinds = [isinstance(run.task, LanguageModeling) and run.task.rewrites for run in runs]
    for run, rewrites in zip(runs, kinds, strict=True):
        if rewrites and not all(kinds):
            what = "it writes texts that it has read (model.objective: autoencoder), others predict what they have not"
            raise DataError(what, where=str(run.folder), hint="compare it with other autoencoders")


def _shared(counts: Mapping[str, Counted], base: Counted) -> tuple[dict[str, Metric], dict[str, Rows]]:
    """The metrics and what they are made of; without F1 where the systems have different classes."""
    if all(own.classes == base.classes for own in counts.values()):
        return dict(base.metrics), {name: own.rows for name, own in counts.items()}
    metrics = {name: metric for name, metric in base.metrics.items() if name != "f1_macro"}
    return metrics, {name: own.rows[:, :2] for name, own in counts.items()}


def mcnemar_table(counts: Mapping[str, Counted], baseline: str) -> Table:
    """Each system against the baseline; empty where nothing is right or wrong."""
    base = counts[baseline].right
    table: Table = []
    for name, own in counts.items():
        if base is None or own.right is None or name == baseline:
            continue
        test = McNemar(int(((base > 0) & (own.right == 0)).sum()), int(((base == 0) & (own.right > 0)).sum()))
        p_values = {key: getattr(test, key) for key in ("p_exact", "chi_square", "p_chi_square")}
        table.append({"system": name, **asdict(test), **p_values})
    return table


def _differ_most(counts: Mapping[str, Counted]) -> Table:
    """The units, counted from 1, with the largest difference of the best and the worst system, if there is any."""
    gains = np.stack([own.gains for own in counts.values()])
    distances = gains.max(0) - gains.min(0)
    texts = next(iter(counts.values())).texts
    ordered = [int(row) for row in np.argsort(-distances, kind="stable")[:DIFFER_MOST] if distances[row] > 0]
    return [
        {"number": row + 1, "text": texts[row], "system": name, "says": own.outputs[row]}
        for row in ordered
        for name, own in counts.items()
    ]


# ---------------------------------------------------------------------------------------------------------- counting


def _counts(run: Run, recipe: AnyRecipe, model: Any, examples: Any, moved: Callable[[int], None]) -> Counted:
    if isinstance(run.task, LanguageModeling):
        losses = document_losses(run.task.objective(model).eval(), examples, moved)
        spelt_out = losses + examples.text.spelt_out.nats
        counts = replace(language_counts(tuple(examples.text.texts()), spelt_out), unknown=examples.text.unknown_share)
        if not run.task.rewrites:
            return counts
        return replace(counts, metrics={f"{RECONSTRUCTION}{name}": metric for name, metric in counts.metrics.items()})
    if isinstance(run.task, MaskedLanguageModeling):
        if model.output is None:
            what = "the model was imported without the head that predicts masked tokens"
            raise DataError(what, where=str(run.folder), hint="compare what is fine-tuned from it")
        return masked_counts(tuple(examples.text.texts()), document_masks(model, examples, moved))
    if isinstance(run.task, HeadedTask):
        return labelled_counts(run.task.evaluate(model, examples, moved)["predictions"])
    what = f"runs of the task {run.task.name} cannot be compared"
    raise DataError(what, where=str(run.folder), hint="regard evaluate measures each of them")


def language_counts(texts: tuple[str, ...], losses: Rows) -> Counted:
    """Perplexity a word, the end of a document counted as one, and bits a character: both are independent of the
    tokenizer, if the losses include what it costs to spell out unknown tokens."""
    words = np.array([len(text.split()) + 1 for text in texts], dtype=np.float64)
    characters = np.array([len(fold_white_space(text)) for text in texts], dtype=np.float64)
    rows = np.stack([losses, words, characters], axis=1)
    metrics: dict[str, Metric] = {
        "word_perplexity": lambda sums: np.exp(np.minimum(sums[..., 0] / sums[..., 1], 700.0)),
        "bits_per_character": lambda sums: sums[..., 0] / math.log(2) / np.maximum(1.0, sums[..., 2]),
    }
    means = [perplexity(loss / count) for loss, count in zip(losses, words, strict=True)]
    return Counted(texts, rows, metrics, -losses / words, tuple(f"perplexity {number_text(one, 1)}" for one in means))


def masked_counts(texts: tuple[str, ...], rows: Rows) -> Counted:
    """The share of masked tokens that are predicted, and their loss."""
    metrics: dict[str, Metric] = {
        "masked_accuracy": lambda sums: sums[..., 1] / np.maximum(1.0, sums[..., 2]),
        "loss": lambda sums: sums[..., 0] / np.maximum(1.0, sums[..., 2]),
    }
    outputs = (f"{right:.0f} of {masked:.0f} found, loss {loss / max(1, masked):.2f}" for loss, right, masked in rows)
    return Counted(texts, rows, metrics, -rows[:, 0] / np.maximum(1.0, rows[:, 2]), tuple(outputs))


def labelled_counts(predictions: Sequence[Mapping[str, Any]]) -> Counted:
    """Of classes accuracy and F1, of tags F1 of entities, of answers their means, of numbers the correlation."""
    texts = tuple(f"{one['input']}" for one in predictions)
    outputs = tuple(f"{one['output']}" for one in predictions)
    if "right" not in predictions[0]:
        return _numbers(texts, predictions)
    if "tags" in predictions[0]:
        return _tags(texts, outputs, predictions)
    right = np.array([one["right"] for one in predictions], dtype=np.float64)
    if "f1" in predictions[0] or "label" not in predictions[0]:
        rows = np.stack([np.ones_like(right), right, [one.get("f1", 0.0) for one in predictions]], axis=1)
        metrics: dict[str, Metric] = {"accuracy": _share}
        if "f1" in predictions[0]:
            metrics = {"f1": lambda sums: sums[..., 2] / sums[..., 0], "exact_match": _share}
        return Counted(texts, rows, metrics, rows[:, 1] + rows[:, 2], outputs, right)
    expected = [f"{one['label']}" for one in predictions]
    named = predictions[0].get("probabilities")
    labels = tuple(sorted({*outputs, *expected, *(named if isinstance(named, dict) else ())}))
    return _classes(texts, outputs, expected, right, labels)


def _share(sums: Rows) -> Rows:
    share: Rows = sums[..., 1] / sums[..., 0]
    return share


def _classes(
    texts: tuple[str, ...], outputs: tuple[str, ...], expected: Sequence[str], right: Rows, labels: tuple[str, ...]
) -> Counted:
    """Each row counts one pair of a true and a predicted class, so that F1 is a function of sums, too."""
    rows, metrics = np.stack([np.ones_like(right), right], axis=1), {"accuracy": _share}
    pairs = list(zip(expected, outputs, strict=True))
    if len(labels) <= MOST_CLASSES:
        number = {label: place for place, label in enumerate(labels)}
        places = [number[true] * len(labels) + number[output] for true, output in pairs]
        rows = np.concatenate([rows, np.eye(len(labels) ** 2)[places]], axis=1)
        metrics["f1_macro"] = lambda sums: f1_of(sums[..., 2:].reshape(*sums.shape[:-1], len(labels), len(labels)))
    shown = tuple(output if output == true else f"{output} ({true})" for true, output in pairs)
    return Counted(texts, rows, metrics, right, shown, right, labels)


def f1_of(confusion: Rows) -> Rows:
    """The mean F1 of the classes that occur or are predicted; true classes are rows, predicted ones columns."""
    right, both = np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(-1) + confusion.sum(-2)
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
    mean: Rows = f1.sum(-1) / np.maximum(1, (both > 0).sum(-1))
    return mean


def _tags(texts: tuple[str, ...], outputs: tuple[str, ...], predictions: Sequence[Mapping[str, Any]]) -> Counted:
    """Of each sentence its words and the right tags among them; entities that are predicted, expected, and both."""
    pairs = [(one["tags"], one["expected_tags"]) for one in predictions]
    words = [[len(true), sum(map(eq, tags, true))] for tags, true in pairs]
    entities = [({*entities_in(tags)}, {*entities_in(true)}) for tags, true in pairs]
    counts = [[len(predicted), len(true), len(predicted & true)] for predicted, true in entities]
    rows = np.concatenate([np.array(words), np.array(counts)], axis=1).astype(np.float64)
    metrics: dict[str, Metric] = {"accuracy": _share}
    if all(is_chunk_tag(tag) for both in pairs for tags in both for tag in tags):
        metrics = {"f1": lambda sums: 2 * sums[..., 4] / np.maximum(1.0, sums[..., 2] + sums[..., 3]), **metrics}
    right = (rows[:, 0] == rows[:, 1]).astype(np.float64)
    return Counted(texts, rows, metrics, rows[:, 1] - rows[:, 0], outputs, right)


def _numbers(texts: tuple[str, ...], predictions: Sequence[Mapping[str, Any]]) -> Counted:
    true, predicted = (np.array([float(one[key]) for one in predictions]) for key in ("label", "output"))
    rows = np.stack([np.ones_like(true), true, predicted, true**2, predicted**2, true * predicted], axis=1)
    outputs = tuple(f"{value:.3f}" for value in predicted)
    return Counted(texts, rows, {"pearson": correlation}, -np.abs(true - predicted), outputs)


def correlation(sums: Rows) -> Rows:
    """Pearson's, of n, sum x, sum y, sum x^2, sum y^2, sum x y; 0 where one of the two does not vary."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.sqrt(np.maximum(0, (n * xx - x * x) * (n * yy - y * y)))
    r: Rows = np.divide(n * xy - x * y, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return r
