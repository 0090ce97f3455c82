"""Every variant of every model with the same interface, for the contract battery: how it is built,
and what it reads.

A family reads one kind of batch (`ModelConfig.reads`). Its examples have different lengths, so that
batches are padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import captioner_cases
import language_model_cases
import model_cases
from labelled_cases import labelled_batch_of
from model_cases import SOURCES, TARGETS, tokens_of, with_weights_that_matter
from regard.data.batches import Padded, StoryBatch, spelled
from regard.data.images import images_of
from regard.models.bag_of_words import BagOfWordsConfig
from regard.models.base import ModelConfig
from regard.models.fasttext import FastTextConfig
from regard.models.glove import GloVeConfig
from regard.models.headed import HeadConfig, Headed, TextHead, build_base
from regard.models.memory_network import MemoryNetworkConfig
from regard.models.text_classifiers import BiLSTMConfig, CNNConfig
from regard.models.word2vec import Word2VecConfig
from regard.objectives.cross_entropy import Objective, TokenCrossEntropy
from regard.objectives.labels import AnswerCrossEntropy, ClassCrossEntropy
from regard.text.vocabularies import BEGIN, PAD

ROWS = (0, 1, 2)
"""The first examples, which every family has."""


@dataclass(frozen=True)
class Case:
    """One variant of a model, and its examples."""

    name: str
    config: ModelConfig

    @property
    def kind(self) -> str:
        return self.config.kind

    def build(self, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
        """A model in evaluation mode, with weights that all matter."""
        return model_cases.build(self.config.model_copy(update=changes), seed, dtype)

    def batch(self, rows: Sequence[int] = ROWS, *, extra: int = 0, filler: int = PAD) -> Any:
        """Some of the examples, padded `extra` positions beyond the longest with the token
        `filler`."""
        raise NotImplementedError

    def distinct_batch(self) -> Any:
        """Examples that can be learned by heart."""
        return self.batch()

    def objective(self, model: nn.Module, smoothing: float = 0.0) -> Objective:
        raise NotImplementedError

    def outputs(self, model: Any, batch: Any, rows: Sequence[int] = ROWS) -> list[Tensor]:
        """The logits of each example at its real positions."""
        with torch.no_grad():
            logits_BTV = model.readout(model(batch).hidden_BTD)
        return [
            logits_TV[: self.length(row)] for logits_TV, row in zip(logits_BTV, rows, strict=True)
        ]

    def length(self, row: int) -> int:
        """The number of positions with an output."""
        return len(TARGETS[row]) - 1


class SourceCase(Case):
    def batch(self, rows: Sequence[int] = ROWS, *, extra: int = 0, filler: int = PAD) -> Any:
        pairs = [SOURCES[row] for row in rows], [TARGETS[row] for row in rows]
        return model_cases.batch_of(*pairs, extra=extra, filler=filler)

    def objective(self, model: Any, smoothing: float = 0.0) -> Objective:
        return TokenCrossEntropy(model, smoothing)

    # What decoding needs: sources, and target prefixes without `<s>` and `</s>`

    def sources(self, rows: Sequence[int], extra: int = 0) -> Padded:
        return tokens_of([SOURCES[row] for row in rows], extra=extra, filler=9 if extra else PAD)

    def continued(self, pairs: Sequence[tuple[int, Sequence[int]]], extra: int = 0) -> Any:
        """Sources with an output each -> a batch for a forward pass."""
        targets = [[BEGIN, *ids] for _, ids in pairs]
        return model_cases.batch_of([SOURCES[row] for row, _ in pairs], targets, extra=extra)

    def before(self, row: int) -> int:
        """How many positions of a forward pass come before the output."""
        return 0


class ImageCase(SourceCase):
    @property
    def pictures(self) -> list[Any]:
        return captioner_cases.pictures_of(self.config)  # type: ignore[arg-type]

    def batch(self, rows: Sequence[int] = ROWS, *, extra: int = 0, filler: int = PAD) -> Any:
        pictures = [self.pictures[row] for row in rows]
        return captioner_cases.batch_of(pictures, [TARGETS[row] for row in rows], extra=extra)

    def objective(self, model: Any, smoothing: float = 0.0) -> Objective:
        return TokenCrossEntropy(model, smoothing, doubly_stochastic=0.01)

    def sources(self, rows: Sequence[int], extra: int = 0) -> Padded:
        return images_of([self.pictures[row] for row in rows])

    def continued(self, pairs: Sequence[tuple[int, Sequence[int]]], extra: int = 0) -> Any:
        pictures = [self.pictures[row] for row, _ in pairs]
        return captioner_cases.batch_of(pictures, [[BEGIN, *ids] for _, ids in pairs], extra=extra)


PROMPTS = [[BEGIN, 4, 5], [BEGIN], [BEGIN, 12, 11, 10, 9], [BEGIN, 6]]


class TextCase(SourceCase):
    """A pre-trained model of single texts; for decoding its sources are prompts."""

    def batch(self, rows: Sequence[int] = ROWS, *, extra: int = 0, filler: int = PAD) -> Any:
        if self.config.segments:
            return language_model_cases.masked_batch(rows, extra=extra, filler=filler)
        texts = [language_model_cases.TEXTS[row] for row in rows]
        return language_model_cases.text_batch(texts, extra=extra, filler=filler)

    def distinct_batch(self) -> Any:
        """No two texts begin or end alike: their first and last tokens could only be guessed."""
        texts = [[4, 5, 6, 7], [8, 9, 10], [12, 11, 4, 5]]
        return self.batch() if self.config.segments else language_model_cases.text_batch(texts)

    def build(self, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
        model = super().build(seed, dtype, **changes)
        model.count(iter([language_model_cases.text_batch().text]))
        return model

    def objective(self, model: Any, smoothing: float = 0.0) -> Objective:
        return language_model_cases.objective_for(self.name, model, smoothing)

    def length(self, row: int) -> int:
        text = (language_model_cases.PAIRS if self.config.segments else language_model_cases.TEXTS)[
            row
        ]
        return len(text) - self.config.generates

    def sources(self, rows: Sequence[int], extra: int = 0) -> Padded:
        return tokens_of([PROMPTS[row] for row in rows], extra=extra, filler=9 if extra else PAD)

    def continued(self, pairs: Sequence[tuple[int, Sequence[int]]], extra: int = 0) -> Any:
        return language_model_cases.text_batch(
            [[*PROMPTS[row], *ids] for row, ids in pairs], extra=extra
        )

    def before(self, row: int) -> int:
        return len(PROMPTS[row]) - 1


class ClassifierCase(Case):
    """A model that is only trained under a head: texts with a class each."""

    texts = ([4, 5, 6, 7, 8], [9, 10], [12, 11, 10, 9, 8, 7, 6])

    def build(self, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
        torch.manual_seed(seed)
        options: dict[str, Any] = {}
        if self.config.letters is not None:
            words = [f"word{token}" for token in range(13)]
            options["characters_VC"] = spelled(words, self.config.letters)
        config = self.config.model_copy(update=changes)
        base = build_base(config, 13, keep_readout=False, **options)

        def head(width: int) -> TextHead:
            pooling = self.config.head_pooling
            return TextHead(width, 3, pooling=pooling, pooler=None, dropout=0.0)

        return with_weights_that_matter(Headed(base, HeadConfig(), head).to(dtype), 0.1)

    def batch(self, rows: Sequence[int] = ROWS, *, extra: int = 0, filler: int = PAD) -> Any:
        return labelled_batch_of(
            [self.texts[row] for row in rows], list(rows), extra=extra, filler=filler
        )

    def objective(self, model: Any, smoothing: float = 0.0) -> Objective:
        return ClassCrossEntropy(model, smoothing=smoothing)

    def outputs(self, model: Any, batch: Any, rows: Sequence[int] = ROWS) -> list[Tensor]:
        with torch.no_grad():
            return list(model(batch))


class StoryCase(Case):
    stories = ([[4, 5, 6], [7, 5, 8], [4, 9]], [[10, 5]], [[6, 5, 4, 9], [8, 7]])
    questions = ([6, 4], [9], [4, 5, 6])

    def batch(self, rows: Sequence[int] = ROWS, *, extra: int = 0, filler: int = PAD) -> Any:
        """Times 0 mark sentences that are padding, whatever their words."""
        most = max(len(self.stories[row]) for row in rows) + extra
        words = (
            max(len(text) for row in rows for text in (*self.stories[row], self.questions[row]))
            + extra
        )
        pad = lambda ids, token: [*ids, *[token] * (words - len(ids))]  # noqa: E731
        stories = [
            [
                *(pad(text, PAD) for text in self.stories[row]),
                *[pad([], filler)] * (most - len(self.stories[row])),
            ]
            for row in rows
        ]
        times = [
            [*range(len(self.stories[row]), 0, -1), *[0] * (most - len(self.stories[row]))]
            for row in rows
        ]
        questions = [pad(self.questions[row], PAD) for row in rows]
        parts = (
            torch.tensor(part) for part in (stories, times, questions, [7 + row for row in rows])
        )
        return StoryBatch(*parts, tokens=len(rows))

    def objective(self, model: Any, smoothing: float = 0.0) -> Objective:
        return AnswerCrossEntropy(model, smoothing)

    def outputs(self, model: Any, batch: Any, rows: Sequence[int] = ROWS) -> list[Tensor]:
        with torch.no_grad():
            return list(model(batch).logits_BIV)


NETWORK = {"kind": "memory_network", "width": 5, "sentences": 6}
CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *(SourceCase(name, config) for name, config in model_cases.CASES.items()),
        *(ImageCase(f"captioner-{name}", config) for name, config in captioner_cases.CASES.items()),
        StoryCase("memory_network", MemoryNetworkConfig(**NETWORK)),
        StoryCase(
            "memory_network-layer-wise",
            MemoryNetworkConfig(**NETWORK, tie="layer_wise", restarts=2),
        ),
        *(TextCase(name, config) for name, config in language_model_cases.CASES.items()),
        ClassifierCase("bilstm", BiLSTMConfig(embedding=8, hidden=6, layers=2, dropout=0.0)),
        ClassifierCase("bag_of_words", BagOfWordsConfig(weights="counts")),
        ClassifierCase("word2vec", Word2VecConfig(width=8)),
        ClassifierCase("glove", GloVeConfig(width=8)),
        ClassifierCase("fasttext", FastTextConfig(width=8, buckets=40)),
        ClassifierCase("cnn", CNNConfig(embedding=8, widths=[2, 3], maps=6)),
        ClassifierCase("cnn-ngrams", CNNConfig(embedding=8, widths=[2, 3], maps=6, ngrams=40)),
    )
}
WRITERS: dict[str, SourceCase] = {
    name: case
    for name, case in CASES.items()
    if isinstance(case, SourceCase)
    and case.config.generates
    and not getattr(case.config, "look_ahead", False)
}
"""The models that write text, without the ablation that reads the future."""
