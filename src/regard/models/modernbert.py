"""Warner et al. 2024, "Smarter, better, faster, longer: A modern bidirectional encoder",
arXiv:2412.13663: BERT with what has been learned since.

Rotary positions instead of position vectors, LayerNorm before the sub-layers, GeGLU, no biases, and
layers that see only what is near between layers that see everything.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.engine.attention import Visibility
from regard.layers.attention import MultiHeadAttention, Visible
from regard.layers.embeddings import Embedding, Readout
from regard.layers.linear import Dropout, Linear
from regard.models.base import BlocksConfig, HeadPooling, MaskedModel, Presets, rate_of_blocks
from regard.models.bert import NextSentenceHead, Segmented, initialise


class ModernBERTConfig(BlocksConfig):
    """Bidirectional Transformer encoder with rotary positions and local attention (Warner 2024)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"layers": 4, "width": 128, "heads": 2, "feed_forward": 192},
        "base": {"layers": 22, "width": 768, "heads": 12, "feed_forward": 1152},
        "large": {"layers": 28, "width": 1024, "heads": 16, "feed_forward": 2624},
    }
    pretraining = "masked"
    segments = True
    head_pooling = "first"

    kind: Literal["modernbert"] = "modernbert"
    preset: Literal["tiny", "base", "large"] = "base"
    """A named set of sizes; any field given in the recipe overrides it. `base` and `large` are the
    paper's."""
    layers: int = Field(22, ge=1)
    """Blocks."""
    max_positions: int = Field(8192, ge=1)
    """The longest text that the model reads; it has no position vectors that would run out."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the embeddings and inside the feed-forward layers; the paper has none."""
    global_every: int = Field(3, ge=1)
    """Every how many layers one sees the whole text, beginning with the first; 1: all layers do."""
    window: int = Field(128, ge=2, multiple_of=2)
    """Width of what the other layers see: half of it on each side of a token."""
    global_wavelength: float = Field(160_000.0, gt=1)
    """Base of the wavelengths of rotary positions in layers that see the whole text."""
    local_wavelength: float = Field(10_000.0, gt=1)
    """Base of the wavelengths of rotary positions in layers that see the window."""
    next_sentence: bool = False
    """Whether the model also learns next-sentence prediction, which the paper leaves out."""
    masked_head: bool = True
    """Whether the model has the masked-LM head, which predicts masked tokens; an imported model may
    lack it."""
    activation: Literal["gelu"] = "gelu"
    """Activation of the gated feed-forward layers."""
    epsilon: float = Field(1e-5, gt=0)
    """Added to the variance in every LayerNorm; the default is that of the paper's code."""

    @property
    def learning_rate(self) -> float:
        return rate_of_blocks(self.width, pre_norm=True)

    @property
    def packs(self) -> bool:
        """The kernels for packed rows know no window."""
        return False

    def head_layer(self, width: int, pooling: HeadPooling | None) -> PredictionLayer:
        return PredictionLayer(width, self.epsilon)


class Rotation(NamedTuple):
    """The cosine and the sine of the angles of each position, [L, E]."""

    cosine_LE: Tensor
    sine_LE: Tensor

    @classmethod
    def of(cls, length: int, width: int, base: float, like: Tensor) -> Rotation:
        """Su et al. 2021, arXiv:2104.09864, equation 15: dimension i of E / 2 turns by
        t base^(-2i / E) at position t."""
        even_E = torch.arange(0, width, 2, device=like.device).float()
        place_L1 = torch.arange(length, device=like.device).float()[:, None]
        angle_LE = (place_L1 / base ** (even_E / width)).repeat(1, 2)
        return cls(angle_LE.cos().to(like.dtype), angle_LE.sin().to(like.dtype))

    def turn(self, x_BHLE: Tensor) -> Tensor:
        """Turn each pair (x_i, x_{i + E/2}) by its angle: R_t x (equation 34)."""
        first, second = x_BHLE.chunk(2, dim=-1)
        return x_BHLE * self.cosine_LE + torch.cat([-second, first], dim=-1) * self.sine_LE


class RotaryAttention(MultiHeadAttention):
    """Attention whose queries and keys are turned by their positions, without biases.

    Su et al. 2021, arXiv:2104.09864, equation 16: a score depends on the distance alone,
        (R_i q_i) . (R_j k_j) = q_i . R_{j-i} k_j
    """

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__(config.width, config.heads, dropout=config.attention_dropout, bias=False)

    def score_terms(
        self,
        x_BLD: Tensor,
        k_BHLE: Tensor,
        v_BHLE: Tensor,
        visible: Visibility,
        rotation: Rotation,
    ) -> dict[str, Tensor]:
        """The score, [B, H, L, L], by its equation."""
        q_BHLE = rotation.turn(self.queries(x_BLD))
        width = q_BHLE.shape[-1]
        scores_BHLL = q_BHLE @ rotation.turn(k_BHLE).mT * width**-0.5
        return {f"(R_i q) . (R_j k_j) / sqrt({width})": scores_BHLL}

    def forward(  # type: ignore[override]  # a rotation instead of a bias
        self,
        x_BLD: Tensor,
        k_BHLE: Tensor,
        v_BHLE: Tensor,
        visible: Visibility,
        rotation: Rotation,
    ) -> Tensor:
        q_BHLE = rotation.turn(self.queries(x_BLD))
        return self.attend_with_heads(q_BHLE, rotation.turn(k_BHLE), v_BHLE, visible)


class GatedFeedForward(nn.Module):
    """GeGLU: FFN(x) = (GELU(x W) * x V) W_2, without biases; W and V are one matrix here.

    Shazeer 2020, arXiv:2002.05202, equation 6.
    """

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__()
        self.WV = Linear(config.width, 2 * config.feed_forward, bias=False)
        self.W_2 = Linear(config.feed_forward, config.width, bias=False)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BLD: Tensor) -> Tensor:
        gated, gate = self.WV(x_BLD).chunk(2, dim=-1)
        return self.W_2(self.dropout(F.gelu(gated) * gate))


class Block(nn.Module):
    """x + Attention(LayerNorm(x)), then x + FFN(LayerNorm(x)); the first block's attention reads the
    embeddings, whose norm is their own."""

    pre = True  # where the norms are: before the sub-layers

    def __init__(self, config: ModernBERTConfig, number: int) -> None:
        super().__init__()
        self.is_global = number % config.global_every == 0
        self.attention_norm = norm_of(config.width, config.epsilon) if number else nn.Identity()
        self.self_attention = RotaryAttention(config)
        self.feed_forward_norm = norm_of(config.width, config.epsilon)
        self.feed_forward = GatedFeedForward(config)

    def forward(self, x_BLD: Tensor, visible: Visibility, rotation: Rotation) -> Tensor:
        y_BLD = self.attention_norm(x_BLD)
        keys_values = self.self_attention.keys_values(y_BLD)
        x_BLD = x_BLD + self.self_attention(y_BLD, *keys_values, visible, rotation)
        return x_BLD + self.feed_forward(self.feed_forward_norm(x_BLD))


def norm_of(width: int, epsilon: float) -> nn.LayerNorm:
    """A LayerNorm with a scale and no bias."""
    return nn.LayerNorm(width, eps=epsilon, bias=False)


class PredictionLayer(nn.Module):
    """LayerNorm(GELU(W h)), before the last layer of every head: masked tokens, texts and single
    tokens."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.W = Linear(width, width, bias=False)
        self.norm = norm_of(width, epsilon)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(F.gelu(self.W(hidden)))


class MaskedHead(nn.Module):
    """Predicts the token at a masked position: logits = LayerNorm(GELU(W h)) E^T + b, E the
    embeddings"""

    def __init__(self, config: ModernBERTConfig, vocabulary_size: int, tied: Embedding) -> None:
        super().__init__()
        self.layer = PredictionLayer(config.width, config.epsilon)
        self.output = Readout(config.width, vocabulary_size, tied)

    def initialise_bias(self, counts_V: Tensor) -> None:
        self.output.initialise_bias(counts_V)

    def last_layer(self, hidden: Tensor) -> tuple[Tensor, Linear]:
        """The layer that computes the logits, and its input."""
        return self.layer(hidden), self.output.linear

    def forward(self, hidden: Tensor) -> Tensor:
        x, linear = self.last_layer(hidden)
        return linear(x)


class ModernBERTEmbedding(nn.Module):
    """x = Dropout(LayerNorm(token))"""

    def __init__(self, config: ModernBERTConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = Embedding(vocabulary_size, config.width)
        self.norm = norm_of(config.width, config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_BL: Tensor) -> Tensor:
        return self.dropout(self.norm(self.tokens(ids_BL)))


class ModernBERT(MaskedModel):
    """A pre-norm encoder with rotary positions; two of three layers see only a window.

    h_0 = Dropout(LayerNorm(token))
    h_l = Block_l(h_{l-1})
    h_N = LayerNorm(Block_N(h_{N-1}))
    """

    config: ModernBERTConfig

    def __init__(self, config: ModernBERTConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.longest = config.max_positions
        self.width = config.width
        self.depth = config.layers
        self.embedding = ModernBERTEmbedding(config, vocabulary_size)
        self.blocks = nn.ModuleList(Block(config, number) for number in range(config.layers))
        self.norm = norm_of(config.width, config.epsilon)
        self.output = (
            MaskedHead(config, vocabulary_size, self.embedding.tokens)
            if config.masked_head
            else None
        )
        self.next_sentence = NextSentenceHead(config.width) if config.next_sentence else None
        initialise(self)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.embedding.tokens}

    def layers_of(self, batch: Segmented) -> list[Tensor]:
        config = self.config
        length = batch.text.ids_BL.shape[1]
        width = config.width // config.heads
        layers = [self.embedding(batch.text.ids_BL)]
        whole = Visible(batch.text.lengths_B)
        near = Visible(batch.text.lengths_B, window=config.window // 2)
        of_whole = Rotation.of(length, width, config.global_wavelength, layers[0])
        of_near = Rotation.of(length, width, config.local_wavelength, layers[0])
        for block in self.blocks:
            sees = (whole, of_whole) if block.is_global else (near, of_near)
            layers.append(block(layers[-1], *sees))
        layers[-1] = self.norm(layers[-1])
        return layers
