"""Words from their characters: a convolution for each width, and highway layers above."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.text.spelling import CHARACTERS, Spelling


class Highway(nn.Module):
    """A layer that may let its input pass.

    Srivastava et al. 2015, arXiv:1505.00387, equation 3; Kim et al. 2016, arXiv:1508.06615, equation 8:
        t = sigmoid(W_T y + b_T)
        z = t * relu(W_H y + b_H) + (1 - t) * y
    b_T begins at -2, so that at first nearly all passes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_H, self.W_T = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.W_T.bias, -2.0)

    def forward(self, y: Tensor) -> Tensor:
        t = torch.sigmoid(self.W_T(y))
        return t * torch.relu(self.W_H(y)) + (1 - t) * y


class CharacterCNN(nn.Module):
    """Kim et al. 2016, arXiv:1508.06615, section 2.2, with the rectifier of Peters et al. 2018 instead of tanh:

        f^k[i] = relu(<C^k[*, i : i + w - 1], H> + b)          the filter H of width w at character i of word k
        y^k    = max_i f^k[i]                                  one number a filter, all of them side by side

    then highway layers and a projection to the width that is wanted. A word that is shorter than a filter is filled up
    with zeros; beyond its end no filter looks.

    The words of the vocabulary are spelt in a table of the layer's own, others in the batch.
    """

    characters_VC: Tensor

    def __init__(
        self, characters_VC: Tensor, *, embedding: int, filters: Sequence[tuple[int, int]], highway: int, width: int
    ) -> None:
        super().__init__()
        self.register_buffer("characters_VC", characters_VC, persistent=False)
        self.embedding = nn.Embedding(CHARACTERS, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, count, size) for size, count in filters)
        total = sum(count for _, count in filters)
        self.highway = nn.ModuleList(Highway(total) for _ in range(highway))
        self.projection = nn.Linear(total, width)

    def forward(self, ids_BL: Tensor, spelling: Spelling | None = None) -> Tensor:
        """[B, L] -> [B, L, D]. Each word is computed once, wherever it stands."""
        if spelling is None:
            words_P, place_BL = torch.unique(ids_BL, return_inverse=True)
            return self.words(self.characters_VC[words_P])[place_BL]
        known = len(self.characters_VC)
        ids_BL = torch.where(spelling.numbers_BL > 0, known - 1 + spelling.numbers_BL, ids_BL)
        words_P, place_BL = torch.unique(ids_BL, return_inverse=True)  # in order: those of the batch come last
        own_PC, others_PC = self.characters_VC[words_P[words_P < known]], spelling.characters_PC
        return self.words(_below(own_PC, others_PC[words_P[words_P >= known] - known]))[place_BL]

    def words(self, characters_PC: Tensor) -> Tensor:
        """Words by their characters -> their vectors, [P, D]."""
        widest = max(convolution.kernel_size[0] for convolution in self._convolutions())
        characters_PC = nn.functional.pad(characters_PC, (0, max(0, widest - characters_PC.shape[1])))
        lengths_P1 = (characters_PC > 0).sum(1, keepdim=True)
        C_PEC = self.embedding(characters_PC).transpose(1, 2)
        y_PD = torch.cat([_strongest(f(C_PEC), lengths_P1 - f.kernel_size[0]) for f in self._convolutions()], dim=1)
        for highway in self.highway:
            y_PD = highway(y_PD)
        projected: Tensor = self.projection(y_PD)
        return projected

    def _convolutions(self) -> list[nn.Conv1d]:
        return [one for one in self.convolutions if isinstance(one, nn.Conv1d)]


def _below(one_PC: Tensor, other_PC: Tensor) -> Tensor:
    """The rows of two tables in one, as wide as the wider."""
    width = max(one_PC.shape[1], other_PC.shape[1])
    return torch.cat([nn.functional.pad(table_PC, (0, width - table_PC.shape[1])) for table_PC in (one_PC, other_PC)])


def _strongest(f_PDC: Tensor, last_P1: Tensor) -> Tensor:
    """relu of the largest value of each filter, over the places up to the last one that lies within the word."""
    place_C = torch.arange(f_PDC.shape[2], device=f_PDC.device)
    beyond_PC = place_C > last_P1.clamp(min=0)
    return f_PDC.masked_fill(beyond_PC[:, None], -torch.inf).amax(2).relu()
