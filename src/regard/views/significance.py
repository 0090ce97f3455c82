"""Whether one system is better than another, or only luckier: paired tests on sacreBLEU's metrics.

Paired bootstrap resampling, Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation": draw as
many sentences as there are, with repetition, and see how often the difference is as large as the one found. The test
and its seed (12345, or SACREBLEU_SEED) are sacreBLEU's.
Approximate randomisation, Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation and Significance Testing
for MT": swap the two systems' outputs at random sentences, and see how often the difference is as large. sacreBLEU
counts only differences that are larger, and so finds two sentences significant: a swap of all outputs gives the very
difference that was found. Here it is counted, as in any permutation test (views/paired.py).

BLEU and chrF are sacreBLEU's own; a metric that is a mean over sentences (exact match, ROUGE) goes through the same
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.config import Config
from regard.tasks import TextToText
from regard.views.paired import Rows, Tested, p_of_swaps
from regard.views.verdicts import for_metrics

Memory = dict[tuple[str, tuple[str, ...]], Mapping[str, Any]]
"""The task's metrics of single outputs with their references, each computed once."""
ORDERS = {"bleu1": 1, "bleu2": 2, "bleu3": 3, "bleu": 4}
"""The longest n-grams that each kind of BLEU counts."""


def paired_tests(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    task: TextToText,
    config: Config,
    metrics: Sequence[str],
    progress: Callable[[int], None] = lambda done: None,
) -> list[Tested]:
    """Every metric of every system, tested against the first of them. Texts are in NFC already.

    `references` are all that there are of each sentence.
    """
    memory: Memory = {}
    found = []
    for metric in metrics:
        found += _tested(metric, measure(metric, task, config, memory), outputs, streams_of(references))
        progress(1)
    return found


def streams_of(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References as sacreBLEU wants them: the first of every sentence, then the second, None where there is none."""
    return [list(stream) for stream in zip_longest(*references)]


def statistics_of(measured: Any, outputs: Sequence[str], streams: Sequence[Sequence[str | None]]) -> Rows:
    """What a metric is made of, sentence by sentence: [sentences, K], to be summed."""
    return np.array(measured._extract_corpus_statistics(outputs, streams), dtype=np.float64)


def score_of(measured: Any, sums: Rows) -> Rows:
    """The metric of many sums, [..., K] -> [...]."""
    scores = [measured._compute_score_from_stats(one.tolist()).score for one in sums.reshape(-1, sums.shape[-1])]
    return np.array(scores).reshape(sums.shape[:-1])


def _tested(
    metric: str, measured: Any, outputs: Mapping[str, Sequence[str]], streams: list[list[str | None]]
) -> list[Tested]:
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = list(outputs.items())
    columns: Mapping[str, list[Any]] = PairedTest(named, {metric: measured}, streams, test_type="bs")()[1]  # type: ignore[arg-type]
    # sacreBLEU gives the names of the systems, then the results under a name of its own for the metric.
    first, *others = zip(outputs, list(columns.values())[1], strict=True)
    base, baseline = statistics_of(measured, outputs[first[0]], streams), float(first[1].score)
    found = [Tested(metric, first[0], baseline, 0.0, float(first[1].ci), None, None)]
    for name, drawn in others:
        difference = float(drawn.score) - baseline
        # sacreBLEU counts only what is larger than the difference found: it would call none at all significant.
        p_drawn = float(drawn.p_value) if difference else 1.0
        p_bootstrap = p_drawn if len(base) > 1 else None  # all that can be drawn of one sentence is that one
        p_swapped = p_of_swaps(partial(score_of, measured), base, statistics_of(measured, outputs[name], streams))
        found.append(Tested(metric, name, float(drawn.score), difference, float(drawn.ci), p_bootstrap, p_swapped))
    return found


def measure(metric: str, task: TextToText, config: Config, memory: Memory) -> Any:
    """The metric as sacreBLEU's tests want it."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    settings = config.model_dump()
    if metric in ORDERS:
        order = ORDERS[metric]
        return BLEU(lowercase=settings["lowercase"], tokenize=settings["tokenize"], max_ngram_order=order)
    if metric == "chrf":
        return CHRF(lowercase=settings["lowercase"])
    return SentenceMean(metric, task, config, memory)


@dataclass(frozen=True)
class MeanScore:
    """What sacreBLEU calls a score."""

    name: str
    score: float


class SentenceMean:
    """A metric that is the mean of its values for single sentences, with the methods of a metric of sacreBLEU."""

    def __init__(self, name: str, task: TextToText, config: Config, memory: Memory) -> None:
        self.name, self._task, self._config, self._memory = name, task, config, memory

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str | None]]
    ) -> list[list[float]]:
        """For each sentence its value, and a one to count it."""
        said = (tuple(one for one in all_of if one is not None) for all_of in zip(*references, strict=True))
        return [[self._metrics(*pair)[self.name], 1.0] for pair in zip(hypotheses, said, strict=True)]

    def _metrics(self, output: str, references: tuple[str, ...]) -> Mapping[str, Any]:
        if (output, references) not in self._memory:
            self._memory[output, references] = self._task.metrics([output], for_metrics([references]), self._config)
        return self._memory[output, references]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> MeanScore:
        return self._compute_score_from_stats(np.sum(np.asarray(stats, dtype=np.float64), axis=0))

    def _compute_score_from_stats(self, stats: npt.NDArray[np.floating]) -> MeanScore:
        return MeanScore(self.name, float(stats[0] / stats[1]))

    @staticmethod
    def get_signature() -> Any:
        """An empty one, for what a test adds to it."""
        from sacrebleu.metrics.base import Signature

        return Signature({"num_refs": 1})
