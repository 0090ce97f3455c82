"""Mikolov et al. 2013, "Distributed representations of words and phrases", arXiv:1310.4546:
word2vec."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import TextBatch
from regard.layers.embeddings import Embedding
from regard.models.base import Contextual, ModelConfig, Output, Presets


class Word2VecConfig(ModelConfig):
    """Static word vectors: skip-gram with negative sampling (Mikolov 2013)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64},
        "small": {"width": 100},
        "base": {"width": 300},
    }
    reads = "text"
    pretraining = "surrounding"
    local = True
    equal_layers = True
    head_pooling = "mean"
    layers: ClassVar[int] = 0

    kind: Literal["word2vec"] = "word2vec"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    width: int = Field(100, ge=1)
    """Width of a word vector."""
    window: int = Field(5, ge=1)
    """A word predicts its neighbours up to a distance that is drawn from 1 to this number, so near
    ones count more."""
    negatives: int = Field(5, ge=1)
    """Words that are drawn at random for each neighbour, to be told from it."""
    subsampling: float = Field(1e-3, gt=0)
    """Words whose share of the text is larger than this are skipped at random, the more the more
    frequent they are."""

    @property
    def learning_rate(self) -> float:
        return 1e-2


class Neighbours(nn.Module):
    """The vectors u of words as neighbours, and how often each word occurs in the training text."""

    counts_V: Tensor

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocabulary_size, width))
        self.register_buffer("counts_V", torch.ones(vocabulary_size))

    def initialise_bias(self, counts_V: Tensor) -> None:
        """Keep the counts, as other readouts keep their logarithms in a bias."""
        self.counts_V.copy_(counts_V)

    @property
    def noise_V(self) -> Tensor:
        """P_n(w), from which negatives are drawn: count(w)^(3/4), normalised (section 2.2)."""
        powers_V = self.counts_V**0.75
        return powers_V / powers_V.sum()

    def kept_V(self, threshold: float) -> Tensor:
        """The probability that an occurrence of a word is kept: sqrt(threshold / f(w)) (equation
        5)."""
        return (threshold * self.counts_V.sum() / self.counts_V.clamp(min=1)).sqrt().clamp(max=1)

    def forward(self, v: Tensor) -> Tensor:
        """u_w . v for every word w: [..., D] -> [..., V]."""
        return v @ self.weight.T


class Word2Vec(Contextual):
    """A vector v for each word, the same in every context. Its loss is `SkipGram`
    (objectives/language_model.py)."""

    config: Word2VecConfig

    def __init__(self, config: Word2VecConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        self.depth = 0
        self.embedding = Embedding(vocabulary_size, config.width)
        self.output = Neighbours(vocabulary_size, config.width)

    def forward(self, batch: TextBatch) -> Output:
        return Output(self.embedding(batch.text.ids_BL))

    def layers_of(self, batch: Any) -> list[Tensor]:
        return [self.embedding(batch.text.ids_BL)]
