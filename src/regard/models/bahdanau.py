"""Bahdanau et al. 2015, "Neural machine translation by jointly learning to align and translate",
arXiv:1409.0473."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.data.batches import Batch, Padded
from regard.layers.embeddings import Readout, Tie
from regard.layers.linear import Linear
from regard.layers.recurrence import (
    CELLS,
    Carry,
    CellKind,
    FedStep,
    Step,
    fed_step,
    unroll,
    word_gates,
)
from regard.layers.scores import AdditiveAttention, ConcatAttention, FullyConnectedAttention, Memory
from regard.models.base import (
    Output,
    Presets,
    RecurrentConfig,
    RecurrentGenerator,
    RecurrentState,
    group_rows,
)

SCORES = {
    "additive": AdditiveAttention,
    "concat": ConcatAttention,
    "fully_connected": FullyConnectedAttention,
}


class BahdanauConfig(RecurrentConfig):
    """RNN with additive attention (Bahdanau 2015)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "hidden": 128, "attention": 128},
        "small": {"embedding": 256, "hidden": 512, "attention": 512},
        "base": {"embedding": 620, "hidden": 1000, "attention": 1000},
    }
    alignment = "attention"

    kind: Literal["bahdanau"] = "bahdanau"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` has the paper's
    sizes, except that the maxout layer is as wide as the embeddings: 620, in the paper 500."""
    cell: CellKind = "gru"
    """The recurrent cell: plain RNN, GRU (the paper's, in torch's variant) or LSTM."""
    score: Literal["additive", "concat", "fully_connected"] = "additive"
    """How a decoder state s is scored against an encoder state h: the paper's v_a . tanh(W_a s +
    U_a h), the same function as w . tanh(W_b [s ; h]), or two fully connected layers over [s ;
    h]."""
    attention: int = Field(512, ge=1)
    """Width of the attention's hidden layer."""
    layers: int = Field(1, ge=1)
    """Recurrent layers of the encoder."""
    bidirectional: bool = True
    """Whether the encoder also reads from right to left."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on embeddings, between encoder layers and before the readout."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one
    vocabulary)."""

    @property
    def loops(self) -> bool:
        return True


class Bahdanau(RecurrentGenerator):
    """An RNN decoder that attends to the source before each step.

    Bahdanau et al. 2015, section 3.1 and A.2.2:
        c_i = sum_j alpha_ij h_j                        the attention's query is s_{i-1}
        s_i = f(s_{i-1}, y_{i-1}, c_i)
        t_i = maxout(U_o s_i + V_o E y_{i-1} + C_o c_i)
        p(y_i | y_<i, x) = softmax(W_o t_i)

    Four things differ from the paper:
    - Its first state is s_0 = tanh(W_s h_1) with the backward encoder state h_1 alone; here W_s
      reads the last states of both directions.
    - Its GRU resets the state before the matrix, U (r s); here it is torch's variant, which resets
      after it, r (U s + b), and exchanges z and 1 - z.
    - Section A.2.2 computes t_i from s_{i-1}; here it is computed from s_i, as equation 4,
      p(y_i | y_<i, x) = g(y_{i-1}, s_i, c_i), says.
    - t_i has 500 units in the paper; here it is as wide as the embeddings, so that W_o can be tied
      to them.
    """

    config: BahdanauConfig

    def __init__(self, config: BahdanauConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        memory_width = self.encoder.width
        self.attention = SCORES[config.score](config.hidden, memory_width, config.attention)
        self.cell = CELLS[config.cell](config.embedding + memory_width, config.hidden)
        self.UVC_o = Linear(config.hidden + config.embedding + memory_width, 2 * config.embedding)
        self.output = Readout.of(config.embedding, self.target_embedding, config.tie)

    def encode(self, source: Padded) -> tuple[Carry, Memory]:
        """The first decoder state s_0, and the encoder states h_j to attend to."""
        x_BSD = self.dropout(self.source_embedding(source.ids_BL))
        h_BSD, last = self.encoder(x_BSD, source)
        s_0 = self.bridge(tuple(part[-1] for part in last))
        return s_0, self.attention.memory(h_BSD, source.lengths_B)

    def recur(
        self,
        attend: Callable[[Tensor], Tensor],
        cell: FedStep,
        sources: int,
        words_RG: Tensor,
        carry: Carry,
    ) -> tuple[Carry, Tensor]:
        """One step: c_i = attend(s_{i-1}), then s_i = cell([E y_{i-1} ; c_i], s_{i-1}).

        `words_RG` is the product of the cell's weights with E y_{i-1}.
        """
        c_RD = attend(group_rows(carry[0], sources)).flatten(0, 1)
        return cell(words_RG, c_RD, carry), c_RD

    def step_over(self, cell: FedStep, memory: Memory) -> Step:
        """`recur` over these encoder states, for a loop."""
        return partial(self.recur, self.attention.attend_to(memory), cell, len(memory))

    def deep_output(self, s: Tensor, y: Tensor, c: Tensor) -> Tensor:
        """t_i = maxout(U_o s_i + V_o E y_{i-1} + C_o c_i), the maximum of each pair of units.

        U_o, V_o and C_o are one matrix.
        """
        units = self.UVC_o(torch.cat([s, y, c], dim=-1))
        return units.unflatten(-1, (-1, 2)).amax(dim=-1)

    def forward(self, batch: Batch) -> Output:
        """As written: for each i, c_i = attend(s_{i-1}); s_i = cell([E y_{i-1} ; c_i], s_{i-1}); t_i.

        Here the products of the cell with all words (`word_gates`) are computed before the loop, and
        all t_i after it; nothing else differs.
        """
        carry, memory = self.encode(batch.source)
        target = batch.target.inputs
        y_BTD = self.dropout(self.target_embedding(target.ids_BL))
        words_BTG = word_gates(self.cell, y_BTD)
        cell = fed_step(self.config.cell, self.cell, self.encoder.width)
        steps = partial(self.step_over, cell)
        s_BTD, c_BTD = unroll(steps, words_BTG, carry, memory, target.loop_lengths_B)
        return Output(self.dropout(self.deep_output(s_BTD, y_BTD, c_BTD)))

    def begin(self, source: Padded, rows: int, max_length: int) -> RecurrentState[Memory]:
        carry, memory = self.encode(source)
        return RecurrentState(tuple(part.repeat_interleave(rows, dim=0) for part in carry), memory)

    def step(
        self, tokens_R: Tensor, state: RecurrentState[Memory]
    ) -> tuple[Tensor, RecurrentState[Memory]]:
        y_RD = self.target_embedding(tokens_R)
        cell = fed_step(self.config.cell, self.cell, self.encoder.width)
        step = self.step_over(cell, state.memory)
        carry, c_RD = step(word_gates(self.cell, y_RD), state.carry)
        logits_RV = self.readout(self.deep_output(carry[0], y_RD, c_RD))
        return logits_RV, RecurrentState(carry, state.memory)
