"""GPT-2, which is GPT with its LayerNorms before the sub-layers, under the names of `transformers`."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError, DataError
from regard.exchange.exchanged import Exported, Imported
from regard.exchange.folder import ModelFolder
from regard.exchange.renaming import Renaming, affine, same, to_ours, to_theirs
from regard.exchange.vocabularies import read_tokenizer
from regard.runs.run import Run, stored_weights
from regard.text.tokenizers import Tokenizers

IGNORED = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
"""Masks that stand in older files beside the weights."""


def read(folder: ModelFolder) -> Imported:
    """A GPT2Model or GPT2LMHeadModel: both are the same weights."""
    folder.expect(
        {
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
            "layer_norm_epsilon": (1e-5,),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
            "tie_word_embeddings": (True,),
        }
    )
    width = folder.number("n_embd")
    config = {
        "kind": "gpt",
        "norm": "pre",
        "layers": folder.number("n_layer"),
        "width": width,
        "heads": folder.number("n_head"),
        "feed_forward": folder.number("n_inner", 4 * width),
        "max_positions": folder.number("n_positions"),
        "dropout": float(folder.config.get("resid_pdrop", 0.1)),
        "attention_dropout": float(folder.config.get("attn_pdrop", 0.1)),
    }
    weights = to_ours(renamings(config), _plain(folder), folder.name)
    tokenizer = read_tokenizer(folder, len(weights["embedding.weight"]), begin="bos", end="eos")
    data = {"max_length": config["max_positions"]}
    return Imported("language_modeling", config, weights, Tokenizers({"text": tokenizer}), {"data": data})


def _plain(folder: ModelFolder) -> dict[str, Tensor]:
    named = {name.removeprefix("transformer."): tensor for name, tensor in folder.weights().items()}
    if "lm_head.weight" in named and not torch.equal(named.pop("lm_head.weight"), named["wte.weight"]):
        what = "the readout has other weights than the embeddings, which are one and the same here"
        raise DataError(what, where=f"{folder.name}: lm_head.weight")
    return {name: tensor for name, tensor in named.items() if not IGNORED.fullmatch(name)}


def write(run: Run, model: Any) -> Exported:
    """A GPT2LMHeadModel; the paper's GPT, with its norms after the sub-layers, is none."""
    config = run.recipe.model
    if config.norm != "pre":
        what, hint = f"a gpt with norm: {config.norm} is no GPT-2", "one with model.norm: pre can be exported"
        raise CheckpointError(what, where=str(run.folder), hint=hint)
    theirs = to_theirs(renamings(config.model_dump()), stored_weights(model))
    tokenizer = run.tokenizers["text"]
    ids = {"bos_token_id": tokenizer.end, "eos_token_id": tokenizer.end, "pad_token_id": tokenizer.pad}
    return Exported(
        "GPT2LMHeadModel",
        {
            "model_type": "gpt2",
            "vocab_size": tokenizer.size,
            "n_layer": config.layers,
            "n_embd": config.width,
            "n_head": config.heads,
            "n_inner": config.feed_forward,
            "n_positions": config.max_positions,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            **ids,
        },
        {f"transformer.{name}": tensor for name, tensor in theirs.items()},
        (*tokenizer.tokens([tokenizer.end]), "$A"),
        ids,
    )


def renamings(config: dict[str, Any]) -> list[Renaming]:
    """All weights of a GPT-2 of this size."""
    pairs = [
        *same("embedding.weight", "wte.weight"),
        *same("positions.learned.weight", "wpe.weight"),
        *affine("norm", "ln_f"),
    ]
    for number in range(config["layers"]):
        pairs += _block(f"blocks.{number}", f"h.{number}", config["width"])
    return pairs


def _block(ours: str, theirs: str, width: int) -> list[Renaming]:
    return [
        *affine(f"{ours}.attention_norm", f"{theirs}.ln_1"),
        *_queries_keys_values(f"{ours}.self_attention", f"{theirs}.attn.c_attn", width),
        *_transposed(f"{ours}.self_attention.W_O", f"{theirs}.attn.c_proj"),
        *affine(f"{ours}.feed_forward_norm", f"{theirs}.ln_2"),
        *_transposed(f"{ours}.feed_forward.W_1", f"{theirs}.mlp.c_fc"),
        *_transposed(f"{ours}.feed_forward.W_2", f"{theirs}.mlp.c_proj"),
    ]


def _transposed(ours: str, theirs: str) -> list[Renaming]:
    """Their code keeps matrices the other way round."""
    weight = Renaming((f"{ours}.weight",), (f"{theirs}.weight",), lambda w: [w.T], lambda w: [w.T])
    return [weight, *same(f"{ours}.bias", f"{theirs}.bias")]


def _queries_keys_values(ours: str, theirs: str, width: int) -> list[Renaming]:
    """One matrix for queries, keys and values there, two here."""
    sizes = [width, 2 * width]
    return [
        Renaming(
            (f"{ours}.W_Q.weight", f"{ours}.W_KV.weight"),
            (f"{theirs}.weight",),
            lambda weight: weight.T.split(sizes),
            lambda q, kv: [torch.cat([q, kv]).T],
        ),
        Renaming(
            (f"{ours}.W_Q.bias", f"{ours}.W_KV.bias"),
            (f"{theirs}.bias",),
            lambda bias: bias.split(sizes),
            lambda q, kv: [torch.cat([q, kv])],
        ),
    ]
