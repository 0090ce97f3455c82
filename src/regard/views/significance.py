"""Whether one system is better than another, or only luckier: sacreBLEU's paired tests.

Paired bootstrap resampling, Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation": draw as
many sentences as there are, with repetition, and see how often the difference is as large as the one found.
Approximate randomisation, Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation and Significance Testing
for MT": swap the two systems' outputs at random sentences, and see how often the difference is as large.

The tests and their seed (12345, or SACREBLEU_SEED) are sacreBLEU's. BLEU and chrF are its own metrics; a metric that is
a mean over sentences (exact match, ROUGE) goes through the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.config import Config
from regard.tasks import TextToText

Memory = dict[tuple[str, str], Mapping[str, Any]]
"""The task's metrics of single pairs of output and reference, each computed once."""
LEVEL = 0.05
"""The p-value below which a difference is called significant."""


@dataclass(frozen=True)
class Tested:
    """One system's score under one metric, against the baseline's."""

    metric: str
    system: str
    score: float
    difference: float
    """From the baseline's score; 0 for the baseline itself."""
    interval: float
    """Half the width of the score's 95 % interval, by bootstrap."""
    p_bootstrap: float | None
    """None for the baseline."""
    p_randomisation: float | None

    @property
    def significant(self) -> bool:
        """Whether both tests say so."""
        return all(p is not None and p < LEVEL for p in (self.p_bootstrap, self.p_randomisation))


def paired_tests(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[str],
    task: type[TextToText],
    config: Config,
    metrics: Sequence[str],
    progress: Callable[[int], None] = lambda done: None,
) -> list[Tested]:
    """Every metric of every system, tested against the first of them. Texts are in NFC already."""
    memory: Memory = {}
    found = []
    for metric in metrics:
        found += _tested(metric, measure(metric, task, config, memory), outputs, references)
        progress(1)
    return found


def _tested(
    metric: str, measured: Any, outputs: Mapping[str, Sequence[str]], references: Sequence[str]
) -> list[Tested]:
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = list(outputs.items())
    results: list[dict[str, list[Any]]] = [
        PairedTest(named, {metric: measured}, [list(references)], test_type=test)()[1] for test in ("bs", "ar")
    ]
    # sacreBLEU gives the names of the systems, then the results under a name of its own for the metric.
    bootstrap, randomised = (list(columns.values())[1] for columns in results)
    baseline, found = float(bootstrap[0].score), []
    for name, drawn, swapped in zip(outputs, bootstrap, randomised, strict=True):
        difference = float(drawn.score) - baseline
        p_values = (_p_value(one.p_value, difference) for one in (drawn, swapped))
        found.append(Tested(metric, name, float(drawn.score), difference, float(drawn.ci), *p_values))
    return found


def _p_value(found: float | None, difference: float) -> float | None:
    """sacreBLEU counts differences that are larger than the one found, which calls no difference at all significant."""
    return 1.0 if found is not None and difference == 0 else found


def measure(metric: str, task: type[TextToText], config: Config, memory: Memory) -> Any:
    """The metric as sacreBLEU's tests want it."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    settings = config.model_dump()
    match metric:
        case "bleu":
            return BLEU(lowercase=settings["lowercase"], tokenize=settings["tokenize"])
        case "chrf":
            return CHRF(lowercase=settings["lowercase"])
    return SentenceMean(metric, task, config, memory)


@dataclass(frozen=True)
class MeanScore:
    """What sacreBLEU calls a score."""

    name: str
    score: float


class SentenceMean:
    """A metric that is the mean of its values for single sentences, with the methods of a metric of sacreBLEU."""

    def __init__(self, name: str, task: type[TextToText], config: Config, memory: Memory) -> None:
        self.name, self._task, self._config, self._memory = name, task, config, memory

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """For each sentence its value, and a one to count it."""
        return [[self._metrics(*pair)[self.name], 1.0] for pair in zip(hypotheses, references[0], strict=True)]

    def _metrics(self, output: str, reference: str) -> Mapping[str, Any]:
        if (output, reference) not in self._memory:
            self._memory[output, reference] = self._task.metrics([output], [reference], self._config)
        return self._memory[output, reference]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> MeanScore:
        return self._compute_score_from_stats(np.sum(np.asarray(stats, dtype=np.float64), axis=0))

    def _compute_score_from_stats(self, stats: npt.NDArray[np.floating]) -> MeanScore:
        return MeanScore(self.name, float(stats[0] / stats[1]))

    @staticmethod
    def get_signature() -> Any:
        """An empty one, for what a test adds to it."""
        from sacrebleu.metrics.base import Signature

        return Signature({"num_refs": 1})
