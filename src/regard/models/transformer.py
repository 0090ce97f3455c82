"""Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Batch, Padded, Tokens
from regard.engine.attention import Visibility
from regard.engine.caches import Cache
from regard.engine.packing import packed_if_faster
from regard.engine.shapes import PackedBatch
from regard.errors import ConfigError
from regard.layers.attention import (
    AddKeysValues,
    FeedForward,
    MultiHeadAttention,
    Visible,
    add_sublayer,
    visible_between,
    visible_source,
)
from regard.layers.caches import empty_cache
from regard.layers.embeddings import (
    Embedding,
    PositionKind,
    Positions,
    Readout,
    Tie,
    tied_embeddings,
)
from regard.layers.linear import Dropout
from regard.models.base import Generator, HeadsConfig, Output, Presets, group_rows


def _sizes(layers: int, **sizes: Any) -> dict[str, Any]:
    """A preset with as many blocks in the encoder as in the decoder."""
    return {"encoder_layers": layers, "decoder_layers": layers, **sizes}


class TransformerConfig(HeadsConfig):
    """Transformer encoder-decoder (Vaswani 2017)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": _sizes(layers=4, width=128, heads=4, feed_forward=256),
        "small": _sizes(layers=6, width=256, heads=4, feed_forward=1024),
        "base": _sizes(layers=6, width=512, heads=8, feed_forward=2048, norm="post"),
        "big": _sizes(layers=6, width=1024, heads=16, feed_forward=4096, norm="post", dropout=0.3),
    }
    reads = "source"
    reads_texts = True
    segments = True
    head_pooling = "last"
    generates = True
    alignment = "decoder.*.cross_attention"

    kind: Literal["transformer"] = "transformer"
    preset: Literal["tiny", "small", "base", "big"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` and `big` have
    the paper's sizes and norm; the paper also ties all embeddings (`tie: all`)."""
    encoder_layers: int = Field(6, ge=1)
    """Blocks of the encoder."""
    decoder_layers: int = Field(6, ge=1)
    """Blocks of the decoder."""
    width: int = Field(256, ge=1)
    """d_model: width of the embeddings and of all layers."""
    heads: int = Field(4, ge=1)
    """Attention heads; each gets an equal share of the width."""
    feed_forward: int = Field(1024, ge=1)
    """d_ff: width inside the feed-forward layers."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings and on the output of every sub-layer."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the attention weights."""
    activation_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout inside the feed-forward layers."""
    norm: Literal["post", "pre", "none"] = "pre"
    """LayerNorm before each sub-layer, after it (the paper's, which needs a lower learning rate and
    a longer warm-up), or nowhere (an ablation). BatchNorm is not an alternative: its statistics would
    mix the sentences of a batch and include the padding."""
    positions: PositionKind = "sinusoidal"
    """Position encodings: fixed sine waves, learned vectors, or none (an ablation). `tensor2tensor`:
    the sine waves of the authors' own code, as in M2M-100; the exponent is 2i / (d_model - 2)."""
    max_positions: int = Field(512, ge=1)
    """Number of learned positions, with `positions: learned`."""
    first_position: int = Field(0, ge=0)
    """The position of the first token: 2 in BART and M2M-100, which count from their padding
    token."""
    shared_positions: bool = True
    """One table of learned positions for both sides; BART has one for each."""
    scaled_embeddings: bool = True
    """Multiply embeddings by sqrt(d_model) (section 3.4); BART does not."""
    embedding_norm: bool = False
    """LayerNorm after embeddings and positions, as in BART."""
    scaled: bool = True
    """Divide scores by sqrt(d_k); off is an ablation."""
    look_ahead: bool = False
    """Let the decoder attend to the words that it has to predict in training: an ablation."""
    residual: bool = True
    """Add each sub-layer's input to its output; off is an ablation."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one vocabulary,
    the paper's way)."""
    readout_bias: bool = True
    """A bias for each token of the readout; M2M-100 has none."""
    activation: Literal["relu", "swish", "gelu"] = "relu"
    """Activation of the feed-forward layers: the paper's ReLU, swish x sigmoid(x) as in OPUS-MT's
    models, or GELU."""

    @property
    def layers(self) -> int:
        """Blocks of both sides: under a head, the encoder's are below the decoder's."""
        return self.encoder_layers + self.decoder_layers

    def check_data(self, longest_source: int, longest_target: int = 0) -> None:
        longest = max(longest_source, longest_target)
        if self.positions == "learned" and longest > self.max_positions:
            what = (
                f"the longest text takes up {longest} positions, but the model learns "
                f"{self.max_positions}"
            )
            raise ConfigError(
                what, where="model.max_positions", hint=f"at least {longest}, or shorter texts"
            )


class Sublayer(nn.Module):
    """Residual connection, dropout and norm around a sub-layer: `add_sublayer`. `norm: none` has
    neither order, since its norm is the identity."""

    def __init__(self, config: TransformerConfig, *, learned_norm: bool = True) -> None:
        super().__init__()
        self.order = config.norm
        self.residual = config.residual
        norm = nn.LayerNorm(config.width, elementwise_affine=learned_norm)
        self.norm = nn.Identity() if config.norm == "none" else norm
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        pre = self.order == "pre"
        return add_sublayer(x, sublayer, self.norm, self.dropout, pre=pre, residual=self.residual)


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.width, config.heads, scaled=config.scaled, dropout=config.attention_dropout
    )


def _feed_forward(config: TransformerConfig) -> FeedForward:
    """With Xavier's first weights, as `MultiHeadAttention` has them. `FeedForward` does not draw
    them itself: GPT and BERT, which use it too, draw all their weights from N(0, 0.02)."""
    layer = FeedForward(
        config.width, config.feed_forward, config.activation, config.activation_dropout
    )
    for linear in (layer.W_1, layer.W_2):
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    return layer


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.around_attention = Sublayer(config)
        self.around_feed_forward = Sublayer(config)

    def forward(self, x_BSD: Tensor, visible: Visibility) -> Tensor:
        def read_own(read_BSD: Tensor) -> Tensor:
            return self.self_attention.attend_to_self(read_BSD, visible)

        x_BSD = self.around_attention(x_BSD, read_own)
        return self.around_feed_forward(x_BSD, self.feed_forward)


class DecoderBlock(nn.Module):
    """Self-attention over the target so far, attention over the source, then feed-forward (section
    3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.cross_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.around_self = Sublayer(config)
        self.around_cross = Sublayer(config)
        self.around_feed_forward = Sublayer(config)

    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, own: Visibility, source: Visibility
    ) -> Tensor:
        def read_own(read_BTD: Tensor) -> Tensor:
            return self.self_attention.attend_to_self(read_BTD, own)

        x_BTD = self.around_self(x_BTD, read_own)
        k_BHSE, v_BHSE = self.cross_attention.keys_values(memory_BSD)
        return self.after_self_attention(x_BTD, k_BHSE, v_BHSE, source)

    def step(
        self,
        x_BQD: Tensor,
        add: AddKeysValues,
        source_2BHSE: Tensor,
        own: Visibility,
        source: Visibility,
    ) -> Tensor:
        """`forward` for one more token per row, [R, 1, D] or [B, W, D].

        `add` stores its keys and values and returns those of all tokens so far; `source_2BHSE` are
        the keys and the values of the source.
        """

        def read_own(read_BQD: Tensor) -> Tensor:
            k_RHKE, v_RHKE = add(*self.self_attention.keys_values(read_BQD))
            return self.self_attention(read_BQD, k_RHKE, v_RHKE, own)

        x_BQD = self.around_self(x_BQD, read_own)
        # The W rows of a source are W queries to the same keys, which are stored once per source.
        x_BWD = x_BQD.view(source_2BHSE.shape[1], -1, x_BQD.shape[-1])
        return self.after_self_attention(x_BWD, source_2BHSE[0], source_2BHSE[1], source).view_as(
            x_BQD
        )

    def after_self_attention(
        self, x_BTD: Tensor, k_BHSE: Tensor, v_BHSE: Tensor, source: Visibility
    ) -> Tensor:
        """Attention over the source, then feed-forward."""

        def read_source(read_BTD: Tensor) -> Tensor:
            return self.cross_attention(read_BTD, k_BHSE, v_BHSE, source)

        x_BTD = self.around_cross(x_BTD, read_source)
        return self.around_feed_forward(x_BTD, self.feed_forward)


@dataclass
class TransformerState:
    """The keys and values of every decoder block: those of the target so far, and per source those
    of the source.

    A step writes into the cache, so an old state must not be used again.
    """

    own: Cache
    source_N2BHSE: Tensor
    visible: Visible
    """Which source positions are not padding."""
    positions_MD: Tensor | None
    rows: int
    """Hypotheses per source."""

    def select(self, rows_BW: Tensor) -> TransformerState:
        rows = rows_BW.shape[1]
        if len(rows_BW) == self.source_N2BHSE.shape[2]:
            return replace(self, own=self.own.select(rows_BW, None), rows=rows)
        sources_B = rows_BW[:, 0] // self.rows
        return TransformerState(
            own=self.own.select(rows_BW, sources_B),
            source_N2BHSE=self.source_N2BHSE.index_select(2, sources_B),
            visible=self.visible.select(sources_B),
            positions_MD=self.positions_MD,
            rows=rows,
        )


class TransformerDecoder(Generator):
    """A decoder over any encoded source: embeddings, blocks, and steps with cached keys and
    values."""

    scaled_embeddings = True
    positions: Positions
    embedding_norm: nn.Module
    dropout: nn.Dropout
    decoder: nn.ModuleList
    decoder_norm: nn.Module

    def vectors(self, embedding: Embedding, ids: Tensor) -> Tensor:
        """sqrt(d_model) E x (section 3.4)"""
        e = embedding(ids)
        return e * math.sqrt(embedding.embedding_dim) if self.scaled_embeddings else e

    def embed_target(self, text: Tokens) -> Tensor:
        """Dropout(sqrt(d_model) E x + PE) (sections 3.4, 3.5 and 5.4)."""
        x = self.positions(self.vectors(self.target_embedding, text.ids), text)
        return self.dropout(self.embedding_norm(x))

    def decode(
        self, x_BTD: Tensor, memory_BSD: Tensor, own: Visibility, source: Visibility
    ) -> Tensor:
        for block in self.decoder:
            x_BTD = block(x_BTD, memory_BSD, own, source)
        return self.decoder_norm(x_BTD)

    # Step by step

    def begin_with(
        self,
        memory_BSD: Tensor,
        visible: Visible,
        rows: int,
        max_length: int,
        text: Tokens | None = None,
    ) -> TransformerState:
        """The first state, given the encoded source, which is packed or padded as `text` is."""
        keys_values: list[Tensor] = []
        for block in self.decoder_blocks():
            keys_values += block.cross_attention.keys_values(memory_BSD)
        if text is not None:
            keys_values = [text.restore_heads(x) for x in keys_values]
        stacked = torch.stack(keys_values)
        source_N2BHSE = stacked.view(-1, 2, *stacked.shape[1:])
        return TransformerState(
            own=empty_cache(source_N2BHSE, rows, max_length),
            source_N2BHSE=source_N2BHSE,
            visible=visible,
            positions_MD=self.positions.table(source_N2BHSE, max_length),
            rows=rows,
        )

    def step(self, tokens_R: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        self.positions.check_length(state.own.longest + 1)
        logits_RV, own = state.own.step(tokens_R, partial(self.advance, state))
        return logits_RV, replace(state, own=own)

    def advance(self, state: TransformerState, tokens_R: Tensor, own: Cache) -> Tensor:
        """The logits after one more token per row, whose keys and values enter the cache `own`."""
        x_RD = self.vectors(self.target_embedding, tokens_R)
        if state.positions_MD is not None:
            x_RD = x_RD + state.positions_MD.index_select(0, own.places)
        x_RD = self.dropout(self.embedding_norm(x_RD))
        sources = state.source_N2BHSE.shape[2]
        x_BQD = group_rows(x_RD, sources) if own.queries_share_keys else x_RD[:, None]
        visible = own.visible
        for number, block in enumerate(self.decoder_blocks()):
            add = partial(own.add, number)
            x_BQD = block.step(x_BQD, add, state.source_N2BHSE[number], visible, state.visible)
        return self.readout(self.decoder_norm(x_BQD).flatten(0, 1))

    def decoder_blocks(self) -> list[DecoderBlock]:
        return cast("list[DecoderBlock]", list(self.decoder))


def _positions(config: TransformerConfig) -> Positions:
    return Positions(
        config.positions, config.width, config.max_positions, first=config.first_position
    )


class Transformer(TransformerDecoder):
    """An encoder with self-attention, and a decoder with attention to itself and to the encoder.

    Vaswani et al. 2017, section 3 and figure 1, with N blocks on each side:
        memory   = EncoderBlock_N(... EncoderBlock_1(embed(source)))
        hidden   = DecoderBlock_N(... DecoderBlock_1(embed(target), memory), memory)
        embed(x) = Dropout(sqrt(d_model) E x + PE)
        P(y_t | y_<t, x) = softmax(W hidden_t + b)

    BART (Lewis et al. 2020, arXiv:1910.13461) and M2M-100 (Fan et al. 2020, arXiv:2010.11125) are
    this model with other settings: a norm after the embeddings, which are not scaled, and learned
    positions of each side; or no bias b and sine waves that begin at position 2.
    """

    config: TransformerConfig
    encoder_block: ClassVar[type[nn.Module]] = EncoderBlock
    packable = True
    """Whether all attentions have heads of the same width, so that sentences can be packed."""

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_embedding, self.target_embedding = tied_embeddings(
            source_size, target_size, config.width, config.tie
        )
        self.scaled_embeddings = config.scaled_embeddings
        self.positions = _positions(config)
        self.source_positions = self.positions if config.shared_positions else _positions(config)
        self.embedding_norm, self.source_embedding_norm = (
            nn.LayerNorm(config.width) if config.embedding_norm else nn.Identity() for _ in range(2)
        )
        self.longest = config.max_positions if config.positions == "learned" else None
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            self.encoder_block(config) for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        last_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.width) if last_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width) if last_norm else nn.Identity()
        self.output = Readout.of(
            config.width, self.target_embedding, config.tie, bias=config.readout_bias
        )

    def embed_source(self, text: Tokens) -> Tensor:
        x = self.source_positions(self.vectors(self.source_embedding, text.ids), text)
        return self.dropout(self.source_embedding_norm(x))

    def encode(self, x_BSD: Tensor, visible: Visibility) -> Tensor:
        for block in self.encoder:
            x_BSD = block(x_BSD, visible)
        return self.encoder_norm(x_BSD)

    def forward(self, batch: Batch | PackedBatch) -> Output:
        source: Tokens = batch.source
        target: Tokens = batch.target.inputs
        if self.packable:
            source = packed_if_faster(source, self, self.config, for_padding=False)
            target = packed_if_faster(target, self, self.config, for_padding=False)
        memory_BSD = self.encode(self.embed_source(source), visible_between(source, source))
        hidden_BTD = self.decode(
            self.embed_target(target),
            memory_BSD,
            visible_between(target, target, causal=not self.config.look_ahead),
            visible_between(target, source),
        )
        return Output(target.restore(hidden_BTD))

    def begin(self, source: Padded, rows: int, max_length: int) -> TransformerState:
        text: Tokens = source
        if self.packable:
            text = packed_if_faster(source, self, self.config, for_kernel=False)
        visible = visible_source(source)
        visible_to_source = visible if text is source else visible_between(text, text)
        memory_BSD = self.encode(self.embed_source(text), visible_to_source)
        return self.begin_with(memory_BSD, visible, rows, max_length, text)
