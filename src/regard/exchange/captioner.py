"""A captioner with a Transformer's decoder for `transformers`: the decoder, which is pre-norm, as a PegasusForCausalLM,
and beside it the network that looks at the image as a program of torch.export, encoder.pt2.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.exchange.exchanged import Exported
from regard.exchange.marian import config_of, generation_of
from regard.exchange.marian_weights import POSITIONS, decoder_renamings, order_of_width, waves
from regard.exchange.renaming import to_theirs
from regard.models.captioner import TransformerCaptioner
from regard.runs.run import Run, stored_weights
from regard.search.rules import length_limits

ARCHITECTURE, ENCODER = "PegasusForCausalLM", "encoder.pt2"


def write(run: Run, model: Any) -> Exported:
    """The decoder that attends to the regions of an image, and what makes these of it."""
    _refuse_others(run, model)
    target, longest = run.tokenizers["target"], 1 + _longest(run, model)  # the token that begins counts there
    places, width = max(longest, model.block.max_positions), model.config.width
    theirs = to_theirs(decoder_renamings(width, model.config.layers), _without_bias(stored_weights(model)))
    ids = {
        # A start that is padding, too, as in vocabularies of Marian, would not be looked at there.
        "pad_token_id": target.end if target.pad == target.begin else target.pad,
        "bos_token_id": target.begin,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
    }
    # Their search gives a decoder that stands alone one cache, and it would put the regions among the words there.
    generation = generation_of(run.recipe.search, target) | {"max_length": longest, "use_cache": False}
    begin, end = target.tokens([target.begin, target.end])
    return Exported(
        ARCHITECTURE,
        _config(model) | {"max_position_embeddings": places, "vocab_size": target.size} | ids,
        theirs | {POSITIONS[1]: waves(places, width).contiguous()},
        (begin, "$A", end),
        ids | generation,
        {ENCODER: _program(model)},
    )


def _refuse_others(run: Run, model: Any) -> None:
    config = run.recipe.model
    if not isinstance(model, TransformerCaptioner):
        what = f"transformers has no model like a captioner with decoder: {config.decoder}, which is an LSTM"
        hint = "one with model.decoder: transformer can be exported"
        raise CheckpointError(what, where=str(run.folder), hint=hint)
    if config.width % 2:
        what = f"transformers has no model like a captioner with width: {config.width}"
        raise CheckpointError(what, where=str(run.folder), hint="one whose model.width is even can be exported")


def _longest(run: Run, model: TransformerCaptioner) -> int:
    """Most tokens to write; how many regions features have, on which that hangs, is known only when they come."""
    search, reading = run.recipe.search, model.config.reading
    most = search.max_length or model.block.max_positions
    known = reading.feature_width is None
    return min(most, *length_limits([reading.rows * reading.columns], search)) if known else most


def _config(model: TransformerCaptioner) -> dict[str, Any]:
    """config.json, but for what hangs on the vocabulary and the search; the encoder's sizes mean nothing."""
    return config_of(model.block) | {
        "model_type": "pegasus",
        "encoder_layers": model.config.layers,
        "is_encoder_decoder": False,
        "is_decoder": True,
        "add_cross_attention": True,
        "tie_word_embeddings": False,
    }


def _without_bias(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same logits without the readout's bias, which their class lacks; the norm before the readout takes it over.

    What a LayerNorm (Ba et al. 2016, arXiv:1607.06450) has before its gain g and bias b, n, sums to 0. So
        W (g * n + b) + c = (W diag(g) + u 1^T) (n + 1)        u = (W b + c - W g) / D
    for 1^T n = 0 and 1^T 1 = D: the norm has 1 for its gain and its bias, and the readout is the matrix on the right.
    """
    names = ("output.linear.weight", "output.linear.bias", "decoder_norm.weight", "decoder_norm.bias")
    W_VD, c_V, g_D, b_D = (ours[name].detach().double() for name in names)
    u_V = (W_VD @ (b_D - g_D) + c_V) / len(g_D)
    ones_D = torch.ones_like(ours[names[2]])
    return ours | {names[0]: (W_VD * g_D + u_V[:, None]).float(), names[2]: ones_D, names[3]: ones_D}


class RegionEncoder(nn.Module):
    """Pixels as bytes, [B, size, size, 3], or features [B, rows, columns, D] -> what the decoder attends to, [B, S, D],
    row by row from the top left, with the width in the order of the decoder's weights."""

    back_D: Tensor

    def __init__(self, model: TransformerCaptioner) -> None:
        super().__init__()
        self.image_encoder, self.reading = model.image_encoder, model.config.reading
        self.register_buffer("back_D", order_of_width(model.config.width).argsort())

    def forward(self, shown: Tensor) -> Tensor:
        columns = self.reading.columns
        if self.reading.feature_width is not None:
            columns, shown = shown.shape[2], shown.flatten(1, 2)
        columns_B = torch.full((shown.shape[0],), columns, device=shown.device)  # `len` would fix the number
        regions_BSD: Tensor = self.image_encoder.regions(shown, columns_B)
        return regions_BSD.index_select(-1, self.back_D)


def _program(model: TransformerCaptioner) -> bytes:
    """The encoder as torch.export.load reads it, for any number of images, and features of any grid."""
    size, width, free = model.config.images.size, model.config.feature_width, torch.export.Dim.DYNAMIC
    if width is None:
        shown, shape = torch.zeros(2, size, size, 3, dtype=torch.uint8), {0: free}
    else:
        shown, shape = torch.zeros(2, 3, 4, width), {0: free, 1: free, 2: free}
    program, written = torch.export.export(RegionEncoder(model).eval(), (shown,), dynamic_shapes=(shape,)), io.BytesIO()
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # where the sources lie on this machine is nobody's business
    program.example_inputs = None
    torch.export.save(program, written)
    return written.getvalue()
