"""Token embeddings, the readout to the vocabulary, and how they share weights."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.layers.linear import Linear

Tie = Literal["none", "target", "all"]


class Embedding(nn.Embedding):
    """One vector per token, of length about 1."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary, width)
        nn.init.normal_(self.weight, std=width**-0.5)


class Readout(nn.Module):
    """Hidden states -> logits, by a matrix of its own or by the target embeddings.

    Press & Wolf 2017, arXiv:1608.05859: the output layer may be the transposed input embedding.
    """

    def __init__(self, width: int, vocabulary: int, tied: Embedding | None, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = Linear(width, vocabulary, bias=bias)
        if bias:
            nn.init.zeros_(self.linear.bias)
        if tied is not None:
            self.linear.weight = tied.weight
        else:
            nn.init.xavier_uniform_(self.linear.weight)

    @torch.no_grad()
    def initialise_bias(self, counts_V: Tensor) -> None:
        """Set the bias to the tokens' log frequencies, add-one smoothed: bias_k = log((n_k + 1) / sum_j (n_j + 1)).

        Otherwise the hidden states learn the frequencies first, which drives a tanh before the readout into saturation:
        Luong's h~ then stays the same for every word. A readout without a bias stays as it is.
        """
        if self.linear.bias is None:
            return
        smoothed_V = counts_V.double() + 1
        self.linear.bias.copy_((smoothed_V / smoothed_V.sum()).log())

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.linear(hidden)
        return logits


def tied_embeddings(source_size: int, target_size: int, width: int, tie: Tie) -> tuple[Embedding, Embedding]:
    """The source and the target embedding; the same module if `tie` is "all"."""
    source = Embedding(source_size, width)
    if tie != "all":
        return source, Embedding(target_size, width)
    if source_size != target_size:
        raise ConfigError(
            f"'all' needs one vocabulary for both sides, but they have {source_size} and {target_size} tokens",
            where="model.tie",
            hint="tokenizer.joint=true, or model.tie=target",
        )
    return source, source
