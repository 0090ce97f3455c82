"""Pennington et al. 2014, "GloVe: Global vectors for word representation", EMNLP,
https://aclanthology.org/D14-1162."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Padded, TextBatch
from regard.layers.embeddings import Embedding
from regard.layers.sized_by_text import SizedByText, values_of
from regard.models.base import Contextual, ModelConfig, Output, Presets, real_BL


class GloVeConfig(ModelConfig):
    """Static word vectors fitted to the logarithms of co-occurrences (Pennington 2014)."""

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

    kind: Literal["glove"] = "glove"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    width: int = Field(100, ge=1)
    """Width of a word vector."""
    window: int = Field(10, ge=1)
    """Words co-occur up to this distance d; such a pair counts 1 / d."""
    x_max: float = Field(100.0, gt=0)
    """Pairs that co-occur as often as this, or more often, all have the weight 1."""
    alpha: float = Field(0.75, gt=0, le=1)
    """The weight of a rarer pair is (x / x_max)^alpha."""

    @property
    def learning_rate(self) -> float:
        return 1e-2


class Pairs(NamedTuple):
    """Words within a window of each other, in both orders."""

    first_P: Tensor
    second_P: Tensor
    share_P: Tensor  # 1 / distance


def pairs_of(text: Padded, window: int) -> Pairs:
    """Every pair of words of a text that are at most `window` apart."""
    ids_BL = text.ids_BL
    is_real_BL = real_BL(text)
    first, second, share = [], [], []
    for distance in range(1, min(window, ids_BL.shape[1] - 1) + 1):
        both_BL = is_real_BL[:, distance:]  # padding is on the right
        left_P = ids_BL[:, :-distance][both_BL]
        right_P = ids_BL[:, distance:][both_BL]
        first += [left_P, right_P]
        second += [right_P, left_P]
        share.append(torch.full((2 * len(left_P),), 1 / distance, device=ids_BL.device))
    if not first:
        none_P = ids_BL.new_zeros(0)
        return Pairs(none_P, none_P, none_P.float())
    return Pairs(torch.cat(first), torch.cat(second), torch.cat(share))


class Cooccurrences(SizedByText):
    """X, how often each word occurs near each other word: only the numbers above 0, sorted by i V +
    j."""

    keys_G: Tensor
    X_G: Tensor

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        self.register_buffer("keys_G", torch.zeros(0, dtype=torch.long))
        self.register_buffer("X_G", torch.zeros(0))

    def keys(self, pairs: Pairs) -> Tensor:
        return pairs.first_P * self.vocabulary_size + pairs.second_P

    @torch.no_grad()
    def fit(self, texts: Iterable[Padded], window: int) -> None:
        """X_ij = the sum of 1 / d over the occurrences of j at a distance d from i."""
        keys_G, X_G = self.keys_G.new_zeros(0), self.X_G.new_zeros(0)
        for text in texts:
            pairs = pairs_of(text, window)
            every_N = torch.cat([keys_G, self.keys(pairs)])
            added_N = torch.cat([X_G, pairs.share_P.to(X_G)])
            keys_G, rows_N = torch.unique(every_N, return_inverse=True)
            X_G = added_N.new_zeros(len(keys_G)).index_add(0, rows_N, added_N)
        self.keys_G, self.X_G = keys_G, X_G

    def forward(self, pairs: Pairs) -> Tensor:
        """X_ij of each pair; 0 if the training texts do not have it. [P]."""
        return values_of(self.keys_G, self.keys(pairs), self.X_G)


class PairCounts(nn.Module):
    """What only the training needs: the counts X, and the biases b and b~ of each word."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.b_V = nn.Parameter(torch.zeros(vocabulary_size))
        self.b_tilde_V = nn.Parameter(torch.zeros(vocabulary_size))
        self.cooccurrences = Cooccurrences(vocabulary_size)

    def initialise_bias(self, counts_V: Tensor) -> None:
        """Both biases begin at 0, whatever the counts of single words."""

    def biases(self, pairs: Pairs) -> Tensor:
        """b_i + b~_j, [P]."""
        return self.b_V[pairs.first_P] + self.b_tilde_V[pairs.second_P]


class BothVectors(nn.Module):
    """w + w~, the vector of a word and its vector as a neighbour: section 4.2 adds them."""

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__()
        self.words = Embedding(vocabulary_size, width)
        self.neighbours = Embedding(vocabulary_size, width)

    def forward(self, ids_BL: Tensor) -> Tensor:
        return self.words(ids_BL) + self.neighbours(ids_BL)


class GloVe(Contextual):
    """Two vectors w and w~ and two biases b and b~ for each word: w_i . w~_j + b_i + b~_j becomes the
    logarithm of X_ij. Its loss is `WeightedLeastSquares` (objectives/glove.py)."""

    config: GloVeConfig

    def __init__(self, config: GloVeConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        self.depth = 0
        self.embedding = BothVectors(vocabulary_size, config.width)
        self.output = PairCounts(vocabulary_size)

    def count(self, texts: Iterable[Padded]) -> None:
        """Count X in the training texts."""
        if self.output is not None:
            self.output.cooccurrences.fit(texts, self.config.window)

    def log_counts(self, pairs: Pairs) -> Tensor:
        """w_i . w~_j + b_i + b~_j for each pair, [P]."""
        w_PD = self.embedding.words(pairs.first_P)
        w_tilde_PD = self.embedding.neighbours(pairs.second_P)
        return (w_PD * w_tilde_PD).sum(1) + self.output.biases(pairs)

    def forward(self, batch: TextBatch) -> Output:
        return Output(self.states(batch))

    def layers_of(self, batch: Any) -> list[Tensor]:
        return [self.embedding(batch.text.ids_BL)]
