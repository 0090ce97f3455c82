"""The Transformer under the names of `transformers`: a post-norm one is a Marian model, like those
of OPUS-MT, a pre-norm one a Pegasus (Zhang et al. 2020, arXiv:1912.08777).

Both are the Transformer of the paper, except for the order of the width: in their positions all
sines come before all cosines, while ours are interleaved as in the paper. So every weight that
reads or writes the width is put into our order, which changes no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DataError
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
    reordered,
    special_ids,
    width_order,
    write_search,
)
from regard.exchange.folder import (
    MAX_NUMBER,
    Architecture,
    Exported,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import TokenizerTree, fit_rows, ids_of, with_template
from regard.layers.embeddings import sinusoidal_positions
from regard.runs.run import Run
from regard.runs.weights import stored_weights
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
ALLOWED_SETTINGS: dict[str, tuple[Any, ...]] = {
    "norm": tuple(MODEL_TYPES),
    "positions": ("sinusoidal",),
    "first_position": (0,),
    "scaled_embeddings": (True,),
    "embedding_norm": (False,),
    "readout_bias": (True,),
    "scaled": (True,),
    "look_ahead": (False,),
    "residual": (True,),
}
"""The settings of a Transformer that either architecture has."""
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Sinusoidal positions, which some files have beside the weights; they are never trained."""
TIED_TABLES = {
    "all": (SHARED_TABLE, ENCODER_TABLE, DECODER_TABLE, READOUT_TABLE),
    "target": (DECODER_TABLE, READOUT_TABLE),
    "none": (READOUT_TABLE,),
}
"""`model.tie` -> the names of the table of the readout, of which any may be in the file."""
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
        {"search": read_search(folder)},
    )


def _read_config(folder: ModelFolder, norm: str, theirs: Mapping[str, Tensor]) -> dict[str, Any]:
    """The section `model`. The weights show which embeddings are shared, if config.json does
    not."""
    folder.expect(
        {
            **fixed_settings(folder),
            "scale_embedding": (True,),
            "static_position_embeddings": (True,),
            "normalize_before": (norm == "pre",),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (norm == "pre",),
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


def write(run: Run, checkpoint: str) -> Exported:
    """Write a MarianMTModel or, for a pre-norm model, a PegasusForConditionalGeneration."""
    config = run.recipe.model
    source = run.tokenizers["source"]
    target = run.tokenizers["target"]
    require_settings(run, "model", ALLOWED_SETTINGS, tool="transformers")
    order_D = width_order(config.width)
    theirs = to_theirs(
        weight_names(config.model_dump()),
        reordered(stored_weights(run.load_model(checkpoint)), order_D),
    )
    theirs[READOUT_BIAS] = theirs[READOUT_BIAS][None]
    if config.norm == "pre":  # Pegasus computes its positions, but reports them as missing
        positions_LD = sinusoidal_positions(config.max_positions, config.width)[:, order_D]
        theirs |= {name: positions_LD.clone() for name in POSITION_TABLES}
        theirs = (
            theirs if config.tie == "all" else _pad_tables(theirs, max(source.size, target.size))
        )
    ids = special_ids(run)
    [end] = source.tokens([source.end])
    generation, not_exported = write_search(run)
    return Exported(
        ARCHITECTURE_NAMES[MODEL_TYPES[config.norm]][0],
        _write_config(run) | ids,
        theirs,
        f"$A {end}",
        config.max_positions,
        ids | generation,
        not_exported,
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
    return table | block_names(config)


def read_weights(
    theirs: dict[str, Tensor], config: dict[str, Any], where: str
) -> dict[str, Tensor]:
    """The weights under our names, with the width in our order, taken out of `theirs`. Which names of
    a shared table are in the file differs, and some files have no bias of the readout."""
    first, *copies = TIED_TABLES[config["tie"]]
    unused = POSITION_TABLES if config["tie"] == "all" else (*POSITION_TABLES, SHARED_TABLE)
    weights = {name: theirs.pop(name) for name in list(theirs)}
    weights = {name: tensor for name, tensor in weights.items() if name not in unused}
    weights = without_copies(weights, dict.fromkeys(copies, first), where)
    if first in weights:
        weights[READOUT_BIAS] = weights.get(
            READOUT_BIAS, torch.zeros(len(weights[first]))
        ).flatten()
    return reordered(
        to_ours(weight_names(config), weights, where), width_order(config["width"]).argsort()
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
