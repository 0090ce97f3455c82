"""Dropout that is the same at all steps of a text, for recurrent layers."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class LockedDropout(nn.Module):
    """Gal & Ghahramani 2016, arXiv:1512.05287: one mask a row, whatever the number of steps."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x_BLD: Tensor) -> Tensor:
        if not (self.training and self.rate):
            return x_BLD
        return x_BLD * F.dropout(x_BLD.new_ones(x_BLD.shape[0], 1, x_BLD.shape[2]), self.rate)
