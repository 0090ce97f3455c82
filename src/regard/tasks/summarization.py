"""Summarization: a document in, its summary or headline out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from regard.config import Config
from regard.data.config import Corpus, Data
from regard.tasks.metrics import rouge_l, rouge_n, tokens_of
from regard.tasks.text_to_text import TextToText


class Summarized(Corpus):
    """Documents and their summaries."""

    READ_AS: ClassVar[Mapping[str, str]] = {"document": "source", "summary": "target"}

    document: str | int | None = None
    """What is read: a file of its own, or the column's name or number in `file`."""
    summary: str | int | None = None
    """What is to be written: likewise."""


class RougeConfig(Config):
    """How summaries are measured against references."""

    tokenize: Literal["words", "characters"] = "words"
    """What ROUGE counts: words between spaces and signs, or characters, which suit Korean with its particles."""
    lowercase: bool = True
    """Whether upper and lower case are the same."""


class Summarization(TextToText):
    """Documents and summaries, measured by ROUGE."""

    name = "summarization"
    data = Data[Summarized]
    evaluation = RougeConfig
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False,
        "perplexity": False,
        "rouge1": True,
        "rouge2": True,
        "rougeL": True,
    }

    decoded = frozenset(("rouge1", "rouge2", "rougeL"))

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[str], config: RougeConfig) -> dict[str, Any]:
        """The means of ROUGE-1, ROUGE-2 and ROUGE-L F1 over the documents, from 0 to 100."""
        pairs = [
            tuple(tokens_of(text, config.tokenize, config.lowercase) for text in pair)
            for pair in zip(outputs, references, strict=True)
        ]
        case = "lower" if config.lowercase else "mixed"
        return {
            "rouge1": 100 * sum(rouge_n(output, reference, 1) for output, reference in pairs) / len(pairs),
            "rouge2": 100 * sum(rouge_n(output, reference, 2) for output, reference in pairs) / len(pairs),
            "rougeL": 100 * sum(rouge_l(output, reference) for output, reference in pairs) / len(pairs),
            "rouge_signature": f"nrefs:1|case:{case}|tok:{config.tokenize}|stem:no|f1:mean",
        }
