"""Every model that writes, and the reference for its search: plain loops and forward passes."""

import math
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import cache

import pytest
import torch

from contract_cases import WRITERS, SourceCase
from regard.layers.attention import recording
from regard.search.config import SearchConfig
from regard.search.hypotheses import MIN_COVERAGE, Hypothesis
from regard.search.rules import SPECIAL_TOKENS, Limits, SpecialTokens
from regard.search.scoring import token_scores
from regard.text.vocabularies import END

Ids = tuple[int, ...]
EVERY_CASE = list(WRITERS)
"""Each variant of each model that writes."""
FIRST_OF_KIND = {
    case.kind: name for name, case in reversed(WRITERS.items()) if case.kind != "captioner"
}
EVERY_KIND = [*FIRST_OF_KIND.values(), *(name for name in WRITERS if name.endswith("-of-features"))]
"""One case for each kind of model, and for each decoder of the captioner."""
NUMBERS = range(4)
"""The sources of each case."""


class Writer:
    """A model with four sources of different lengths, and its outputs computed by forward
    passes."""

    def __init__(self, case: SourceCase) -> None:
        self.case, self.model = case, case.build()
        with torch.no_grad():
            logits_BTV = self.model.readout(self.model(case.continued([(0, (END,))])).hidden_BTD)
        self.size = logits_BTV.shape[-1]
        self.reads_prompts = case.config.reads == "text"

    def length(self, number: int) -> int:
        return int(self.case.sources([number]).host_lengths_B[0])

    def log_p(self, number: int, outputs: Sequence[Ids]) -> list[list[float]]:
        """log P of each token of some outputs for one source."""
        with torch.no_grad():
            batch = self.case.continued([(number, ids) for ids in outputs])
            log_p_BTV = self.model.readout(self.model(batch).hidden_BTD).log_softmax(-1)
        return [
            [float(log_p_TV[self.case.before(number) + t, token]) for t, token in enumerate(ids)]
            for log_p_TV, ids in zip(log_p_BTV, outputs, strict=True)
        ]

    def scored(self, outputs: Sequence[tuple[int, Ids]], extra: int = 0) -> list[list[float]]:
        """What `token_scores` says of them."""
        batch = self.case.continued(outputs, extra)
        found = token_scores(self.model, batch)
        return [
            log_p[self.case.before(number) :]
            for (number, _), log_p in zip(outputs, found, strict=True)
        ]

    def coverage(self, number: int, outputs: Sequence[Ids]) -> list[float]:
        """sum_i log min(sum_j p_ij, 1), p a mean over layers and heads, by loops; 0 without
        attention."""
        if not self.model.alignment:
            return [0.0] * len(outputs)
        with recording() as recorded, torch.no_grad():
            self.model(self.case.continued([(number, ids) for ids in outputs]))
        weights = [
            each
            for name, each in recorded.by_name(self.model).items()
            if fnmatch(name, self.model.alignment)
        ]
        found, length = [], self.length(number)
        for row, ids in enumerate(outputs):
            heads = [head_TS.tolist() for weights_BHTS in weights for head_TS in weights_BHTS[row]]
            attended = [
                sum(head[j][i] for head in heads for j in range(len(ids))) / len(heads)
                for i in range(length)
            ]
            found.append(sum(math.log(max(min(one, 1.0), MIN_COVERAGE)) for one in attended))
        return found


@cache
def writer(name: str) -> Writer:
    return Writer(WRITERS[name])


def plain_objective(
    config: SearchConfig, ids: Ids, log_p: Sequence[float], covered: float = 0.0
) -> float:
    theta, alpha, length = config.repetition_penalty, config.length_penalty, len(ids)
    total = sum(
        theta * p if token in ids[:t] else p
        for t, (token, p) in enumerate(zip(ids, log_p, strict=True))
    )
    normalised = {
        "none": total,
        "mean": total / length**alpha,
        "wu": total / ((5 + length) ** alpha / 6**alpha),
        "reward": total + alpha * length,
    }[config.normalisation]
    return normalised + config.coverage_penalty * covered


def may_follow(
    config: SearchConfig,
    ids: Ids,
    source: int,
    prefix: Ids,
    banned: Sequence[Ids],
    special: SpecialTokens = SPECIAL_TOKENS,
) -> bool:
    """Whether the rules allow the last of these tokens, for a source of this length. The prefix is
    exempt."""
    if len(ids) <= len(prefix):
        return ids[-1] == prefix[len(ids) - 1]
    never = {special.begin, special.pad, None if config.unknown else special.unknown} - {
        special.end
    }
    (longest,) = Limits.of([source], config).longest
    if ids[-1] in never or (len(ids) == longest and ids[-1] != special.end):
        return False
    if ids[-1] == special.end and len(ids) < max(
        config.min_length, math.ceil(config.min_length_ratio * source)
    ):
        return False
    n = config.no_repeat_ngram
    if n and any(ids[s - n : s] == ids[-n:] for s in range(n, len(ids))):
        return False
    return not any(ids[-len(word) :] == word for word in banned)


def allowed(
    config: SearchConfig, ids: Ids, source: int, prefix: Ids, banned: Sequence[Ids]
) -> bool:
    """Whether the rules allow each token of an output."""
    return all(may_follow(config, ids[:t], source, prefix, banned) for t in range(1, len(ids) + 1))


def assert_same(found: Sequence[Hypothesis], expected: Sequence[tuple[Ids, float, float]]) -> None:
    assert [one.tokens for one in found] == [ids for ids, _, _ in expected]
    assert [one.score for one in found] == pytest.approx(
        [total for _, total, _ in expected], abs=1e-9
    )
    assert [one.objective for one in found] == pytest.approx(
        [value for _, _, value in expected], abs=1e-9
    )
