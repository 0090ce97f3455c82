"""The encoder-decoder RNN without attention: one vector of fixed size represents the whole sentence.

Sutskever et al. 2014, arXiv:1409.3215; Cho et al. 2014, arXiv:1406.1078.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Batch, Tokens
from regard.layers.attention import Linear
from regard.layers.embeddings import Readout, Tie, tied_embeddings
from regard.layers.recurrence import LAYERS, Bridge, Carry, Cell, RecurrentEncoder, as_carry, as_torch
from regard.models.base import Generator, ModelConfig, Output, Presets, decoder_input, sources_of


class RNNConfig(ModelConfig):
    """Encoder-decoder RNN (Sutskever 2014, Cho 2014)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 128, "hidden": 128, "layers": 1},
        "small": {"embedding": 256, "hidden": 512, "layers": 1},
        "base": {"embedding": 512, "hidden": 1000, "layers": 4},
    }
    reads = "source"
    generates = True

    kind: Literal["rnn"] = "rnn"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it."""
    cell: Cell = "lstm"
    """The recurrent cell: plain RNN, GRU or LSTM."""
    embedding: int = Field(256, ge=1)
    """Width of the token embeddings."""
    hidden: int = Field(512, ge=1)
    """Width of the recurrent state."""
    layers: int = Field(1, ge=1)
    """Recurrent layers on each side."""
    bidirectional: bool = False
    """Whether the encoder also reads from right to left."""
    reverse_source: bool = False
    """Read the source backwards, as Sutskever does: it brings the first words of both sides close together."""
    context: Literal["start", "every_step"] = "start"
    """Where the sentence vector enters the decoder: in its first state (Sutskever), or in every input too (Cho)."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the readout."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one vocabulary)."""


@dataclass(frozen=True)
class RNNState:
    """The decoder's recurrent state per row, and the sentence vector per source."""

    carry: Carry
    c_BD: Tensor

    def select(self, rows_BW: Tensor) -> RNNState:
        kept_B = sources_of(rows_BW, self.carry[0].shape[1] // len(self.c_BD))
        c_BD = self.c_BD.index_select(0, kept_B)
        return RNNState(tuple(part.index_select(1, rows_BW.flatten()) for part in self.carry), c_BD)


class RNN(Generator):
    """
    Sutskever et al. 2014, section 2; Cho et al. 2014, section 2.2:
        h_t = f(h_{t-1}, x_t)                      the encoder; its last state is the context c
        s_t = f(s_{t-1}, y_{t-1} [, c])            the decoder; s_0 is computed from c
        p(y_t | y_<t, x) = softmax(W tanh(V s_t))
    """

    config: RNNConfig

    def __init__(self, config: RNNConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_embedding, self.target_embedding = tied_embeddings(
            source_size, target_size, config.embedding, config.tie
        )
        self.encoder = RecurrentEncoder(
            config.cell,
            config.embedding,
            config.hidden,
            config.layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        context_width = config.hidden * self.encoder.directions
        self.bridge = Bridge(config.cell, context_width, config.hidden)
        self.decoder = LAYERS[config.cell](
            config.embedding + (context_width if config.context == "every_step" else 0),
            config.hidden,
            config.layers,
            batch_first=True,
            dropout=config.dropout if config.layers > 1 else 0.0,
        )
        self.V = Linear(config.hidden, config.embedding)
        self.output = Readout(config.embedding, target_size, None if config.tie == "none" else self.target_embedding)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, source: Tokens) -> tuple[Carry, Tensor]:
        """The first decoder state, and the context c_BD."""
        ids_BS = _reversed(source) if self.config.reverse_source else source.ids_BL
        _, last = self.encoder(self.dropout(self.source_embedding(ids_BS)), source)
        return self.bridge(last), last[0][-1]

    def decode(self, tokens_BT: Tensor, carry: Carry, c_BD: Tensor) -> tuple[Tensor, Carry]:
        x_BTD = self.dropout(self.target_embedding(tokens_BT))
        if self.config.context == "every_step":
            x_BTD = torch.cat([x_BTD, c_BD[:, None].expand(-1, x_BTD.shape[1], -1)], dim=-1)
        s_BTD, carry_out = self.decoder(x_BTD, as_torch(tuple(part.contiguous() for part in carry)))
        return self.dropout(torch.tanh(self.V(s_BTD))), as_carry(carry_out)

    def forward(self, batch: Batch) -> Output:
        carry, c_BD = self.encode(batch.source)
        hidden_BTD, _ = self.decode(decoder_input(batch.target), carry, c_BD)
        return Output(hidden_BTD)

    def begin(self, source: Tokens, rows: int, max_length: int) -> RNNState:
        carry, c_BD = self.encode(source)
        return RNNState(tuple(part.repeat_interleave(rows, dim=1) for part in carry), c_BD)

    def step(self, tokens_R: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        c_RD = state.c_BD.repeat_interleave(len(tokens_R) // len(state.c_BD), dim=0)
        hidden_R1D, carry = self.decode(tokens_R[:, None], state.carry, c_RD)
        return self.readout(hidden_R1D[:, 0]), RNNState(carry, state.c_BD)


def _reversed(source: Tokens) -> Tensor:
    """The tokens of each sentence in reverse order, padding still on the right."""
    position_S = torch.arange(source.ids_BL.shape[1], device=source.ids_BL.device)
    backwards_BS = source.lengths_B[:, None] - 1 - position_S
    return source.ids_BL.gather(1, torch.where(backwards_BS >= 0, backwards_BS, position_S))
