"""Recurrent layers over padded sentences."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Cell = Literal["rnn", "gru", "lstm"]
Carry = tuple[Tensor, ...]
"""What a recurrent layer remembers, each [N, B, D]: (h,) of a plain RNN or GRU, (h, c) of an LSTM."""

LAYERS: dict[Cell, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS: dict[Cell, type[nn.RNNCell | nn.GRUCell | nn.LSTMCell]] = {
    "rnn": nn.RNNCell,
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
}


def as_carry(state: Tensor | Carry) -> Carry:
    """Torch's state of any cell as a tuple."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def as_torch(carry: Carry) -> Tensor | Carry:
    """A tuple as torch wants it: the bare tensor where there is only one."""
    return carry[0] if len(carry) == 1 else carry


class RecurrentEncoder(nn.Module):
    """Read a sentence left to right, and right to left too if asked.

    Cho et al. 2014, arXiv:1406.1078; Sutskever et al. 2014, arXiv:1409.3215; both directions as in Bahdanau et al.
    2015, arXiv:1409.0473, section 3.2:
        h_j = [forward h_j ; backward h_j]
    """

    def __init__(
        self, cell: Cell, input_width: int, hidden: int, layers: int, *, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        between = dropout if layers > 1 else 0.0
        self.rnn = LAYERS[cell](
            input_width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )

    def forward(self, x_BSD: Tensor, host_lengths_B: Tensor) -> tuple[Tensor, Carry]:
        """All states h_BSD (zero on padding) and the last one of each layer, both directions side by side."""
        packed = pack_padded_sequence(x_BSD, host_lengths_B, batch_first=True, enforce_sorted=False)
        outputs, last = self.rnn(packed)
        h_BSD, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x_BSD.shape[1])
        return h_BSD, tuple(self._side_by_side(state) for state in as_carry(last))

    def _side_by_side(self, state: Tensor) -> Tensor:
        """[N * directions, B, D] -> [N, B, directions * D]."""
        return torch.cat([state[direction :: self.directions] for direction in range(self.directions)], dim=-1)


class Bridge(nn.Module):
    """From the encoder's last state to the decoder's first: s_0 = tanh(W_s h_last), one W_s for each part of the state.

    Bahdanau et al. 2015, arXiv:1409.0473, section A.2.2.
    """

    def __init__(self, cell: Cell, encoder_width: int, decoder_width: int) -> None:
        super().__init__()
        parts = 2 if cell == "lstm" else 1
        self.W_s = nn.ModuleList(nn.Linear(encoder_width, decoder_width) for _ in range(parts))

    def forward(self, carry: Carry) -> Carry:
        return tuple(torch.tanh(W_s(part)) for W_s, part in zip(self.W_s, carry, strict=True))


class FedCells(nn.Module):
    """Recurrent layers of which the first reads a word and what came of the step before.

        W_ih [y ; fed] = W_y y + W_fed fed

    Words are known beforehand: W_y y of all steps is one product, and only the second term needs a loop over time.
    """

    def __init__(
        self, cell: Cell, word_width: int, fed_width: int, hidden: int, layers: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.kind, self.word_width = cell, word_width
        self.first = CELLS[cell](word_width + fed_width, hidden)
        self.rest = nn.ModuleList(CELLS[cell](hidden, hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def words(self, y_BTD: Tensor) -> Tensor:
        """W_y y + b for every word."""
        return F.linear(y_BTD, self.first.weight_ih[:, : self.word_width], self.first.bias_ih)

    def forward(self, words_RG: Tensor, fed_RD: Tensor, carries: list[Carry]) -> list[Carry]:
        """One step of all layers; each layer's carry is [R, D]."""
        read_RG = words_RG + F.linear(fed_RD, self.first.weight_ih[:, self.word_width :])
        kept_RG = F.linear(carries[0][0], self.first.weight_hh, self.first.bias_hh)
        new = [through_gates(self.kind, read_RG, kept_RG, carries[0])]
        for cell, carry in zip(self.rest, carries[1:], strict=True):
            new.append(as_carry(cell(self.dropout(new[-1][0]), as_torch(carry))))
        return new


def through_gates(cell: Cell, read_RG: Tensor, kept_RG: Tensor, carry: Carry) -> Carry:
    """A cell's new state from what its gates get from the input, W x, and from the state, U h, in torch's order.

    rnn     h' = tanh(Wx + Uh)
    gru     h' = z h + (1 - z) n        n = tanh(Wx_n + r Uh_n)      r, z = sigmoid(Wx + Uh)
    lstm    h' = o tanh(c')             c' = f c + i g               i, f, o = sigmoid(Wx + Uh), g = tanh(Wx + Uh)
    """
    if cell == "rnn":
        return (torch.tanh(read_RG + kept_RG),)
    if cell == "gru":
        (r_x, z_x, n_x), (r_h, z_h, n_h) = read_RG.chunk(3, -1), kept_RG.chunk(3, -1)
        z = torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        return (n + z * (carry[0] - n),)
    i, f, g, o = (read_RG + kept_RG).chunk(4, -1)
    c = torch.sigmoid(f) * carry[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
