"""Translation: a text in, another text out. Also chat, spelling, dates: whatever has pairs of
texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.config import Config
from regard.data.config import Corpus, Recipe, TextPairs
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.prepare import Prepared
from regard.errors import import_extra
from regard.models.base import Generator
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.tasks.pairs import (
    SOURCE_MODELS,
    References,
    comparable,
    read_pairs,
    set_text_pair_parts,
    text_pair_encoding,
    token_loss,
)
from regard.tasks.task import Task
from regard.text.tokenizers import Tokenizers

BLEU_4 = {"bleu": 4}
FEWEST_PAIRS = 100
"""Fewest pairs whose lengths are compared."""
LEAST_VARIATION = 0.2
"""Least variation of lengths, deviation / mean, on both sides, for a correlation to say
something."""
UNRELATED_CORRELATION = 0.1
"""Correlation of lengths below which pairs are hardly translations; of real ones it is 0.6 or
more."""


class Parallel(Corpus):
    """Pairs of texts."""

    source: str | int | None = None
    """The texts to read: a file of their own, a folder of such files, or the column's name or
    number in `file`."""
    target: str | int | None = None
    """The texts to write: given like those to read."""


class EvaluationConfig(Config):
    """How outputs are measured against references."""

    lowercase: bool = False
    """Whether BLEU, chrF and exact match ignore case."""
    tokenize: Literal["13a", "intl", "char", "zh", "ja-mecab", "none"] = "13a"
    """sacreBLEU's tokenisation. `char` suits Korean. `ja-mecab` is usual for Japanese, and needs
    `pip install 'regard[japanese]'`."""


class Translation(Task):
    """Pairs of texts, measured by BLEU, chrF and exact match."""

    name = "translation"
    data = TextPairs[Parallel]
    evaluation = EvaluationConfig
    models = SOURCE_MODELS
    vocabularies = ("source", "target")
    lower_is_better = ("loss", "perplexity")
    higher_is_better = ("bleu", "chrf", "exact_match")
    writes = "targets"
    has_flat_batches = True

    make_encoding = staticmethod(text_pair_encoding)

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        set_text_pair_parts(self, partial(translation_scores, config=recipe.evaluation), BLEU_4)

    def objective(self, model: Generator) -> TokenCrossEntropy:
        return token_loss(model, self.recipe)

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
        return read_pairs(self, corpora, part, base)

    @classmethod
    def check_recipe(cls, recipe: Recipe) -> None:
        super().check_recipe(recipe)
        check_tokenisation(recipe.evaluation)

    def data_warnings(self, data: Prepared[Dataset]) -> Iterator[str]:
        return unrelated_lengths(data.train)


def unrelated_lengths(train: Dataset) -> Iterator[str]:
    """A warning if long sentences do not have long translations, as if the lines of one file were
    shuffled or shifted."""
    if len(train) < FEWEST_PAIRS:
        return
    sources = train.columns["source"].lengths.astype(np.float64)
    targets = train.columns["target"].lengths.astype(np.float64)
    if min(float(side.std() / side.mean()) for side in (sources, targets)) < LEAST_VARIATION:
        return
    correlation = float(np.corrcoef(sources, targets)[0, 1])
    if correlation < UNRELATED_CORRELATION:
        yield (
            f"the lengths of sources and targets are unrelated (correlation {correlation:.2f}): "
            "translations line by line are not like that; are the lines of the two sides in the "
            "same order?"
        )


def translation_scores(
    outputs: Sequence[str],
    references: References,
    config: EvaluationConfig,
    orders: Mapping[str, int] = BLEU_4,
) -> dict[str, Any]:
    """sacreBLEU's BLEU and chrF with their signatures, and the share of outputs that equal a
    reference exactly. `orders` has the longest n-gram of each BLEU, by its name."""
    check_tokenisation(config)
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    outputs = [comparable(text, config.lowercase) for text in outputs]
    allowed = [[comparable(text, config.lowercase) for text in texts] for texts in references]
    streams: list[Any] = [list(stream) for stream in zip_longest(*allowed)]
    chrf = CHRF(lowercase=config.lowercase)
    bleu = {
        name: BLEU(
            lowercase=config.lowercase,
            tokenize=config.tokenize,
            max_ngram_order=order,
            force=True,  # no warning of tokenised text: `check` and `evaluate` have notes on it
        )
        for name, order in orders.items()
    }
    exact = sum(output in texts for output, texts in zip(outputs, allowed, strict=True))
    return {
        **{name: metric.corpus_score(outputs, streams).score for name, metric in bleu.items()},
        "chrf": chrf.corpus_score(outputs, streams).score,
        "exact_match": exact / len(outputs),
        "bleu_signature": str(bleu["bleu"].get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def check_tokenisation(config: EvaluationConfig) -> None:
    """Refuse a tokenisation that needs a library which is not installed."""
    if config.tokenize == "ja-mecab":
        where = "evaluation.tokenize"
        import_extra("MeCab", extra="japanese", where=where, doing="measuring with")
