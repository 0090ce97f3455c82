"""Modules whose tables have as many rows as the training text makes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


class SizedByText(nn.Module):
    """A module with buffers that are empty until the training texts are counted, or until the stored
    ones are loaded."""

    def resize(self, shapes: Mapping[str, torch.Size]) -> None:
        """Make room for stored buffers."""
        buffers = dict(self.named_buffers(recurse=False))
        for name, shape in shapes.items():
            if name in buffers:
                setattr(self, name, buffers[name].new_zeros(shape))
