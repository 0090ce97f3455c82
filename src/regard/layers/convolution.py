"""From pixels to regions: a small convolutional network, and where each region stands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.layers.positions import sinusoidal_positions


class Convolution(nn.Module):
    """A convolution (LeCun et al. 1989), LayerNorm over the channels of each place, and the rectifier.

    Ba et al. 2016, arXiv:1607.06450. A norm over the whole image, as GroupNorm takes it, or over the images of a batch,
    as BatchNorm does, would tell every region what the others hold: no word would need to look at the right one.
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, kernel, stride, padding=1)
        self.norm = nn.LayerNorm(after)

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, height, width], before and after."""
        places_last = self.norm(self.convolution(x).permute(0, 2, 3, 1))
        return torch.relu(places_last).permute(0, 3, 1, 2)


class Convolutions(nn.Module):
    """Pixels -> a grid of regions, each of which sees its own part of the image and a little around it.

    A stage halves both sides by a kernel of 4 x 4 with stride 2, which unlike one of 3 x 3 stands in the middle of what
    it makes one of. A last kernel of 3 x 3 looks at the neighbours.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        halving = [Convolution(before, after, 4, 2) for before, after in pairwise([3, *channels])]
        self.stages = nn.Sequential(*halving, Convolution(channels[-1], channels[-1], 3, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Bytes [B, height, width, 3] -> regions [B, S, D], row by row from the top left."""
        levels = pixels.permute(0, 3, 1, 2).to(next(self.parameters()).dtype) / 127.5 - 1
        regions_BSD: Tensor = self.stages(levels).flatten(2).transpose(1, 2)
        return regions_BSD


def halved(side: int, times: int) -> int:
    """Regions along a side after so many stages: a stride of 2 leaves out what does not make two."""
    return side >> times


class GridPositions(nn.Module):
    """Add to each region what says where it stands: half of the width tells its row, half its column.

    Parmar et al. 2018, arXiv:1802.05751, section 3.1, by the waves of words' positions. No parameters, and any grid.
    """

    def forward(self, x_BSD: Tensor, columns_B: Tensor) -> Tensor:
        """`columns_B` regions of each image stand side by side."""
        places, width = x_BSD.shape[1], x_BSD.shape[2]
        place_S = torch.arange(places, device=x_BSD.device)
        row_BS, column_BS = place_S // columns_B[:, None], place_S % columns_B[:, None]
        down, across = (sinusoidal_positions(places, half).to(x_BSD) for half in (width - width // 2, width // 2))
        return x_BSD + torch.cat([down[row_BS], across[column_BS]], dim=-1)
