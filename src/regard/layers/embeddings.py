"""Token embeddings and the ways they are shared."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.layers.linear import Linear

Tie = Literal["none", "target", "all"]


class Embedding(nn.Embedding):
    """A vector a token, of length about 1."""

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
    def expect(self, counts_V: Tensor) -> None:
        """Begin with the words' own frequencies, add-one smoothed: bias_k = log((n_k + 1) / sum_j (n_j + 1)).

        Otherwise the hidden states learn them first, and a tanh before the readout is driven into saturation by it:
        Luong's h~ then stays the same for every word. Without a bias there is nothing to begin with.
        """
        if self.linear.bias is None:
            return
        smoothed_V = counts_V.double() + 1
        self.linear.bias.copy_((smoothed_V / smoothed_V.sum()).log())

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.linear(hidden)
        return logits


def tied_embeddings(source_size: int, target_size: int, width: int, tie: Tie) -> tuple[Embedding, Embedding]:
    """The embeddings of the two sides: one and the same where `tie` is "all"."""
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
