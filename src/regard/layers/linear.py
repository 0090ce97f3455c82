"""Linear layers, activations and dropout: what every model is made of.

`regard/engine` has faster ways to compute the same numbers; with REGARD_ENGINE=plain the code below
is what runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.engine import first_that_applies
from regard.engine.dropout import DROPOUT
from regard.engine.products import ACTIVATED_PRODUCTS, PRODUCTS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}
"""`model.activation` -> function. Hendrycks & Gimpel 2016, arXiv:1606.08415, with X standard
normal: GELU(x) = x P(X <= x) ~ 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W^T + b"""
    if product := first_that_applies(PRODUCTS, x, W):
        return product(x, W, b)
    return F.linear(x, W, b)


class Linear(nn.Linear):
    """f(x W^T + b), with the name of an activation f from `ACTIVATIONS`."""

    def forward(self, x: Tensor, activation: str = "none") -> Tensor:
        if product := first_that_applies(ACTIVATED_PRODUCTS, x, self.weight, activation):
            return product(x, self.weight, self.bias, activation)
        return ACTIVATIONS[activation](linear(x, self.weight, self.bias))


class Dropout(nn.Dropout):
    """0 with probability p, else x / (1 - p). Srivastava et al. 2014, JMLR 15, section 4."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and (kernel := first_that_applies(DROPOUT, x, self.p)):
            return kernel(x, self.p)
        return super().forward(x)
