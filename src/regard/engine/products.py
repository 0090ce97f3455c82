"""Products of matrices on a CPU, for `linear` in layers/linear.py.

A kernel of PRODUCTS computes x W^T + b, a kernel of ACTIVATED_PRODUCTS also its activation. All of them compute
in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

from regard.engine import machine

ROWS_OF_TRANSPOSED_PRODUCT = range(1, 9)
"""Numbers of rows for which a CPU computes W x^T instead of x W^T."""
MIN_WEIGHT_OF_SINGLE_ROW = 1 << 17
"""With at least this many elements of W, W x^T is faster for a single row too."""
MIN_PACKED_WEIGHT = 1 << 16
"""With at least this many elements of W, repacking W into oneDNN's layout pays off."""
MIN_TRAINED_ROWS = 512
"""With at least this many rows, oneDNN is faster in training."""

ONEDNN_ACTIVATIONS: dict[str, tuple[str, list[float], str]] = {
    "none": ("none", [], ""),
    "relu": ("relu", [], ""),
    "tanh": ("tanh", [], ""),
    "swish": ("swish", [], ""),
    "gelu": ("gelu", [], "none"),
    "gelu_tanh": ("gelu", [], "tanh"),
}
"""Activation -> oneDNN's name for it, its parameters and its variant."""


def is_eager_on_cpu(x: Tensor) -> bool:
    """Whether x is on a CPU, outside compiled code and autocast."""
    return (
        x.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


# Training: oneDNN multiplies by W without repacking it


class TrainedProduct(torch.autograd.Function):
    """x W^T + b, computed by oneDNN. MKL computes the gradient of W, for which it needs no
    transposed copies."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, W, b, *ONEDNN_ACTIVATIONS["none"])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, W = ctx.saved_tensors
        dy_RE = dy.reshape(-1, dy.shape[-1])
        needs_x, needs_W, needs_b = ctx.needs_input_grad
        dx = (
            torch.ops.mkldnn._linear_pointwise(dy, W.t(), None, *ONEDNN_ACTIVATIONS["none"])
            if needs_x
            else None
        )
        dW = dy_RE.t() @ x.reshape(-1, x.shape[-1]) if needs_W else None
        db = dy_RE.sum(0) if needs_b else None
        return dx, dW, db


def trains_many_rows(x: Tensor, W: Tensor) -> bool:
    """oneDNN is slower for few rows, as a recurrent model has them in each of its many steps."""
    if not (is_eager_on_cpu(x) and torch.is_grad_enabled()):
        return False
    if (
        x.numel() < MIN_TRAINED_ROWS * x.shape[-1]
        or W.numel() < MIN_PACKED_WEIGHT
        or not W.is_contiguous()
    ):
        return False
    return (
        x.dtype == W.dtype == torch.float32 and torch._C._has_mkldnn and not machine.made_by_intel()
    )


def trained_product(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    y: Tensor = TrainedProduct.apply(x, W, b)  # type: ignore[no-untyped-call]
    return y


# Few rows, without gradients: the CPU is limited by reading W


def has_few_rows(x: Tensor, W: Tensor) -> bool:
    if (
        x.device.type != "cpu"
        or x.dtype != W.dtype
        or torch.is_grad_enabled()
        or torch.compiler.is_compiling()
    ):
        return False
    rows = x.numel() // x.shape[-1]
    return (
        rows in ROWS_OF_TRANSPOSED_PRODUCT
        and (rows > 1 or W.numel() >= MIN_WEIGHT_OF_SINGLE_ROW)
        and not machine.made_by_intel()
    )


def product_of_few_rows(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """(W x^T)^T + b: torch's library reads W two to eight times as fast as in x W^T, except on
    Intel CPUs."""
    rows = x.numel() // x.shape[-1]
    x_RD = x.reshape(rows, -1).expand(max(rows, 2), -1)  # a single column would use a slow kernel
    y_RE = (W @ x_RD.contiguous().t()).t()[:rows]
    return (y_RE if b is None else y_RE + b).reshape(*x.shape[:-1], -1)


# Several rows, without gradients: W in the layout that oneDNN reads fastest

_packed_weights: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Weight -> its version, and the packed copy. An entry lives as long as its weight."""


def forget_packed_weights() -> None:
    """Free their memory: a training does not need them between two validations."""
    _packed_weights.clear()


def reads_packed_weight(x: Tensor, W: Tensor) -> bool:
    if (
        torch.is_grad_enabled()
        or not is_eager_on_cpu(x)
        or W.is_inference()
        or not torch._C._has_mkldnn
    ):
        return False
    return (
        x.numel() > x.shape[-1]
        and W.numel() >= MIN_PACKED_WEIGHT
        and x.dtype == W.dtype == torch.float32
    )


def product_with_packed_weight(x: Tensor, W: Tensor, b: Tensor | None, activation: str) -> Tensor:
    """f(x W^T + b). Products of a few rows take half the time, those of many rows about 10 %
    less."""
    known = _packed_weights.get(W)  # type: ignore[no-untyped-call]
    if known is None or known[0] != (W.data_ptr(), W._version):
        known = (
            (W.data_ptr(), W._version),
            torch.ops.mkldnn._reorder_linear_weight(W.detach(), None),
        )
        _packed_weights[W] = known
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, known[1], b, *ONEDNN_ACTIVATIONS[activation])
    return y


# GELU in compiled code


def compiles_gelu_tanh(x: Tensor, W: Tensor, activation: str) -> bool:
    return activation == "gelu_tanh" and torch.compiler.is_compiling()


def product_with_sigmoid_gelu(x: Tensor, W: Tensor, b: Tensor | None, activation: str) -> Tensor:
    """GELU by 1 + tanh(y) = 2 sigmoid(2 y): a GPU needs longer to compute tanh than to read and
    write x."""
    y = F.linear(x, W, b)
    return y * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))


PRODUCTS: list[
    tuple[Callable[[Tensor, Tensor], bool], Callable[[Tensor, Tensor, Tensor | None], Tensor]]
] = [
    (trains_many_rows, trained_product),
    (has_few_rows, product_of_few_rows),
]
"""x W^T + b."""
ACTIVATED_PRODUCTS: list[
    tuple[
        Callable[[Tensor, Tensor, str], bool],
        Callable[[Tensor, Tensor, Tensor | None, str], Tensor],
    ]
] = [
    (lambda x, W, activation: reads_packed_weight(x, W), product_with_packed_weight),
    (compiles_gelu_tanh, product_with_sigmoid_gelu),
]
"""f(x W^T + b)."""


# Many small products


def multiply_small_matrices(x: Tensor, y: Tensor) -> Tensor:
    """x @ y for many small matrices.

    On one thread torch's library first copies them, which takes longer than the products; numpy's
    does not, but it does not use a second thread here. On Intel CPUs torch is as fast.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.get_num_threads() > 1:
        return x @ y
    if machine.made_by_intel() or not x.dtype == y.dtype == torch.float32:
        return x @ y
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.matmul(x.numpy(), y.numpy()))
