"""The Transformer under the names of `transformers`: post-norm as Marian, of which OPUS-MT's models are, and pre-norm
as Pegasus (Zhang et al. 2020, arXiv:1912.08777). But for the order of the width both are the Transformer of the paper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError, DataError
from regard.exchange.exchanged import Exported, Imported
from regard.exchange.folder import ModelFolder
from regard.exchange.marian_vocabularies import read_tokenizers
from regard.exchange.marian_weights import (
    DECODER,
    READOUT,
    of_one_size,
    of_their_own_size,
    plain,
    renamings,
    with_waves,
)
from regard.exchange.renaming import to_ours, to_theirs
from regard.models.transformer import TransformerConfig
from regard.runs.run import Run, stored_weights
from regard.search import SearchConfig
from regard.text.tokenizers import Tokenizer

ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
"""Their name -> ours."""
ARCHITECTURES = {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}
"""`model.norm` -> their architecture."""
TYPES = {"post": "marian", "pre": "pegasus"}
"""`model.norm` -> `model_type`."""
TASKS = {"post": "translation", "pre": "summarization"}
"""`model.norm` -> the task, where config.json says nothing about it."""
UNSAID = ("banned", "coverage_penalty", "min_length_ratio", "prefix", "sample")
"""Rules of our search that a generation_config.json has no words for, or only others."""
VOCABULARIES = ("encoder_vocab_size", "decoder_vocab_size")
"""What config.json calls the sizes of two vocabularies beside the one that Pegasus knows."""


def read(folder: ModelFolder) -> Imported:
    """A MarianMTModel or PegasusForConditionalGeneration, with one vocabulary or two."""
    norm = "pre" if folder.config["model_type"] == TYPES["pre"] else "post"
    _refuse_others(folder, norm)
    theirs = folder.weights()
    tie = _tie(folder, theirs, norm)
    config = _sizes(folder) | {"norm": norm, "tie": tie}
    if norm == "pre" and tie != "all":
        size = folder.number("vocab_size")
        theirs = of_their_own_size(theirs, *(folder.number(name, size) for name in VOCABULARIES))
    weights = to_ours(renamings(config), plain(theirs, tie, folder.name), folder.name)
    rows = len(weights["source_embedding.weight"]), len(weights["output.linear.bias"])
    begin = folder.number("decoder_start_token_id", folder.number("pad_token_id", 0))
    tokenizers = read_tokenizers(folder, rows, begin, shared=tie == "all")
    return Imported(_task(folder, norm), config, weights, tokenizers, {"search": _search(folder)})


def _refuse_others(folder: ModelFolder, norm: str) -> None:
    """What a config may say that is neither Marian's nor Pegasus's own."""
    folder.expect(
        {
            "activation_function": tuple(ACTIVATIONS),
            "scale_embedding": (True,),
            "static_position_embeddings": (True,),
            "normalize_before": (norm == "pre",),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (norm == "pre",),
            "decoder_attention_heads": (folder.number("encoder_attention_heads"),),
            "decoder_ffn_dim": (folder.number("encoder_ffn_dim"),),
        }
    )
    width = folder.number("d_model")
    if width % 2:
        where = f"{folder.path / 'config.json'}: d_model"
        raise DataError(f"{width} is not supported", where=where, hint="supported: even widths")


def _sizes(folder: ModelFolder) -> dict[str, Any]:
    """The section `model`, but for what sets the two apart."""
    return {
        "kind": "transformer",
        "encoder_layers": folder.number("encoder_layers"),
        "decoder_layers": folder.number("decoder_layers"),
        "width": folder.number("d_model"),
        "heads": folder.number("encoder_attention_heads"),
        "feed_forward": folder.number("encoder_ffn_dim"),
        "max_positions": folder.number("max_position_embeddings"),
        "dropout": float(folder.config.get("dropout", 0.1)),
        "attention_dropout": float(folder.config.get("attention_dropout", 0.0)),
        "activation_dropout": float(folder.config.get("activation_dropout", 0.0)),
        "activation": ACTIVATIONS[folder.config.get("activation_function", "swish")],
    }


def _tie(folder: ModelFolder, theirs: dict[str, Tensor], norm: str) -> str:
    name = "tie_word_embeddings" if norm == "pre" else "share_encoder_decoder_embeddings"
    if folder.config.get(name, True):
        return "all"
    if READOUT not in theirs and norm == "post":
        return "target"
    both = READOUT in theirs and DECODER in theirs
    return "target" if both and torch.equal(theirs[READOUT], theirs[DECODER]) else "none"


def _task(folder: ModelFolder, norm: str) -> str:
    said = folder.config.get("task_specific_params") or {}
    return next((task for task in TASKS.values() if task in said), TASKS[norm])


def _search(folder: ModelFolder) -> dict[str, Any]:
    """How it writes: the newer of two files wins."""
    newer = folder.json("generation_config.json")
    said = folder.config | {name: value for name, value in newer.items() if value is not None}
    alpha = said.get("length_penalty")
    return {
        "beam": int(said.get("num_beams") or 1),
        "length_penalty": 1.0 if alpha is None else float(alpha),
        "no_repeat_ngram": said.get("no_repeat_ngram_size") or None,
        "repetition_penalty": max(1.0, float(said.get("repetition_penalty") or 1.0)),
        "min_length": 1 + int(said["min_new_tokens"]) if said.get("min_new_tokens") else 0,  # with the end
    }


def write(run: Run, model: Any) -> Exported:
    """What the paper's Transformer is there; `model.norm` decides which of the two."""
    config = run.recipe.model
    _refuse_ablations(run, config)
    source, target = run.tokenizers["source"], run.tokenizers["target"]
    theirs = to_theirs(renamings(config.model_dump()), stored_weights(model))
    if config.norm == "pre":
        theirs = with_waves(theirs, config.max_positions, config.width)
        theirs = theirs if config.tie == "all" else of_one_size(theirs, max(source.size, target.size))
    ids = {
        "pad_token_id": target.pad,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": target.begin,
    }
    return Exported(
        ARCHITECTURES[config.norm],
        {"model_type": TYPES[config.norm], **config_of(config), **_vocabulary(run, config), **ids},
        theirs,
        ("$A", *source.tokens([source.end])),
        ids | generation_of(run.recipe.search, target) | {"max_length": config.max_positions},
    )


def generation_of(search: SearchConfig, target: Tokenizer) -> dict[str, Any]:
    """generation_config.json, as far as their search has words for it."""
    rules: dict[str, Any] = {"repetition_penalty": search.repetition_penalty} if search.repetition_penalty > 1 else {}
    if search.min_length > 1:  # their number is without the end
        rules["min_new_tokens"] = search.min_length - 1
    return rules | {
        "num_beams": search.beam,
        "length_penalty": 0.0 if search.normalisation == "none" else search.length_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram or 0,
        "bad_words_ids": [[token] for token in sorted({target.pad, target.begin, target.unk} - {target.end})],
    }


def unsaid(search: SearchConfig) -> list[str]:
    """The rules of a search that theirs has no words for."""
    default = SearchConfig()
    return [f"search.{name}" for name in UNSAID if getattr(search, name) != getattr(default, name)]


def config_of(config: TransformerConfig) -> dict[str, Any]:
    """config.json, but for what hangs on the vocabularies."""
    return {
        "is_encoder_decoder": True,
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.feed_forward,
        "decoder_ffn_dim": config.feed_forward,
        "max_position_embeddings": config.max_positions,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
    }


def _vocabulary(run: Run, config: TransformerConfig) -> dict[str, Any]:
    """How large it is, and which tables are one. Pegasus has one size for both sides: ours stand beside it."""
    sizes = [run.tokenizers[side].size for side in ("source", "target")]
    other = run.recipe.task != TASKS[config.norm]
    task: dict[str, Any] = {"task_specific_params": {run.recipe.task: {}}} if other else {}
    if config.norm == "post":
        return task | {
            "vocab_size": sizes[0],
            "decoder_vocab_size": sizes[1],
            "share_encoder_decoder_embeddings": config.tie == "all",
            "tie_word_embeddings": config.tie != "none",
            "bos_token_id": run.tokenizers["target"].begin,
        }
    own = dict(zip(VOCABULARIES, sizes, strict=True)) if sizes[0] != sizes[1] else {}
    return task | own | {"vocab_size": max(sizes), "tie_word_embeddings": config.tie == "all"}


def _refuse_ablations(run: Run, config: TransformerConfig) -> None:
    wanted: dict[str, tuple[Any, ...]] = {
        "norm": tuple(ARCHITECTURES),
        "positions": ("sinusoidal",),
        "scaled": (True,),
        "look_ahead": (False,),
        "residual": (True,),
    }
    for name, allowed in wanted.items():
        if getattr(config, name) not in allowed:
            what = f"transformers has no model like a transformer with {name}: {str(getattr(config, name)).lower()}"
            hint = f"one with model.{name}: {' or '.join(str(value).lower() for value in allowed)} can be exported"
            raise CheckpointError(what, where=str(run.folder), hint=hint)
    if config.width % 2:
        what = f"transformers has no model like a transformer with width: {config.width}"
        raise CheckpointError(what, where=str(run.folder), hint="one whose model.width is even can be exported")
