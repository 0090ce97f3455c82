"""Encoder-decoders of `transformers`, which all go back to the names of fairseq: the parts that
Marian, Pegasus, BART and M2M-100 share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.exchange.folder import Fields, ModelFolder
from regard.exchange.renaming import prefixed
from regard.runs.run import Run
from regard.search.config import SearchConfig

FIELDS: Fields = {
    "encoder_layers": ("encoder_layers", None),
    "decoder_layers": ("decoder_layers", None),
    "width": ("d_model", None),
    "heads": ("encoder_attention_heads", None),
    "feed_forward": ("encoder_ffn_dim", None),
    "max_positions": ("max_position_embeddings", None),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "activation_dropout": ("activation_dropout", 0.0),
}
ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
"""`activation_function` -> `model.activation`."""
NOT_EXPORTED = ("banned", "coverage_penalty", "min_length_ratio", "prefix", "sample")
"""Options of our search for which generation_config.json has no key, or one of another meaning."""
SHARED_TABLE = "model.shared.weight"
READOUT_TABLE = "lm_head.weight"
READOUT_BIAS = "final_logits_bias"
ENCODER_TABLE = "model.encoder.embed_tokens.weight"
DECODER_TABLE = "model.decoder.embed_tokens.weight"
SUBLAYER_WEIGHTS = {
    "self_attention.W_Q": "self_attn.q_proj",
    "self_attention.W_KV self_attention.W_KV": "self_attn.k_proj self_attn.v_proj",
    "self_attention.W_O": "self_attn.out_proj",
    "feed_forward.W_1": "fc1",
    "feed_forward.W_2": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
}
LAYER_WEIGHTS = {
    "encoder": {**SUBLAYER_WEIGHTS, "around_attention.norm": "self_attn_layer_norm"},
    "decoder": {
        **SUBLAYER_WEIGHTS,
        "around_self.norm": "self_attn_layer_norm",
        "cross_attention.W_Q": "encoder_attn.q_proj",
        "cross_attention.W_KV cross_attention.W_KV": "encoder_attn.k_proj encoder_attn.v_proj",
        "cross_attention.W_O": "encoder_attn.out_proj",
        "around_cross.norm": "encoder_attn_layer_norm",
    },
}
"""Our names of the weights of a layer -> theirs."""
WIDTH_AXES = {
    0: re.compile(r".*norm\.(weight|bias)|.*\.(W_O|W_2)\.(weight|bias)"),
    1: re.compile(r".*embedding\.weight|output\.linear\.weight|.*\.(W_Q|W_KV|W_1)\.weight"),
}
"""Axis of the width -> the names of our weights that have it there."""


# Settings


def fixed_settings(folder: ModelFolder) -> dict[str, tuple[Any, ...]]:
    """Settings that our Transformer has once for both sides."""
    return {
        "activation_function": tuple(ACTIVATIONS),
        "decoder_attention_heads": (folder.number("encoder_attention_heads"),),
        "decoder_ffn_dim": (folder.number("encoder_ffn_dim"),),
    }


def read_search(folder: ModelFolder) -> dict[str, Any]:
    """The section `search`, from generation_config.json or the older keys of config.json."""
    newer = folder.json("generation_config.json")
    options = folder.config | {name: value for name, value in newer.items() if value is not None}
    names = (
        "num_beams",
        "length_penalty",
        "no_repeat_ngram_size",
        "repetition_penalty",
        "min_new_tokens",
    )
    numbers = {
        name: folder.real(name, options[name]) for name in names if options.get(name) is not None
    }
    shortest = int(numbers.get("min_new_tokens", 0))
    return {
        "beam": int(numbers.get("num_beams", 1)) or 1,
        "length_penalty": numbers.get("length_penalty", 1.0),
        "no_repeat_ngram": int(numbers.get("no_repeat_ngram_size", 0)) or None,
        "repetition_penalty": max(1.0, numbers.get("repetition_penalty", 1.0)),
        "min_length": 1 + shortest if shortest else 0,  # with the end
    }


def write_search(run: Run) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys of generation_config.json, and the options of the run's search that it does not
    have."""
    target = run.tokenizers["target"]
    search = run.recipe.search
    default = SearchConfig()
    never = {target.pad, target.begin, target.unk} - {target.end}
    generation = {
        "max_length": run.recipe.model.max_positions,
        "num_beams": search.beam,
        "length_penalty": 0.0 if search.normalisation == "none" else search.length_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram or 0,
        "min_new_tokens": max(0, search.min_length - 1),  # without the end
        "repetition_penalty": search.repetition_penalty,
        "bad_words_ids": [[token] for token in sorted(never)],
    }
    names = list(NOT_EXPORTED)
    if search.normalisation in ("wu", "reward"):
        names.append("normalisation")
    if search.beam == 1:  # theirs changes logits there, ours log P
        names.append("repetition_penalty")
    changed = (name for name in names if getattr(search, name) != getattr(default, name))
    return generation, tuple(f"search.{name}" for name in changed)


def special_ids(run: Run) -> dict[str, Any]:
    """The ids that both config.json and generation_config.json have."""
    target = run.tokenizers["target"]
    return {
        "pad_token_id": target.pad,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": target.begin,
    }


# Weights


def block_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Our names of the weights of all blocks -> theirs."""
    table: dict[str, str] = {}
    for side, layer in LAYER_WEIGHTS.items():
        for number in range(config[f"{side}_layers"]):
            table |= prefixed(f"{side}.{number}.", f"model.{side}.layers.{number}.", layer)
        if config["norm"] == "pre":
            table[f"{side}_norm"] = f"model.{side}.layer_norm"
    return table


def width_order(width: int) -> Tensor:
    """Dimension d of theirs is dimension order_D[d] of ours: sine 0, sine 1, ..., cosine 0, cosine
    1, ..."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def reordered(weights: dict[str, Tensor], order_D: Tensor) -> dict[str, Tensor]:
    """The weights with the width in another order, in place of those before; those of another size,
    refused later, stay as they are."""
    for axis, names in WIDTH_AXES.items():
        for name in filter(names.fullmatch, weights):
            if weights[name].shape[axis : axis + 1] == order_D.shape:
                weights[name] = weights[name].index_select(axis, order_D)
    return weights
