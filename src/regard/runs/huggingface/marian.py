"""Marian's Transformer, of which the OPUS-MT translation models are, under the names of `transformers`.

It is the Transformer of the paper, but for the order of the width: all sines stand before all cosines, while ours are
interleaved. So every weight that reads or writes the width is put into our order, which changes no value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError, DataError
from regard.layers.positions import sinusoidal_positions
from regard.models.transformer import TransformerConfig
from regard.runs.huggingface.exchanged import Exported, Imported
from regard.runs.huggingface.folder import ModelFolder
from regard.runs.huggingface.marian_vocabularies import read_tokenizers
from regard.runs.huggingface.renaming import Change, Renaming, affine, joined, to_ours, to_theirs
from regard.runs.run import Run, stored_weights

ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
"""Their name -> ours."""
SHARED = "model.shared.weight"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Waves that older files hold beside the weights."""


def read(folder: ModelFolder) -> Imported:
    """A MarianMTModel with one vocabulary or two."""
    folder.expect(
        {
            "activation_function": tuple(ACTIVATIONS),
            "scale_embedding": (True,),
            "static_position_embeddings": (True,),
            "normalize_before": (False,),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (False,),
            "decoder_attention_heads": (folder.number("encoder_attention_heads"),),
            "decoder_ffn_dim": (folder.number("encoder_ffn_dim"),),
        }
    )
    theirs = folder.weights()
    config: dict[str, Any] = {
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
        "tie": _tie(folder, theirs),
    }
    weights = to_ours(renamings(config), _plain(theirs, config["tie"], folder), folder.name)
    rows = len(weights["source_embedding.weight"]), len(weights["output.linear.bias"])
    begin = folder.number("decoder_start_token_id", folder.number("pad_token_id", 0))
    tokenizers = read_tokenizers(folder, rows, begin, shared=config["tie"] == "all")
    beam = folder.json("generation_config.json").get("num_beams") or folder.config.get("num_beams") or 1
    return Imported("translation", config, weights, tokenizers, {"search": {"beam": int(beam)}})


def _tie(folder: ModelFolder, theirs: dict[str, Tensor]) -> str:
    if folder.config.get("share_encoder_decoder_embeddings", True):
        return "all"
    untied = "lm_head.weight" in theirs and not torch.equal(theirs["lm_head.weight"], theirs[DECODER])
    return "none" if untied else "target"


def _plain(theirs: dict[str, Tensor], tie: str, folder: ModelFolder) -> dict[str, Tensor]:
    """Each tensor once: which of several names of a shared one is in the file differs."""
    found = {name: tensor for name, tensor in theirs.items() if name not in POSITIONS}
    for name in theirs.keys() & set(POSITIONS):
        _refuse_other_waves(theirs[name], f"{folder.name}: {name}")
    copies = {"all": (SHARED, ENCODER, DECODER, "lm_head.weight"), "target": (DECODER, "lm_head.weight"), "none": ()}
    tables = [found.pop(name) for name in copies[tie] if name in found]
    if any(not torch.equal(table, tables[0]) for table in tables[1:]):
        what = "embeddings that config.json calls shared have different values"
        raise DataError(what, where=folder.name, hint="the readout of Marian's models is their target embedding")
    if tables:
        found[copies[tie][0]] = tables[0]
    if tie != "all":
        found.pop(SHARED, None)
    return found


def _refuse_other_waves(table_LD: Tensor, where: str) -> None:
    """Positions that a file holds must be the waves that stand in their place here."""
    length, width = table_LD.shape
    waves_LD = sinusoidal_positions(length, width)[:, _order(width).argsort()]
    if not torch.allclose(table_LD, waves_LD, atol=1e-3):
        raise DataError("the positions are not sinusoidal", where=where, hint="Marian's own models have waves")


def write(run: Run, model: Any) -> Exported:
    """A MarianMTModel, for a Transformer that is the paper's."""
    config = run.recipe.model
    _refuse_ablations(run, config)
    target = run.tokenizers["target"]
    shared = config.tie == "all"
    special = {"pad_token_id": target.pad, "eos_token_id": target.end, "decoder_start_token_id": target.begin}
    return Exported(
        "MarianMTModel",
        {
            "model_type": "marian",
            "is_encoder_decoder": True,
            "vocab_size": run.tokenizers["source"].size,
            "decoder_vocab_size": target.size,
            "share_encoder_decoder_embeddings": shared,
            "tie_word_embeddings": config.tie != "none",
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
            "bos_token_id": target.begin,
            **special,
        },
        to_theirs(renamings(config.model_dump()), stored_weights(model)),
        ("$A", *run.tokenizers["source"].tokens([run.tokenizers["source"].end])),
        special
        | {
            "num_beams": run.recipe.search.beam,
            "length_penalty": run.recipe.search.length_penalty,
            "max_length": config.max_positions,
            "bad_words_ids": [[token] for token in sorted({target.pad, target.begin, target.unk} - {target.end})],
        },
    )


def _refuse_ablations(run: Run, config: TransformerConfig) -> None:
    wanted = {"norm": "post", "positions": "sinusoidal", "scaled": True, "look_ahead": False, "residual": True}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            what = f"a transformer with {name}: {getattr(config, name)} is no Marian model"
            raise CheckpointError(what, where=str(run.folder), hint=f"one with model.{name}: {value} can be exported")
    if config.width % 2:
        raise CheckpointError("a Marian model has an even width", where=str(run.folder), hint="model.width")


def renamings(config: dict[str, Any]) -> list[Renaming]:
    """All weights of a Marian model of these sizes, its embeddings tied or not."""
    width = config["width"]
    order_D = _order(width)
    source, target = {"all": (SHARED, None), "target": (ENCODER, DECODER), "none": (ENCODER, DECODER)}[config["tie"]]
    pairs = [_ordered("source_embedding.weight", source, order_D, 1)]
    if target is not None:
        pairs.append(_ordered("target_embedding.weight", target, order_D, 1))
    if config["tie"] == "none":
        pairs.append(_ordered("output.linear.weight", "lm_head.weight", order_D, 1))
    bias = Renaming(("output.linear.bias",), ("final_logits_bias",), lambda b: [b.flatten()], lambda b: [b[None]])
    for number in range(config["encoder_layers"]):
        ours, theirs = f"encoder.{number}", f"model.encoder.layers.{number}"
        pairs += _attention(f"{ours}.self_attention", f"{theirs}.self_attn", order_D)
        pairs += _writes(f"{ours}.around_attention.norm", f"{theirs}.self_attn_layer_norm", order_D)
        pairs += _feed_forward(ours, theirs, order_D)
    for number in range(config["decoder_layers"]):
        ours, theirs = f"decoder.{number}", f"model.decoder.layers.{number}"
        for own, their in (("self", "self_attn"), ("cross", "encoder_attn")):
            pairs += _attention(f"{ours}.{own}_attention", f"{theirs}.{their}", order_D)
            pairs += _writes(f"{ours}.around_{own}.norm", f"{theirs}.{their}_layer_norm", order_D)
        pairs += _feed_forward(ours, theirs, order_D)
    return [*pairs, bias]


def _order(width: int) -> Tensor:
    """Our place d is their place order_D[d]: sine 0, cosine 0, sine 1, ..."""
    return torch.arange(width).view(2, width // 2).T.flatten()


def _ordered(ours: str, theirs: str, order_D: Tensor, axis: int) -> Renaming:
    """A tensor one of whose axes is the width."""
    return Renaming((ours,), (theirs,), *_both_ways(order_D, axis))


def _both_ways(order_D: Tensor, axis: int) -> tuple[Change, Change]:
    back_D = order_D.argsort()
    return (lambda x: [x.index_select(axis, order_D)]), (lambda x: [x.index_select(axis, back_D)])


def _writes(ours: str, theirs: str, order_D: Tensor) -> list[Renaming]:
    """Weight and bias of what writes the width: a linear layer, or a norm."""
    return [_ordered(f"{ours}.{kind}", f"{theirs}.{kind}", order_D, 0) for kind in ("weight", "bias")]


def _reads(pairs: list[Renaming], order_D: Tensor) -> list[Renaming]:
    """Linear layers that read the width: the columns of their matrices are in another order."""
    read, write = _both_ways(order_D, 1)
    weight, bias = pairs

    def reading(*theirs: Tensor) -> list[Tensor]:
        return [read(tensor)[0] for tensor in weight.read(*theirs)]

    def writing(*ours: Tensor) -> list[Tensor]:
        return list(weight.write(*(write(tensor)[0] for tensor in ours)))

    return [Renaming(weight.ours, weight.theirs, reading, writing), bias]


def _attention(ours: str, theirs: str, order_D: Tensor) -> list[Renaming]:
    return [
        *_reads(affine(f"{ours}.W_Q", f"{theirs}.q_proj"), order_D),
        *_reads(joined(f"{ours}.W_KV", f"{theirs}.k_proj", f"{theirs}.v_proj"), order_D),
        *_writes(f"{ours}.W_O", f"{theirs}.out_proj", order_D),
    ]


def _feed_forward(ours: str, theirs: str, order_D: Tensor) -> list[Renaming]:
    return [
        *_reads(affine(f"{ours}.feed_forward.W_1", f"{theirs}.fc1"), order_D),
        *_writes(f"{ours}.feed_forward.W_2", f"{theirs}.fc2", order_D),
        *_writes(f"{ours}.around_feed_forward.norm", f"{theirs}.final_layer_norm", order_D),
    ]
