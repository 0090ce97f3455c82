"""Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data.batch import Batch, Tokens
from regard.layers.attention import MultiHeadAttention
from regard.layers.embeddings import Embedding, Readout, Tie, tied_embeddings
from regard.layers.positions import PositionKind, Positions
from regard.layers.visibility import Visibility
from regard.models.base import Generator, ModelConfig, Output, Presets, grouped, shifted, sources_of


class TransformerConfig(ModelConfig):
    """Transformer encoder-decoder (Vaswani 2017)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "heads": 4, "feed_forward": 256},
        "small": {"encoder_layers": 6, "decoder_layers": 6, "width": 256, "heads": 4, "feed_forward": 1024},
        "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "heads": 8, "feed_forward": 2048},
        "big": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "width": 1024,
            "heads": 16,
            "feed_forward": 4096,
            "dropout": 0.3,
        },
    }
    kind: Literal["transformer"] = "transformer"
    preset: Literal["tiny", "small", "base", "big"] = "small"
    """Sizes under one name; any field given beside it wins. `base` and `big` are the paper's."""
    encoder_layers: int = Field(6, ge=1)
    """Blocks of the encoder."""
    decoder_layers: int = Field(6, ge=1)
    """Blocks of the decoder."""
    width: int = Field(256, ge=1)
    """d_model: width of every token's vector."""
    heads: int = Field(4, ge=1)
    """Attention heads; they divide the width among them."""
    feed_forward: int = Field(1024, ge=1)
    """d_ff: width inside the feed-forward layers."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings and on the output of every sub-layer."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the attention weights."""
    activation_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout inside the feed-forward layers."""
    norm: Literal["post", "pre", "none"] = "post"
    """LayerNorm after each sub-layer (the paper), before it, or nowhere (an ablation). BatchNorm is no choice: its
    statistics would mix the sentences of a batch and count the padding."""
    positions: PositionKind = "sinusoidal"
    """How the model learns where a token stands: fixed waves, learned vectors, or not at all (an ablation)."""
    max_positions: int = Field(512, ge=1)
    """How many positions are learned, with `positions: learned`."""
    scaled: bool = True
    """Divide scores by sqrt(d_k); off is an ablation."""
    look_ahead: bool = False
    """Let the decoder see the words it is to predict while it trains: an ablation that shows why it must not."""
    residual: bool = True
    """Add each sub-layer's input to its output; off is an ablation."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one vocabulary, the paper's way)."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> TransformerConfig:
        if self.width % self.heads:
            fitting = [str(heads) for heads in range(1, min(self.width, 64) + 1) if self.width % heads == 0]
            raise ValueError(
                f"{self.heads} heads do not divide the width {self.width} (heads that do: {', '.join(fitting)})"
            )
        return self


class Sublayer(nn.Module):
    """Around a sub-layer: LayerNorm(x + Dropout(Sublayer(x))) (sections 3.1 and 5.4).

    Pre-norm, x + Sublayer(LayerNorm(x)), is Xiong et al. 2020, arXiv:2002.04745.
    """

    def __init__(self, config: TransformerConfig, *, learned_norm: bool = True) -> None:
        super().__init__()
        self.order, self.residual = config.norm, config.residual
        norm = nn.LayerNorm(config.width, elementwise_affine=learned_norm)
        self.norm = nn.Identity() if config.norm == "none" else norm
        self.dropout = nn.Dropout(config.dropout)

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        normed: Tensor = self.norm(x) if self.order == "pre" else x
        return normed

    def after(self, x: Tensor, out: Tensor) -> Tensor:
        """What the next one reads."""
        out = self.dropout(out)
        total = x + out if self.residual else out
        result: Tensor = self.norm(total) if self.order == "post" else total
        return result


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.W_1 = nn.Linear(config.width, config.feed_forward)
        self.W_2 = nn.Linear(config.feed_forward, config.width)
        self.dropout = nn.Dropout(config.activation_dropout)
        for linear in (self.W_1, self.W_2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.W_2(self.dropout(torch.relu(self.W_1(x))))
        return out


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(config.width, config.heads, scaled=config.scaled, dropout=config.attention_dropout)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = _attention(config), FeedForward(config)
        self.around_attention, self.around_feed_forward = Sublayer(config), Sublayer(config)

    def forward(self, x_BSD: Tensor, visible: Visibility) -> Tensor:
        read_BSD = self.around_attention.before(x_BSD)
        attended_BSD = self.self_attention(read_BSD, *self.self_attention.keys_values(read_BSD), visible)
        x_BSD = self.around_attention.after(x_BSD, attended_BSD)
        return self.around_feed_forward.after(x_BSD, self.feed_forward(self.around_feed_forward.before(x_BSD)))


@dataclass(frozen=True)
class Cache:
    """One decoder block's keys and values: of the words written, a row each with room for more, and of the source."""

    k_RHME: Tensor
    v_RHME: Tensor
    source_k_BHSE: Tensor
    source_v_BHSE: Tensor


class DecoderBlock(nn.Module):
    """Self-attention over what was written, attention over the source, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = _attention(config), _attention(config)
        self.feed_forward = FeedForward(config)
        self.around_self = Sublayer(config)
        self.around_cross = Sublayer(config)
        self.around_feed_forward = Sublayer(config)

    def forward(self, x_BTD: Tensor, memory_BSD: Tensor, own: Visibility, source: Visibility) -> Tensor:
        read_BTD = self.around_self.before(x_BTD)
        attended_BTD = self.self_attention(read_BTD, *self.self_attention.keys_values(read_BTD), own)
        x_BTD = self.around_self.after(x_BTD, attended_BTD)
        return self._rest(x_BTD, *self.cross_attention.keys_values(memory_BSD), source)

    def step(self, x_R1D: Tensor, cache: Cache, written: int, source: Visibility) -> Tensor:
        """The same for one more token a row, with the keys and values of the tokens before it."""
        read_R1D = self.around_self.before(x_R1D)
        k_RH1E, v_RH1E = self.self_attention.keys_values(read_R1D)
        cache.k_RHME[:, :, written] = k_RH1E[:, :, 0]
        cache.v_RHME[:, :, written] = v_RH1E[:, :, 0]
        known = slice(0, written + 1)
        attended_R1D = self.self_attention(read_R1D, cache.k_RHME[:, :, known], cache.v_RHME[:, :, known], Visibility())
        x_R1D = self.around_self.after(x_R1D, attended_R1D)
        # The W rows of a source stand as W queries before its keys, which are then held once, not W times.
        x_BWD = grouped(x_R1D[:, 0], len(cache.source_k_BHSE))
        return self._rest(x_BWD, cache.source_k_BHSE, cache.source_v_BHSE, source).flatten(0, 1)[:, None]

    def _rest(self, x_BTD: Tensor, k_BHSE: Tensor, v_BHSE: Tensor, source: Visibility) -> Tensor:
        attended_BTD = self.cross_attention(self.around_cross.before(x_BTD), k_BHSE, v_BHSE, source)
        x_BTD = self.around_cross.after(x_BTD, attended_BTD)
        return self.around_feed_forward.after(x_BTD, self.feed_forward(self.around_feed_forward.before(x_BTD)))


@dataclass(frozen=True)
class TransformerState:
    """A cache for each decoder block, and how many tokens it holds."""

    caches: tuple[Cache, ...]
    lengths_B: Tensor
    written: int = 0

    def select(self, rows_BW: Tensor) -> TransformerState:
        kept_B = sources_of(rows_BW, len(self.caches[0].k_RHME) // len(self.lengths_B))
        rows_R = rows_BW.flatten()
        caches = tuple(
            Cache(
                self._rows(cache.k_RHME, rows_R),
                self._rows(cache.v_RHME, rows_R),
                cache.source_k_BHSE.index_select(0, kept_B),
                cache.source_v_BHSE.index_select(0, kept_B),
            )
            for cache in self.caches
        )
        return TransformerState(caches, self.lengths_B.index_select(0, kept_B), self.written)

    def _rows(self, cache_RHME: Tensor, rows_R: Tensor) -> Tensor:
        """Only what was written is copied; the room behind it is made anew."""
        selected = cache_RHME.new_empty(len(rows_R), *cache_RHME.shape[1:])
        selected[:, :, : self.written] = cache_RHME[:, :, : self.written].index_select(0, rows_R)
        return selected


class Transformer(Generator):
    """An encoder of self-attention and a decoder that looks at itself and at the encoder."""

    alignment = "decoder.*.cross_attention"
    encoder_block: ClassVar[type[nn.Module]] = EncoderBlock

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_embedding, self.target_embedding = tied_embeddings(
            source_size, target_size, config.width, config.tie
        )
        self.positions = Positions(config.positions, config.width, config.max_positions)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(self.encoder_block(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        last_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.width) if last_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width) if last_norm else nn.Identity()
        self.output = Readout(config.width, target_size, None if config.tie == "none" else self.target_embedding)

    def embed(self, embedding: Embedding, ids_BL: Tensor, first: int = 0) -> Tensor:
        """Embeddings times sqrt(d_model), plus positions (sections 3.4 and 3.5)."""
        x_BLD = self.positions(embedding(ids_BL) * math.sqrt(self.config.width), first)
        embedded: Tensor = self.dropout(x_BLD)
        return embedded

    def encode(self, source: Tokens) -> Tensor:
        x_BSD = self.embed(self.source_embedding, source.ids_BL)
        visible = Visibility(source.lengths_B)
        for block in self.encoder:
            x_BSD = block(x_BSD, visible)
        memory_BSD: Tensor = self.encoder_norm(x_BSD)
        return memory_BSD

    def forward(self, batch: Batch) -> Output:
        memory_BSD = self.encode(batch.source)
        x_BTD = self.embed(self.target_embedding, shifted(batch.target))
        own = Visibility(batch.target.lengths_B - 1, causal=not self.config.look_ahead)
        source = Visibility(batch.source.lengths_B)
        for block in self.decoder:
            x_BTD = block(x_BTD, memory_BSD, own, source)
        return Output(self.decoder_norm(x_BTD))

    def readout(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def begin(self, source: Tokens, rows: int, max_length: int) -> TransformerState:
        memory_BSD = self.encode(source)
        heads, width = self.config.heads, self.config.width // self.config.heads
        room = (len(source) * rows, heads, max_length, width)
        caches = []
        for block in self.decoder:
            assert isinstance(block, DecoderBlock)
            k_BHSE, v_BHSE = block.cross_attention.keys_values(memory_BSD)
            caches.append(Cache(k_BHSE.new_empty(room), k_BHSE.new_empty(room), k_BHSE, v_BHSE))
        return TransformerState(tuple(caches), source.lengths_B)

    def step(self, tokens_R: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        x_R1D = self.embed(self.target_embedding, tokens_R[:, None], first=state.written)
        source = Visibility(state.lengths_B)
        for block, cache in zip(self.decoder, state.caches, strict=True):
            assert isinstance(block, DecoderBlock)
            x_R1D = block.step(x_R1D, cache, state.written, source)
        logits_RV = self.readout(self.decoder_norm(x_R1D)[:, 0])
        return logits_RV, TransformerState(state.caches, state.lengths_B, state.written + 1)
