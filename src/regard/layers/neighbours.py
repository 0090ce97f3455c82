"""The output vectors of word2vec: how often each word occurs, and the vectors u by which words are
predicted."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.sized_by_text import SizedByText


class WordCounts(SizedByText):
    """How often each word occurs in the training text.

    Mikolov et al. 2013, arXiv:1310.4546, section 2.3.
    """

    counts_V: Tensor

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.register_buffer("counts_V", torch.ones(vocabulary_size))

    def initialise_bias(self, counts_V: Tensor) -> None:
        """Keep the counts, as other readouts keep their logarithms in a bias."""
        self.counts_V.copy_(counts_V)

    def kept_V(self, threshold: float) -> Tensor:
        """The probability that an occurrence of a word is kept: sqrt(threshold / f(w)) (equation
        5)."""
        return (threshold * self.counts_V.sum() / self.counts_V.clamp(min=1)).sqrt().clamp(max=1)


class Neighbours(WordCounts):
    """The vectors u of predicted words, for negative sampling."""

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__(vocabulary_size)
        self.weight = nn.Parameter(torch.zeros(vocabulary_size, width))

    @property
    def noise_V(self) -> Tensor:
        """P_n(w), from which negatives are drawn: count(w)^(3/4), normalised (section 2.2)."""
        powers_V = self.counts_V**0.75
        return powers_V / powers_V.sum()

    def forward(self, h: Tensor) -> Tensor:
        """u_w . h for every word w: [..., D] -> [..., V]."""
        return h @ self.weight.T
