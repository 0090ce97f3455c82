"""The bidirectional LSTM classifier, trained from scratch: a baseline without pre-training.

Graves & Schmidhuber 2005, "Framewise phoneme classification with bidirectional LSTM"; with max pooling as in Conneau et
al. 2017, arXiv:1705.02364.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from regard.layers.embeddings import Embedding
from regard.layers.recurrence import RecurrentEncoder
from regard.models.base import Contextual, ModelConfig, Presets


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
            RecurrentEncoder("lstm", width, config.hidden, 1, bidirectional=True, dropout=0.0)
            for width in [config.embedding, *[2 * config.hidden] * (config.layers - 1)]
        )
        self.dropout = nn.Dropout(config.dropout)

    def layers_of(self, batch: Any) -> list[Tensor]:
        layers: list[Tensor] = [self.embedding(batch.text.ids_BL)]
        for layer in self.layers:
            layers.append(layer(self.dropout(layers[-1]), batch.text)[0])
        return layers
