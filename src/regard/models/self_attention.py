"""Self-attention, step by step: four encoders for one decoder, from no parameters at all to
several heads.

Everything but the encoder is the Transformer's (Vaswani et al. 2017, arXiv:1706.03762). An encoder
layer has no feed-forward, and its LayerNorm has neither gain nor bias: the only thing an encoder
learns is how to attend, so that a comparison shows nothing else. The first two learn nothing.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from regard.engine.attention import Visibility
from regard.layers.attention import MultiHeadAttention, attend
from regard.models.base import Presets
from regard.models.transformer import Sublayer, Transformer, TransformerConfig


class SelfAttentionConfig(TransformerConfig):
    """One of four self-attention encoders with the Transformer's decoder."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"decoder_layers": 2, "width": 128, "heads": 4, "feed_forward": 256},
        "small": {"decoder_layers": 4, "width": 256, "heads": 4, "feed_forward": 1024},
        "base": {"decoder_layers": 6, "width": 512, "heads": 8, "feed_forward": 2048},
    }
    reads_texts = False

    kind: Literal["self_attention"] = "self_attention"  # type: ignore[assignment]  # another kind with the same fields
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it."""
    encoder: Literal["plain", "plain_scaled", "projected", "multi_head"] = "multi_head"
    """How the source words attend to each other: without parameters, softmax(X X^T) X; the same with
    scaled scores; through projections W_Q, W_K and W_V, with scaled scores; or through several heads
    of these."""
    encoder_layers: int = Field(1, ge=1)
    """Self-attention layers of the encoder."""
    decoder_layers: int = Field(4, ge=1)
    """Blocks of the decoder."""
    heads: int = Field(4, ge=1)
    """Attention heads of the decoder and of `encoder: multi_head`; each gets an equal share of the
    width."""
    feed_forward: int = Field(1024, ge=1)
    """d_ff: width inside the decoder's feed-forward layers."""
    norm: Literal["post", "pre", "none"] = "pre"
    """LayerNorm before each sub-layer, after it, or nowhere (an ablation); in the encoder without
    gain and bias."""

    @property
    def packs(self) -> bool:
        return self.encoder == "multi_head" and super().packs


class PlainAttention(nn.Module):
    """Every word becomes an average of all words, weighted by similarity. It has no parameters:

    softmax(X X^T) X, or with scaled scores softmax(X X^T / sqrt(d)) X
    """

    def __init__(self, *, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled

    def keys_values(self, x_BKD: Tensor) -> tuple[Tensor, Tensor]:
        return x_BKD[:, None], x_BKD[:, None]

    def forward(self, x_BQD: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility) -> Tensor:
        return attend(x_BQD[:, None], k_BHKE, v_BHKE, visible, owner=self, scaled=self.scaled)[:, 0]


class ProjectedAttention(nn.Module):
    """Queries, keys and values have projections of their own (equation 1):

    Q, K, V = X W_Q, X W_K, X W_V
    softmax(Q K^T / sqrt(d_k)) V
    """

    def __init__(self, width: int, *, scaled: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.scaled = scaled
        self.dropout = dropout
        self.W_Q, self.W_K, self.W_V = (nn.Linear(width, width, bias=False) for _ in range(3))
        for linear in (self.W_Q, self.W_K, self.W_V):
            nn.init.xavier_uniform_(linear.weight)

    def keys_values(self, x_BKD: Tensor) -> tuple[Tensor, Tensor]:
        return self.W_K(x_BKD)[:, None], self.W_V(x_BKD)[:, None]

    def forward(self, x_BQD: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, visible: Visibility) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        q_BHQE = self.W_Q(x_BQD)[:, None]
        return attend(
            q_BHQE, k_BHKE, v_BHKE, visible, owner=self, scaled=self.scaled, dropout=dropout
        )[:, 0]


class AttentionLayer(nn.Module):
    """LayerNorm(X + SelfAttention(X)), without a feed-forward layer."""

    def __init__(self, config: SelfAttentionConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.around_attention = Sublayer(config, learned_norm=False)

    def forward(self, x_BSD: Tensor, visible: Visibility) -> Tensor:
        attention = self.self_attention
        return self.around_attention(
            x_BSD, lambda read: attention(read, *attention.keys_values(read), visible)
        )


def _attention(
    config: SelfAttentionConfig,
) -> PlainAttention | ProjectedAttention | MultiHeadAttention:
    if config.encoder in ("plain", "plain_scaled"):
        return PlainAttention(scaled=config.encoder == "plain_scaled")
    scaled = config.scaled
    dropout = config.attention_dropout
    if config.encoder == "projected":
        return ProjectedAttention(config.width, scaled=scaled, dropout=dropout)
    return MultiHeadAttention(config.width, config.heads, scaled=scaled, dropout=dropout)


class SelfAttention(Transformer):
    """The Transformer with another encoder."""

    encoder_block = AttentionLayer
    config: SelfAttentionConfig

    def __init__(self, config: SelfAttentionConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.packable = config.encoder == "multi_head"
        if config.norm == "pre":
            self.encoder_norm = nn.LayerNorm(config.width, elementwise_affine=False)
