"""Models of one text: what pre-training, generation and those who only want their vectors may ask of them."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from regard.data.batch import TextBatch, Tokens
from regard.layers.attention import is_recording, packs
from regard.layers.embeddings import Embedding
from regard.layers.layer_mix import LayerMix
from regard.layers.packing import pays
from regard.models.base import Generator, Output

Pooling = Literal["mean", "first", "last"]
"""One vector for a text: the mean of its tokens' vectors, or that of its first or last token."""


class Contextual(nn.Module):
    """A model whose hidden states stand for tokens in their context."""

    pooling: ClassVar[Pooling] = "mean"
    """How the vectors of tokens become one of the text, unless it is said."""

    numbered: ClassVar[str] = r"(?:blocks|layers|forward_layers|backward_layers)\.(\d+)\."
    """How the names of the weights of a layer begin, with its number: a pattern."""

    letters: int | None = None
    """Characters that it reads of a word outside its vocabulary; None where such a word is `<unk>`."""

    width: int
    """Of the last layer's vectors."""
    depth: int
    """How many layers stand above the embeddings."""
    output: Any
    """The module that `readout` runs."""

    def depth_of(self, name: str) -> int:
        """The layer that a weight belongs to: 0 the embeddings, 1 the first layer; the last, if it comes after all."""
        if found := re.match(self.numbered, name):
            return int(found[1]) + 1
        return 0 if name.startswith(("embedding", "positions")) else self.depth

    def forget_pretraining(self, *, keep_readout: bool = False) -> None:
        """Let go of what only pre-training needs."""
        if not keep_readout:
            self.output = None

    def states(self, batch: Any) -> Tensor:
        """The last layer's vectors of all tokens, [B, L, D]. What stands on padding means nothing."""
        return self.layers_of(batch)[-1]

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The tables of word vectors, by what they are of."""
        raise NotImplementedError

    def layers_of(self, batch: Any) -> list[Tensor]:
        """The vectors of all layers, each [B, L, D]: the embeddings first. What stands on padding means nothing."""
        raise NotImplementedError

    def features(self, batch: Any, layer: int = -1) -> Tensor:
        """One layer's vectors of all tokens, [B, L, D], zero on padding; layer 0 is the embeddings, -1 the last."""
        x_BLD = self.layers_of(batch)[layer]
        return x_BLD.masked_fill(~real_BL(batch.text)[..., None], 0.0)

    def sentence(self, batch: Any, layer: int = -1, pooling: Pooling | None = None) -> Tensor:
        """One vector for each text, [B, D]."""
        return pooled(self.features(batch, layer), batch.text, pooling or self.pooling)


def real_BL(text: Tokens) -> Tensor:
    """Where there is no padding."""
    return torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device) < text.lengths_B[:, None]


def last_of(x_BLD: Tensor, text: Tokens) -> Tensor:
    """What stands at the last token of each text."""
    rows_B = torch.arange(len(text), device=x_BLD.device)
    return x_BLD[rows_B, text.lengths_B - 1]


def pooled(x_BLD: Tensor, text: Tokens, pooling: Pooling) -> Tensor:
    """[B, L, D] -> [B, D]; `x_BLD` is zero on padding."""
    if pooling == "mean":
        return x_BLD.sum(1) / text.lengths_B[:, None]
    return x_BLD[:, 0] if pooling == "first" else last_of(x_BLD, text)


def better_packed(text: Tokens, weight: Tensor, *, head_width: int, dropout: float) -> bool:
    """Whether texts are better laid end to end: there is a kernel for it, or much padding around the attention.

    While recording the written-out equation runs on padded texts.
    """
    return packs(weight, head_width, dropout) or (pays(text) and not is_recording())


class LanguageModel(Generator, Contextual):
    """A model that goes on writing a text. What search calls the source is the beginning of the text, `<s>` and all:
    `begin` reads it, and the first `step` gives what comes after it, whatever token it is fed."""

    longest: int | None = None
    """Most tokens that a text may have; None where there is no limit."""

    def forward(self, batch: TextBatch) -> Output:  # type: ignore[override]  # it reads one text, not a pair
        """Hidden states that predict `text[:, 1:]`, each from the tokens before."""
        raise NotImplementedError


class MixedFeatures(nn.Module):
    """The layers of a pre-trained model in a mix that is learned for the task at hand; the model itself stays as it is.

    Peters et al. 2018, arXiv:1802.05365, equation 1. For any head that reads [B, L, D].
    """

    def __init__(self, base: Contextual, layers: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False).eval()
        self.mix = LayerMix(layers)

    def train(self, mode: bool = True) -> Self:
        """Training never reaches the base: it neither learns nor draws dropout."""
        super().train(mode)
        self.base.eval()
        return self

    def forward(self, batch: Any) -> Tensor:
        with torch.no_grad():
            layers = self.base.layers_of(batch)
        mixed_BLD: Tensor = self.mix(layers)
        return mixed_BLD.masked_fill(~real_BL(batch.text)[..., None], 0.0)
