"""One-hot vectors, bags of words and TF-IDF: texts as counts of their words, for logistic regression.

Salton & Buckley 1988, "Term-weighting approaches in automatic text retrieval", Information Processing
& Management 24(5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Padded
from regard.models.base import Contextual, ModelConfig, Presets, real_BL


class BagOfWordsConfig(ModelConfig):
    """Bag of words: one-hot, counts or TF-IDF, under a linear head."""

    PRESETS: ClassVar[Presets] = {"base": {}}
    reads = "text"
    represents = "texts"
    head_pooling = "first"
    head_defaults: ClassVar[dict[str, Any]] = {"dropout": 0.0}
    layers: ClassVar[int] = 0

    kind: Literal["bag_of_words"] = "bag_of_words"
    preset: Literal["base"] = "base"
    """The only one: the width is the size of the vocabulary."""
    weights: Literal["one_hot", "counts", "tf_idf"] = "tf_idf"
    """The number of a word in the vector of a text. `one_hot`: 1 if it occurs; `counts`: how often it
    occurs; `tf_idf`: the same, times how rare the word is in the training texts, in a vector of
    length 1."""
    stop_words: int = Field(0, ge=0)
    """Words that are left out: so many of those that occur in most training texts."""

    @property
    def learning_rate(self) -> float:
        return 3e-2


class BagOfWords(Contextual):
    """One vector x for a text, as wide as the vocabulary; the order of the words is lost.

    With n_v the number of times that the text has the word v, N training texts, N_v of which have v:
        one_hot    x_v = [n_v > 0]
        counts     x_v = n_v
        tf_idf     x_v = n_v idf_v / sqrt(sum_u (n_u idf_u)^2)
        idf_v      = 1 + ln((1 + N) / (1 + N_v))

    Under the head of a classifier this is multinomial logistic regression:
        P(y | x) = softmax(W x + b)_y

    A token that stands in every training text, such as `</s>`, says nothing and is left out, like
    stop words.
    """

    config: BagOfWordsConfig
    idf_V: Tensor

    def __init__(self, config: BagOfWordsConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = vocabulary_size
        self.depth = 0
        # zeros for the words that are left out
        self.register_buffer("idf_V", torch.ones(vocabulary_size))
        self.output = None

    @torch.no_grad()
    def count(self, texts: Iterable[Padded]) -> None:
        """Set idf from the training texts, and choose the words that are left out."""
        texts_V = torch.zeros_like(self.idf_V)
        count = 0
        for text in texts:
            texts_V += (self.counts(text) > 0).sum(0).to(texts_V)
            count += len(text)
        idf_V = 1 + ((1 + count) / (1 + texts_V)).log()
        words_V = texts_V * (texts_V < count)
        stop_words = min(self.config.stop_words, int((words_V > 0).sum()))
        left_out_V = texts_V == count
        left_out_V[words_V.topk(stop_words).indices] = True
        self.idf_V.copy_(idf_V.masked_fill(left_out_V, 0))

    def counts(self, text: Padded) -> Tensor:
        """n, the number of times that each text has each word: [B, V]."""
        n_BV = self.idf_V.new_zeros(len(text), self.width)
        return n_BV.scatter_add_(1, text.ids_BL, real_BL(text).to(n_BV))

    def states(self, batch: Any) -> Tensor:
        """x, as the only vector of each text: [B, 1, V]."""
        n_BV = self.counts(batch.text)
        if self.config.weights == "tf_idf":
            return F.normalize(n_BV * self.idf_V, dim=1)[:, None]
        x_BV = n_BV * (self.idf_V > 0)
        return (x_BV.clamp(max=1) if self.config.weights == "one_hot" else x_BV)[:, None]

    def layers_of(self, batch: Any) -> list[Tensor]:
        return [self.states(batch)]
