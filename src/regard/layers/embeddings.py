"""Token embeddings, position vectors, the readout to the vocabulary, and how embeddings share
weights."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from regard.data.batches import Tokens
from regard.engine.packing import Packed
from regard.errors import ConfigError, DecodeError
from regard.layers.linear import Linear

Tie = Literal["none", "target", "all"]
PositionKind = Literal["sinusoidal", "tensor2tensor", "learned", "none"]


class Embedding(nn.Embedding):
    """One vector per token, of length about 1."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary, width)
        nn.init.normal_(self.weight, std=width**-0.5)


def tied_embeddings(
    source_size: int, target_size: int, width: int, tie: Tie
) -> tuple[Embedding, Embedding]:
    """The source and the target embedding; the same module if `tie` is "all"."""
    source = Embedding(source_size, width)
    if tie != "all":
        return source, Embedding(target_size, width)
    if source_size != target_size:
        what = (
            f"'all' needs one vocabulary for both sides, but they have {source_size} and "
            f"{target_size} tokens"
        )
        raise ConfigError(what, where="model.tie", hint="tokenizer.joint=true, or model.tie=target")
    return source, source


def sinusoidal_positions(
    length: int,
    width: int,
    device: torch.device | None = None,
    *,
    first: int = 0,
    tensor2tensor: bool = False,
) -> Tensor:
    """Sine waves whose wavelengths form a geometric progression from 2 pi to 10000 * 2 pi.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5:
        PE(pos, 2i)   = sin(pos / 10000^(2i / d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i / d_model))
    The code of the paper's authors, tensor2tensor, divides by d_model - 2 instead of d_model, so
    that the last wavelength is exactly 10000 * 2 pi. `first` is the position of the first token.
    """
    position_L1 = torch.arange(first, first + length, dtype=torch.float64, device=device)[:, None]
    even_W = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    divisor = max(1, width - 2) if tensor2tensor else width
    angle = position_L1 * torch.exp(even_W * (-math.log(10000.0) / divisor))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width].float()


class Positions(nn.Module):
    """Add a position vector to each token: sinusoidal, learned, or none (an ablation).
    `tensor2tensor` is sinusoidal with other wavelengths."""

    waves_LD: Tensor

    def __init__(self, kind: PositionKind, width: int, longest: int, *, first: int = 0) -> None:
        """`first`: the position of the first token of a text, a row of a learned table."""
        super().__init__()
        self.kind = kind
        self.width = width
        self.longest = longest
        self.first = first
        if kind == "learned":
            self.learned = Embedding(first + longest, width)
        elif kind != "none":
            self.register_buffer("waves_LD", self.waves(longest), persistent=False)

    def waves(self, length: int, device: torch.device | None = None) -> Tensor:
        """The sine waves of the first `length` positions."""
        tensor2tensor = self.kind == "tensor2tensor"
        return sinusoidal_positions(
            length, self.width, device, first=self.first, tensor2tensor=tensor2tensor
        )

    def forward(self, x: Tensor, text: Tokens | None = None) -> Tensor:
        """Texts from their first token on, [B, L, D]; or [1, P, D] if `text` is packed."""
        if self.kind == "none":
            return x
        if isinstance(text, Packed):
            length = text.position_vectors(self.longest, may_grow=self.kind != "learned")
            return x + self.table_LD(x, length).index_select(0, text.places_P)
        return x + self.table_LD(x, x.shape[1])

    def table(self, like: Tensor, length: int) -> Tensor | None:
        """The vectors of the first `length` positions, or of all learned ones if those are fewer;
        None for `none`."""
        if self.kind == "none":
            return None
        return self.table_LD(like, min(length, self.longest) if self.kind == "learned" else length)

    def check_length(self, length: int) -> None:
        """Refuse texts with more tokens than learned positions."""
        if self.kind == "learned" and length > self.longest:
            what = f"{length} tokens, but the model learned {self.longest} positions"
            raise DecodeError(what, hint="model.max_positions sets them")

    def table_LD(self, like: Tensor, length: int) -> Tensor:
        """The vectors of the first `length` positions."""
        self.check_length(length)
        if self.kind == "learned":
            return self.learned.weight[self.first : self.first + length]
        if length <= self.longest:
            return self.waves_LD[:length].to(like)
        # Beyond the table the waves are computed each time: a buffer that grew would differ between
        # processes.
        return self.waves(length, like.device).to(like)


class Readout(nn.Module):
    """Hidden states -> logits, by a matrix of its own or by the target embeddings.

    Press & Wolf 2017, arXiv:1608.05859: the output layer may be the transposed input embedding.
    """

    def __init__(
        self, width: int, vocabulary: int, tied: Embedding | None, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.linear = Linear(width, vocabulary, bias=bias)
        if bias:
            nn.init.zeros_(self.linear.bias)
        if tied is not None:
            self.linear.weight = tied.weight
        else:
            nn.init.xavier_uniform_(self.linear.weight)

    @classmethod
    def of(cls, width: int, target: Embedding, tie: Tie, *, bias: bool = True) -> Readout:
        """The readout of a model whose target has this embedding, with its weights unless `tie` is
        "none"."""
        return cls(width, target.num_embeddings, None if tie == "none" else target, bias=bias)

    @torch.no_grad()
    def initialise_bias(self, counts_V: Tensor) -> None:
        """Set the bias to the tokens' log frequencies, add-one smoothed: bias_k = log((n_k + 1) /
        sum_j (n_j + 1)).

        Otherwise the hidden states learn the frequencies first, which drives a tanh before the
        readout into saturation: Luong's h~ then stays the same for every word. A readout without a
        bias does not change.
        """
        if self.linear.bias is not None:
            smoothed_V = counts_V.double() + 1
            self.linear.bias.copy_((smoothed_V / smoothed_V.sum()).log())

    def last_layer(self, hidden: Tensor) -> tuple[Tensor, Linear]:
        """The layer that computes the logits, and its input."""
        return hidden, self.linear

    def forward(self, hidden: Tensor) -> Tensor:
        return self.linear(hidden)
