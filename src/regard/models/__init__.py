"""Batch -> hidden states: one file a model of the line, its config above it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from regard.models.bahdanau import Bahdanau, BahdanauConfig
from regard.models.base import Generator, ModelConfig
from regard.models.rnn import RNN, RNNConfig
from regard.models.transformer import Transformer, TransformerConfig

MODELS: dict[str, type[Any]] = {
    "rnn": RNN,
    "bahdanau": Bahdanau,
    "transformer": Transformer,
}
"""`model.kind` -> model, in the order of the line."""

AnyModelConfig = Annotated[RNNConfig | BahdanauConfig | TransformerConfig, Field(discriminator="kind")]


def build_model(
    config: RNNConfig | BahdanauConfig | TransformerConfig, source_size: int, target_size: int
) -> Generator:
    """The model that a config describes, with fresh weights from torch's generator."""
    model: Generator = MODELS[config.kind](config, source_size, target_size)
    return model


__all__ = ["MODELS", "AnyModelConfig", "Generator", "ModelConfig", "build_model"]
