"""DeBERTa, versions 2 and 3, under the names of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from regard.errors import DataError
from regard.exchange.encoder import LAYER_WEIGHTS, PLAIN_ENCODER, SIZES, WORD_TABLE, Encoder
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import WeightNames

TERMS = {"content_to_position": "c2p", "position_to_content": "p2c"}
"""Field of the config -> its name in `pos_att_type`."""
POOLED_HEAD = {"head.pooler": "pooler.dense", "head.linear": "classifier"}


class DeBERTaEncoder(Encoder):
    """He et al. 2021, arXiv:2006.03654: no positions in the embeddings, and one table of relative
    positions for all layers."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        named = folder.config.get("pos_att_type") or []
        terms = named.lower().split("|") if isinstance(named, str) else named
        if not isinstance(terms, list) or not set(terms) <= set(TERMS.values()):
            where = f"{folder.config_path}: pos_att_type"
            hint = 'supported: "p2c|c2p", or one of the two'
            raise DataError(f"{json.dumps(named)} is not supported", where=where, hint=hint)
        width = folder.number("hidden_size")
        farthest = folder.number("max_position_embeddings")
        same = {
            "embedding_size": (width,),
            "pooler_hidden_size": (width,),
            "max_relative_positions": (-1, farthest),
            "pooler_hidden_act": ("gelu", "tanh", "relu"),
        }
        # the other head has other names, and a matrix more
        is_masked = (folder.architecture or "").endswith("ForMaskedLM")
        folder.expect(same | ({"legacy": (True,)} if is_masked else {}))
        return {
            **{ours: theirs in terms for ours, theirs in TERMS.items()},
            "buckets": folder.number("position_buckets"),
            "pooler": folder.config.get("pooler_hidden_act", "gelu"),
            "next_sentence": False,
        }

    def own_settings(self, config: Any) -> dict[str, Any]:
        return {
            "relative_attention": True,
            "position_buckets": config.buckets,
            "pos_att_type": [theirs for ours, theirs in TERMS.items() if getattr(config, ours)],
            "max_relative_positions": -1,
            "position_biased_input": False,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "type_vocab_size": 0,
            "pooler_hidden_act": config.pooler,
            "pooler_hidden_size": config.width,
            "pooler_dropout": 0,
            "legacy": True,
        }

    def embedding_weights(self, config: Mapping[str, Any]) -> WeightNames:
        return {
            "embedding.tokens.weight": WORD_TABLE,
            "embedding.norm": "embeddings.LayerNorm",
            "relative.vectors.weight": "encoder.rel_embeddings.weight",
            "relative.norm": "encoder.LayerNorm",
        }

    def has_segments(self, config: Mapping[str, Any]) -> bool:
        return False

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {"next_sentence": (False,)}


DEBERTA = DeBERTaEncoder(
    kind="deberta",
    class_names={"deberta-v2": "DebertaV2"},
    base="deberta.",
    fields={**SIZES, "epsilon": ("layer_norm_eps", 1e-7)},
    supported={
        **PLAIN_ENCODER,
        "relative_attention": (True,),
        "position_biased_input": (False,),
        "norm_rel_ebd": ("layer_norm",),
        "share_att_key": (True,),
        "conv_kernel_size": (0,),
        "type_vocab_size": (0,),
    },
    activations=("gelu", "gelu_new", "gelu_pytorch_tanh", "relu"),
    head_dropout_key="cls_dropout",
    layer_weights={
        **LAYER_WEIGHTS,
        "self_attention.W_Q": "attention.self.query_proj",
        "self_attention.W_KV self_attention.W_KV": "attention.self.key_proj "
        "attention.self.value_proj",
    },
    pretraining_heads={
        "masked_head": {
            "output.W": "cls.predictions.transform.dense",
            "output.norm": "cls.predictions.transform.LayerNorm",
            "output.output.linear.bias": "cls.predictions.bias",
        },
    },
    heads={
        "classification": POOLED_HEAD,
        "regression": POOLED_HEAD,
        "multiple_choice": POOLED_HEAD,
        "tagging": {"head.linear": "classifier"},
        "question_answering": {"head.linear": "qa_outputs"},
    },
    outside=("cls.", "pooler.", "classifier.", "qa_outputs."),
    copies={
        "cls.predictions.decoder.weight": WORD_TABLE,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    # heads of the published version 3, which the fine-tuned model does not have
    unread=("lm_predictions.", "mask_predictions."),
)
ARCHITECTURE = DEBERTA.architecture()
