"""Where a token stands, for models that would not know."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import DecodeError

PositionKind = Literal["sinusoidal", "learned", "none"]


def sinusoidal_positions(length: int, width: int, first: int = 0) -> Tensor:
    """Waves whose lengths form a geometric progression from 2 pi to 10000 * 2 pi.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5:
        PE(pos, 2i)   = sin(pos / 10000^(2i / d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i / d_model))
    """
    position_L1 = torch.arange(first, first + length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = position_L1 * frequency
    encoding_LD = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
    return encoding_LD.float()


class Positions(nn.Module):
    """Add to each token what says where it stands: fixed waves, learned vectors, or nothing (an ablation)."""

    waves_LD: Tensor

    def __init__(self, kind: PositionKind, width: int, longest: int) -> None:
        super().__init__()
        self.kind, self.width, self.longest = kind, width, longest
        if kind == "learned":
            self.learned = nn.Embedding(longest, width)
            nn.init.normal_(self.learned.weight, std=width**-0.5)
        elif kind == "sinusoidal":
            self.register_buffer("waves_LD", sinusoidal_positions(longest, width), persistent=False)

    def forward(self, x_BLD: Tensor, first: int = 0) -> Tensor:
        """Tokens that stand at `first`, `first` + 1, ..."""
        if self.kind == "none":
            return x_BLD
        last = first + x_BLD.shape[1]
        if self.kind == "learned":
            if last > self.longest:
                raise DecodeError(
                    f"{last} tokens, but the model learned {self.longest} positions",
                    hint="model.max_positions sets them",
                )
            return x_BLD + self.learned.weight[first:last]
        # Beyond the table the waves are made anew each time: a buffer that grew would differ between processes.
        longer = last > self.longest
        waves_LD = sinusoidal_positions(x_BLD.shape[1], self.width, first) if longer else self.waves_LD[first:last]
        return x_BLD + waves_LD.to(x_BLD)
