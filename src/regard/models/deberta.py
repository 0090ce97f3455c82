"""He et al. 2021, "DeBERTa: Decoding-enhanced BERT with disentangled attention", arXiv:2006.03654, in its
versions 2 and 3 (arXiv:2111.09543).

A token has a vector for its content only. Where tokens are relative to each other has vectors of its own,
which each layer compares with the contents: a score has three terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.engine.attention import Visibility
from regard.layers.attention import FeedForward, MultiHeadAttention, Visible
from regard.layers.embeddings import Embedding
from regard.layers.linear import Dropout
from regard.models.base import BlocksConfig, HeadPooling, MaskedModel, Pooler, Presets
from regard.models.bert import MaskedHead, NextSentenceHead, Segmented, initialise


class DeBERTaConfig(BlocksConfig):
    """Bidirectional Transformer encoder with disentangled attention (He 2021)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"layers": 2, "width": 128, "heads": 2, "feed_forward": 512},
        "xsmall": {"layers": 12, "width": 384, "heads": 6, "feed_forward": 1536},
        "small": {"layers": 6, "width": 768, "heads": 12, "feed_forward": 3072},
        "base": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072},
        "large": {"layers": 24, "width": 1024, "heads": 16, "feed_forward": 4096},
    }
    pretraining = "masked"
    segments = True
    head_pooling = "first"

    kind: Literal["deberta"] = "deberta"
    preset: Literal["tiny", "xsmall", "small", "base", "large"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. All but `tiny` are those of
    version 3."""
    layers: int = Field(6, ge=1)
    """Blocks."""
    buckets: int = Field(256, ge=2, multiple_of=2)
    """Vectors of relative positions on each side: near distances have one each, far ones share one."""
    content_to_position: bool = True
    """Whether the content of the query is compared with the position of the key."""
    position_to_content: bool = True
    """Whether the position of the query is compared with the content of the key."""
    next_sentence: bool = False
    """Whether the model also learns next-sentence prediction, which the paper leaves out."""
    masked_head: bool = True
    """Whether the model has the masked-LM head, which predicts masked tokens; an imported model may
    lack it."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """Activation of the feed-forward layers: the paper's exact GELU, its approximation by a tanh,
    or ReLU."""
    pooler: Literal["gelu", "tanh", "relu"] = "gelu"
    """Activation of the layer between the first token and the head of a task."""
    epsilon: float = Field(1e-7, gt=0)
    """Added to the variance in every LayerNorm; the default is that of the paper's code."""

    @property
    def packs(self) -> bool:
        """The kernels for packed rows take no bias."""
        return False

    def head_layer(self, width: int, pooling: HeadPooling | None) -> Pooler | None:
        return Pooler(width, self.pooler) if pooling == "first" else None


def bucket_of(distance: Tensor, buckets: int, farthest: int) -> Tensor:
    """The bucket of a distance n = i - j, of query i from key j; its sign is that of n.

    The paper's code of version 2, with m = buckets / 2:
        n                                                                     if |n| <= m
        sign(n) (m + ceil((m - 1) log(|n| / m) / log((farthest - 1) / m)))    else
    """
    m = buckets // 2
    n = distance.abs().clamp(min=m).float()
    far = torch.ceil(torch.log(n / m) / math.log((farthest - 1) / m) * (m - 1)).long() + m
    return torch.where(distance.abs() <= m, distance, far * distance.sign())


@dataclass(frozen=True)
class RelativePositions:
    """The vectors of relative positions, and which of them each query and key have."""

    vectors_ZD: Tensor
    rows_QK: Tensor
    """delta(i, j) of equation 3: between 0 and 2k - 1 for k buckets."""


class DisentangledAttention(MultiHeadAttention):
    """Attention with a score of three terms: content to content, content to position, position to
    content.

    He et al. 2021, equation 4 (c: content, r: relative position; Q^r and K^r from the same matrices
    as Q^c and K^c, as in version 2):
        A_ij = Q_i^c . K_j^c  +  Q_i^c . K_delta(i,j)^r  +  K_j^c . Q_delta(i,j)^r
        H    = softmax(A / sqrt(3d)) V^c
    The last term has delta(j, i) in the paper, but delta(i, j) in its code and in all weights. A term
    that is off is left out, also from the factor 3.
    """

    def __init__(self, config: DeBERTaConfig) -> None:
        super().__init__(config.width, config.heads, dropout=config.attention_dropout)
        self.content_to_position = config.content_to_position
        self.position_to_content = config.position_to_content
        self.position_dropout = Dropout(config.dropout)

    @property
    def terms(self) -> int:
        return 1 + self.content_to_position + self.position_to_content

    def position_terms(
        self, q_BHQE: Tensor, k_BHKE: Tensor, positions: RelativePositions
    ) -> dict[str, Tensor]:
        """The terms of the scores in which a position takes part, [B, H, Q, K], by their equations."""
        r_1ZD = self.position_dropout(positions.vectors_ZD)[None]
        rows_BHQK = positions.rows_QK.expand(*q_BHQE.shape[:3], -1)
        scale = (self.terms * q_BHQE.shape[-1]) ** -0.5
        divided = f" / sqrt({self.terms * q_BHQE.shape[-1]})"
        terms = {}
        if self.content_to_position:
            k_1HZE, _ = self.keys_values(r_1ZD)
            scores_BHQZ = q_BHQE @ k_1HZE.mT
            terms["q . k_delta" + divided] = scores_BHQZ.gather(-1, rows_BHQK) * scale
        if self.position_to_content:
            q_1HZE = self.queries(r_1ZD)
            scores_BHZK = q_1HZE @ k_BHKE.mT
            terms["q_delta . k_j" + divided] = scores_BHZK.gather(-2, rows_BHQK) * scale
        return terms

    def score_terms(
        self,
        x_BQD: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        visible: Visibility,
        positions: RelativePositions,
    ) -> dict[str, Tensor]:
        """The terms of each score, [B, H, Q, K], by their equations."""
        q_BHQE = self.queries(x_BQD)
        d = self.terms * q_BHQE.shape[-1]
        content = {f"q . k_j / sqrt({d})": q_BHQE @ k_BHKE.mT * d**-0.5}
        return content | self.position_terms(q_BHQE, k_BHKE, positions)

    def forward(  # type: ignore[override]  # positions instead of a bias
        self,
        x_BQD: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        visible: Visibility,
        positions: RelativePositions,
    ) -> Tensor:
        q_BHQE = self.queries(x_BQD)
        terms = self.position_terms(q_BHQE, k_BHKE, positions).values()
        bias_BHQK = sum(terms, start=q_BHQE.new_zeros(()))
        # `attend` divides by sqrt(d)
        return self.attend_with_heads(q_BHQE * self.terms**-0.5, k_BHKE, v_BHKE, visible, bias_BHQK)


class DeBERTaEmbedding(nn.Module):
    """x = Dropout(LayerNorm(token)), and 0 on padding: no position"""

    def __init__(self, config: DeBERTaConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = Embedding(vocabulary_size, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_BL: Tensor) -> Tensor:
        return self.dropout(self.norm(self.tokens(ids_BL)))


class RelativeTable(nn.Module):
    """LayerNorm of the vectors of relative positions, which all layers share."""

    def __init__(self, config: DeBERTaConfig) -> None:
        super().__init__()
        self.buckets = config.buckets
        self.farthest = config.max_positions
        self.vectors = Embedding(2 * config.buckets, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)

    def forward(self, length: int) -> RelativePositions:
        """delta(i, j) = bucket(i - j) + k, at least 0 and at most 2k - 1 (equation 3)."""
        place_L = torch.arange(length, device=self.vectors.weight.device)
        bucket_LL = bucket_of(place_L[:, None] - place_L, self.buckets, self.farthest)
        rows_LL = (bucket_LL + self.buckets).clamp(0, 2 * self.buckets - 1)
        return RelativePositions(self.norm(self.vectors.weight), rows_LL)


class Block(nn.Module):
    """Self-attention, then feed-forward, each as LayerNorm(x + Dropout(Sublayer(x)))."""

    def __init__(self, config: DeBERTaConfig) -> None:
        super().__init__()
        self.self_attention = DisentangledAttention(config)
        self.feed_forward = FeedForward(config.width, config.feed_forward, config.activation)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, visible: Visibility, positions: RelativePositions) -> Tensor:
        keys_values = self.self_attention.keys_values(x_BLD)
        attended_BLD = self.self_attention(x_BLD, *keys_values, visible, positions)
        x_BLD = self.attention_norm(x_BLD + self.dropout(attended_BLD))
        return self.feed_forward_norm(x_BLD + self.dropout(self.feed_forward(x_BLD)))


class DeBERTa(MaskedModel):
    """BERT's blocks with disentangled attention: contents and relative positions stay apart.

    He et al. 2021, section 3:
        h_0 = Dropout(LayerNorm(token))
        h_l = Block_l(h_{l-1}, P)          P: the vectors of relative positions
    """

    config: DeBERTaConfig

    def __init__(self, config: DeBERTaConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.longest = config.max_positions
        self.width = config.width
        self.depth = config.layers
        self.embedding = DeBERTaEmbedding(config, vocabulary_size)
        self.relative = RelativeTable(config)
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
        length = batch.text.ids_BL.shape[1]
        positions = self.relative(length)
        layers = [self.embedding(batch.text.ids_BL)]
        for block in self.blocks:
            layers.append(block(layers[-1], visible, positions))
        return layers
