"""The weights of Marian's and of Pegasus's Transformer, which have the same names and the same order of the width.

All sines stand before all cosines there, while ours are interleaved as in the paper. So every weight that reads or
writes the width is put into our order, which changes no value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DataError
from regard.exchange.renaming import Change, Renaming, affine, joined
from regard.layers.positions import sinusoidal_positions

SHARED, READOUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Waves that stand in some files beside the weights."""


def plain(theirs: dict[str, Tensor], tie: str, where: str) -> dict[str, Tensor]:
    """Each tensor once: which of several names of a shared one is in the file differs."""
    found = {name: tensor for name, tensor in theirs.items() if name not in POSITIONS}
    for name in theirs.keys() & set(POSITIONS):
        _refuse_other_waves(theirs[name], f"{where}: {name}")
    copies = {"all": (SHARED, ENCODER, DECODER, READOUT), "target": (DECODER, READOUT), "none": ()}
    tables = [found.pop(name) for name in copies[tie] if name in found]
    if any(not torch.equal(table, tables[0]) for table in tables[1:]):
        what = "embeddings that config.json calls shared have different values"
        raise DataError(what, where=where, hint="the readout of such a model is its target embedding")
    if tables:
        found[copies[tie][0]] = tables[0]
    if tie != "all":
        found.pop(SHARED, None)
    readout_VD = tables[0] if tables else found.get(READOUT)
    if BIAS not in found and readout_VD is not None:
        found[BIAS] = readout_VD.new_zeros(1, len(readout_VD))
    return found


def _refuse_other_waves(table_LD: Tensor, where: str) -> None:
    """Positions that a file holds must be the waves that stand in their place here."""
    if not torch.allclose(table_LD, waves(*table_LD.shape), atol=1e-3):
        raise DataError("the positions are not sinusoidal", where=where, hint="Marian and Pegasus have waves")


def waves(length: int, width: int) -> Tensor:
    """The positions in their order."""
    return sinusoidal_positions(length, width)[:, order_of_width(width).argsort()]


def of_one_size(theirs: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    """Tables that are not shared, all with so many rows, as Pegasus has them: what stands in the rows that are added is
    never read, and never written, for its bias says that it is impossible."""
    tables = {ENCODER: theirs[ENCODER], DECODER: theirs[DECODER], READOUT: theirs.get(READOUT, theirs[DECODER])}
    filled = {name: F.pad(table_VD, (0, 0, 0, rows - len(table_VD))) for name, table_VD in tables.items()}
    bias_1V = theirs[BIAS]
    bias_1V = F.pad(bias_1V, (0, rows - bias_1V.shape[1]), value=float("-inf"))
    return theirs | filled | {SHARED: filled[DECODER].clone(), READOUT: filled[READOUT].clone(), BIAS: bias_1V}


def of_their_own_size(theirs: dict[str, Tensor], source: int, target: int) -> dict[str, Tensor]:
    """The way back: as many rows as each vocabulary has."""
    sizes = {ENCODER: source, DECODER: target, READOUT: target}
    cut = {name: theirs[name][:rows] for name, rows in sizes.items() if name in theirs}
    return theirs | cut | ({BIAS: theirs[BIAS][:, :target]} if BIAS in theirs else {})


def with_waves(theirs: dict[str, Tensor], length: int, width: int) -> dict[str, Tensor]:
    """The positions beside the weights: Pegasus works them out itself, but says that they are missing."""
    return theirs | {name: waves(length, width).contiguous() for name in POSITIONS}


def renamings(config: dict[str, Any]) -> list[Renaming]:
    """All weights of a model of these sizes, its embeddings tied or not."""
    order_D = order_of_width(config["width"])
    source, target = {"all": (SHARED, None), "target": (ENCODER, DECODER), "none": (ENCODER, DECODER)}[config["tie"]]
    pairs = [_ordered("source_embedding.weight", source, order_D, 1)]
    if target is not None:
        pairs.append(_ordered("target_embedding.weight", target, order_D, 1))
    if config["tie"] == "none":
        pairs.append(_ordered("output.linear.weight", READOUT, order_D, 1))
    bias = Renaming(("output.linear.bias",), (BIAS,), lambda b: [b.flatten()], lambda b: [b[None]])
    for number in range(config["encoder_layers"]):
        ours, theirs = f"encoder.{number}", f"model.encoder.layers.{number}"
        pairs += _attention(f"{ours}.self_attention", f"{theirs}.self_attn", order_D)
        pairs += _writes(f"{ours}.around_attention.norm", f"{theirs}.self_attn_layer_norm", order_D)
        pairs += _feed_forward(ours, theirs, order_D)
    pairs += _decoder(config["decoder_layers"], order_D)
    if config["norm"] == "pre":
        for side in ("encoder", "decoder"):
            pairs += _writes(f"{side}_norm", f"model.{side}.layer_norm", order_D)
    return [*pairs, bias]


def _decoder(layers: int, order_D: Tensor) -> list[Renaming]:
    pairs: list[Renaming] = []
    for number in range(layers):
        ours, theirs = f"decoder.{number}", f"model.decoder.layers.{number}"
        for own, their in (("self", "self_attn"), ("cross", "encoder_attn")):
            pairs += _attention(f"{ours}.{own}_attention", f"{theirs}.{their}", order_D)
            pairs += _writes(f"{ours}.around_{own}.norm", f"{theirs}.{their}_layer_norm", order_D)
        pairs += _feed_forward(ours, theirs, order_D)
    return pairs


def order_of_width(width: int) -> Tensor:
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
