"""Every model that writes, whatever it reads, and what a search is held against: plain loops, forward passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from typing import Any

import pytest
import torch

import captioner_cases
import language_model_cases
import model_cases
from model_cases import tokens_of
from regard.data.batch import Tokens
from regard.data.images import images_of
from regard.layers.attention import recording
from regard.models import MODELS
from regard.models.base import Generator
from regard.search import Hypothesis, SearchConfig, score, score_texts
from regard.search.ranking import MIN_COVERAGE
from regard.text.vocabularies import BEGIN

Ids = tuple[int, ...]
PROMPTS = [[BEGIN, 4, 5], [BEGIN], [BEGIN, 12, 11, 10, 9], [BEGIN, 6]]
CAPTIONERS = {f"captioner-{name}": config for name, config in captioner_cases.CASES.items()}
LANGUAGE_MODELS = {name: language_model_cases.CASES[name] for name in language_model_cases.GENERATING}
EVERY_CASE = [*model_cases.CAUSAL_CASES, *CAPTIONERS, *LANGUAGE_MODELS]
"""Each variant of each model that writes."""
SOURCE_KINDS = [kind for kind, model in MODELS.items() if model.config.reads == "source"]
EVERY_KIND = [
    *(next(case for case in model_cases.CAUSAL_CASES if model_cases.CASES[case].kind == kind) for kind in SOURCE_KINDS),  # type: ignore[attr-defined]
    "captioner-plain-of-features", "captioner-attention-of-features", "captioner-transformer-of-features",
    "gpt", "lstm_lm",
]  # fmt: skip
"""One case for each kind of model, and for each decoder of the captioner."""
NUMBERS = range(4)
"""Of the sources of each case."""


@dataclass(frozen=True)
class Writer:
    """A model, four sources of unequal length, and the same outputs by forward passes."""

    model: Generator
    size: int
    """Of the vocabulary that it writes."""
    read: Callable[[Sequence[int], int], Tokens]
    """Numbers of sources, and padding beyond the longest -> what `search` is given."""
    pairs: Callable[[Sequence[tuple[int, Ids]], int], Any]
    """Numbers of sources with an output each, and padding -> a batch for the model."""
    begun: Sequence[int] = (0, 0, 0, 0)
    """How many states of a forward pass come before the output, for each source."""

    def length(self, number: int) -> int:
        return int(self.read([number], 0).host_lengths_B[0])

    def log_p(self, number: int, outputs: Sequence[Ids]) -> list[list[float]]:
        """log P of each token of some outputs for one source."""
        with torch.no_grad():
            batch = self.pairs([(number, ids) for ids in outputs], 0)
            log_p_BTV = self.model.readout(self.model(batch).hidden_BTD).log_softmax(-1)
        return [
            [float(log_p_TV[self.begun[number] + t, token]) for t, token in enumerate(ids)]
            for log_p_TV, ids in zip(log_p_BTV, outputs, strict=True)
        ]

    def scored(self, outputs: Sequence[tuple[int, Ids]], extra: int = 0) -> list[list[float]]:
        """What scoring says of them."""
        batch = self.pairs(outputs, extra)
        found = score_texts(self.model, batch.text) if any(self.begun) else score(self.model, batch)
        return [log_p[self.begun[number] :] for (number, _), log_p in zip(outputs, found, strict=True)]

    def coverage(self, number: int, outputs: Sequence[Ids]) -> list[float]:
        """sum_i log min(sum_j p_ij, 1), p a mean over layers and heads, by loops; 0 for who does not look."""
        if not self.model.alignment:
            return [0.0] * len(outputs)
        with recording() as recorded, torch.no_grad():
            self.model(self.pairs([(number, ids) for ids in outputs], 0))
        looks = [look for name, look in recorded.by_name(self.model).items() if fnmatch(name, self.model.alignment)]
        found, length = [], self.length(number)
        for row, ids in enumerate(outputs):
            heads = [head_TS.tolist() for look_BHTS in looks for head_TS in look_BHTS[row]]
            attended = [sum(head[j][i] for head in heads for j in range(len(ids))) / len(heads) for i in range(length)]
            found.append(sum(math.log(max(min(one, 1.0), MIN_COVERAGE)) for one in attended))
        return found


@cache
def writer(case: str) -> Writer:
    if case in CAPTIONERS:
        return _captioner(case)
    return _language_model(case) if case in LANGUAGE_MODELS else _reader_of_texts(case)


def _reader_of_texts(case: str) -> Writer:
    model, sources = model_cases.build(model_cases.CASES[case]), model_cases.SOURCES
    return Writer(
        model,
        model.output.linear.weight.shape[0],
        lambda numbers, extra: tokens_of([sources[n] for n in numbers], extra=extra),
        lambda pairs, extra: model_cases.batch_of(
            [sources[n] for n, _ in pairs], [[BEGIN, *ids] for _, ids in pairs], extra=extra
        ),
    )


def _captioner(case: str) -> Writer:
    model, pictures = captioner_cases.build(CAPTIONERS[case]), captioner_cases.pictures_of(CAPTIONERS[case])
    return Writer(
        model,
        model.output.linear.weight.shape[0],
        lambda numbers, extra: images_of([pictures[n] for n in numbers]),
        lambda pairs, extra: captioner_cases.batch_of(
            [pictures[n] for n, _ in pairs], [[BEGIN, *ids] for _, ids in pairs], extra=extra
        ),
    )


def _language_model(case: str) -> Writer:
    """What it reads are beginnings of texts."""
    return Writer(
        language_model_cases.build(LANGUAGE_MODELS[case]),
        language_model_cases.SIZE,
        lambda numbers, extra: tokens_of([PROMPTS[n] for n in numbers], extra=extra),
        lambda pairs, extra: language_model_cases.text_batch([[*PROMPTS[n], *ids] for n, ids in pairs], extra=extra),
        [len(prompt) - 1 for prompt in PROMPTS],
    )


def plain_objective(config: SearchConfig, ids: Ids, log_p: Sequence[float], covered: float = 0.0) -> float:
    theta, alpha, length = config.repetition_penalty, config.length_penalty, len(ids)
    total = sum(theta * p if token in ids[:t] else p for t, (token, p) in enumerate(zip(ids, log_p, strict=True)))
    normalised = {
        "none": total,
        "mean": total / length**alpha,
        "wu": total / ((5 + length) ** alpha / 6**alpha),
        "reward": total + alpha * length,
    }[config.normalisation]
    return normalised + config.coverage_penalty * covered


def plain_allowed(config: SearchConfig, ids: Ids, source: int, prefix: Ids, banned: Sequence[Ids]) -> bool:
    """Whether the rules allow an output, `</s>` included, for a source of this length. The prefix is exempt."""
    if ids[: len(prefix)] != prefix or len(ids) <= len(prefix):
        return False
    n = config.no_repeat_ngram
    for t in range(len(prefix) + 1, len(ids) + 1):
        if any(ids[t - len(word) : t] == word and t >= len(word) for word in banned):
            return False
        if n and t > n and any(ids[s - n : s] == ids[t - n : t] for s in range(n, t)):
            return False
    return len(ids) >= max(config.min_length, math.ceil(config.min_length_ratio * source))


def assert_same(found: Sequence[Hypothesis], expected: Sequence[tuple[Ids, float, float]]) -> None:
    assert [one.tokens for one in found] == [ids for ids, _, _ in expected]
    assert [one.score for one in found] == pytest.approx([total for _, total, _ in expected], abs=1e-9)
    assert [one.objective for one in found] == pytest.approx([value for _, _, value in expected], abs=1e-9)
