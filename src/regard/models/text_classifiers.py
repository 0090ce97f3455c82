"""Models that are trained from scratch, to compare with pre-trained ones: a bidirectional LSTM and a CNN over words.

Graves & Schmidhuber 2005, "Framewise phoneme classification with bidirectional LSTM"; with max pooling as in Conneau et
al. 2017, arXiv:1705.02364. Kim 2014, "Convolutional neural networks for sentence classification", arXiv:1408.5882.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embeddings import Embedding
from regard.layers.recurrence import RecurrentEncoder
from regard.models.base import Contextual, ModelConfig, Presets, real_BL


class BiLSTMConfig(ModelConfig):
    """Bidirectional LSTM, from scratch."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "hidden": 64, "layers": 1},
        "small": {"embedding": 300, "hidden": 256, "layers": 1},
        "base": {"embedding": 300, "hidden": 512, "layers": 2},
    }
    reads = "text"
    head_defaults: ClassVar[Mapping[str, Any]] = {"dropout": 0.3}

    kind: Literal["bilstm"] = "bilstm"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it."""
    embedding: int = Field(300, ge=1)
    """Width of the token embeddings."""
    hidden: int = Field(256, ge=1)
    """Width of the state of each direction."""
    layers: int = Field(1, ge=1)
    """Recurrent layers."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout on the embeddings and between layers."""


class BiLSTM(Contextual):
    """
    h_t = [forward LSTM(h_{t-1}, x_t) ; backward LSTM(h_{t+1}, x_t)]        in each layer
    """

    def __init__(self, config: BiLSTMConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.width, self.depth = config, 2 * config.hidden, config.layers
        self.embedding = Embedding(vocabulary_size, config.embedding)
        self.layers = nn.ModuleList(
            RecurrentEncoder("lstm", width, config.hidden)
            for width in [config.embedding, *[2 * config.hidden] * (config.layers - 1)]
        )
        self.dropout = nn.Dropout(config.dropout)

    def layers_of(self, batch: Any) -> list[Tensor]:
        layers: list[Tensor] = [self.embedding(batch.text.ids_BL)]
        for layer in self.layers:
            layers.append(layer(self.dropout(layers[-1]), batch.text)[0])
        return layers


class CNNConfig(ModelConfig):
    """Convolutions over words (Kim 2014), from scratch."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "maps": 32},
        "small": {"embedding": 128, "maps": 64},
        "base": {"embedding": 300, "maps": 100},
    }
    reads = "text"
    head_defaults: ClassVar[Mapping[str, Any]] = {"dropout": 0.5}
    local = True
    layers: ClassVar[int] = 1

    kind: Literal["cnn"] = "cnn"
    preset: Literal["tiny", "small", "base"] = "base"
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
        x_BDL = (x_BLD * real_BL(text)[..., None]).transpose(1, 2)
        maps = []
        for convolution, h in zip(self.convolutions, self.config.widths, strict=True):
            before = (h - 1) // 2 if self.by_token else 0
            c_BDL = convolution(F.pad(x_BDL, (before, h - 1 - before))).relu()
            last_B1 = (text.lengths_B[:, None] - h).clamp(min=0)
            maps.append(c_BDL if self.by_token else c_BDL * (place_L <= last_B1)[:, None])
        return [x_BLD, torch.cat(maps, dim=1).transpose(1, 2)]
