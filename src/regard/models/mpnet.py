"""Song et al. 2020, "MPNet: Masked and permuted pre-training for language understanding",
arXiv:2004.09297: BERT with relative positions.

What is pre-trained here is the masked part; the permuted one is not. `diff bert.py mpnet.py` shows what
the encoder adds: a bias of the scores by distance, which all layers share.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Tokens
from regard.engine.attention import Visibility
from regard.layers.attention import FeedForward, MultiHeadAttention, Visible
from regard.layers.embeddings import Embedding, Positions
from regard.layers.linear import Dropout
from regard.models.base import BlocksConfig, HeadPooling, MaskedModel, Pooler, Presets
from regard.models.bert import MaskedHead, NextSentenceHead, Segmented, initialise

FARTHEST = 128
"""The distance from which on all are in the last bucket."""


class MPNetConfig(BlocksConfig):
    """Bidirectional Transformer encoder with relative positions (Song 2020)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"layers": 2, "width": 128, "heads": 2, "feed_forward": 512},
        "base": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072},
    }
    pretraining = "masked"
    segments = True
    head_pooling = "first"

    kind: Literal["mpnet"] = "mpnet"
    preset: Literal["tiny", "base"] = "base"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    layers: int = Field(12, ge=1)
    """Blocks."""
    buckets: int = Field(32, ge=4, multiple_of=4)
    """Number of biases by distance of each head: half of them for words before, half for words
    after."""
    first_position: int = Field(2, ge=0)
    """Row of the position table that the first token gets; no token uses the rows before it."""
    next_sentence: bool = False
    """Whether the model also learns next-sentence prediction, which the paper leaves out; an imported
    model has its pooler there."""
    masked_head: bool = True
    """Whether the model has the masked-LM head, which predicts masked tokens; an imported model may
    lack it."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """Activation of the feed-forward layers: the paper's exact GELU, its approximation by a tanh,
    or ReLU."""
    epsilon: float = Field(1e-5, gt=0)
    """Added to the variance in every LayerNorm; the default is that of the paper's code."""

    @property
    def packs(self) -> bool:
        """The kernels for packed rows take no bias."""
        return False

    def head_layer(self, width: int, pooling: HeadPooling | None) -> Pooler | None:
        return Pooler(width, "tanh") if pooling == "first" else None


def bucket_of(distance: Tensor, buckets: int) -> Tensor:
    """The bucket of a distance n = j - i, of key j from query i.

    Raffel et al. 2020, arXiv:1910.10683, section 2.1, with b = buckets / 4:
        |n|                                                                 if |n| < b
        min(2b - 1, b + floor(b log(|n| / b) / log(128 / b)))               else
    and 2b more if n > 0: near distances have a bucket each, far ones share one.
    """
    b = buckets // 4
    n = distance.abs()
    far = b + (torch.log(n.clamp(min=1).float() / b) / math.log(FARTHEST / b) * b).long()
    return torch.where(n < b, n, far.clamp(max=2 * b - 1)) + 2 * b * (distance > 0)


class RelativeBias(nn.Module):
    """b(bucket(j - i)) for each head: what is added to the score of key j for query i."""

    def __init__(self, buckets: int, heads: int) -> None:
        super().__init__()
        self.b = nn.Embedding(buckets, heads)

    def forward(self, length: int) -> Tensor:
        """[1, H, L, L]"""
        place_L = torch.arange(length, device=self.b.weight.device)
        bucket_LL = bucket_of(place_L - place_L[:, None], self.b.num_embeddings)
        return self.b(bucket_LL).permute(2, 0, 1)[None]


class BiasedAttention(MultiHeadAttention):
    """softmax(Q K^T / sqrt(d) + b): attention that also depends on the distance."""

    def score_terms(
        self, x_BQD: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility, bias_BHQK: Tensor
    ) -> dict[str, Tensor]:
        """The terms of each score, [B, H, Q, K], by their equations."""
        q_BHQE = self.queries(x_BQD)
        width = q_BHQE.shape[-1]
        products_BHQK = q_BHQE @ k_BHKE.mT * width**-0.5
        return {f"q . k_j / sqrt({width})": products_BHQK, "b(j - i)": bias_BHQK}


class MPNetEmbedding(nn.Module):
    """x = Dropout(LayerNorm(token + position))"""

    def __init__(self, config: MPNetConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = Embedding(vocabulary_size, config.width)
        self.positions = Positions(
            "learned", config.width, config.max_positions, first=config.first_position
        )
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, text: Tokens) -> Tensor:
        return self.dropout(self.norm(self.positions(self.tokens(text.ids), text)))


class Block(nn.Module):
    """Self-attention, then feed-forward, each as LayerNorm(x + Dropout(Sublayer(x)))."""

    def __init__(self, config: MPNetConfig) -> None:
        super().__init__()
        self.self_attention = BiasedAttention(
            config.width, config.heads, dropout=config.attention_dropout
        )
        self.feed_forward = FeedForward(config.width, config.feed_forward, config.activation)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, visible: Visibility, bias_1HLL: Tensor) -> Tensor:
        keys_values = self.self_attention.keys_values(x_BLD)
        attended_BLD = self.self_attention(x_BLD, *keys_values, visible, bias_1HLL)
        x_BLD = self.attention_norm(x_BLD + self.dropout(attended_BLD))
        return self.feed_forward_norm(x_BLD + self.dropout(self.feed_forward(x_BLD)))


class MPNet(MaskedModel):
    """BERT's blocks, in which the score of two tokens also depends on how far apart they are:

    score(i, j) = q_i . k_j / sqrt(d) + b(bucket(j - i))
    """

    config: MPNetConfig

    def __init__(self, config: MPNetConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.longest = config.max_positions
        self.width = config.width
        self.depth = config.layers
        self.embedding = MPNetEmbedding(config, vocabulary_size)
        self.relative = RelativeBias(config.buckets, config.heads)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output = (
            MaskedHead(config, vocabulary_size, self.embedding.tokens)
            if config.masked_head
            else None
        )
        self.next_sentence = NextSentenceHead(config.width) if config.next_sentence else None
        initialise(self)

    def depth_of(self, name: str) -> int:
        return 0 if name.startswith("relative.") else super().depth_of(name)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.embedding.tokens}

    def layers_of(self, batch: Segmented) -> list[Tensor]:
        visible = Visible(batch.text.lengths_B)
        bias_1HLL = self.relative(batch.text.ids_BL.shape[1])
        layers = [self.embedding(batch.text)]
        for block in self.blocks:
            layers.append(block(layers[-1], visible, bias_1HLL))
        return layers
