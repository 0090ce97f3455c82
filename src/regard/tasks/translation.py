"""Translation: a text in, another text out. Also chat, spelling, dates: whatever has pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, Literal

from regard.config import Config
from regard.data.config import Corpus, Data
from regard.tasks.text_to_text import References, TextToText
from regard.text.normalise import comparable


class Parallel(Corpus):
    """Pairs of texts."""

    source: str | int | None = None
    """What is read: a file of its own, a folder of such files, or the column's name or number in `file`."""
    target: str | int | None = None
    """What is to be written: likewise."""


class EvaluationConfig(Config):
    """How outputs are measured against references."""

    lowercase: bool = False
    """Whether BLEU, chrF and exact match take upper and lower case for the same."""
    tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a"
    """sacreBLEU's tokenisation, of those that need nothing else installed; `char` suits Korean."""


class Translation(TextToText):
    """Pairs of texts, measured by BLEU, chrF and exact match."""

    name = "translation"
    data = Data[Parallel]
    evaluation = EvaluationConfig
    higher_is_better: ClassVar[tuple[str, ...]] = ("bleu", "chrf", "exact_match")

    orders: ClassVar[Mapping[str, int]] = {"bleu": 4}
    """The longest n-gram of each BLEU."""

    @classmethod
    def metrics(cls, outputs: Sequence[str], references: References, config: EvaluationConfig) -> dict[str, Any]:
        """sacreBLEU's BLEU and chrF with their signatures, and the share of outputs that equal a reference exactly."""
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        outputs = [comparable(text, config.lowercase) for text in outputs]
        allowed = [[comparable(text, config.lowercase) for text in texts] for texts in references]
        streams: list[Any] = [list(stream) for stream in zip_longest(*allowed)]
        chrf = CHRF(lowercase=config.lowercase)
        bleu = {
            name: BLEU(lowercase=config.lowercase, tokenize=config.tokenize, max_ngram_order=order)
            for name, order in cls.orders.items()
        }
        return {
            **{name: metric.corpus_score(outputs, streams).score for name, metric in bleu.items()},
            "chrf": chrf.corpus_score(outputs, streams).score,
            "exact_match": sum(output in texts for output, texts in zip(outputs, allowed, strict=True)) / len(outputs),
            "bleu_signature": str(bleu["bleu"].get_signature()),
            "chrf_signature": str(chrf.get_signature()),
        }
