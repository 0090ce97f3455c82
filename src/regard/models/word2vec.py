"""Mikolov et al. 2013, "Efficient estimation of word representations in vector space",
arXiv:1301.3781, and "Distributed representations of words and phrases", arXiv:1310.4546:
word2vec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from regard.data.batches import TextBatch
from regard.layers.embeddings import Embedding
from regard.layers.huffman import HuffmanTree
from regard.layers.neighbours import Neighbours
from regard.models.base import Contextual, ModelConfig, Output, Presets


class WindowConfig(ModelConfig):
    """The base of the configs of models that learn a word from the words around it."""

    reads = "text"
    pretraining = "surrounding"
    local = True
    equal_layers = True
    head_pooling = "mean"
    layers: ClassVar[int] = 0

    method: Literal["skip_gram", "cbow"] = "skip_gram"
    """`skip_gram`: a word predicts each of its neighbours; `cbow`, continuous bag of words: the mean
    of the neighbours' vectors predicts the word between them."""
    loss: Literal["negative_sampling", "hierarchical_softmax"] = "negative_sampling"
    """Instead of a softmax over the vocabulary. `negative_sampling`: the predicted word is to be told
    from words that are drawn at random; `hierarchical_softmax`: the word is found by the decisions on
    its path through a Huffman tree."""
    width: int = Field(100, ge=1)
    """Width of a word vector."""
    window: int = Field(5, ge=1)
    """How far neighbours may be from the word: for each word a distance from 1 to this number is
    drawn, so near ones count more."""
    negatives: int = Field(5, ge=1)
    """Words that negative sampling draws at random for each predicted word."""
    subsampling: float = Field(1e-3, gt=0)
    """Words whose share of the text is larger than this are skipped at random, the more the more
    frequent they are."""

    if TYPE_CHECKING:
        preset: str

    @property
    def learning_rate(self) -> float:
        return 1e-2


class Word2VecConfig(WindowConfig):
    """Static word vectors: skip-gram or continuous bag of words (Mikolov 2013)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64},
        "small": {"width": 100},
        "base": {"width": 300},
    }

    kind: Literal["word2vec"] = "word2vec"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""


def output_vectors(config: WindowConfig, vocabulary_size: int) -> Neighbours | HuffmanTree:
    """The vectors by which a loss predicts words."""
    if config.loss == "hierarchical_softmax":
        return HuffmanTree(vocabulary_size, config.width)
    return Neighbours(vocabulary_size, config.width)


class Word2Vec(Contextual):
    """A vector v for each word, the same in every context. Its losses are `SkipGram`
    (objectives/skip_gram.py) and `ContinuousBagOfWords` (objectives/cbow.py)."""

    config: Word2VecConfig

    def __init__(self, config: Word2VecConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        self.depth = 0
        self.embedding = Embedding(vocabulary_size, config.width)
        self.output = output_vectors(config, vocabulary_size)

    def forward(self, batch: TextBatch) -> Output:
        return Output(self.embedding(batch.text.ids_BL))

    def layers_of(self, batch: Any) -> list[Tensor]:
        return [self.embedding(batch.text.ids_BL)]
