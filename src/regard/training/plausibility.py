"""Warnings about what a recipe or its data say that is probably not meant: a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from regard.data.dataset import Dataset
from regard.data.prepare import Prepared
from regard.recipes.recipe import AnyRecipe
from regard.tasks import Task

USUAL_RATES = {"adam": (0.0001, 0.01), "adamw": (0.0001, 0.01), "sgd": (0.01, 10.0)}
"""Learning rates that are usual for each optimiser."""
FAR_TOO_HIGH = 10
"""How many times the highest usual learning rate is still no mistake."""
MAX_DROPOUT = 0.7
SUBWORD_TOKENIZERS = ("bpe", "wordpiece", "unigram")
RARE_COUNT = 5
"""A subword that occurs less often has hardly a trained embedding."""
SMALL_VOCABULARY = 1_000
"""Vocabularies up to this size are never said to be too large."""
MANY_DROPPED_SHARE = 0.25
"""Share of the training examples over `data.max_length` from which there is a warning."""


def warnings_for(recipe: AnyRecipe, task: Task, data: Prepared[Any]) -> list[str]:
    """All warnings, each with a word that says so."""
    return [
        f"warning: {text}"
        for text in chain(recipe_warnings(recipe), data_warnings(recipe, task, data))
    ]


def recipe_warnings(recipe: AnyRecipe) -> Iterator[str]:
    """Warnings about settings."""
    training = recipe.training
    low, high = USUAL_RATES[training.optimizer]
    if training.learning_rate > FAR_TOO_HIGH * high:
        yield (
            f"training.learning_rate={training.learning_rate:g} is far too high for "
            f"{training.optimizer}, "
            f"the loss will hardly fall: {low:g} to {high:g} is usual"
        )
    for name, value in recipe.model.model_dump().items():
        if name.endswith("dropout") and isinstance(value, float) and value > MAX_DROPOUT:
            yield (
                f"model.{name}={value:g} leaves out {100 * value:.0f} % of the values at every "
                "step, the "
                "model will hardly learn: 0.1 to 0.5 is usual"
            )


def data_warnings(recipe: AnyRecipe, task: Task, data: Prepared[Any]) -> Iterator[str]:
    """Warnings about the data, and about settings that do not suit it."""
    yield from _dropped_by_length(recipe, data)
    yield from task.data_warnings(data)
    yield from _large_vocabulary(recipe, task, data)


def _dropped_by_length(recipe: AnyRecipe, data: Prepared[Any]) -> Iterator[str]:
    train = data.report.splits["train"]
    finding = train.dropped.get("max_length")
    if finding is not None and finding.count > MANY_DROPPED_SHARE * train.read:
        share = 100 * finding.count / train.read
        yield (
            f"{share:.0f} % of the training {data.report.unit} are longer than "
            f"data.max_length={recipe.data.max_length} tokens and are not learned from: raise it"
        )


def _large_vocabulary(recipe: AnyRecipe, task: Task, data: Prepared[Any]) -> Iterator[str]:
    """Most subwords of too large a vocabulary are too rare to be learned."""
    tokenizer = recipe.tokenizer
    if (
        task.views.written is None
        or tokenizer.kind not in SUBWORD_TOKENIZERS
        or tokenizer.file is not None
    ):
        return
    if recipe.training.init is not None:
        return
    for name, counts in _frequencies(data).items():
        rare = int(np.count_nonzero(counts < RARE_COUNT))
        if len(counts) > SMALL_VOCABULARY and 2 * rare > len(counts):
            yield (
                f"{rare:,} of the {len(counts):,} subwords of the {name} vocabulary occur fewer "
                f"than {RARE_COUNT} "
                "times in the training data, which is enough for about "
                f"{max(1, (len(counts) - rare) // 100) * 100:,}: "
                "lower tokenizer.vocabulary"
            )


def _frequencies(data: Prepared[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """How often each subword occurs in the training data, by vocabulary."""
    if not isinstance(data.train, Dataset):  # raw text
        return {"text": data.train.frequencies()} if hasattr(data.train, "frequencies") else {}
    counts = {
        name: data.train.columns[name].counts(tokenizer.size)
        for name, tokenizer in data.tokenizers.items()
        if name in data.train.columns
    }
    if len(counts) > 1 and data.tokenizers.joint:
        return {"joint": np.sum([*counts.values()], axis=0)}
    return counts
