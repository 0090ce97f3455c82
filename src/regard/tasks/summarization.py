"""Summarization: a document in, its summary or headline out."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.config import Config
from regard.data.config import Corpus, Recipe, TextPairs
from regard.data.corpora import Part
from regard.data.dataset import Dataset
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


class Summarized(Corpus):
    """Documents and their summaries."""

    READ_AS: ClassVar[Mapping[str, str]] = {"document": "source", "summary": "target"}

    document: str | int | None = None
    """The texts to read: a file of their own, a folder of such files, or the column's name or
    number in `file`."""
    summary: str | int | None = None
    """The texts to write: given like those to read."""


class RougeConfig(Config):
    """How summaries are measured against references."""

    tokenize: Literal["words", "characters"] = "words"
    """The units that ROUGE counts: words between spaces and signs, or characters, which suit Korean
    with its particles."""
    lowercase: bool = True
    """Whether upper and lower case are treated alike."""


class Summarization(Task):
    """Documents and summaries, measured by ROUGE."""

    name = "summarization"
    data = TextPairs[Summarized]
    evaluation = RougeConfig
    models = SOURCE_MODELS
    vocabularies = ("source", "target")
    lower_is_better = ("loss", "perplexity")
    higher_is_better = ("rouge1", "rouge2", "rougeL")
    writes = "targets"
    has_flat_batches = True

    make_encoding = staticmethod(text_pair_encoding)

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        set_text_pair_parts(self, partial(rouge, config=recipe.evaluation))

    def objective(self, model: Generator) -> TokenCrossEntropy:
        return token_loss(model, self.recipe)

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
        return read_pairs(self, corpora, part, base)


def rouge(outputs: Sequence[str], references: References, config: RougeConfig) -> dict[str, Any]:
    """The means of ROUGE-1, ROUGE-2 and ROUGE-L F1 over the documents, from 0 to 100."""
    scores = []
    for texts in zip(outputs, (first for first, *_ in references), strict=True):
        output, reference = (tokens_of(text, config.tokenize, config.lowercase) for text in texts)
        scores.append(
            (
                rouge_n(output, reference, 1),
                rouge_n(output, reference, 2),
                rouge_l(output, reference),
            )
        )
    means = [100 * sum(column) / len(scores) for column in zip(*scores, strict=True)]
    case = "lower" if config.lowercase else "mixed"
    return {
        **dict(zip(("rouge1", "rouge2", "rougeL"), means, strict=True)),
        "rouge_signature": f"nrefs:1|case:{case}|tok:{config.tokenize}|stem:no|f1:mean",
    }


def tokens_of(text: str, tokenize: Literal["words", "characters"], lowercase: bool) -> list[str]:
    """Words, or their characters (Korean syllables); signs that are neither letter nor digit only
    separate words."""
    signs = (
        sign if unicodedata.category(sign)[0] in "LMN" else " "
        for sign in comparable(text, lowercase)
    )
    words = "".join(signs).split()
    return words if tokenize == "words" else list("".join(words))


def rouge_n(output: Sequence[str], reference: Sequence[str], n: int) -> float:
    """F1 of the n-grams, each counted as often as both sides have it."""
    ours, theirs = (
        Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))
        for tokens in (output, reference)
    )
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(output: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence."""
    return _f1(common_subsequence(output, reference), len(output), len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a row of its table at once in the bits of one
    number.

    Hyyro 2004, "Bit-Parallel LCS-length Computation Revisited": bit i of V is 0 where the row rises
    after first[i].
    """
    places: dict[str, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    every = V = (1 << len(first)) - 1
    for token in second:
        U = V & places.get(token, 0)
        V = (V + U | V - U) & every
    return len(first) - V.bit_count()


def _f1(common: int, output: int, reference: int) -> float:
    """2 P R / (P + R) with P = common / output and R = common / reference."""
    return 2 * common / (output + reference) if common else 0.0
