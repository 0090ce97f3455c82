"""GPT-2, which is GPT with its LayerNorms before the sub-layers, under the names of
`transformers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.exchange.folder import (
    Architecture,
    Exported,
    Fields,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import prefixed, to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import read_tokenizer
from regard.runs.run import Run
from regard.runs.weights import stored_weights
from regard.text.tokenizers import Tokenizers

FIELDS: Fields = {
    "layers": ("n_layer", None),
    "width": ("n_embd", None),
    "heads": ("n_head", None),
    "max_positions": ("n_positions", None),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
}
FIXED_SETTINGS: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
"""Settings that our GPT has in one form only; the value that is written comes first."""
# constant tables that older files have beside the weights
MASK_TABLES = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
TRANSPOSED_WEIGHTS = re.compile(r"h\.\d+\.(attn|mlp)\.c_\w+\.weight")
"""Matrices of linear layers, which GPT-2 stores transposed."""
MODEL_WEIGHTS = {
    "embedding.weight": "wte.weight",
    "positions.learned.weight": "wpe.weight",
    "norm": "ln_f",
}
LAYER_WEIGHTS = {
    "attention_norm": "ln_1",
    "self_attention.W_Q self_attention.W_KV "
    "self_attention.W_KV": "attn.c_attn attn.c_attn attn.c_attn",
    "self_attention.W_O": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.W_1": "mlp.c_fc",
    "feed_forward.W_2": "mlp.c_proj",
}
"""Our names of weights -> theirs: of the model, and of a layer."""


def read(folder: ModelFolder) -> Imported:
    """Read a GPT2Model or GPT2LMHeadModel."""
    folder.expect(FIXED_SETTINGS)
    config = {"kind": "gpt", "norm": "pre", **folder.fields(FIELDS)}
    config["feed_forward"] = folder.number("n_inner", 4 * config["width"])
    weights = to_ours(
        weight_names(config["layers"]), each_once(folder.weights(), folder.name), folder.name
    )
    tokenizer = read_tokenizer(folder, len(weights["embedding.weight"]), begin="bos", end="eos")
    data = {"max_length": config["max_positions"]}
    return Imported(
        "language_modeling", config, weights, Tokenizers({"text": tokenizer}), {"data": data}
    )


def each_once(theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Each tensor once, without constant tables; matrices as linear layers have them."""
    named = {name.removeprefix("transformer."): tensor for name, tensor in theirs.items()}
    weights = {name: tensor for name, tensor in named.items() if not MASK_TABLES.fullmatch(name)}
    return _transposed(without_copies(weights, {"lm_head.weight": "wte.weight"}, where))


def write(run: Run, checkpoint: str) -> Exported:
    """Write a GPT2LMHeadModel. The paper's GPT, with its norms after the sub-layers, is not a
    GPT-2."""
    config = run.recipe.model
    tokenizer = run.tokenizers["text"]
    require_settings(run, "model", {"norm": ("pre",), "look_ahead": (False,)}, tool="transformers")
    theirs = to_theirs(weight_names(config.layers), stored_weights(run.load_model(checkpoint)))
    ids = {
        "bos_token_id": tokenizer.end,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
    }
    [end] = tokenizer.tokens([tokenizer.end])
    return Exported(
        "GPT2LMHeadModel",
        {
            "model_type": "gpt2",
            "vocab_size": tokenizer.size,
            "n_inner": config.feed_forward,
            "embd_pdrop": config.dropout,
            **config_fields(FIELDS, config),
            **{name: values[0] for name, values in FIXED_SETTINGS.items()},
            **ids,
        },
        {f"transformer.{name}": tensor for name, tensor in _transposed(theirs).items()},
        f"{end} $A",
        config.max_positions,
        ids,
        continues=True,
        raw_text=bool(run.recipe.data.train),
    )


def weight_names(layers: int) -> dict[str, str]:
    """Our names of all weights -> theirs."""
    table = dict(MODEL_WEIGHTS)
    for number in range(layers):
        table |= prefixed(f"blocks.{number}.", f"h.{number}.", LAYER_WEIGHTS)
    return table


def _transposed(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.T if TRANSPOSED_WEIGHTS.fullmatch(name) else tensor
        for name, tensor in theirs.items()
    }


ARCHITECTURE = Architecture(
    {"gpt2": ("GPT2Model", "GPT2LMHeadModel")}, read, [("language_modeling", "gpt")], write
)
