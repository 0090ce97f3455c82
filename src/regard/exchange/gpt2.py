"""GPT-2, which is GPT with its LayerNorms before the sub-layers, under the names of `transformers`."""

from __future__ import annotations

import re
from typing import Any

import torch

from regard.errors import DataError
from regard.exchange.folder import Exported, Fields, Imported, ModelFolder, config_fields, require_settings
from regard.exchange.renaming import Renaming, affine, same, to_ours, to_theirs
from regard.exchange.tokenizers import read_tokenizer
from regard.runs.run import Run, stored_weights
from regard.text.tokenizers import Tokenizers

ARCHITECTURES = ("GPT2Model", "GPT2LMHeadModel")
"""Both have the same weights."""
FIELDS: Fields = {
    "layers": ("n_layer", None),
    "width": ("n_embd", None),
    "heads": ("n_head", None),
    "max_positions": ("n_positions", None),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
}
FIXED: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
"""What our GPT has in one form only; a value that is written comes first."""
MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
"""Constant tables that older files have beside the weights."""


def read(folder: ModelFolder) -> Imported:
    """A GPT2Model or GPT2LMHeadModel."""
    folder.expect(FIXED)
    config = {"kind": "gpt", "norm": "pre", **folder.fields(FIELDS)}
    config["feed_forward"] = folder.number("n_inner", 4 * config["width"])
    theirs = {name.removeprefix("transformer."): tensor for name, tensor in folder.weights().items()}
    if "lm_head.weight" in theirs and not torch.equal(theirs.pop("lm_head.weight"), theirs["wte.weight"]):
        what = "the readout has other weights than the embeddings, which are one and the same here"
        raise DataError(what, where=f"{folder.name}: lm_head.weight")
    theirs = {name: tensor for name, tensor in theirs.items() if not MASKS.fullmatch(name)}
    weights = to_ours(_renamings(config["layers"], config["width"]), theirs, folder.name)
    tokenizer = read_tokenizer(folder, len(weights["embedding.weight"]), begin="bos", end="eos")
    data = {"max_length": config["max_positions"]}
    return Imported("language_modeling", config, weights, Tokenizers({"text": tokenizer}), {"data": data})


def write(run: Run, checkpoint: str) -> Exported:
    """A GPT2LMHeadModel; the paper's GPT, with its norms after the sub-layers, is none."""
    config, tokenizer = run.recipe.model, run.tokenizers["text"]
    require_settings(config, {"norm": ("pre",)}, path="model", tool="transformers", where=run.folder)
    theirs = to_theirs(_renamings(config.layers, config.width), stored_weights(run.load_model(checkpoint)))
    ids = {"bos_token_id": tokenizer.end, "eos_token_id": tokenizer.end, "pad_token_id": tokenizer.pad}
    sizes = {"model_type": "gpt2", "vocab_size": tokenizer.size, "n_inner": config.feed_forward}
    fixed = {name: values[0] for name, values in FIXED.items()}
    return Exported(
        "GPT2LMHeadModel",
        {**sizes, **config_fields(FIELDS, config), "embd_pdrop": config.dropout, **fixed, **ids},
        {f"transformer.{name}": tensor for name, tensor in theirs.items()},
        (*tokenizer.tokens([tokenizer.end]), "$A"),
        ids,
        raw_text=bool(run.recipe.data.train),
    )


def _renamings(layers: int, width: int) -> list[Renaming]:
    """All weights of a GPT-2 of this size."""
    pairs = [
        *same("embedding.weight", "wte.weight"),
        *same("positions.learned.weight", "wpe.weight"),
        *affine("norm", "ln_f"),
    ]
    for number in range(layers):
        ours, theirs = f"blocks.{number}", f"h.{number}"
        pairs += affine(f"{ours}.attention_norm", f"{theirs}.ln_1")
        pairs += _queries_keys_values(f"{ours}.self_attention", f"{theirs}.attn.c_attn", width)
        pairs += _transposed(f"{ours}.self_attention.W_O", f"{theirs}.attn.c_proj")
        pairs += affine(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
        pairs += _transposed(f"{ours}.feed_forward.W_1", f"{theirs}.mlp.c_fc")
        pairs += _transposed(f"{ours}.feed_forward.W_2", f"{theirs}.mlp.c_proj")
    return pairs


def _transposed(ours: str, theirs: str) -> list[Renaming]:
    """A linear layer, whose matrix is stored transposed there."""
    weight = Renaming((f"{ours}.weight",), (f"{theirs}.weight",), lambda w: [w.T], lambda w: [w.T])
    return [weight, *same(f"{ours}.bias", f"{theirs}.bias")]


def _queries_keys_values(ours: str, theirs: str, width: int) -> list[Renaming]:
    """One linear layer for queries, keys and values there, two here."""
    sizes = [width, 2 * width]
    names = [tuple(f"{ours}.{layer}.{kind}" for layer in ("W_Q", "W_KV")) for kind in ("weight", "bias")]
    return [
        Renaming(names[0], (f"{theirs}.weight",), lambda w: w.T.split(sizes), lambda q, kv: [torch.cat([q, kv]).T]),
        Renaming(names[1], (f"{theirs}.bias",), lambda b: b.split(sizes), lambda q, kv: [torch.cat([q, kv])]),
    ]
