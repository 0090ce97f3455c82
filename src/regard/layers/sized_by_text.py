"""Modules whose tables have as many rows as the training text makes, and how a table is read."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class SizedByText(nn.Module):
    """A module with buffers that are empty until the training texts are counted, or until the stored
    ones are loaded."""

    def resize(self, shapes: Mapping[str, torch.Size]) -> None:
        """Make room for stored buffers."""
        buffers = dict(self.named_buffers(recurse=False))
        for name, shape in shapes.items():
            if name in buffers:
                setattr(self, name, buffers[name].new_zeros(shape))


def values_of(keys_G: Tensor, wanted_P: Tensor, values_G: Tensor) -> Tensor:
    """The value of each wanted key, 0 if it is not among the sorted keys."""
    if not len(keys_G):
        return torch.zeros_like(wanted_P, dtype=values_G.dtype)
    places_P = torch.searchsorted(keys_G, wanted_P).clamp(max=len(keys_G) - 1)
    return values_G[places_P] * (keys_G[places_P] == wanted_P)
