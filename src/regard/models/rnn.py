"""The encoder-decoder RNN without attention: one vector of fixed size represents the whole
sentence.

Sutskever et al. 2014, arXiv:1409.3215; Cho et al. 2014, arXiv:1406.1078.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.data.batches import Batch, Padded
from regard.layers.embeddings import Readout, Tie
from regard.layers.linear import Linear
from regard.layers.recurrence import Carry, as_carry, as_torch, recurrent_layers, reversal
from regard.models.base import Output, Presets, RecurrentConfig, RecurrentGenerator, RecurrentState


class RNNConfig(RecurrentConfig):
    """Encoder-decoder RNN (Sutskever 2014, Cho 2014)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 128, "hidden": 128, "layers": 1},
        "small": {"embedding": 256, "hidden": 512, "layers": 1},
        "base": {"embedding": 512, "hidden": 1000, "layers": 4},
    }

    kind: Literal["rnn"] = "rnn"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it."""
    layers: int = Field(1, ge=1)
    """Recurrent layers on each side."""
    bidirectional: bool = False
    """Whether the encoder also reads from right to left."""
    reverse_source: bool = False
    """Read the source backwards, as Sutskever does: it brings the first words of both sides close
    together."""
    context: Literal["start", "every_step"] = "start"
    """Where the sentence vector enters the decoder: in its first state (Sutskever), or in every
    input too (Cho)."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the readout."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one
    vocabulary)."""


class RNN(RecurrentGenerator):
    """An encoder-decoder whose decoder knows the source only by one vector.

    Sutskever et al. 2014, section 2; Cho et al. 2014, section 2.2:
        h_t = f(h_{t-1}, x_t)                      the encoder; its last state is the context c
        s_t = f(s_{t-1}, y_{t-1} [, c])            the decoder; s_0 is computed from c
        p(y_t | y_<t, x) = softmax(W tanh(V s_t))

    Four things differ from the papers:
    - s_0 = tanh(W_s h_last) for each layer (`Bridge`), which also works with two directions.
      Sutskever copies the encoder's last state; Cho computes c and s_0 by a tanh layer each.
    - V reduces s_t to the width of the embeddings, so that W can be tied to them. Sutskever's
      softmax reads s_t.
    - The output reads s_t alone, also with `context: every_step`; Cho's reads y_{t-1} and c again,
      by a maxout layer.
    - The GRU is torch's variant, which resets the state after the matrix, r (U s + b); Cho's resets
      it before, U (r s).
    """

    config: RNNConfig

    def __init__(self, config: RNNConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        read_width = config.embedding
        if config.context == "every_step":
            read_width += self.encoder.width
        self.decoder = recurrent_layers(
            config.cell, read_width, config.hidden, config.layers, config.dropout
        )
        self.V = Linear(config.hidden, config.embedding)
        self.output = Readout.of(config.embedding, self.target_embedding, config.tie)

    def encode(self, source: Padded) -> tuple[Carry, Tensor]:
        """The first decoder state, and the context c_BD."""
        ids_BS = source.ids_BL
        if self.config.reverse_source:
            ids_BS = ids_BS.gather(1, reversal(source))
        _, last = self.encoder(self.dropout(self.source_embedding(ids_BS)), source)
        return self.bridge(last), last[0][-1]

    def decode(self, tokens_BT: Tensor, carry: Carry, c_BD: Tensor) -> tuple[Tensor, Carry]:
        """tanh(V s_t) of the next steps, and the state after them."""
        x_BTD = self.dropout(self.target_embedding(tokens_BT))
        if self.config.context == "every_step":
            x_BTD = torch.cat([x_BTD, c_BD[:, None].expand(-1, x_BTD.shape[1], -1)], dim=-1)
        s_BTD, after = self.decoder(x_BTD, as_torch(carry))
        return self.dropout(torch.tanh(self.V(s_BTD))), as_carry(after)

    def forward(self, batch: Batch) -> Output:
        carry, c_BD = self.encode(batch.source)
        hidden_BTD, _ = self.decode(batch.target.inputs.ids_BL, carry, c_BD)
        return Output(hidden_BTD)

    def begin(self, source: Padded, rows: int, max_length: int) -> RecurrentState[Tensor]:
        carry, c_BD = self.encode(source)
        return RecurrentState(tuple(part.repeat_interleave(rows, dim=1) for part in carry), c_BD)

    def step(
        self, tokens_R: Tensor, state: RecurrentState[Tensor]
    ) -> tuple[Tensor, RecurrentState[Tensor]]:
        c_RD = state.memory.repeat_interleave(len(tokens_R) // len(state.memory), dim=0)
        hidden_R1D, carry = self.decode(tokens_R[:, None], state.carry, c_RD)
        return self.readout(hidden_R1D[:, 0]), RecurrentState(carry, state.memory)
