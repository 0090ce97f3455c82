"""ModernBERT under the names of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.errors import DataError
from regard.exchange.encoder import Encoder
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import WeightNames

WORD_TABLE = "embeddings.tok_embeddings.weight"
LAYER_TYPES = ("full_attention", "sliding_attention")
WAVELENGTHS = {
    "global_wavelength": ("full_attention", "global_rope_theta", 160_000.0),
    "local_wavelength": ("sliding_attention", "local_rope_theta", 10_000.0),
}
"""Field of the config -> the kind of layer, the name in older files, the default."""
POOLINGS = {"first": "cls", "mean": "mean"}
"""`head.pooling` -> `classifier_pooling`."""
HEAD = {
    "head.pooler.W.weight": "head.dense.weight",
    "head.pooler.norm.weight": "head.norm.weight",
    "head.linear": "classifier",
}


class ModernBERTEncoder(Encoder):
    """Warner et al. 2024, arXiv:2412.13663: no biases, no positions in the embeddings, local and
    global layers."""

    def own_fields(self, folder: ModelFolder) -> dict[str, Any]:
        return {
            "global_every": self._global_every(folder),
            "window": folder.number("local_attention", 128),
            **{field: self._wavelength(folder, *names) for field, names in WAVELENGTHS.items()},
            "next_sentence": False,
        }

    def _global_every(self, folder: ModelFolder) -> int:
        types = folder.config.get("layer_types")
        if not isinstance(types, list):
            return folder.number("global_attn_every_n_layers", 3)
        whole, near = LAYER_TYPES
        every = types.index(whole, 1) if whole in types[1:] else max(len(types), 1)
        if types != [near if number % every else whole for number in range(len(types))]:
            what = "global layers are not at equal distances from the first one on"
            raise DataError(what, where=f"{folder.config_path}: layer_types")
        return every

    def _wavelength(self, folder: ModelFolder, layers: str, name: str, default: float) -> float:
        by_layers = folder.config.get("rope_parameters") or {}
        where = f"{folder.config_path}: rope_parameters"
        rope = by_layers.get(layers) or {} if isinstance(by_layers, dict) else None
        if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default":
            hint = 'supported: the type "default"'
            raise DataError("scaled rotary positions are not supported", where=where, hint=hint)
        older = folder.config.get(name, default)
        return folder.real("rope_theta", rope.get("rope_theta", older))

    def own_settings(self, config: Any) -> dict[str, Any]:
        whole, near = LAYER_TYPES
        return {
            "layer_types": [
                near if number % config.global_every else whole for number in range(config.layers)
            ],
            "global_attn_every_n_layers": config.global_every,
            "local_attention": config.window,
            "rope_parameters": {
                layers: {"rope_type": "default", "rope_theta": getattr(config, field)}
                for field, (layers, _, _) in WAVELENGTHS.items()
            },
            "embedding_dropout": config.dropout,
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
        }

    def own_head(self, folder: ModelFolder, task: str) -> dict[str, Any]:
        theirs = folder.config.get("classifier_pooling", "cls")
        return {"pooling": next(ours for ours, name in POOLINGS.items() if name == theirs)}

    def head_settings(self, pooling: str) -> dict[str, Any]:
        return {"classifier_pooling": POOLINGS[pooling]}

    def embedding_weights(self, config: Mapping[str, Any]) -> WeightNames:
        return {
            "embedding.tokens.weight": WORD_TABLE,
            "embedding.norm.weight": "embeddings.norm.weight",
            "norm.weight": "final_norm.weight",
        }

    def layer_names(self, config: Mapping[str, Any], number: int) -> WeightNames:
        first_norm = {"attention_norm.weight": "attn_norm.weight"} if number else {}
        return {**first_norm, **self.layer_weights}

    def has_segments(self, config: Mapping[str, Any]) -> bool:
        return False

    def requires(self, config: Any) -> dict[str, tuple[Any, ...]]:
        return {"next_sentence": (False,)}


MODERNBERT = ModernBERTEncoder(
    kind="modernbert",
    class_names={"modernbert": "ModernBert"},
    base="model.",
    fields={
        "layers": ("num_hidden_layers", None),
        "width": ("hidden_size", None),
        "heads": ("num_attention_heads", None),
        "feed_forward": ("intermediate_size", None),
        "max_positions": ("max_position_embeddings", None),
        "dropout": ("mlp_dropout", 0.0),
        "attention_dropout": ("attention_dropout", 0.0),
        "epsilon": ("norm_eps", 1e-5),
    },
    supported={
        "norm_bias": (False,),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "classifier_bias": (False,),
        "decoder_bias": (True,),
        "classifier_activation": ("gelu",),
        "classifier_pooling": ("cls", "mean"),
        "tie_word_embeddings": (True,),
        "problem_type": (None, "single_label_classification", "regression"),
    },
    activation_key="hidden_activation",
    word_table=WORD_TABLE,
    layer="layers.",
    layer_weights={
        "self_attention.W_Q.weight self_attention.W_KV.weight "
        "self_attention.W_KV.weight": "attn.Wqkv.weight attn.Wqkv.weight attn.Wqkv.weight",
        "self_attention.W_O.weight": "attn.Wo.weight",
        "feed_forward_norm.weight": "mlp_norm.weight",
        "feed_forward.WV.weight": "mlp.Wi.weight",
        "feed_forward.W_2.weight": "mlp.Wo.weight",
    },
    pretraining_heads={
        "masked_head": {
            "output.layer.W.weight": "head.dense.weight",
            "output.layer.norm.weight": "head.norm.weight",
            "output.output.linear.bias": "decoder.bias",
        },
    },
    heads=dict.fromkeys(
        ("classification", "regression", "multiple_choice", "tagging", "question_answering"), HEAD
    ),
    poolings=("first", "mean"),
    outside=("head.", "decoder.", "classifier."),
    copies={"decoder.weight": WORD_TABLE},
)
ARCHITECTURE = MODERNBERT.architecture()
