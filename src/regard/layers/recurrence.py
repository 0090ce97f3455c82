"""Recurrent layers over padded sentences: torch's layers, single cells for loops over time, and an
LSTM with extras."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.data.batches import Padded
from regard.engine import first_that_applies
from regard.engine.recurrence import (
    DECODER_LOOPS,
    LSTM_CELLS,
    LSTM_LAYERS,
    RECURRENT_ENCODERS,
    in_step_precision,
    join_directions,
    read_texts,
)
from regard.engine.recurrence import Carry as Carry
from regard.engine.recurrence import LayerCarry as LayerCarry
from regard.layers.linear import Linear, linear
from regard.layers.scores import Memory

CellKind = Literal["rnn", "gru", "lstm"]

RECURRENT_LAYERS: dict[CellKind, type[nn.RNN | nn.GRU | nn.LSTM]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
CELLS: dict[CellKind, type[nn.RNNCell | nn.GRUCell | nn.LSTMCell]]
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def as_carry(state: Tensor | Carry) -> Carry:
    """The state that any torch cell returns, as a tuple."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def as_torch(carry: Carry) -> Tensor | Carry:
    """A tuple as torch expects it: contiguous, and a plain tensor if it has one element."""
    parts = tuple(part.contiguous() for part in carry)
    return parts[0] if len(parts) == 1 else parts


def recurrent_layers(
    cell: CellKind,
    input_width: int,
    hidden: int,
    layers: int,
    dropout: float = 0.0,
    *,
    bidirectional: bool = False,
) -> nn.RNN | nn.GRU | nn.LSTM:
    """torch's recurrent layers, with dropout between them."""
    between = dropout if layers > 1 else 0.0  # torch warns about dropout that has no effect
    return RECURRENT_LAYERS[cell](
        input_width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=between
    )


class RecurrentEncoder(nn.Module):
    """Read a sentence left to right, and optionally right to left too.

    Cho et al. 2014, arXiv:1406.1078; Sutskever et al. 2014, arXiv:1409.3215; both directions as in
    Bahdanau et al. 2015, arXiv:1409.0473, section 3.2:
        h_j = [forward h_j ; backward h_j]
    """

    def __init__(
        self,
        cell: CellKind,
        input_width: int,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0,
    ) -> None:
        super().__init__()
        self.cell = cell
        self.directions = 2 if bidirectional else 1
        self.width = hidden * self.directions
        self.rnn = recurrent_layers(
            cell, input_width, hidden, layers, dropout, bidirectional=bidirectional
        )

    def forward(self, x_BSD: Tensor, source: Padded) -> tuple[Tensor, Carry]:
        """All states h_BSD (zero on padding), and the last state of each layer, both directions
        concatenated."""
        if read := first_that_applies(RECURRENT_ENCODERS, source):
            return read(self.rnn, x_BSD, source, partial(cell_step, self.cell))
        packed = pack_padded_sequence(
            x_BSD, source.host_lengths_B, batch_first=True, enforce_sorted=False
        )
        states, last = self.rnn(packed)
        h_BSD, _ = pad_packed_sequence(states, batch_first=True, total_length=x_BSD.shape[1])
        return h_BSD, join_directions(as_carry(last), self.directions)


def reversal(text: Padded) -> Tensor:
    """The position of each token of the reversed text in the original; padding stays where it
    is."""
    place_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    backwards_BL = text.lengths_B[:, None] - 1 - place_L
    return torch.where(backwards_BL >= 0, backwards_BL, place_L)


class Bridge(nn.Module):
    """From the last encoder state to the first decoder state: s_0 = tanh(W_s h_last), one W_s per
    part of the state.

    Bahdanau et al. 2015, arXiv:1409.0473, section A.2.2, where h_last is the backward state alone;
    here both.
    """

    def __init__(self, cell: CellKind, encoder_width: int, decoder_width: int) -> None:
        super().__init__()
        parts = 2 if cell == "lstm" else 1
        self.W_s = nn.ModuleList(Linear(encoder_width, decoder_width) for _ in range(parts))

    def forward(self, carry: Carry) -> Carry:
        return tuple(torch.tanh(W_s(part)) for W_s, part in zip(self.W_s, carry, strict=True))


# Cells whose input is a word and a vector from the step before


def word_gates(cell: nn.RNNCellBase, y_BTD: Tensor) -> Tensor:
    """The part of a cell's gate inputs that comes from the words y, if its input is [y ; fed].

        W_ih [y ; fed] = W_y y + W_fed fed

    All words are known beforehand, so W_y y + b of all steps is one product; only W_fed fed needs a
    loop over time.
    """
    return F.linear(y_BTD, cell.weight_ih[:, : y_BTD.shape[-1]], cell.bias_ih)


FedStep = Callable[[Tensor, Tensor, Carry], Carry]
"""W_y y + b from `word_gates`, the vector that is fed, and the state -> the next state."""


def fed_step(kind: CellKind, cell: nn.RNNCellBase, fed_width: int) -> FedStep:
    """The steps of a cell whose input is a word and a fed vector. Its weights are cut out once for
    all steps."""
    W_fed = in_step_precision(cell.weight_ih[:, -fed_width:])
    U = in_step_precision(cell.weight_hh)

    def step(words_RG: Tensor, fed_RD: Tensor, carry: Carry) -> Carry:
        return cell_step(
            kind, words_RG + linear(fed_RD, W_fed), linear(carry[0], U, cell.bias_hh), carry
        )

    return step


Step = Callable[[Tensor, Carry], tuple[Carry, Tensor]]
"""Gate inputs of the words [B, G] and the state -> the next state, and the context that it was
computed from."""


def unroll(
    steps: Callable[[Memory], Step],
    words_BTG: Tensor,
    carry: Carry,
    memory: Memory,
    lengths_B: Tensor,
) -> tuple[Tensor, Tensor]:
    """The states and the contexts of all steps of a decoder with attention, [B, T, D] each.

    `steps` gives the function of one step, for the memory that it attends to. `lengths_B` are those
    of the targets, on the host. Values on padding are arbitrary.
    """
    if loop := first_that_applies(DECODER_LOOPS, lengths_B):
        return loop(steps, words_BTG, carry, memory, lengths_B)
    step = steps(memory)
    states = []
    contexts = []
    for words_BG in words_BTG.unbind(1):
        carry, context_BD = step(words_BG, carry)
        states.append(carry[0])
        contexts.append(context_BD)
    return torch.stack(states, 1), torch.stack(contexts, 1)


def cell_step(kind: CellKind, input_RG: Tensor, state_RG: Tensor, carry: Carry) -> Carry:
    """One step of a cell, given Wx + b and Uh + b:

    rnn     h' = tanh(Wx + Uh)
    gru     h' = z h + (1 - z) n        n = tanh(Wx_n + r Uh_n)      r, z = sigmoid(Wx + Uh)
    lstm    h' = o tanh(c')             c' = f c + i g               i, f, o = sigmoid(Wx + Uh), g = tanh(Wx + Uh)
    """
    if kind == "rnn":
        return (torch.tanh(input_RG + state_RG),)
    if kind == "gru":
        r_x, z_x, n_x = input_RG.chunk(3, -1)
        r_h, z_h, n_h = state_RG.chunk(3, -1)
        z = torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        return (n + z * (carry[0] - n),)
    if fused_cell := first_that_applies(LSTM_CELLS, input_RG):
        return fused_cell(input_RG, state_RG, carry[1])
    return lstm_gates(input_RG + state_RG, carry[1])


def lstm_gates(total_RG: Tensor, c: Tensor, clip: float | None = None) -> tuple[Tensor, Tensor]:
    """The output and the memory of an LSTM cell from Wx + Uh, in torch's order of gates."""
    i, f, g, o = total_RG.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    if clip is not None:
        c = c.clamp(-clip, clip)
    return torch.sigmoid(o) * torch.tanh(c), c


class FedCells(nn.Module):
    """Recurrent layers whose first layer reads a word and the output of the step before (input
    feeding)."""

    def __init__(
        self, cell: CellKind, width: int, hidden: int, layers: int, dropout: float
    ) -> None:
        """`width` is that of a word and of the output."""
        super().__init__()
        self.kind = cell
        self.width = width
        self.first = CELLS[cell](2 * width, hidden)
        self.rest = nn.ModuleList(CELLS[cell](hidden, hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def first_step(self) -> FedStep:
        """The steps of the first layer."""
        return fed_step(self.kind, self.first, self.width)

    def forward(self, first: Carry, carries: list[Carry]) -> list[Carry]:
        """The other layers' step after that of the `first`; the carry of each layer is [R, D]."""
        new = [first]
        for cell, carry in zip(self.rest, carries[1:], strict=True):
            new.append(as_carry(cell(self.dropout(new[-1][0]), as_torch(carry))))
        return new


# An LSTM layer with projection, clipping and weight dropout


class LSTMLayer(nn.Module):
    """Hochreiter & Schmidhuber 1997 with a forget gate; torch's order of gates.

        i, f, o = sigmoid(W_ih x_t + W_hh h_{t-1} + b)        g = tanh(W_ih x_t + W_hh h_{t-1} + b)
        c_t = f c_{t-1} + i g
        h_t = o tanh(c_t)

    With a projection, Sak et al. 2014, arXiv:1402.1128: h_t = W_hr (o tanh(c_t)), a smaller state.
    With a clip, c_t stays within [-clip, clip]. With weight dropout, Merity et al. 2017,
    arXiv:1708.02182, section 2: elements of W_hh are dropped, the same ones at all steps of a
    batch.
    """

    def __init__(
        self,
        input_width: int,
        hidden: int,
        *,
        projection: int | None = None,
        clip: float | None = None,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.width = projection or hidden
        self.clip = clip
        self.weight_dropout = weight_dropout
        self.W_ih = nn.Parameter(torch.empty(4 * hidden, input_width))
        self.W_hh = nn.Parameter(torch.empty(4 * hidden, self.width))
        self.b_ih = nn.Parameter(torch.empty(4 * hidden))
        self.b_hh = nn.Parameter(torch.empty(4 * hidden))
        self.W_hr = nn.Parameter(torch.empty(self.width, hidden)) if projection else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, x_BLD: Tensor, carry: LayerCarry | None = None) -> tuple[Tensor, LayerCarry]:
        """The outputs h_BLD, and the state after the last position."""
        h_BD, c_BD = carry or self._zero_carry(x_BLD)
        weights = self._weights()
        if read := first_that_applies(LSTM_LAYERS, x_BLD, self.clip, self.W_hr):
            return read(x_BLD, (h_BD, c_BD), weights, self.training)
        W_ih, W_hh, b_ih, b_hh, *_ = weights
        outputs = []
        for input_BG in F.linear(x_BLD, W_ih, b_ih).unbind(1):
            h_BD, c_BD = lstm_gates(input_BG + F.linear(h_BD, W_hh, b_hh), c_BD, self.clip)
            h_BD = h_BD if self.W_hr is None else F.linear(h_BD, self.W_hr)
            outputs.append(h_BD)
        return torch.stack(outputs, dim=1), (h_BD, c_BD)

    def read(
        self, x_BLD: Tensor, text: Padded, carry: LayerCarry | None = None
    ) -> tuple[Tensor, LayerCarry]:
        """`forward` for texts of different lengths: zero on padding, and each row's state after its
        own last token."""
        assert self.clip is None
        return read_texts(
            x_BLD, text, carry or self._zero_carry(x_BLD), self._weights(), self.training
        )

    def _zero_carry(self, x_BLD: Tensor) -> LayerCarry:
        return x_BLD.new_zeros(len(x_BLD), self.width), x_BLD.new_zeros(len(x_BLD), self.hidden)

    def _weights(self) -> list[Tensor]:
        W_hh = (
            F.dropout(self.W_hh, self.weight_dropout, self.training)
            if self.weight_dropout
            else self.W_hh
        )
        return [self.W_ih, W_hh, self.b_ih, self.b_hh, *([] if self.W_hr is None else [self.W_hr])]
