"""MPNet under the names of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.exchange.encoder import (
    EMBEDDING_WEIGHTS,
    LM_HEAD,
    LM_HEAD_COPIES,
    PLAIN_ENCODER,
    POOLER_WITHOUT_CLASSES,
    ROBERTA_HEAD_WEIGHTS,
    ROBERTA_HEADS,
    Encoder,
    check_positions_after_padding,
)
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import WeightNames

PADDING = 1  # the padding token, from which positions count; transformers has it in its code


class MPNetEncoder(Encoder):
    """Song et al. 2020, arXiv:2004.09297: positions count from the token after padding, as in
    RoBERTa, and one table has the biases of all layers."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        positions = folder.number("max_position_embeddings")
        return {"first_position": PADDING + 1, "max_positions": positions - PADDING - 1}

    def own_settings(self, config: Any) -> dict[str, Any]:
        return {
            "relative_attention_num_buckets": config.buckets,
            "max_position_embeddings": config.first_position + config.max_positions,
        }

    def embedding_weights(self, config: Mapping[str, Any]) -> WeightNames:
        bias = {"relative.b.weight": "encoder.relative_attention_bias.weight"}
        return {**EMBEDDING_WEIGHTS, **bias}

    def has_segments(self, config: Mapping[str, Any]) -> bool:
        return False

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {"buckets": (32,), "first_position": (PADDING + 1,), "activation": ("gelu",)}

    def check_tokenizer(self, pad: int, config: Mapping[str, Any], where: str) -> None:
        check_positions_after_padding(pad, config, where)


MPNET = MPNetEncoder(
    kind="mpnet",
    class_names={"mpnet": "MPNet"},
    base="mpnet.",
    supported={**PLAIN_ENCODER, "relative_attention_num_buckets": (32,)},
    layer_weights={
        "self_attention.W_Q": "attention.attn.q",
        "self_attention.W_KV self_attention.W_KV": "attention.attn.k attention.attn.v",
        "self_attention.W_O": "attention.attn.o",
        "attention_norm": "attention.LayerNorm",
        "feed_forward.W_1": "intermediate.dense",
        "feed_forward.W_2": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    },
    pretraining_heads={"next_sentence": POOLER_WITHOUT_CLASSES, "masked_head": LM_HEAD},
    heads=ROBERTA_HEADS,
    outside=ROBERTA_HEAD_WEIGHTS,
    copies=LM_HEAD_COPIES,
)
ARCHITECTURE = MPNET.architecture()
