"""Convolutions over words, trained from scratch: Kim 2014, "Convolutional neural networks for sentence classification",
arXiv:1408.5882; for each token Collobert et al. 2011, "Natural language processing (almost) from scratch",
arXiv:1103.0398."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embeddings import Embedding
from regard.models.base import Contextual, ModelConfig, Presets


class CNNConfig(ModelConfig):
    """Convolutions over words (Kim 2014), from scratch."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "maps": 32},
        "base": {"embedding": 300, "maps": 100},
    }
    reads = "text"
    head_defaults: ClassVar[Mapping[str, Any]] = {"dropout": 0.5}

    kind: Literal["cnn"] = "cnn"
    preset: Literal["tiny", "base"] = "base"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    embedding: int = Field(300, ge=1)
    """Width of the token embeddings."""
    widths: list[int] = Field([3, 4, 5], min_length=1)
    """Filter widths in tokens."""
    maps: int = Field(100, ge=1)
    """Filters of each width."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the embeddings; the paper's 0.5 is before the last layer: head.dropout."""


class CNN(Contextual):
    """
    Kim 2014, equations 2 to 4, for a filter w over h words from word i on:
        c_i = relu(w . x_{i:i+h-1} + b)
        c^  = max_i c_i                                 over all i within the text: the head's `pooling: max`

    The vector of token i has c_i of every filter; it is zero, the smallest c_i, where the filter would extend beyond
    the end. A text shorter than a filter is padded with zeros.

    With `by_token`, an answer for each token, there is no maximum over time, and the filter is centred on its token:
        c_i = relu(w . x_{i-(h-1)/2 : i+h/2} + b)       Collobert et al. 2011, section 3.2.1, the window approach
    Before the first and after the last token it reads zeros; the paper learns a padding vector.
    """

    config: CNNConfig

    def __init__(self, config: CNNConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.width, self.depth = config, config.maps * len(config.widths), 1
        self.embedding = Embedding(vocabulary_size, config.embedding)
        self.convolutions = nn.ModuleList(nn.Conv1d(config.embedding, config.maps, h) for h in config.widths)
        self.dropout = nn.Dropout(config.dropout)

    def layers_of(self, batch: Any) -> list[Tensor]:
        text, place_L = batch.text, torch.arange(batch.text.ids_BL.shape[1], device=batch.text.ids_BL.device)
        x_BLD = self.dropout(self.embedding(text.ids_BL))
        real_BL = place_L < text.lengths_B[:, None]
        x_BDL = (x_BLD * real_BL[..., None]).transpose(1, 2)
        maps = []
        for convolution, h in zip(self.convolutions, self.config.widths, strict=True):
            before = (h - 1) // 2 if self.by_token else 0
            c_BDL = convolution(F.pad(x_BDL, (before, h - 1 - before))).relu()
            last_B1 = (text.lengths_B[:, None] - h).clamp(min=0)
            maps.append(c_BDL if self.by_token else c_BDL * (place_L <= last_B1)[:, None])
        return [x_BLD, torch.cat(maps, dim=1).transpose(1, 2)]
