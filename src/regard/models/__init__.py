"""Batch -> hidden states: one file a model of the line, its config above it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from regard.models.bahdanau import Bahdanau, BahdanauConfig
from regard.models.base import Generator, ModelConfig
from regard.models.luong import Luong, LuongConfig
from regard.models.rnn import RNN, RNNConfig
from regard.models.self_attention import SelfAttention, SelfAttentionConfig
from regard.models.transformer import Transformer, TransformerConfig

MODELS: dict[str, type[Any]] = {
    "rnn": RNN,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "self_attention": SelfAttention,
    "transformer": Transformer,
}
"""`model.kind` -> model, in the order of the line."""

AnyModelConfig = Annotated[
    RNNConfig | BahdanauConfig | LuongConfig | SelfAttentionConfig | TransformerConfig, Field(discriminator="kind")
]


def build_model(config: AnyModelConfig, source_size: int, target_size: int) -> Generator:
    """The model that a config describes, with fresh weights from torch's generator."""
    model: Generator = MODELS[config.kind](config, source_size, target_size)
    if config.vectors is not None and config.vectors.freeze:
        for side in config.vectors.files:
            model.embeddings[side].requires_grad_(False)
    return model


__all__ = ["MODELS", "AnyModelConfig", "Generator", "ModelConfig", "build_model"]
