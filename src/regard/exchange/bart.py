"""BART and KoBART under the names of `transformers` (Lewis et al. 2020, arXiv:1910.13461): the
post-norm Transformer with learned positions, and a norm after the embeddings of each side.

A text is `<s> A </s>` on both sides, if the folder's tokenizer says so; the decoder reads `</s>`
before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.exchange.encoder_decoder import (
    ACTIVATIONS,
    DECODER_TABLE,
    ENCODER_TABLE,
    FIELDS,
    READOUT_BIAS,
    READOUT_TABLE,
    SHARED_TABLE,
    block_names,
    fixed_settings,
    read_search,
    special_ids,
    write_search,
)
from regard.exchange.folder import (
    Architecture,
    Exported,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import fit_rows, ids_of, read_vocabulary, with_template
from regard.runs.run import Run
from regard.runs.weights import stored_weights
from regard.text.templates import templates_in
from regard.text.tokenizers import Tokenizer, Tokenizers

ARCHITECTURE_NAMES = {"bart": ("BartForConditionalGeneration", "BartModel")}
OWN_SETTINGS: dict[str, Any] = {
    "norm": "post",
    "positions": "learned",
    "first_position": 2,
    "shared_positions": False,
    "embedding_norm": True,
    "readout_bias": True,
    "tie": "all",
}
"""The settings of a Transformer that make it a BART."""
ALLOWED_SETTINGS: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in OWN_SETTINGS.items()},
    "scaled": (True,),
    "look_ahead": (False,),
    "residual": (True,),
}
EMBEDDING_WEIGHTS = {
    "source_embedding.weight": SHARED_TABLE,
    "source_positions.learned.weight": "model.encoder.embed_positions.weight",
    "positions.learned.weight": "model.decoder.embed_positions.weight",
    "source_embedding_norm": "model.encoder.layernorm_embedding",
    "embedding_norm": "model.decoder.layernorm_embedding",
    "output.linear.bias": READOUT_BIAS,
}
"""Our names of the weights around the blocks -> theirs."""


def read(folder: ModelFolder) -> Imported:
    """Read a BartForConditionalGeneration, or a BartModel, whose readout has no bias."""
    folder.expect(
        {
            **fixed_settings(folder),
            "scale_embedding": (False, True),
            "normalize_before": (False,),
            "normalize_embedding": (True,),
            "add_final_layer_norm": (False,),
            "static_position_embeddings": (False,),
            "tie_word_embeddings": (True,),
        }
    )
    config = {
        "kind": "transformer",
        **OWN_SETTINGS,
        **folder.fields(FIELDS),
        "scaled_embeddings": folder.config.get("scale_embedding", False),
        "activation": ACTIVATIONS[folder.config.get("activation_function", "gelu")],
    }
    weights = to_ours(weight_names(config), each_once(folder.weights(), folder.name), folder.name)
    tokenizer = _read_tokenizer(folder, len(weights["source_embedding.weight"]))
    return Imported(
        "translation" if _is_translator(folder) else "summarization",
        config,
        weights,
        Tokenizers(dict.fromkeys(("source", "target"), tokenizer)),
        {"search": read_search(folder), "data": {"max_length": config["max_positions"]}},
    )


def _is_translator(folder: ModelFolder) -> bool:
    named = folder.config.get("task_specific_params")
    return isinstance(named, dict) and "translation" in named


def each_once(theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Each tensor once, with the prefix that a BartModel lacks and a bias of the readout."""
    weights = {
        name if name in (READOUT_TABLE, READOUT_BIAS) else f"model.{name.removeprefix('model.')}": w
        for name, w in theirs.items()
    }
    copies = (ENCODER_TABLE, DECODER_TABLE, READOUT_TABLE)
    weights = without_copies(weights, dict.fromkeys(copies, SHARED_TABLE), where)
    if SHARED_TABLE in weights:
        no_bias = torch.zeros(len(weights[SHARED_TABLE]))
        weights[READOUT_BIAS] = weights.get(READOUT_BIAS, no_bias).flatten()
    return weights


def _read_tokenizer(folder: ModelFolder, rows: int) -> Tokenizer:
    """The tokenizer with the tokens that the folder puts around a text; `</s>` in any case. Byte
    BPE without a tokenizer.json is BART's own, which puts `<s>` before it."""
    settings = folder.json("tokenizer_config.json") | folder.json("special_tokens_map.json")
    whole = folder.json("tokenizer.json")
    tree = whole or read_vocabulary(folder, settings)
    plain = Tokenizer.from_json(json.dumps(tree), where=folder.name)
    names = {number: name for name, number in ids_of(tree).items()}
    begin, end = plain.tokens([plain.begin, plain.end])
    end = names.get(folder.number("eos_token_id", plain.end), end)
    start = names.get(folder.number("decoder_start_token_id", ids_of(tree).get(end, 0)), end)
    template = templates_in(tree) or (f"$A {end}" if whole else f"{begin} $A {end}")
    return fit_rows(with_template(tree, template, {"<s>": start, "</s>": end}), rows, folder)


def write(run: Run, checkpoint: str) -> Exported:
    """Write a BartForConditionalGeneration."""
    config = run.recipe.model
    target = run.tokenizers["target"]
    require_settings(run, "model", ALLOWED_SETTINGS, tool="transformers")
    theirs = to_theirs(
        weight_names(config.model_dump()), stored_weights(run.load_model(checkpoint))
    )
    theirs[READOUT_BIAS] = theirs[READOUT_BIAS][None]
    ids = special_ids(run) | {"bos_token_id": next(iter(target.first), target.begin)}
    forced = {"forced_bos_token_id": target.first[0]} if target.first else {}
    [end] = target.tokens([target.end])
    translates = run.recipe.task == "translation"
    generation, not_exported = write_search(run)
    return Exported(
        "BartForConditionalGeneration",
        {
            "model_type": "bart",
            "is_encoder_decoder": True,
            "vocab_size": target.size,
            **config_fields(FIELDS, config),
            "decoder_attention_heads": config.heads,
            "decoder_ffn_dim": config.feed_forward,
            "activation_function": config.activation,
            "scale_embedding": config.scaled_embeddings,
            "tie_word_embeddings": True,
            **({"task_specific_params": {"translation": {}}} if translates else {}),
            **ids,
        },
        theirs,
        f"$A {end}",
        config.max_positions,
        ids | forced | generation,
        not_exported,
    )


def weight_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Our names of all weights -> theirs."""
    return EMBEDDING_WEIGHTS | block_names(config)


ARCHITECTURE = Architecture(
    ARCHITECTURE_NAMES,
    read,
    [("summarization", "transformer"), ("translation", "transformer")],
    write,
    lambda config: bool(config.positions == "learned" and config.embedding_norm),
)
