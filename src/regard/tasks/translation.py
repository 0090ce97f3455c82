"""Translation: a text in, another text out. Also chat, spelling, dates: whatever has pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from regard.config import Config
from regard.data.config import Corpus, Data
from regard.tasks.text_to_text import TextToText
from regard.text.normalise import comparable


class Parallel(Corpus):
    """Pairs of texts."""

    source: str | int | None = None
    """What is read: a file of its own, or the column's name or number in `file`."""
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
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False,
        "perplexity": False,
        "bleu": True,
        "chrf": True,
        "exact_match": True,
    }

    decoded = frozenset(("bleu", "chrf", "exact_match"))

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[str], config: EvaluationConfig) -> dict[str, Any]:
        """sacreBLEU's BLEU and chrF with their signatures, and the share of outputs that are the reference exactly."""
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        bleu = BLEU(lowercase=config.lowercase, tokenize=config.tokenize)
        chrf = CHRF(lowercase=config.lowercase)
        outputs, references = ([comparable(text, config.lowercase) for text in side] for side in (outputs, references))
        return {
            "bleu": bleu.corpus_score(outputs, [references]).score,
            "chrf": chrf.corpus_score(outputs, [references]).score,
            "exact_match": sum(o == r for o, r in zip(outputs, references, strict=True)) / len(outputs),
            "bleu_signature": str(bleu.get_signature()),
            "chrf_signature": str(chrf.get_signature()),
        }
