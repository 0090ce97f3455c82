"""The Transformer under the names of `transformers`: a post-norm one is a Marian model, like those
of OPUS-MT, a pre-norm one a Pegasus (Zhang et al. 2020, arXiv:1912.08777).

Both are the Transformer of the paper, except for the order of the width: in their positions all
sines come before all cosines, while ours are interleaved as in the paper. So every weight that
reads or writes the width is put into our order, which changes no value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DataError
from regard.exchange.folder import (
    MAX_NUMBER,
    Architecture,
    Exported,
    Fields,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import prefixed, to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import TokenizerTree, fit_rows, ids_of, with_template
from regard.layers.embeddings import sinusoidal_positions
from regard.runs.run import Run
from regard.runs.weights import stored_weights
from regard.search.config import SearchConfig
from regard.text.sentencepiece import convert_sentencepiece
from regard.text.tokenizers import Tokenizer, Tokenizers

MODEL_TYPES = {"post": "marian", "pre": "pegasus"}  # `model.norm` -> `model_type`
ARCHITECTURE_NAMES = {
    "marian": ("MarianMTModel",),
    "pegasus": ("PegasusForConditionalGeneration",),
}
"""`model_type` -> the architecture."""
# `model.norm` -> the task, if config.json does not name it
DEFAULT_TASKS = {"post": "translation", "pre": "summarization"}
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
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Sinusoidal positions, which some files have beside the weights; they are never trained."""
TIED_TABLES = {
    "all": (SHARED_TABLE, ENCODER_TABLE, DECODER_TABLE, READOUT_TABLE),
    "target": (DECODER_TABLE, READOUT_TABLE),
    "none": (READOUT_TABLE,),
}
"""`model.tie` -> the names of the table of the readout, of which any may be in the file."""
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
END_TOKEN = "</s>"
UNKNOWN_TOKEN = "<unk>"
PAD_TOKEN = "<pad>"


def read(folder: ModelFolder) -> Imported:
    """Read a MarianMTModel or PegasusForConditionalGeneration, with one vocabulary or two."""
    norm = "pre" if folder.config["model_type"] == MODEL_TYPES["pre"] else "post"
    theirs = folder.weights()
    config = _read_config(folder, norm, theirs)
    weights = read_weights(theirs, config, folder.name)
    trees = _read_trees(folder, shared=config["tie"] == "all")
    if norm == "pre" and len(trees) == 2:  # without the rows of _pad_tables
        source, target = (1 + max(ids_of(tree).values()) for tree in trees)
        tables = (
            "source_embedding.weight",
            "target_embedding.weight",
            "output.linear.weight",
            "output.linear.bias",
        )
        for name in weights.keys() & set(tables):
            weights[name] = weights[name][: source if name == tables[0] else target]
    begin = folder.number("decoder_start_token_id", folder.number("pad_token_id", 0))
    token = next(
        (token for token, number in ids_of(trees[-1]).items() if number == begin), PAD_TOKEN
    )
    trees[-1] = with_template(trees[-1], roles={"<s>": token})
    # no source begins with it, but each tokenizer needs one
    if len(trees) == 2 and "<s>" not in ids_of(trees[0]):
        trees[0] = with_template(trees[0], roles={"<s>": PAD_TOKEN})
    sizes = len(weights["source_embedding.weight"]), len(weights["output.linear.bias"])
    tokenizers = [
        fit_rows(tree, size, folder) for tree, size in zip(trees, sizes[-len(trees) :], strict=True)
    ]
    named = folder.config.get("task_specific_params") or {}
    if not isinstance(named, dict):
        raise DataError("is not an object", where=f"{folder.config_path}: task_specific_params")
    return Imported(
        next((task for task in DEFAULT_TASKS.values() if task in named), DEFAULT_TASKS[norm]),
        config,
        weights,
        Tokenizers(source=tokenizers[0], target=tokenizers[-1]),
        {"search": _read_search(folder)},
    )


def _read_config(folder: ModelFolder, norm: str, theirs: Mapping[str, Tensor]) -> dict[str, Any]:
    """The section `model`. The weights show which embeddings are shared, if config.json does
    not."""
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
    readout = DECODER_TABLE if norm == "post" and READOUT_TABLE not in theirs else READOUT_TABLE
    same = {readout, DECODER_TABLE} <= theirs.keys() and torch.equal(
        theirs[readout], theirs[DECODER_TABLE]
    )
    shared = folder.config.get(
        "tie_word_embeddings" if norm == "pre" else "share_encoder_decoder_embeddings", True
    )
    tie = "all" if shared else "target" if same else "none"
    activation = ACTIVATIONS[folder.config.get("activation_function", "swish")]
    return {
        "kind": "transformer",
        "norm": norm,
        **folder.fields(FIELDS),
        "tie": tie,
        "activation": activation,
    }


def _read_search(folder: ModelFolder) -> dict[str, Any]:
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


def write(run: Run, checkpoint: str) -> Exported:
    """Write a MarianMTModel or, for a pre-norm model, a PegasusForConditionalGeneration."""
    config = run.recipe.model
    source = run.tokenizers["source"]
    target = run.tokenizers["target"]
    allowed = {"norm": tuple(MODEL_TYPES), "positions": ("sinusoidal",), "scaled": (True,)}
    require_settings(
        run, "model", {**allowed, "look_ahead": (False,), "residual": (True,)}, tool="transformers"
    )
    order_D = _order(config.width)
    theirs = to_theirs(
        weight_names(config.model_dump()),
        _reordered(stored_weights(run.load_model(checkpoint)), order_D),
    )
    theirs[READOUT_BIAS] = theirs[READOUT_BIAS][None]
    if config.norm == "pre":  # Pegasus computes its positions, but reports them as missing
        positions_LD = sinusoidal_positions(config.max_positions, config.width)[:, order_D]
        theirs |= {name: positions_LD.clone() for name in POSITION_TABLES}
        theirs = (
            theirs if config.tie == "all" else _pad_tables(theirs, max(source.size, target.size))
        )
    ids = {
        "pad_token_id": target.pad,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": target.begin,
    }
    [end] = source.tokens([source.end])
    search = run.recipe.search
    default = SearchConfig()
    generation = {
        "max_length": config.max_positions,
        "num_beams": search.beam,
        "length_penalty": 0.0 if search.normalisation == "none" else search.length_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram or 0,
        "min_new_tokens": max(0, search.min_length - 1),  # without the end
        "repetition_penalty": search.repetition_penalty,
        "bad_words_ids": [
            [token] for token in sorted({target.pad, target.begin, target.unk} - {target.end})
        ],
    }
    named = [
        *NOT_EXPORTED,
        *(["normalisation"] if search.normalisation in ("wu", "reward") else []),
    ]
    # theirs changes logits there, ours log P
    named += ["repetition_penalty"] if search.beam == 1 else []
    return Exported(
        ARCHITECTURE_NAMES[MODEL_TYPES[config.norm]][0],
        _write_config(run) | ids,
        theirs,
        f"$A {end}",
        config.max_positions,
        ids | generation,
        tuple(
            f"search.{name}" for name in named if getattr(search, name) != getattr(default, name)
        ),
    )


def _write_config(run: Run) -> dict[str, Any]:
    """The content of config.json, except for the ids of special tokens; the task is named if it is
    not the usual one."""
    config = run.recipe.model
    task = run.recipe.task
    source = run.tokenizers["source"]
    target = run.tokenizers["target"]
    settings = {
        "model_type": MODEL_TYPES[config.norm],
        "is_encoder_decoder": True,
        **config_fields(FIELDS, config),
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.feed_forward,
        "activation_function": config.activation,
        "scale_embedding": True,
        "static_position_embeddings": True,
        **({} if task == DEFAULT_TASKS[config.norm] else {"task_specific_params": {task: {}}}),
    }
    if config.norm == "pre":
        return settings | {
            "vocab_size": max(source.size, target.size),
            "tie_word_embeddings": config.tie == "all",
        }
    return settings | {
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
        "bos_token_id": target.begin,
    }


# Weights


def weight_names(config: dict[str, Any]) -> dict[str, str]:
    """Our names of all weights -> theirs."""
    table = {
        "output.linear.bias": READOUT_BIAS,
        "source_embedding.weight": SHARED_TABLE if config["tie"] == "all" else ENCODER_TABLE,
    }
    if config["tie"] != "all":
        table["target_embedding.weight"] = DECODER_TABLE
    if config["tie"] == "none":
        table["output.linear.weight"] = READOUT_TABLE
    for side, layer in LAYER_WEIGHTS.items():
        for number in range(config[f"{side}_layers"]):
            table |= prefixed(f"{side}.{number}.", f"model.{side}.layers.{number}.", layer)
        if config["norm"] == "pre":
            table[f"{side}_norm"] = f"model.{side}.layer_norm"
    return table


def read_weights(
    theirs: Mapping[str, Tensor], config: dict[str, Any], where: str
) -> dict[str, Tensor]:
    """The weights under our names, with the width in our order. Which names of a shared table are
    in the file differs, and some files have no bias of the readout."""
    first, *copies = TIED_TABLES[config["tie"]]
    unused = POSITION_TABLES if config["tie"] == "all" else (*POSITION_TABLES, SHARED_TABLE)
    weights = {name: tensor for name, tensor in theirs.items() if name not in unused}
    weights = without_copies(weights, dict.fromkeys(copies, first), where)
    if first in weights:
        weights[READOUT_BIAS] = weights.get(
            READOUT_BIAS, torch.zeros(len(weights[first]))
        ).flatten()
    return _reordered(
        to_ours(weight_names(config), weights, where), _order(config["width"]).argsort()
    )


def _pad_tables(theirs: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    """Tables that are not shared, padded to the one size that Pegasus has. Rows that are added are
    never read, and never written: their bias is minus infinity."""
    tables = {
        ENCODER_TABLE: theirs[ENCODER_TABLE],
        DECODER_TABLE: theirs[DECODER_TABLE],
        SHARED_TABLE: theirs[DECODER_TABLE],
    }
    tables[READOUT_TABLE] = theirs.get(READOUT_TABLE, theirs[DECODER_TABLE])
    padded = {
        name: F.pad(table_VD, (0, 0, 0, rows - len(table_VD))).clone()
        for name, table_VD in tables.items()
    }
    return (
        theirs
        | padded
        | {
            READOUT_BIAS: F.pad(
                theirs[READOUT_BIAS], (0, rows - theirs[READOUT_BIAS].shape[1]), value=float("-inf")
            )
        }
    )


def _order(width: int) -> Tensor:
    """Dimension d of theirs is dimension order_D[d] of ours: sine 0, sine 1, ..., cosine 0, cosine
    1, ..."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def _reordered(weights: Mapping[str, Tensor], order_D: Tensor) -> dict[str, Tensor]:
    """The same weights with the width in another order; those of another size, refused later, stay
    as they are."""
    reordered = dict(weights)
    for axis, names in WIDTH_AXES.items():
        for name in filter(names.fullmatch, weights):
            if weights[name].shape[axis : axis + 1] == order_D.shape:
                reordered[name] = weights[name].index_select(axis, order_D)
    return reordered


# Tokenizers


def _read_trees(folder: ModelFolder, *, shared: bool) -> list[TokenizerTree]:
    """One tokenizer.json for both sides, or one each. Marian has a SentencePiece model for each
    side and one vocabulary for both or one each; Pegasus has one SentencePiece model, whose pieces
    come after tokens of its pre-training."""
    if (folder.path / "source.spm").exists():
        trees = []
        for side, name in (
            ("source", "vocab.json"),
            ("target", "vocab.json" if shared else "target_vocab.json"),
        ):
            ids = folder.json(name)
            if (
                sorted(ids.values()) != list(range(len(ids)))
                or not {END_TOKEN, UNKNOWN_TOKEN, PAD_TOKEN} <= ids.keys()
            ):
                hint = (
                    f"expected: pieces with ids from 0 on, {END_TOKEN}, {UNKNOWN_TOKEN} and "
                    f"{PAD_TOKEN} among them"
                )
                raise DataError(
                    "is not the vocabulary of a Marian model",
                    where=str(folder.path / name),
                    hint=hint,
                )
            trees.append(_tree(folder, f"{side}.spm", ids))
        return trees
    files = [
        file
        for file in ("tokenizer.json", "target/tokenizer.json")
        if (folder.path / file).exists()
    ]
    if files:
        for file in files:  # raises an error that names the damaged file
            Tokenizer.load(folder.path / file)
        return [folder.json(file) for file in files]
    path = folder.path / "spiece.model"
    settings = folder.path / "tokenizer_config.json"
    if not path.exists():
        hint = "expected: source.spm, target.spm and vocab.json, tokenizer.json, or spiece.model"
        raise DataError("there is no tokenizer in the folder", where=folder.name, hint=hint)
    offset = folder.json(settings.name).get("offset", 103)  # its own tokens, before the pieces
    if not isinstance(offset, int) or not 2 <= offset <= MAX_NUMBER:
        raise DataError(f"offset: {offset!r} is not a number of tokens", where=str(settings))
    pieces = convert_sentencepiece(path.read_bytes(), str(path)).get_vocab(with_added_tokens=False)
    masks = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, offset))]
    names = [
        PAD_TOKEN,
        END_TOKEN,
        *masks,
        *(
            piece
            for piece in sorted(pieces, key=pieces.__getitem__)
            if piece not in (PAD_TOKEN, END_TOKEN)
        ),
    ]
    return [_tree(folder, path.name, {piece: number for number, piece in enumerate(names)})]


def _tree(folder: ModelFolder, name: str, ids: Mapping[str, int]) -> TokenizerTree:
    """The tokenizer.json of a SentencePiece model. Language codes such as `>>fra<<` are tokens as
    they are typed."""
    path = folder.path / name
    if not path.exists():
        raise DataError(
            "there is no such file",
            where=str(path),
            hint="a Marian model has source.spm and target.spm",
        )
    tokenizer = convert_sentencepiece(path.read_bytes(), str(path), ids)
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in (END_TOKEN, UNKNOWN_TOKEN, PAD_TOKEN)
        ]
    )
    codes = [token for token in ids if token.startswith(">>") and token.endswith("<<")]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in codes])
    tree: TokenizerTree = json.loads(tokenizer.to_str())
    return with_template(tree, f"$A {END_TOKEN}")


ARCHITECTURE = Architecture(
    ARCHITECTURE_NAMES,
    read,
    [("translation", "transformer"), ("summarization", "transformer")],
    write,
)
