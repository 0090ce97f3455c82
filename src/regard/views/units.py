"""What runs that write no text for a source are compared by: sums over documents, or over labelled examples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import eq
from typing import Any, Literal

import numpy as np

from regard.data.conll import entities_in, is_chunk_tag
from regard.errors import DataError
from regard.models.base import count_parameters
from regard.runs import Run
from regard.runs.settings import summed
from regard.runs.splits import SplitName, examples_of
from regard.tasks.by_document import document_losses, document_masks
from regard.tasks.headed import HeadedTask
from regard.tasks.language_modeling import RECONSTRUCTION, LanguageModeling
from regard.tasks.masked_language_modeling import MaskedLanguageModeling
from regard.tasks.metrics import perplexity
from regard.text.normalise import fold_white_space
from regard.views.metrics import number_text
from regard.views.paired import Metric, Rows
from regard.views.systems import System

Unit = Literal["documents", "examples"]
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
    said: tuple[str, ...]
    """What the run says of each unit."""
    right: Rows | None = None
    """[units]: 1 where the run is right, for tasks that are right or wrong."""
    classes: tuple[str, ...] = ()
    """What is told apart: F1 counts the pairs of them in all columns of `rows` but the first two."""
    unknown: float | None = None
    """The share of unknown tokens, where texts are predicted token by token."""


def counted(
    name: str,
    run: Run,
    recipe: Any,
    *,
    split: SplitName | None,
    files: Sequence[str],
    checkpoint: str,
    device: Any,
    progress: Callable[[int, int], None],
) -> tuple[System, Counted]:
    """A run measured on its examples, unit by unit."""
    examples = examples_of(run, split, files)
    model = run.load_model(checkpoint, device)
    started = time.perf_counter()
    found = _counts(run, recipe, model, examples, summed(progress, len(examples)))
    seconds = time.perf_counter() - started
    return System(name, found.said, run, recipe, parameters=count_parameters(model), seconds=seconds), found


def _counts(run: Run, recipe: Any, model: Any, examples: Any, progress: Callable[[int], None]) -> Counted:
    if isinstance(run.task, LanguageModeling):
        losses = document_losses(run.task.objective(model).eval(), examples, progress)
        spelt = losses + examples.text.spelt_out.nats
        found = replace(language_counts(tuple(examples.text.texts), spelt), unknown=examples.text.unknown_share)
        if not run.task.rewrites:
            return found
        return replace(found, metrics={f"{RECONSTRUCTION}{name}": metric for name, metric in found.metrics.items()})
    if isinstance(run.task, MaskedLanguageModeling):
        if model.output is None:
            what = "the model was imported without the head that finds masked tokens"
            raise DataError(what, where=str(run.folder), hint="compare what is fine-tuned from it")
        return masked_counts(tuple(examples.text.texts), document_masks(model, examples, progress))
    if isinstance(run.task, HeadedTask):
        return labelled_counts(run.task.evaluate(model, examples, progress)["predictions"])
    what = f"runs of the task {run.task.name} cannot be compared"
    raise DataError(what, where=str(run.folder), hint="regard evaluate measures each of them")


def language_counts(texts: tuple[str, ...], losses: Rows) -> Counted:
    """Perplexity a word, the end of a document counted as one, and bits a character: tokenizers do not matter, if the
    losses have what it costs to spell out unknown tokens, too."""
    words = np.array([len(text.split()) + 1 for text in texts], dtype=np.float64)
    characters = np.array([len(fold_white_space(text)) for text in texts], dtype=np.float64)
    rows = np.stack([losses, words, characters], axis=1)
    metrics: dict[str, Metric] = {
        "word_perplexity": lambda sums: np.exp(np.minimum(sums[..., 0] / sums[..., 1], 700.0)),
        "bits_per_character": lambda sums: sums[..., 0] / math.log(2) / np.maximum(1.0, sums[..., 2]),
    }
    said = tuple(
        f"perplexity {number_text(perplexity(loss / count), 1)}" for loss, count in zip(losses, words, strict=True)
    )
    return Counted(texts, rows, metrics, -losses / words, said)


def masked_counts(texts: tuple[str, ...], rows: Rows) -> Counted:
    """The share of masked tokens that are found, and their loss."""
    metrics: dict[str, Metric] = {
        "masked_accuracy": lambda sums: sums[..., 1] / np.maximum(1.0, sums[..., 2]),
        "loss": lambda sums: sums[..., 0] / np.maximum(1.0, sums[..., 2]),
    }
    said = tuple(f"{found:.0f} of {masked:.0f} found, loss {loss / max(1, masked):.2f}" for loss, found, masked in rows)
    return Counted(texts, rows, metrics, -rows[:, 0] / np.maximum(1.0, rows[:, 2]), said)


def labelled_counts(predictions: Sequence[Mapping[str, Any]]) -> Counted:
    """Of classes accuracy and F1, of tags F1 of entities, of answers their means, of numbers the correlation."""
    texts = tuple(f"{one['input']}" for one in predictions)
    said = tuple(f"{one['output']}" for one in predictions)
    if "right" not in predictions[0]:
        return _numbers(texts, predictions)
    if "tags" in predictions[0]:
        return _tags(texts, said, predictions)
    right = np.array([one["right"] for one in predictions], dtype=np.float64)
    if "f1" in predictions[0] or "label" not in predictions[0]:
        rows = np.stack([np.ones_like(right), right, [one.get("f1", 0.0) for one in predictions]], axis=1)
        metrics: dict[str, Metric] = {"accuracy": _share}
        if "f1" in predictions[0]:
            metrics = {"f1": lambda sums: sums[..., 2] / sums[..., 0], "exact_match": _share}
        return Counted(texts, rows, metrics, rows[:, 1] + rows[:, 2], said, right)
    expected = [f"{one['label']}" for one in predictions]
    named = predictions[0].get("probabilities")
    labels = tuple(sorted({*said, *expected, *(named if isinstance(named, dict) else ())}))
    return _classes(texts, said, expected, right, labels)


def _share(sums: Rows) -> Rows:
    share: Rows = sums[..., 1] / sums[..., 0]
    return share


def _classes(
    texts: tuple[str, ...], said: tuple[str, ...], expected: Sequence[str], right: Rows, labels: tuple[str, ...]
) -> Counted:
    """One row counts each pair of a true and a found class, so that F1 is a function of sums, too."""
    rows, metrics = np.stack([np.ones_like(right), right], axis=1), {"accuracy": _share}
    if len(labels) <= MOST_CLASSES:
        number = {label: place for place, label in enumerate(labels)}
        pairs = [number[true] * len(labels) + number[found] for true, found in zip(expected, said, strict=True)]
        rows = np.concatenate([rows, np.eye(len(labels) ** 2)[pairs]], axis=1)
        metrics["f1_macro"] = lambda sums: f1_of(sums[..., 2:].reshape(*sums.shape[:-1], len(labels), len(labels)))
    told = tuple(f"{found} ({true})" if found != true else found for true, found in zip(expected, said, strict=True))
    return Counted(texts, rows, metrics, right, told, right, labels)


def f1_of(confusion: Rows) -> Rows:
    """The mean F1 of the classes that are there or are found; true classes are rows, found ones columns."""
    right, both = np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(-1) + confusion.sum(-2)
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
    mean: Rows = f1.sum(-1) / np.maximum(1, (both > 0).sum(-1))
    return mean


def _tags(texts: tuple[str, ...], said: tuple[str, ...], predictions: Sequence[Mapping[str, Any]]) -> Counted:
    """Of each sentence its words and the right tags among them; entities that are found, expected, and both."""
    pairs = [(one["tags"], one["expected_tags"]) for one in predictions]
    words = [[len(true), sum(map(eq, found, true))] for found, true in pairs]
    entities = [[len(found), len(true), len({*found} & {*true})] for found, true in
                ((entities_in(found), entities_in(true)) for found, true in pairs)]  # fmt: skip
    rows = np.concatenate([np.array(words), np.array(entities)], axis=1).astype(np.float64)
    metrics: dict[str, Metric] = {"accuracy": _share}
    if all(is_chunk_tag(tag) for both in pairs for tags in both for tag in tags):
        metrics = {"f1": lambda sums: 2 * sums[..., 4] / np.maximum(1.0, sums[..., 2] + sums[..., 3]), **metrics}
    return Counted(texts, rows, metrics, rows[:, 1] - rows[:, 0], said, (rows[:, 0] == rows[:, 1]).astype(np.float64))


def _numbers(texts: tuple[str, ...], predictions: Sequence[Mapping[str, Any]]) -> Counted:
    true, found = (np.array([float(one[key]) for one in predictions]) for key in ("label", "output"))
    rows = np.stack([np.ones_like(true), true, found, true**2, found**2, true * found], axis=1)
    said = tuple(f"{value:.3f}" for value in found)
    return Counted(texts, rows, {"pearson": correlation}, -np.abs(true - found), said)


def correlation(sums: Rows) -> Rows:
    """Pearson's, of n, sum x, sum y, sum x^2, sum y^2, sum x y; 0 where one of the two does not vary."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.sqrt(np.maximum(0, (n * xx - x * x) * (n * yy - y * y)))
    r: Rows = np.divide(n * xy - x * y, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return r
