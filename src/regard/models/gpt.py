"""Radford et al. 2018, "Improving language understanding by generative pre-training": the
Transformer decoder alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.data.batches import Padded, TextBatch, Tokens
from regard.engine.attention import Visibility
from regard.engine.packing import packed_if_faster
from regard.engine.shapes import PackedTextBatch
from regard.layers.attention import (
    AddKeysValues,
    FeedForward,
    MultiHeadAttention,
    Visible,
    add_sublayer,
    visible_between,
)
from regard.layers.caches import KeyValueCache
from regard.layers.embeddings import Embedding, Positions, Readout
from regard.layers.linear import Dropout
from regard.models.base import BlocksConfig, LanguageModel, Output, Presets, last_of


class GPTConfig(BlocksConfig):
    """Causal Transformer language model (Radford 2018)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"layers": 2, "width": 128, "heads": 2, "feed_forward": 512},
        "mini": {"layers": 4, "width": 256, "heads": 4, "feed_forward": 1024},
        "small": {"layers": 6, "width": 512, "heads": 8, "feed_forward": 2048},
        "base": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072, "norm": "post"},
    }
    generates = True
    pretraining = "next_token"
    causal = True
    head_pooling = "last"

    kind: Literal["gpt"] = "gpt"
    preset: Literal["tiny", "mini", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    norm: Literal["post", "pre"] = "pre"
    """LayerNorm before each sub-layer and once at the end (GPT-2), or after each sub-layer (the
    paper)."""
    look_ahead: bool = False
    """Let each token attend to those after it, which are what it has to predict: an ablation."""


class Block(nn.Module):
    """Masked self-attention, then feed-forward, with the tanh approximation of GELU in the paper's
    code.

    post    x = LayerNorm(x + Dropout(Sublayer(x)))       the paper, after Vaswani et al. 2017
    pre     x = x + Dropout(Sublayer(LayerNorm(x)))       GPT-2
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.self_attention = MultiHeadAttention(
            config.width, config.heads, dropout=config.attention_dropout
        )
        self.feed_forward = FeedForward(config.width, config.feed_forward, "gelu_tanh")
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x_BLD: Tensor, visible: Visibility, add: AddKeysValues | None = None
    ) -> Tensor:
        def read_own(read_BLD: Tensor) -> Tensor:
            if add is None:
                return self.self_attention.attend_to_self(read_BLD, visible)
            keys_values = add(*self.self_attention.keys_values(read_BLD))
            return self.self_attention(read_BLD, *keys_values, visible)

        x_BLD = self.around(x_BLD, read_own, self.attention_norm)
        return self.around(x_BLD, self.feed_forward, self.feed_forward_norm)

    def around(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.LayerNorm) -> Tensor:
        return add_sublayer(x, sublayer, norm, self.dropout, pre=self.pre)


@dataclass
class GPTState:
    """The keys and values of every block, per row. A step writes into them, so an old state must
    not be used again."""

    own: KeyValueCache
    sources: int
    last_BD: Tensor | None
    """Before the first step: the hidden state after each prompt."""

    def select(self, rows_BW: Tensor) -> GPTState:
        if len(rows_BW) == self.sources:
            return replace(self, own=self.own.select(rows_BW, None))
        sources_B = rows_BW[:, 0] // (len(self.own.places) // self.sources)
        last_BD = None if self.last_BD is None else self.last_BD.index_select(0, sources_B)
        return GPTState(self.own.select(rows_BW, sources_B), len(rows_BW), last_BD)


class GPT(LanguageModel):
    """The Transformer decoder alone, which predicts each token from those before it.

    Radford et al. 2018, section 3.1, equation 2:
        h_0 = U W_e + W_p
        h_l = transformer_block(h_{l-1})                        for all l in [1, n]
        P(u) = softmax(h_n W_e^T)

    With `norm: pre`, as in GPT-2, h_n passes through a last LayerNorm before W_e^T.
    """

    config: GPTConfig

    def __init__(self, config: GPTConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.longest = config.max_positions
        self.width = config.width
        self.depth = config.layers
        self.embedding = Embedding(vocabulary_size, config.width)
        self.positions = Positions("learned", config.width, config.max_positions)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        self.output = Readout(config.width, vocabulary_size, self.embedding, bias=False)
        for module in self.modules():  # N(0, 0.02) (section 4.1)
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            # GPT-2 divides the layers that add to the residual stream by sqrt(2 n)
            if config.norm == "pre" and name.endswith(("W_O.weight", "W_2.weight")):
                parameter.data.mul_((2 * config.layers) ** -0.5)

    def forward(self, batch: TextBatch | PackedTextBatch) -> Output:
        return Output(self.read(batch.text.inputs))

    def states(self, batch: TextBatch) -> Tensor:
        return self.read(batch.text)

    def read(self, text: Tokens) -> Tensor:
        """The hidden states of texts, in their layout."""
        packed = packed_if_faster(text, self, self.config)
        visible = visible_between(packed, packed, causal=not self.config.look_ahead)
        x_BLD = self.embed(packed)
        for block in self.blocks:
            x_BLD = block(x_BLD, visible)
        return packed.restore(self.norm(x_BLD))

    def embed(self, text: Tokens) -> Tensor:
        """h_0 = U W_e + W_p"""
        return self.dropout(self.positions(self.embedding(text.ids), text))

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        visible = Visible(batch.text.lengths_B, causal=not self.config.look_ahead)
        layers = [self.embed(batch.text)]
        for block in self.blocks:
            layers.append(block(layers[-1], visible))
        return [*layers[:-1], self.norm(layers[-1])]

    def begin(self, source: Padded, rows: int, max_length: int) -> GPTState:
        """Read the prompts. Each row caches the keys and values of its prompt before those of the
        tokens written."""
        length = source.ids_BL.shape[1]
        heads = self.config.heads
        head_width = self.config.width // heads
        x_BLD = self.embed(source)
        # Zeros: a step attends to the unfilled part too, with weight 0
        own_N2RHME = x_BLD.new_zeros(
            len(self.blocks), 2, len(source) * rows, heads, length + max_length, head_width
        )
        own = KeyValueCache(own_N2RHME, source.lengths_B.repeat_interleave(rows), length)
        visible = Visible(source.lengths_B, causal=True)
        for number, block in enumerate(self.blocks):
            x_BLD = block(x_BLD, visible, partial(own.add_prompts, number))
        return GPTState(own, len(source), last_of(self.norm(x_BLD), source))

    def step(self, tokens_R: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        if state.last_BD is not None:
            rows = len(tokens_R) // state.sources
            logits_RV = self.readout(state.last_BD).repeat_interleave(rows, 0)
            return logits_RV, replace(state, last_BD=None)
        if state.own.longest >= self.config.max_positions:
            # `longest` may be that of a row that the search has dropped: ask those that are left
            self.positions.check_length(int(state.own.places.max()) + 1)
        logits_RV, own = state.own.step(tokens_R, self.advance)
        return logits_RV, replace(state, own=own)

    def advance(self, tokens_R: Tensor, own: KeyValueCache) -> Tensor:
        """The logits after one more token per row, whose keys and values enter the cache `own`."""
        x_RD = self.dropout(self.embedding(tokens_R) + self.positions.learned(own.places))
        x_R1D = x_RD[:, None]
        visible = own.visible
        for number, block in enumerate(self.blocks):
            x_R1D = block(x_R1D, visible, partial(own.add, number))
        return self.readout(self.norm(x_R1D)[:, 0])
