"""Linear layers in 8 bits."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from regard.layers.linear import ACTIVATIONS, Linear

MANY_ROWS, MANY_OUTPUTS = 64, 8192
"""With at least so many, as in a readout, oneDNN's int8 product is faster than FBGEMM's."""


class Int8Linear(Linear):
    """x W^T + b with 8 bits: one scale for each row of W, and one for x, found as it comes. On a CPU, no gradients."""

    def __init__(self, layer: Linear) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = layer.weight, layer.bias
        W = layer.weight.detach()
        scale_E = (W.abs().amax(1).double() / 127).clamp(min=1e-12)
        zeros_E, bias = torch.zeros_like(scale_E, dtype=torch.long), None if layer.bias is None else layer.bias.detach()
        with warnings.catch_warnings():  # torch means to replace these tensors; it has no other fast product yet
            warnings.simplefilter("ignore", UserWarning)
            W_8 = torch.quantize_per_channel(W, scale_E, zeros_E, 0, torch.qint8)
            self.packed = self.packed_for_many = torch.ops.quantized.linear_prepack(W_8, bias)
            usual, engines = torch.backends.quantized.engine, torch.backends.quantized.supported_engines
            if len(W) >= MANY_OUTPUTS and "onednn" in engines:
                torch.backends.quantized.engine = "onednn"
                self.packed_for_many = torch.ops.quantized.linear_prepack(W_8, bias)
                torch.backends.quantized.engine = usual

    def forward(self, x: Tensor, activation: str = "none") -> Tensor:
        packed = self.packed_for_many if x.numel() >= MANY_ROWS * x.shape[-1] else self.packed
        if activation == "relu":
            rectified: Tensor = torch.ops.quantized.linear_relu_dynamic(x, packed, True)
            return rectified
        y: Tensor = torch.ops.quantized.linear_dynamic(x, packed, True)
        return ACTIVATIONS[activation](y)


def with_int8(model: nn.Module) -> nn.Module:
    """The model with all its linear layers in 8 bits; embeddings, norms and recurrent cells stay as they are."""
    for module in [*model.modules()]:
        for name, layer in module.named_children():
            if type(layer) is Linear:
                setattr(module, name, Int8Linear(layer))
    return model
