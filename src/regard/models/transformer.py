"""Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Batch, Padded, TextBatch, Tokens
from regard.engine.attention import Visibility
from regard.engine.caches import RowCache, SlotCache, cache_for
from regard.engine.graphs import StepGraph, step_with_cache
from regard.engine.packing import packed_for_kernel, packed_if_sparse
from regard.engine.shapes import PackedBatch
from regard.errors import ConfigError
from regard.layers.attention import (
    Cache,
    FeedForward,
    MultiHeadAttention,
    Visible,
    visible_between,
    visible_tokens,
)
from regard.layers.embeddings import (
    Embedding,
    PositionKind,
    Positions,
    Readout,
    Tie,
    tied_embeddings,
)
from regard.layers.linear import Dropout
from regard.models.base import Contextual, Generator, HeadsConfig, Output, Presets, group_rows


class TransformerConfig(HeadsConfig):
    """Transformer encoder-decoder (Vaswani 2017)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {
            "encoder_layers": 4,
            "decoder_layers": 4,
            "width": 128,
            "heads": 4,
            "feed_forward": 256,
        },
        "small": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "width": 256,
            "heads": 4,
            "feed_forward": 1024,
        },
        "base": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "width": 512,
            "heads": 8,
            "feed_forward": 2048,
            "norm": "post",
        },
        "big": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "width": 1024,
            "heads": 16,
            "feed_forward": 4096,
            "norm": "post",
            "dropout": 0.3,
        },
    }
    reads = "source"
    generates = True
    alignment = "decoder.*.cross_attention"

    kind: Literal["transformer"] = "transformer"
    preset: Literal["tiny", "small", "base", "big"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` and `big` are the
    paper's."""
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
    a longer warm-up), or nowhere (an ablation). BatchNorm is no alternative: its statistics would
    mix the sentences of a batch and include the padding."""
    positions: PositionKind = "sinusoidal"
    """Position encodings: fixed sine waves, learned vectors, or none (an ablation)."""
    max_positions: int = Field(512, ge=1)
    """Number of learned positions, with `positions: learned`."""
    scaled: bool = True
    """Divide scores by sqrt(d_k); off is an ablation."""
    look_ahead: bool = False
    """Let the decoder attend to the words that it has to predict in training: an ablation."""
    residual: bool = True
    """Add each sub-layer's input to its output; off is an ablation."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one vocabulary,
    the paper's way)."""
    activation: Literal["relu", "swish", "gelu"] = "relu"
    """Activation of the feed-forward layers: the paper's ReLU, swish x sigmoid(x) as in OPUS-MT's
    models, or GELU."""

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
    """Residual connection, dropout and norm of a sub-layer: LayerNorm(x + Dropout(Sublayer(x)))
    (sections 3.1, 5.4).

    Pre-norm, x + Sublayer(LayerNorm(x)), is Xiong et al. 2020, arXiv:2002.04745.
    """

    def __init__(self, config: TransformerConfig, *, learned_norm: bool = True) -> None:
        super().__init__()
        self.order = config.norm
        self.residual = config.residual
        norm = nn.LayerNorm(config.width, elementwise_affine=learned_norm)
        self.norm = nn.Identity() if config.norm == "none" else norm
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out = self.dropout(sublayer(self.norm(x) if self.order == "pre" else x))
        total = x + out if self.residual else out
        return self.norm(total) if self.order == "post" else total


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.width, config.heads, scaled=config.scaled, dropout=config.attention_dropout
    )


def _feed_forward(config: TransformerConfig) -> FeedForward:
    layer = FeedForward(
        config.width, config.feed_forward, config.activation, config.activation_dropout
    )
    for linear in (layer.W_1, layer.W_2):
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    return layer


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.around_attention = Sublayer(config)
        self.around_feed_forward = Sublayer(config)

    def forward(self, x_BSD: Tensor, visible: Visibility) -> Tensor:
        x_BSD = self.around_attention(
            x_BSD, lambda read_BSD: self.self_attention.attend_to_self(read_BSD, visible)
        )
        return self.around_feed_forward(x_BSD, self.feed_forward)


class DecoderBlock(nn.Module):
    """Self-attention over the target so far, attention over the source, then feed-forward."""

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
        x_BTD = self.around_self(
            x_BTD, lambda read_BTD: self.self_attention.attend_to_self(read_BTD, own)
        )
        return self._rest(x_BTD, *self.cross_attention.keys_values(memory_BSD), source)

    def step(
        self, x_BQD: Tensor, add: Cache, source_2BHSE: Tensor, own: Visibility, source: Visibility
    ) -> Tensor:
        """`forward` for one more token per row, with the cached keys and values before it: [R, 1,
        D] or [B, W, D]."""

        def attend(read_BQD: Tensor) -> Tensor:
            return self.self_attention(
                read_BQD, *add(*self.self_attention.keys_values(read_BQD)), own
            )

        x_BQD = self.around_self(x_BQD, attend)
        # The W rows of a source are W queries to the same keys, so that keys are stored once and
        # not W times.
        x_BWD = x_BQD.view(source_2BHSE.shape[1], -1, x_BQD.shape[-1])
        return self._rest(x_BWD, source_2BHSE[0], source_2BHSE[1], source).view_as(x_BQD)

    def _rest(self, x_BTD: Tensor, k_BHSE: Tensor, v_BHSE: Tensor, source: Visibility) -> Tensor:
        x_BTD = self.around_cross(
            x_BTD, lambda read_BTD: self.cross_attention(read_BTD, k_BHSE, v_BHSE, source)
        )
        return self.around_feed_forward(x_BTD, self.feed_forward)


@dataclass(frozen=True)
class KeyValueCache:
    """The keys and values of the target so far, for each hypothesis its own."""

    own_N2RHME: Tensor

    queries_share_keys = False
    """Each row attends to its own keys: queries are [R, 1, D]."""

    def select(self, rows_BW: Tensor, kept_B: Tensor | None, written: int) -> KeyValueCache:
        return KeyValueCache(self.own_N2RHME.index_select(2, rows_BW.flatten()))

    def with_space(self, positions: int) -> KeyValueCache:
        return self

    def visible(self, written_1: Tensor, capacity: int) -> Visible:
        return Visible()

    def add(
        self, number: int, written_1: Tensor, capacity: int, k_RH1E: Tensor, v_RH1E: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of a token in block `number` -> all to attend to."""
        k_RHKE, v_RHKE = self.own_N2RHME[number, ..., :capacity, :]
        k_RHKE.index_copy_(2, written_1, k_RH1E)
        v_RHKE.index_copy_(2, written_1, v_RH1E)
        return k_RHKE, v_RHKE


def empty_cache(
    source_N2BHSE: Tensor, rows: int, max_length: int
) -> RowCache | SlotCache | KeyValueCache:
    """A cache for `rows` hypotheses per source, given the keys and values of the sources."""
    if (cache := cache_for(source_N2BHSE, rows, max_length)) is not None:
        return cache
    layers, _, sources, heads, _, head_width = source_N2BHSE.shape
    return KeyValueCache(
        source_N2BHSE.new_zeros(layers, 2, sources * rows, heads, max_length, head_width)
    )


@dataclass(frozen=True)
class TransformerState:
    """The keys and values of every decoder block: those of the target so far, and per source those
    of the source."""

    own: RowCache | SlotCache | KeyValueCache
    source_N2BHSE: Tensor
    visible: Visible  # which source positions are not padding
    positions_MD: Tensor | None
    limit: int  # tokens per row at most
    rows: int  # per source
    written: int  # tokens per row so far
    written_1: Tensor  # the same number on the device
    graph: StepGraph | None = None

    def select(self, rows_BW: Tensor) -> TransformerState:
        kept_B = None if len(rows_BW) == self.source_N2BHSE.shape[2] else rows_BW[:, 0] // self.rows
        own = self.own.select(rows_BW, kept_B, self.written)
        state = replace(
            self, own=own, rows=rows_BW.shape[1], graph=self.graph if own is self.own else None
        )
        if kept_B is None:
            return state
        source_N2BHSE = self.source_N2BHSE.index_select(2, kept_B)
        return replace(state, source_N2BHSE=source_N2BHSE, visible=self.visible.select(kept_B))


class TransformerDecoder(Generator):
    """The decoder, whatever encodes the source: embeddings, blocks, and steps with cached keys and
    values."""

    positions: Positions
    dropout: nn.Dropout
    decoder: nn.ModuleList
    decoder_norm: nn.Module

    def embed(self, embedding: Embedding, text: Tokens) -> Tensor:
        """Embeddings times sqrt(d_model), plus positions (sections 3.4 and 3.5)."""
        x = embedding(text.ids) * math.sqrt(embedding.embedding_dim)
        return self.dropout(self.positions(x, text))

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
        """The first state, given the encoded source; its layout is that of `text`, if there is
        one."""
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
            limit=max_length,
            rows=rows,
            written=0,
            written_1=torch.zeros(1, dtype=torch.long, device=source_N2BHSE.device),
        )

    def step(self, tokens_R: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        self.positions.check_length(state.written + 1)
        written = state.written
        state = replace(state, own=state.own.with_space(state.written + 1))
        advance = partial(self.advance, state)
        logits_RV, graph = step_with_cache(
            advance, tokens_R, written, state.limit, state.graph, warm=written > 0
        )
        return logits_RV, replace(state, written=state.written + 1, graph=graph)

    def advance(self, state: TransformerState, tokens_R: Tensor, capacity: int) -> Tensor:
        """One step in place. It attends to what is filled of the cache: on a CPU its first
        `capacity` positions."""
        x_RD = self.target_embedding(tokens_R) * math.sqrt(self.target_embedding.embedding_dim)
        if state.positions_MD is not None:
            x_RD = x_RD + state.positions_MD.index_select(0, state.written_1)
        x_RD = self.dropout(x_RD)
        sources = state.source_N2BHSE.shape[2]
        x_BQD = group_rows(x_RD, sources) if state.own.queries_share_keys else x_RD[:, None]
        own = state.own.visible(state.written_1, capacity)
        for number, block in enumerate(self.decoder_blocks()):
            add = partial(state.own.add, number, state.written_1, capacity)
            x_BQD = block.step(x_BQD, add, state.source_N2BHSE[number], own, state.visible)
        state.written_1.add_(1)
        return self.readout(self.decoder_norm(x_BQD).flatten(0, 1))

    def decoder_blocks(self) -> list[DecoderBlock]:
        return cast("list[DecoderBlock]", list(self.decoder))


class Transformer(TransformerDecoder):
    """An encoder with self-attention, and a decoder with attention to itself and to the encoder."""

    config: TransformerConfig
    encoder_block: ClassVar[type[nn.Module]] = EncoderBlock
    # whether it can compute on packed sentences: all its attentions have heads of the same width
    packable = True

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_embedding, self.target_embedding = tied_embeddings(
            source_size, target_size, config.width, config.tie
        )
        self.positions = Positions(config.positions, config.width, config.max_positions)
        self.longest = config.max_positions if config.positions == "learned" else None
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            self.encoder_block(config) for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        last_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.width) if last_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width) if last_norm else nn.Identity()
        self.output = Readout(
            config.width, target_size, None if config.tie == "none" else self.target_embedding
        )

    def encode(self, x_BSD: Tensor, visible: Visibility) -> Tensor:
        for block in self.encoder:
            x_BSD = block(x_BSD, visible)
        return self.encoder_norm(x_BSD)

    def forward(self, batch: Batch | PackedBatch) -> Output:
        source = self.arranged(batch.source)
        target = self.arranged(batch.target.inputs)
        memory_BSD = self.encode(
            self.embed(self.source_embedding, source), visible_between(source, source)
        )
        hidden_BTD = self.decode(
            self.embed(self.target_embedding, target),
            memory_BSD,
            visible_between(target, target, causal=not self.config.look_ahead),
            visible_between(target, source),
        )
        return Output(target.restore(hidden_BTD))

    def arranged(self, text: Tokens) -> Tokens:
        """The text in the layout that is computed fastest."""
        if not self.packable:
            return text
        head_width = self.config.width // self.config.heads
        dropout = self.config.attention_dropout if self.training else 0.0
        return packed_for_kernel(text, self.output.linear.weight, head_width, dropout)

    def begin(self, source: Padded, rows: int, max_length: int) -> TransformerState:
        text = packed_if_sparse(source) if self.packable else source
        visible = visible_tokens(source)
        visible_to_source = visible if text is source else visible_between(text, text)
        memory_BSD = self.encode(self.embed(self.source_embedding, text), visible_to_source)
        return self.begin_with(memory_BSD, visible, rows, max_length, text)


class SourceStates(Contextual):
    """The encoder of a Transformer as a model of single texts: the states of a source after each
    block."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.longest = model.longest
        self.width = model.config.width
        self.depth = len(model.encoder)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.model.source_embedding}

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        model = self.model
        visible = Visible(batch.text.lengths_B)
        layers = [model.embed(model.source_embedding, batch.text)]
        for block in model.encoder:
            layers.append(block(layers[-1], visible))
        return [*layers[:-1], model.encoder_norm(layers[-1])]
