"""One vector a token from all layers of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LayerMix(nn.Module):
    """A weighted mean of layers, of which the task at hand learns the weights.

    Peters et al. 2018, arXiv:1802.05365, equation 1:
        ELMo_k = gamma * sum_j softmax(s)_j h_kj
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights_N(self) -> Tensor:
        """What share each layer has."""
        return self.s.softmax(0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Layers of the same shape, the first one's weight first."""
        mixed: Tensor = self.gamma * torch.einsum("n,n...->...", self.weights_N, torch.stack(list(layers)))
        return mixed
